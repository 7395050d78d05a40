"""Every script of `fixtures/`: what becomes of it. `test_training.py` runs them."""

from __future__ import annotations

import functools
import os

import black
import pytest
from fixtures_support import (
    FIXTURES,
    LEAVE,
    MIGRATE,
    each_left_alone,
    each_migration,
    golden,
    plain,
)

from amp_migrate.api import Outcome, migrate_source

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

EXPECTED = tomllib.loads(
    (FIXTURES / "leave" / "expected.toml").read_text(encoding="utf-8")
)


@functools.cache
def black_clean(text: str) -> bool:
    return black.format_str(text, mode=black.Mode()) == text


def test_there_are_enough() -> None:
    assert len(MIGRATE) >= 45
    assert len(LEAVE) >= 30
    assert set(LEAVE) == set(EXPECTED)
    clean = sum(black_clean(plain(name)) for name in MIGRATE)
    assert clean >= 15, "both kinds of formatting have to be there"
    assert len(MIGRATE) - clean >= 15


# --- scripts to migrate -------------------------------------------------------------------------


@each_migration
def test_golden(name: str, request: pytest.FixtureRequest) -> None:
    result = migrate_source(plain(name), path=f"fixtures/migrate/{name}/plain.py")
    assert result.diagnostics == ()
    assert result.changed
    if request.config.getoption("--update-golden"):
        target = FIXTURES / "migrate" / name / "migrated.py"
        target.write_bytes(result.output.encode())
    assert result.output == golden(name)


@each_migration
def test_a_second_run_changes_nothing(name: str) -> None:
    again = migrate_source(golden(name), path=f"fixtures/migrate/{name}/migrated.py")
    assert again.output == golden(name)


@each_migration
def test_black_clean_stays_black_clean(name: str) -> None:
    assert not black_clean(plain(name)) or black_clean(golden(name))


# --- scripts to leave alone ---------------------------------------------------------------------


@each_left_alone
def test_left_alone(name: str) -> None:
    path = FIXTURES / "leave" / f"{name}.py"
    text = path.read_text(encoding="utf-8")
    result = migrate_source(text, path=os.fspath(path))
    assert result.output == text
    expected = [(entry["code"], entry["line"]) for entry in EXPECTED[name]["loops"]]
    assert [(found.code, found.place.line) for found in result.diagnostics] == expected
    off = [loop.place.line for loop in result.loops if loop.outcome is Outcome.OFF]
    assert off == EXPECTED[name].get("off", [])
    assert not any(loop.outcome is Outcome.MIGRATED for loop in result.loops)
