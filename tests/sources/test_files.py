"""Replacing files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from amp_migrate.core.results import SourceError
from amp_migrate.sources import files


@pytest.mark.parametrize("mode", [0o644, 0o755, 0o600, 0o4755])
def test_mode_bits_stay(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")
    path.chmod(mode)
    files.replace(str(path), b"old", b"new")
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == mode
    assert list(tmp_path.iterdir()) == [path]


def test_links_stay_links(tmp_path: Path) -> None:
    target = tmp_path / "target.py"
    target.write_bytes(b"old")
    (tmp_path / "between.py").symlink_to("target.py")
    link = tmp_path / "link.py"
    link.symlink_to(tmp_path / "between.py")
    files.replace(str(link), b"old", b"new")
    assert link.is_symlink() and (tmp_path / "between.py").is_symlink()
    assert target.read_bytes() == b"new"


def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"newer")
    with pytest.raises(SourceError, match="changed while"):
        files.replace(str(path), b"old", b"new")
    assert path.read_bytes() == b"newer"


def test_a_file_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"a\.py: cannot be read: No such file"):
        files.replace(str(tmp_path / "a.py"), b"old", b"new")


def test_a_failed_replacement_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")

    def full(_handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SourceError, match="cannot be written: No space left on device"):
        files.replace(str(path), b"old", b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(SourceError, match="read-only"):
        files.replace(str(path), b"old", b"new")
    assert path.read_bytes() == b"old"
