"""Every fixture is proven at every level, and what is broken by force is disproved where it has to be."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fixtures_support import FIXTURES, each_migration
from mutants import KINDS, Kind
from projects_support import Project, migrated

from amp_migrate.run import config
from amp_migrate.validate import rewriting
from amp_migrate.validate.forms import Rewriting
from amp_migrate.validate.order import Entry
from amp_migrate.validate.runner import Limits, Program, Runner
from amp_migrate.validate.sites import sites
from amp_migrate.validate.validation import Validation
from amp_migrate.validate.verdict import Level, Outcome, Verdict

STEPS = 30


@pytest.fixture(scope="module")
def runner() -> Iterator[Runner]:
    """One interpreter for all: each run is a fork of it."""
    nothing = Program(Entry("none.py"), FIXTURES, frozenset())
    limits = Limits(seconds=600, memory=4 << 30, steps=STEPS, threads=1)
    with Runner(sys.executable, nothing, limits, device="cpu") as running:
        yield running


def prove(runner: Runner, entry: Entry, folder: Path, found: Rewriting) -> Verdict:
    runner.serve(Program(entry, folder, found.files, rewritten=found.rewritten))
    return Validation(runner, found, lambda name, done: None).run()


def of_fixture(name: str, text: str) -> tuple[Entry, Path, Rewriting]:
    """A fixture beside a text that is said to be its migration."""
    path = FIXTURES / "migrate" / name / "plain.py"
    plain = path.read_text(encoding="utf-8")
    found = Rewriting(
        frozenset({str(path)}),
        {str(path): plain.encode()},
        {str(path): text.encode()},
        tuple(sites(str(path), plain, text)),
    )
    return Entry(str(path)), path.parent, found


def golden(name: str) -> str:
    path = FIXTURES / "migrate" / name / "migrated.py"
    return path.read_text(encoding="utf-8")


def all_proven(verdict: Verdict) -> None:
    said = {
        one.level: one.summary
        for one in verdict.levels
        if one.outcome is not Outcome.PROVEN
    }
    assert not said
    assert verdict.outcome is Outcome.PROVEN, verdict.reason
    assert set(Level) == {one.level for one in verdict.levels}
    assert verdict.sites_run == verdict.sites > 0
    assert verdict.steps >= 2


@each_migration
def test_a_migrated_fixture_is_proven(runner: Runner, name: str) -> None:
    all_proven(prove(runner, *of_fixture(name, golden(name))))
    # The branch that a script takes on a GPU is the one that has to be proven.
    assert runner.standin


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in migrated()
        if not str(Project(name).about["entry"]).endswith(".ipynb")
    ],
)
def test_a_migrated_project_is_proven(runner: Runner, name: str) -> None:
    project = Project(name)
    script, *arguments = project.commands[0]
    path = project.plain / script
    settings = replace(config.load([str(path)]), root=project.plain)
    found = rewriting.migrated(path, settings, runner.machine.torch_version)
    verdict = prove(runner, Entry(str(path), tuple(arguments)), path.parent, found)
    assert verdict.outcome is Outcome.PROVEN, verdict.reason


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, name) for kind in KINDS for name in kind.fixtures],
    ids=str,
)
def test_a_mutant_is_caught_at_its_level(runner: Runner, kind: Kind, name: str) -> None:
    broken = kind.change(golden(name))
    assert broken != golden(name)
    verdict = prove(runner, *of_fixture(name, broken))
    assert verdict.outcome is Outcome.DISPROVED
    caught = {one.level for one in verdict.levels if one.outcome is Outcome.DISPROVED}
    assert kind.level in caught
