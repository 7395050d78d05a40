"""Every project of `fixtures/projects/` runs, and trains after its migration as it did before."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from exactness import (
    MOVING_SCALES,
    OFF,
    ORIGINAL,
    Mode,
    check_injected,
    check_mixed,
    check_off,
    check_scaled,
    compare,
    execute,
)
from projects_support import Project, every_project, migrated
from test_training import BREAKS
from trees import SOURCES, Tree, copy, files

MIGRATED = migrated()
RESUMED = [name for name in MIGRATED if len(Project(name).commands) > 1]

each_migration = pytest.mark.parametrize("name", MIGRATED)


@every_project
def test_plain_runs(name: str) -> None:
    first = execute(Project(name).before(), ORIGINAL, name)
    second = execute(Project(name).before(), ORIGINAL, name)
    assert compare(first, second) == []
    assert first.steps >= 2
    assert first.stdout.strip()


@each_migration
def test_off_means_off(name: str) -> None:
    project = Project(name)
    assert check_off(project.before(), project.after(), name) == []


@pytest.mark.parametrize(
    "mode", MOVING_SCALES, ids=lambda mode: mode.name.replace(" ", "-")
)
@each_migration
def test_scaled_is_exact(name: str, mode: Mode) -> None:
    project = Project(name)
    assert check_scaled(project.before(), project.after(), mode, name) == []


# Where a loop is left alone, an inf in its gradients has no scaler to be skipped by.
@pytest.mark.parametrize("name", [n for n in MIGRATED if not Project(n).left])
def test_an_inf_costs_one_step(name: str) -> None:
    project = Project(name)
    assert check_injected(project.before(), project.after(), name=name) == []


@each_migration
def test_mixed_precision_trains(name: str) -> None:
    project = Project(name)
    assert check_mixed(project.before(), project.after(), name) == []


@pytest.mark.parametrize("name", RESUMED)
def test_checkpoints_written_before_still_load(name: str) -> None:
    project = Project(name)
    reference = execute(project.before(), ORIGINAL, name)
    upgraded = Tree(project.plain, project.commands, then=project.migrated)
    assert compare(reference, execute(upgraded, OFF, name)) == []


def broken(source: str, how: str, suffix: str) -> tuple[str, int]:
    """A source with one kind of mistake, and how often it was made."""
    if suffix != ".ipynb":
        return re.subn(*BREAKS[how], source)
    notebook = json.loads(source)
    total = 0
    for cell in notebook["cells"]:
        cell["source"], count = re.subn(*BREAKS[how], "".join(cell["source"]))
        total += count
    return json.dumps(notebook), total


@pytest.mark.parametrize("how", BREAKS)
@each_migration
def test_a_broken_migration_is_seen(name: str, how: str, tmp_path: Path) -> None:
    project = Project(name)
    copy(project.migrated, tmp_path)
    mistakes = 0
    for path in [tmp_path / path for path in files(tmp_path) if path.endswith(SOURCES)]:
        # Latin-1 gives every byte back as it was.
        text, count = broken(path.read_text(encoding="latin-1"), how, path.suffix)
        path.write_text(text, encoding="latin-1")
        mistakes += count
    if not mistakes:
        assert how == "no unscale_", "only that is not everywhere"
        pytest.skip("nothing to break")
    wrong = Tree(tmp_path, project.commands, partly=bool(project.left))
    found = check_scaled(project.before(), wrong, name=name)
    assert found or check_injected(project.before(), wrong, name=name)
