"""The folder of the cache: whatever is in it, and whatever happens to it, no run fails."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import standin
from cache_support import ALONE, PROGRAM, amp, entries, remembered, write

from amp_migrate.core import effort
from amp_migrate.run.cache.store import Store

LOOP = "for x in y:\n    loss.backward()\n"


def spoil_none(path: Path) -> None:
    path.write_bytes(b"")


def spoil_end(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def spoil_middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def spoil_all(path: Path) -> None:
    path.write_bytes(os.urandom(300))


def spoil_kind(path: Path) -> None:
    path.unlink()
    path.mkdir()


def spoil_name(path: Path) -> None:
    """What is whole, but an answer to another question."""
    path.write_bytes(max(entries(), key=lambda one: one.stat().st_size).read_bytes())


@pytest.mark.parametrize(
    "spoil",
    [spoil_none, spoil_end, spoil_middle, spoil_all, spoil_kind, spoil_name],
)
def test_what_is_not_whole_is_not_there(spoil: Any) -> None:
    write(PROGRAM)
    wanted = amp("lint", "--no-cache")
    amp("lint")
    largest = max(entries(), key=lambda one: one.stat().st_size)
    for path in entries():
        if path != largest or spoil is not spoil_name:
            spoil(path)
    assert amp("lint") == wanted
    assert amp("lint") == wanted


FOREIGN: list[Any] = [
    None,
    [],
    {},
    {"root": "", "answers": [[0]]},
    {"root": "", "answers": [[99, ["told", None, []]]]},
    {"root": "", "answers": [[0, ["told", 1, []]]]},
    {"root": "", "answers": [[0, ["told", None, ["x", 1]]]]},
    {"root": "", "answers": [[0, ["failed", ["a.py", "no"], []]]]},
    {"root": "", "answers": 3, "links": ["", [[["x"]]], []], "glances": {}},
    {"links": None, "glances": {"x": [True]}},
    {"links": None, "glances": {"x": [True, True, True, [1], [], [], "x"]}},
    {"links": None, "glances": []},
]


@pytest.mark.parametrize("data", FOREIGN, ids=str)
def test_what_is_of_another_form_is_not_there(data: Any) -> None:
    write(PROGRAM)
    wanted = amp("lint", "--no-cache")
    amp("lint")
    store = Store(Path("../cache"), 2**20)
    for path in entries():
        store.write(path.parent.name + path.stem, data)
    assert amp("lint") == wanted


def test_a_folder_that_cannot_be_made_is_no_error() -> None:
    write({"a.py": ALONE, "file": ""})
    wanted = amp("--check", "--no-cache")
    assert amp("--check", "--cache-dir", "file/cache") == wanted
    assert amp("--check", "--cache-dir", "file/cache") == wanted


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_takes_nothing_is_no_error(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(PROGRAM)
    wanted = amp("--check", "--no-cache")

    def full(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "write_bytes", full)
    assert amp("--check") == wanted
    assert entries() == []


def test_a_folder_that_may_not_be_written_is_read() -> None:
    write(PROGRAM)
    wanted = amp("lint")
    folders = [Path("../cache"), *Path("../cache").glob("**/")]
    for folder in folders:
        folder.chmod(0o500)
    try:
        assert remembered("lint") == wanted
        write({"alone.py": ALONE + "\n"})
        assert amp("lint") == amp("lint", "--no-cache")
    finally:
        for folder in folders:
            folder.chmod(0o700)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such bits")
def test_a_folder_that_everybody_may_write_to_is_not_used() -> None:
    write(PROGRAM)
    amp("lint")
    Path("../cache").chmod(0o777)
    wanted = amp("lint", "--no-cache")
    assert b"worked once more" in remembered("lint").err
    assert amp("lint") == wanted


def test_a_run_may_leave_no_trace() -> None:
    write(PROGRAM)
    amp("lint", "--no-cache")
    assert not Path("../cache").exists()
    amp("lint", "--cache-dir", "here")
    assert not Path("../cache").exists()
    # Nor does git see it.
    assert Path("here/.gitignore").read_text() == "*\n"


def test_runs_at_once_agree() -> None:
    write(PROGRAM)
    wanted = amp("lint", "--no-cache")
    command = [sys.executable, "-m", "amp_migrate", "lint"]
    running = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    for one in running:
        out, err = one.communicate()
        assert (one.returncode, out, err) == (wanted.code, wanted.out, wanted.err)
    assert {path.suffix for path in entries()} == {".entry"}
    assert remembered("lint") == wanted


# What is kept


def test_trouble_of_this_machine_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        standin.install(patched)
        for order in ("memory", "recurse", "crash", "deep"):
            write({f"{order}.py": f"# core: {order}\n{LOOP}"})
        write({"fine.py": LOOP})
        failed = amp("--check")
        assert failed.code == 2
        assert amp("--check") == failed
        patched.setattr(standin, "migrate_text", lambda text, *_: 1 / 0)
        said = amp("--check").err.decode()
    # What was well is kept, and only that.
    assert "would rewrite fine.py" in said
    assert "would rewrite deep.py" in said
    for order in ("memory", "recurse", "crash"):
        assert f"{order}.py: internal error: ZeroDivisionError" in said


def test_what_was_cut_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def migrate(*given: Any, **named: Any) -> Any:
        effort.cut()
        return standin.migrate_program(*given, **named)

    from amp_migrate.migrate import program

    write({"a.py": LOOP})
    monkeypatch.setattr(program, "migrate_program", migrate)
    told = amp("--check")
    assert told.code == 1
    monkeypatch.setattr(program, "migrate_program", lambda *_, **__: 1 / 0)
    assert b"ZeroDivisionError" in amp("--check").err


def test_what_is_interrupted_does_not_begin_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    standin.install(monkeypatch)
    write({"a.py": LOOP, "b.py": "# core: interrupt\n" + LOOP})
    assert amp("--check", "--jobs", "1").code == 130
    monkeypatch.setattr(standin, "migrate_text", lambda text, *_: 1 / 0)
    said = amp("--check").err.decode()
    assert "would rewrite a.py" in said and "b.py: internal error" in said


# How much is kept


def age(name: str, days: float, store: Store) -> Path:
    (path,) = (store.folder / "entries" / name[:2]).glob(f"{name[2:]}.entry")
    then = time.time() - days * 24 * 60 * 60
    os.utime(path, (then, then))
    return path


def test_what_was_not_used_for_long_goes_first(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", 2500)
    for number in range(3):
        store.write(f"0{number}aa", "x" * 900)
        age(f"0{number}aa", 5 - number, store)
    assert store.read("00aa") == "x" * 900
    store.close()
    assert store.read("01aa") is None
    assert store.read("00aa") == store.read("02aa") == "x" * 900
    assert store.usage().bytes <= store.limit


def test_many_runs_stay_below_the_limit(tmp_path: Path) -> None:
    for number in range(40):
        store = Store(tmp_path / "store", 5000)
        store.write(f"{number:02}aa", "x" * 900)
        store.close()
        assert store.usage().bytes <= 5000
    assert store.usage().entries > 3


def test_a_limit_of_nothing_keeps_nothing() -> None:
    write(PROGRAM)
    assert amp("lint", "--cache-limit", "0") == amp("lint", "--no-cache")
    assert entries() == []


def test_what_a_killed_run_left_is_taken_away(tmp_path: Path) -> None:
    store = Store(tmp_path / "store", 5000)
    store.write("00aa", 1)
    folder = tmp_path / "store" / "entries" / "00"
    (folder / "new.staged").write_text("half")
    (folder / "old.staged").write_text("half")
    os.utime(folder / "old.staged", (0, 0))
    store.prune()
    assert {path.name for path in folder.iterdir()} == {"aa.entry", "new.staged"}


def test_the_cache_command() -> None:
    write(PROGRAM)
    amp("lint")
    count = len(entries())
    told = amp("cache")
    folder = Path("../cache").resolve()
    assert told.out.decode().startswith(f"{folder}: {count} results, 0.")
    assert amp("cache", "clear").out.decode().startswith(f"{folder}: deleted {count} ")
    assert entries() == []
    assert amp("cache", "info").out.decode() == f"{folder}: 0 results, 0.0 MB\n"
    assert b"worked once more" in remembered("lint").err
