"""The command line where several files are written as one, or could not be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import standin
from click.testing import CliRunner, Result

from amp_migrate.api import migrate_paths
from amp_migrate.cli.exits import ExitCode
from amp_migrate.cli.main import main
from amp_migrate.core.results import SourceError

LOOP = "for x in y:\n    loss.backward()\n"
DONE = "for x in y:\n    scaler.scale(loss).backward()\n    scaler.update()\n"
NAMES = ("main.py", "pkg/step.py")

KILLED = f"""
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {str(Path(standin.__file__).parent)!r})
import standin
from amp_migrate.migrate import program as migration
from amp_migrate.cli.main import main
migration.migrate_program = standin.migrate_program
replace, count = Path.replace, 0
def dying(self, target):
    global count
    if Path(target).suffix == ".py":
        count += 1
        if count == int(sys.argv[-1]):
            os.kill(os.getpid(), signal.SIGKILL)
    return replace(self, target)
Path.replace = dying
main(["--write"])
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of two files, and one of a file by itself."""
    standin.install(monkeypatch)
    (tmp_path / ".git").mkdir()
    (tmp_path / "pkg").mkdir()
    monkeypatch.chdir(tmp_path)
    Path("main.py").write_text("import pkg.step\n" + LOOP)
    Path("pkg/step.py").write_text("import torch\n" + LOOP)
    Path("other.py").write_text(LOOP)
    return tmp_path


def amp(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def rewritten(*names: str) -> list[bool]:
    return [standin.MIGRATED in Path(name).read_text() for name in names]


def leftovers() -> list[str]:
    return sorted(path.name for path in Path().rglob(".amp-migrate-*"))


def killed(nth: int) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, str(nth)], capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_all_files_are_written() -> None:
    result = amp("--write")
    assert result.exit_code == ExitCode.OK
    assert rewritten(*NAMES, "other.py") == [True] * 3
    assert leftovers() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_file_keeps_its_program_unwritten() -> None:
    Path("pkg/step.py").chmod(0o444)
    check_that_only_the_other_program_is_written("cannot be written")


def test_a_file_that_cannot_be_written_keeps_its_program_unwritten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    replace = Path.replace

    def refusing(self: Path, target: Path) -> Path:
        if target.name == "step.py" and self.suffix == ".new":
            raise PermissionError(13, "Permission denied")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", refusing)
    check_that_only_the_other_program_is_written("cannot be written")


def check_that_only_the_other_program_is_written(why: str) -> None:
    result = amp("--write")
    assert result.exit_code == ExitCode.ERROR
    assert rewritten(*NAMES, "other.py") == [False, False, True]
    lines = result.stderr.splitlines()
    assert lines[0] == "rewrote other.py"
    assert lines[1].startswith(f"error: pkg/step.py: {why}")
    assert "none of the 2 files that change together was written" in lines[1]
    assert lines[2:4] == ["migrated 1 of 1 training loop in 1 file", "1 error"]
    assert leftovers() == []


def test_a_file_whose_encoding_lacks_a_character_keeps_its_program_unwritten() -> None:
    Path("pkg/step.py").write_text("# coding: latin-1\n# core: snowman\n" + LOOP)
    result = amp("--write")
    assert result.exit_code == ExitCode.ERROR
    assert rewritten(*NAMES, "other.py") == [False, False, True]


def test_a_crash_concerns_the_program() -> None:
    Path("pkg/step.py").write_text("# core: crash\n" + LOOP)
    result = amp("--write")
    assert rewritten(*NAMES, "other.py") == [False, False, True]
    assert result.stderr.count("internal error") == 1


def test_an_interrupted_write_is_finished_by_the_next(project: Path) -> None:
    killed(2)
    assert sorted(rewritten(*NAMES)) == [False, True]
    check = amp("--check")
    assert "an earlier run was interrupted while writing 2 files" in check.stderr
    assert sorted(rewritten(*NAMES)) == [False, True]
    result = amp("--write")
    assert result.stderr.startswith(
        "finished an interrupted write of 2 files: main.py, pkg/step.py\nrewrote other.py\n"
    )
    assert result.exit_code == ExitCode.OK
    assert Path("main.py").read_text() == "import pkg.step\n" + DONE
    assert Path("pkg/step.py").read_text() == "import torch\n" + DONE
    assert leftovers() == []


def test_an_interrupted_write_is_finished_from_a_folder_of_the_project(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed(2)
    monkeypatch.chdir("pkg")
    assert "finished" in amp("--write").stderr
    assert rewritten("../main.py", "step.py") == [True, True]


def test_an_interrupted_write_that_somebody_has_worked_on_stops_the_next() -> None:
    killed(2)
    (old,) = (name for name in NAMES if not rewritten(name)[0])
    Path(old).write_text("mine\n" + LOOP)
    result = amp("--write", "-q")
    assert result.exit_code == ExitCode.ERROR
    first, *rest = result.stderr.splitlines()
    assert first.startswith("error: an interrupted write of 2 files can no longer")
    assert any(f"{old} was changed by somebody else" in line for line in rest)
    assert Path(old).read_text() == "mine\n" + LOOP
    assert rewritten("other.py") == [False]
    assert amp("--write").exit_code == ExitCode.OK


def test_a_damaged_journal_is_an_error_in_one_line() -> None:
    Path(".amp-migrate-journal.json").write_text("{}")
    result = amp("--write")
    assert result.exit_code == ExitCode.ERROR
    assert len(result.stderr.splitlines()) == 1
    assert "is damaged" in result.stderr
    assert rewritten(*NAMES, "other.py") == [False] * 3
    assert "is damaged" in amp("--check").stderr


def test_the_api_recovers_as_well() -> None:
    killed(2)
    migrate_paths(["."])
    assert sorted(rewritten(*NAMES)) == [False, True]
    migrate_paths(["."], write=True)
    assert rewritten(*NAMES, "other.py") == [True] * 3
    assert leftovers() == []


def test_the_api_raises_where_it_cannot() -> None:
    killed(2)
    (old,) = (name for name in NAMES if not rewritten(name)[0])
    Path(old).write_text("mine\n")
    with pytest.raises(SourceError, match="can no longer be finished"):
        migrate_paths(["."], write=True)
    assert rewritten("other.py") == [False]
