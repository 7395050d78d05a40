"""Fixtures are proven at every level, and what is broken by force is disproved where it has to be.

A proof is some twenty runs. Those that are made each time span what the harness has to cope with; how each
fixture trains, `test_training.py` and `test_projects_training.py` compare each time, and the other proofs
are marked as nightly.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fixtures_support import FIXTURES, MIGRATE
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

SPANNING = {
    "accumulation_no_sync",
    "activation_checkpointing",
    "adam_closure_result",
    "agents_in_a_dict",
    "bce_after_sigmoid",
    "checkpoint_resume_dict",
    "clip_gradient_helper",
    "closure_in_trainer",
    "custom_functions_fp32",
    "distributed_flag_ddp",
    "gan_two_optimizers",
    "grad_norm_logging",
    "gradient_penalty",
    "imagenet_meters_resume",
    "lstm_language_model",
    "mask_minus_1e9",
    "mnist_style_cnn",
    "never_binds_torch",
    "out_of_memory_skips_batch",
    "skip_nonfinite_continue",
    "wgan_gp",
}
"""Between them: closures, several optimizers, accumulation, processes, hooks, checkpoints, workers that load
data, islands, second derivatives, steps that are skipped, and every kind of patch of the harness."""

SPANNING_PROJECTS = {
    "gan_in_several_files",
    "library_public_fit",
    "scheduled_optim_wrapper",
    "src_layout_reexports",
    "state_dict_of_objects",
    "two_entries_one_engine",
}


def rest_nightly(names: Iterable[str], each_time: Collection[str]) -> list[object]:
    """All, as parameters of a test; those of ``each_time`` are no nightly ones."""
    found = list(names)
    assert set(each_time) <= set(found)
    marked = pytest.mark.nightly
    return [
        name if name in each_time else pytest.param(name, marks=marked)
        for name in found
    ]


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


@pytest.mark.parametrize("name", rest_nightly(MIGRATE, SPANNING))
def test_a_migrated_fixture_is_proven(runner: Runner, name: str) -> None:
    all_proven(prove(runner, *of_fixture(name, golden(name))))
    # The branch that a script takes on a GPU is the one that has to be proven.
    assert runner.standin


SCRIPTS = [
    name
    for name in migrated()
    if not str(Project(name).about["entry"]).endswith(".ipynb")
]


@pytest.mark.parametrize("name", rest_nightly(SCRIPTS, SPANNING_PROJECTS))
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
    [
        pytest.param(kind, name, marks=[pytest.mark.nightly] * bool(again))
        for kind in KINDS
        for again, name in enumerate(kind.fixtures)
    ],
    ids=str,
)
def test_a_mutant_is_caught_at_its_level(runner: Runner, kind: Kind, name: str) -> None:
    broken = kind.change(golden(name))
    assert broken != golden(name)
    verdict = prove(runner, *of_fixture(name, broken))
    assert verdict.outcome is Outcome.DISPROVED
    caught = {one.level for one in verdict.levels if one.outcome is Outcome.DISPROVED}
    assert kind.level in caught
