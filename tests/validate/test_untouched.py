"""What a run changed in the user's folder is named."""

from __future__ import annotations

import os
from pathlib import Path

from amp_migrate.validate.untouched import Change, changes, snapshot


def _project(root: Path) -> Path:
    for name in (
        "train.py",
        "runs/a/log.txt",
        "data/x",
        ".git/HEAD",
        "__pycache__/x.pyc",
        "scratch/y",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    return root


def test_a_folder_left_alone_has_no_changes(tmp_path: Path) -> None:
    project = _project(tmp_path)
    first = snapshot(project)
    assert first.complete
    assert {"train.py", "runs", "runs/a", "runs/a/log.txt"} <= set(first.entries)
    assert changes(first, snapshot(project)) == []


def test_what_was_made_removed_and_changed_is_named(tmp_path: Path) -> None:
    project = _project(tmp_path)
    first = snapshot(project)
    (project / "runs/a/model.pt").write_text("new")
    (project / "data/x").unlink()
    os.utime(project / "train.py", ns=(1, 1))
    (project / "empty").mkdir()
    assert changes(first, snapshot(project)) == [
        Change("data/x", "removed"),
        Change("empty", "made"),
        Change("runs/a/model.pt", "made"),
        Change("train.py", "changed"),
    ]


def test_caches_version_control_and_scratch_are_left_out(tmp_path: Path) -> None:
    project = _project(tmp_path)
    skipping = (project / "scratch",)
    first = snapshot(project, skipping=skipping)
    for name in (".git/HEAD", "__pycache__/x.pyc", "scratch/y", "scratch/new"):
        (project / name).write_text("changed")
    assert changes(first, snapshot(project, skipping=skipping)) == []


def test_of_a_large_folder_only_what_was_seen_is_judged(tmp_path: Path) -> None:
    project = _project(tmp_path)
    first = snapshot(project, at_most=4)
    assert not first.complete
    assert len(first.entries) == 4
    (project / "a").write_text("pushes others out of sight")
    (project / "data" / "z").write_text("beyond")
    assert changes(first, snapshot(project, at_most=4)) == []
    seen = next(path for path in first.entries if (project / path).is_file())
    (project / seen).write_text("longer than it was before")
    assert changes(first, snapshot(project, at_most=100)) == [Change(seen, "changed")]
