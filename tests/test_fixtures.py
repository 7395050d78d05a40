"""Every script of `fixtures/`: what becomes of it, and that the rewritten one trains as before."""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path

import black
import pytest
from exactness import (
    MOVING_SCALES,
    ORIGINAL,
    Mode,
    check_injected,
    check_mixed,
    check_off,
    check_scaled,
    compare,
    execute,
)

from amp_migrate.api import Outcome, migrate_source

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

FIXTURES = Path(__file__).parent.parent / "fixtures"
MIGRATE = sorted(path.parent.name for path in FIXTURES.glob("migrate/*/plain.py"))
LEAVE = sorted(path.stem for path in FIXTURES.glob("leave/*.py"))
EXPECTED = tomllib.loads(
    (FIXTURES / "leave" / "expected.toml").read_text(encoding="utf-8")
)

each_migration = pytest.mark.parametrize("name", MIGRATE)
each_left_alone = pytest.mark.parametrize("name", LEAVE)


def plain(name: str) -> str:
    return (FIXTURES / "migrate" / name / "plain.py").read_text(encoding="utf-8")


def golden(name: str) -> str:
    return (FIXTURES / "migrate" / name / "migrated.py").read_text(encoding="utf-8")


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


@each_migration
def test_the_original_is_deterministic(name: str) -> None:
    first = execute(plain(name), ORIGINAL, f"{name}/plain.py")
    second = execute(plain(name), ORIGINAL, f"{name}/plain.py")
    assert compare(first, second) == []
    assert first.steps >= 2
    assert first.stdout.strip()


@each_migration
def test_off_means_off(name: str) -> None:
    assert check_off(plain(name), golden(name), f"{name}/migrated.py") == []


@pytest.mark.parametrize(
    "mode", MOVING_SCALES, ids=lambda mode: mode.name.replace(" ", "-")
)
@each_migration
def test_scaled_is_exact(name: str, mode: Mode) -> None:
    assert check_scaled(plain(name), golden(name), mode, f"{name}/migrated.py") == []


@each_migration
def test_an_inf_costs_one_step(name: str) -> None:
    assert check_injected(plain(name), golden(name), name=f"{name}/migrated.py") == []


@each_migration
def test_mixed_precision_trains(name: str) -> None:
    assert check_mixed(plain(name), golden(name), f"{name}/migrated.py") == []


# Each is a way in which a migration by hand goes wrong, done to the rewritten script by force.
BREAKS = {
    "no unscale_": (r"(?m)^(\s*)[\w.]*scaler\w*\.unscale_\(.*\)$", r"\1pass"),
    "no update": (r"[\w.]*scaler\w*\.update\(\)", "pass"),
    "plain step": (r"[\w.]*scaler\w*\.step\(([\w.]+)\)", r"\1.step()"),
    "no scale": (r"[\w.]*scaler\w*\.scale\(", "("),
}

GUARDED = {"skip_nonfinite_continue", "skip_nonfinite_else"}
"""These look at the norm themselves: after `unscale_`, a plain step comes to the same."""


@pytest.mark.parametrize("how", BREAKS)
@each_migration
def test_a_broken_migration_is_seen(name: str, how: str) -> None:
    text = golden(name)
    broken = re.sub(*BREAKS[how], text)
    if broken == text:
        assert how == "no unscale_", "only that is not everywhere"
        pytest.skip("nothing to break")
    found = check_scaled(plain(name), broken, name=f"{name}/broken.py")
    if not found:
        found = check_injected(plain(name), broken, name=f"{name}/broken.py")
    assert found or (how == "plain step" and name in GUARDED)


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
