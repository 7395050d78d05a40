"""Runs over many files: order, errors that stay with their file, processes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
import standin

from amp_migrate.core.beside import beside, helped
from amp_migrate.core.effort import limited, spend
from amp_migrate.run import engine, task
from amp_migrate.run.config import Settings
from amp_migrate.run.jobs import Job
from amp_migrate.run.outcome import Report
from amp_migrate.sources.document import SIZE_LIMIT

LOOP = "for x in y:\n    loss.backward()\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    standin.install(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*paths: str) -> Report:
    return engine.run(paths or (".",), settings=Settings(root=Path.cwd()))


def test_a_report_holds_results_in_order_and_counts_files(project: Path) -> None:
    for name in ("b.py", "a.py", "c.py"):
        Path(name).write_text(LOOP)
    Path("nothing.py").write_text("x = 1\n")
    report = run()
    assert [result.path for result in report.results] == ["a.py", "b.py", "c.py"]
    assert len(report.changed) == 3
    assert report.files == 4
    assert report.errors == ()
    assert Path("a.py").read_text() == LOOP


def test_write_writes_what_changed(project: Path) -> None:
    Path("a.py").write_text(LOOP)
    Path("off.py").write_text("loss.backward()  # amp: off\n")
    before = Path("off.py").stat()
    report = engine.write(run(), project)
    assert report.errors == ()
    assert standin.MIGRATED in Path("a.py").read_text()
    assert Path("off.py").stat().st_mtime_ns == before.st_mtime_ns


def test_what_changed_since_it_was_read_is_not_written(project: Path) -> None:
    Path("a.py").write_text(LOOP)
    Path("b.py").write_text(LOOP)
    report = run()
    Path("a.py").write_text("new\n")
    written = engine.write(report, project)
    assert [str(error) for error in written.errors] == [
        "a.py: not written: it changed while amp-migrate was at work"
    ]
    assert [one.document.path for one in written.changed] == ["b.py"]
    assert Path("a.py").read_text() == "new\n"


TROUBLE = {
    "# core: crash\n": "internal error: RuntimeError: first line second line; please report it",
    "# core: recurse\n": "a.py: nested too deeply to be analysed",
    "# core: memory\n": "a.py: too large to be analysed: out of memory",
    "# core: invalid\n": "a.py:3: not valid for Python 3.99",
    "# core: snowman\n# coding: latin-1\n": "the rewrite needs '☃', which iso-8859-1 cannot encode",
    "# coding: klingon\n": "unknown encoding: klingon",
    "#" * SIZE_LIMIT + "\n": "too large: 4.0 MB, the limit is 4 MB",
}


@pytest.mark.parametrize("head, message", TROUBLE.items(), ids=TROUBLE.values())
def test_trouble_with_one_file_stays_with_it(head: str, message: str) -> None:
    Path("a.py").write_text(head + LOOP)
    Path("b.py").write_text(LOOP)
    report = run()
    assert [result.path for result in report.results] == ["b.py"]
    (error,) = report.errors
    assert message in str(error)
    assert "\n" not in str(error)


def test_what_cannot_be_read_and_holds_no_backward_is_no_error(project: Path) -> None:
    Path("a.py").write_bytes(b"\xff\xfe\0")
    Path("large.py").write_text("#" * (SIZE_LIMIT + 1))
    report = run()
    assert (report.results, report.errors, report.files) == ((), (), 2)


def test_a_file_that_vanishes_is_an_error(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("b.py").write_text(LOOP)

    def unreadable(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", unreadable)
    assert [str(error) for error in run().errors] == [
        "b.py: cannot be read: Permission denied"
    ]


def test_text_is_migrated_as_a_file_would_be(project: Path) -> None:
    data = LOOP.replace("\n", "\r\n").encode()
    report = engine.run_text(data, path="a.py", settings=Settings(root=project))
    assert report.changed[0].output.count(b"\r\n") == 3
    nothing = engine.run_text(b"\xff", path="a.py", settings=Settings(root=project))
    assert (nothing.results, nothing.errors) == ((), ())


def test_progress_is_told(project: Path) -> None:
    for name in ("a.py", "b.py", "c.py"):
        Path(name).write_text(LOOP)
    Path("nothing.py").touch()
    told: list[tuple[int, int]] = []
    engine.run(
        ["."],
        settings=Settings(root=project),
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(1, 3), (2, 3), (3, 3)]


LINTED = """import torch
from torch import nn

layer = nn.Linear({width}, 64)
scaler = torch.cuda.amp.GradScaler()


def train(model, optimizer, loss):
    scaler.scale(loss).backward()
    optimizer.step()
"""


def large(folder: Path) -> None:
    """One program, of so many files that another core is worth its while."""
    names = [f"part{number}" for number in range(task.WORTH_HELP)]
    for number, name in enumerate(names):
        Path(folder, f"{name}.py").write_text(LINTED.format(width=number + 1))
    Path(folder, "main.py").write_text("".join(f"import {one}\n" for one in names))


def lint(jobs: int) -> Report:
    settings = Settings(root=Path.cwd())
    return engine.run((".",), settings=settings, job=Job.LINT, jobs=jobs)


linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are not forked")


@linux
def test_two_cores_find_in_a_large_program_what_one_does(project: Path) -> None:
    large(project)
    found = lint(2)
    assert found == lint(1)
    codes = {one.code for result in found.results for one in result.findings}
    assert {"TCU112", "AMP112"} <= codes


@linux
def test_help_is_asked_for_where_a_program_is_large(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(os, "fork", lambda fork=os.fork: asked.append(1) or fork())
    Path("one.py").write_text(LINTED.format(width=1))
    lint(2)
    assert not asked
    Path("one.py").unlink()
    large(project)
    lint(1)
    assert not asked
    lint(2)
    assert asked


@linux
@pytest.mark.parametrize(
    "trouble", ["raise MemoryError", "os._exit(3)", "spend(10**9)"]
)
def test_what_help_cannot_do_is_done_without(trouble: str) -> None:
    here = os.getpid()

    def work() -> int:
        if os.getpid() != here:
            exec(trouble, {"os": os, "spend": spend})
        return 7

    with limited(), helped(True), beside(work) as answer:
        assert answer() == 7


@linux
def test_steps_that_were_taken_elsewhere_count() -> None:
    with limited() as effort, helped(True):
        before = effort.left
        with beside(lambda: spend(1000)) as answer:
            answer()
        assert effort.left == before - 1000


@linux
def test_help_ends_with_who_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fork, children = os.fork, []

    def noted() -> int:
        children.append(fork())
        return children[-1]

    def work() -> None:
        signal.pause()

    monkeypatch.setattr(os, "fork", noted)
    with pytest.raises(KeyboardInterrupt), helped(True), beside(work):
        raise KeyboardInterrupt
    (child,) = children
    with pytest.raises(ChildProcessError):
        os.waitpid(child, os.WNOHANG)
