"""The command line in git repositories: diffs that apply, and rewrites that can be undone."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import standin
from click.testing import CliRunner, Result

from amp_migrate.cli.main import main

LOOP = "for x in y:\n    loss.backward()\n"
DONE = "for x in y:\n    scaler.scale(loss).backward()\n    scaler.update()\n"


def git(*arguments: str, stdin: bytes = b"") -> bytes:
    return subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments],
        input=stdin,
        capture_output=True,
        check=True,
    ).stdout


def amp(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.fixture(autouse=True)
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clean repository with two files, one in a directory."""
    standin.install(monkeypatch)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    root = tmp_path / "repository"
    (root / "sub").mkdir(parents=True)
    monkeypatch.chdir(root)
    git("init", "-q")
    Path("a.py").write_text(LOOP)
    Path("sub/b.py").write_text(LOOP)
    git("add", ".")
    git("commit", "-qm", "x")
    return root


def advised(result: Result) -> list[str]:
    return [
        line.removeprefix("to undo: ")
        for line in result.stderr.splitlines()
        if line.startswith("to undo: ")
    ]


def run_advice(result: Result) -> None:
    for command in advised(result):
        subprocess.run(["bash", "-c", command], check=True)


@pytest.mark.parametrize(
    "directory, path", [(".", "."), ("sub", "."), ("sub", "b.py"), ("sub", "../sub")]
)
def test_a_diff_applies_where_it_was_made(
    repository: Path, monkeypatch: pytest.MonkeyPatch, directory: str, path: str
) -> None:
    odd = {
        "with space.py": LOOP.encode(),
        'quo"té.py': b"\xef\xbb\xbf" + LOOP.encode(),
        "crlf.py": LOOP.replace("\n", "\r\n").encode(),
        "open.py": LOOP.rstrip().encode(),
        "latin.py": b"# coding: latin-1\n# \xe9\n" + LOOP.encode(),
    }
    for name, data in odd.items():
        Path(directory, name).write_bytes(data)
    monkeypatch.chdir(repository / directory)
    diff = amp(path).stdout_bytes
    git("apply", stdin=diff)
    applied = {name: Path(name).read_bytes() for name in odd}
    git("apply", "-R", stdin=diff)
    amp("--write", path)
    assert applied == {name: Path(name).read_bytes() for name in odd}
    assert Path(repository, "sub/b.py").read_text() == DONE


def test_a_diff_applies_with_patch_and_outside_of_repositories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.py").write_text(LOOP)
    diff = amp("c.py").stdout_bytes
    subprocess.run(["patch", "-p1", "-s"], input=diff, check=True)
    assert Path("c.py").read_text() == DONE
    git("apply", "-R", stdin=diff)
    assert Path("c.py").read_text() == LOOP


def test_a_rewrite_of_a_clean_tree_is_undone_by_checkout() -> None:
    result = amp("--write")
    assert "uncommitted" not in result.stderr
    assert advised(result) == ["git checkout -- a.py sub/b.py"]
    assert result.stderr.splitlines()[-2:] == [
        "to undo: git checkout -- a.py sub/b.py",
        "next: `amp-migrate validate SCRIPT --against HEAD` runs a script to prove it",
    ]
    run_advice(result)
    assert git("status", "--porcelain") == b""


def test_advice_holds_where_the_user_stands(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository / "sub")
    result = amp("--write", "..")
    assert advised(result) == ["git checkout -- ../a.py b.py"]
    run_advice(result)
    assert git("status", "--porcelain") == b""
    monkeypatch.chdir(repository.parent)
    run_advice(amp("--write", "repository"))
    monkeypatch.chdir(repository)
    assert git("status", "--porcelain") == b""


def test_uncommitted_changes_are_listed_and_survive_the_undoing(
    repository: Path,
) -> None:
    mine = "# mine\n" + LOOP
    Path("a.py").write_text(mine)
    Path("new one.py").write_text(mine)
    Path("staged.py").write_text(mine)
    git("add", "staged.py")
    Path("ignored.py").write_text(mine)
    Path(".gitignore").write_text("ignored.py\n")
    result = amp("--write", ".", "ignored.py")
    assert result.exit_code == 0
    assert (
        "4 files that were changed had uncommitted changes:\n"
        "  a.py\n  new one.py\n  staged.py\n  ignored.py\n"
    ) in result.stderr
    checkout, patch = advised(result)
    assert checkout == "git checkout -- staged.py sub/b.py"
    assert re.fullmatch(rf"git -C {repository} apply -R \S+\.patch", patch)
    run_advice(result)
    for name in ("a.py", "new one.py", "staged.py", "ignored.py"):
        assert Path(name).read_text() == mine
    assert Path("sub/b.py").read_text() == LOOP


def test_work_done_after_the_rewrite_survives_its_undoing() -> None:
    filler = "".join(f"x{number} = 0\n" for number in range(9))
    Path("a.py").write_text("# mine\n" + filler + LOOP)
    result = amp("--write", "a.py")
    Path("a.py").write_text("# later\n" + Path("a.py").read_text())
    run_advice(result)
    assert Path("a.py").read_text() == "# later\n# mine\n" + filler + LOOP


def test_many_files_are_undone_with_a_patch() -> None:
    for number in range(25):
        Path(f"f{number}.py").write_text(LOOP)
    git("add", ".")
    git("commit", "-qm", "more")
    result = amp("--write", "--jobs", "1")
    assert "uncommitted" not in result.stderr
    assert len(advised(result)) == 1
    run_advice(result)
    assert git("status", "--porcelain") == b""


def test_without_git_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = amp("--write", "a.py")
    assert result.stderr == "rewrote a.py\nmigrated 1 of 1 training loop in 1 file\n"


def test_outside_of_repositories_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.py").write_text(LOOP)
    result = amp("--write", "c.py")
    assert result.stderr == "rewrote c.py\nmigrated 1 of 1 training loop in 1 file\n"


def test_quiet_leaves_nothing_behind(tmp_path: Path) -> None:
    Path("a.py").write_text("# mine\n" + LOOP)
    assert amp("--write", "-q").stderr == ""
    assert not list(tmp_path.glob("*.patch"))
