"""Replacing several files as one, whatever happens in between."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import os
import random
import signal
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from amp_migrate.core.results import SourceError
from amp_migrate.sources import journal
from amp_migrate.sources.journal import Change, Recovery

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    # The children do nothing but what is tested here.
    pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning"),
]

NAMES = ["a.py", "b.py", "pkg/c.py", "pkg/d.py", "pkg/deep/e.py", "f.py"]
LIST = ", ".join(NAMES)

STEPS: list[tuple[Any, str]] = [
    (os, "open"),
    (os, "fsync"),
    (os, "chown"),
    (Path, "chmod"),
    (Path, "replace"),
    (Path, "unlink"),
]
"""All that changes a file system in this, but for writing into an open file."""


def old(name: str) -> bytes:
    return f"old {name}\n".encode() * 100


def new(name: str) -> bytes:
    return f"new {name}\n".encode() * 100


def make(root: Path, names: list[str] = NAMES) -> list[Change]:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(old(name))
    return [Change(str(root / name), old(name), new(name)) for name in names]


def states(root: Path, names: list[str] = NAMES) -> str:
    """A letter for each file: o(ld), n(ew), or - for what is neither."""
    found = [(root / name).read_bytes() for name in names]
    letters = {
        **{old(name): "o" for name in names},
        **{new(name): "n" for name in names},
    }
    return "".join(letters.get(data, "-") for data in found)


def leftovers(root: Path) -> list[str]:
    paths = (path.relative_to(root) for path in root.rglob(".amp-migrate-*"))
    return sorted(map(str, paths))


def whole(root: Path) -> bool:
    return states(root) in ("oooooo", "nnnnnn") and not leftovers(root)


@contextlib.contextmanager
def acting(act: Callable[[str], None]) -> Iterator[None]:
    """Call ``act`` before and after each of the `STEPS`, with its name."""

    def wrap(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **rest: Any) -> Any:
            act(name)
            result = step(*args, **rest)
            act(name)
            return result

        return stepping

    with pytest.MonkeyPatch.context() as patch:
        # Killing a process is no power cut: what was written is there, synced or not.
        patch.setattr(os, "fsync", lambda _handle: None)
        for owner, name in STEPS:
            patch.setattr(owner, name, wrap(name, getattr(owner, name)))
        yield


@contextlib.contextmanager
def acting_at(moment: int, act: Callable[[], None]) -> Iterator[None]:
    count = 0

    def counting(_name: str) -> None:
        nonlocal count
        if count == moment:
            count += 1
            act()
        count += 1

    with acting(counting):
        yield


def moments(work: Callable[[], object]) -> int:
    """How many moments there are to be killed at."""
    names: list[str] = []
    with acting(names.append):
        work()
    return len(names)


def in_child(work: Callable[[], object]) -> int:
    """Start ``work`` in a process of its own."""
    process = os.fork()
    if process == 0:
        try:
            work()
        finally:
            os._exit(0)
    return process


def killed_at(moment: int, work: Callable[[], object]) -> None:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def dying() -> None:
        with acting_at(moment, die):
            work()

    _, status = os.waitpid(in_child(dying), 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL


# Without accidents.


def test_all_are_replaced(tmp_path: Path) -> None:
    changes = make(tmp_path)
    (tmp_path / "b.py").chmod(0o750)
    (tmp_path / "link.py").symlink_to("pkg/c.py")
    changes[2] = Change(str(tmp_path / "link.py"), old("pkg/c.py"), new("pkg/c.py"))
    journal.replace_all(changes, tmp_path)
    assert states(tmp_path) == "nnnnnn" and leftovers(tmp_path) == []
    assert stat.S_IMODE((tmp_path / "b.py").stat().st_mode) == 0o750
    assert (tmp_path / "link.py").is_symlink()
    assert journal.recover(tmp_path) is None
    assert journal.pending(tmp_path) is None


def test_paths_are_those_of_the_current_directory_and_the_root_may_be_a_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    make(root)
    (tmp_path / "link").symlink_to("root")
    monkeypatch.chdir(tmp_path / "link" / "pkg")
    names = ["c.py", "deep/e.py"]
    changes = [Change(name, old(f"pkg/{name}"), new(f"pkg/{name}")) for name in names]
    journal.replace_all(changes, tmp_path / "link")
    assert states(root) == "oonono"


def test_one_file_needs_no_journal_and_may_lie_anywhere(tmp_path: Path) -> None:
    one, two = make(tmp_path, ["a.py", "b.py"])
    (tmp_path / "root").mkdir()
    steps: list[str] = []
    with acting(steps.append):
        same = Change(two.path, two.before, two.before)
        journal.replace_all([one, same], tmp_path / "root")
    assert states(tmp_path, ["a.py", "b.py"]) == "no"
    assert steps.count("open") == 2  # before and after
    journal.replace_all([], tmp_path)


# Killed.


def test_killed_at_any_moment(tmp_path: Path) -> None:
    def write() -> None:
        journal.replace_all(changes, tmp_path)

    changes = make(tmp_path)
    total = moments(write)
    seen = set()
    for moment in range(total):
        make(tmp_path)
        killed_at(moment, write)
        between = states(tmp_path)
        assert "-" not in between
        line = journal.pending(tmp_path)
        recovery = journal.recover(tmp_path)
        assert whole(tmp_path), (moment, between, leftovers(tmp_path))
        if recovery is None:
            # Either there was no journal yet, and so nothing but that, or none any more.
            assert line is None and between in ("oooooo", "nnnnnn")
            seen.add((between, "nothing"))
            continue
        assert line is not None and recovery.settled
        done = "finished" if states(tmp_path)[0] == "n" else "rolled back"
        assert recovery.lines == (f"{done} an interrupted write of 6 files: {LIST}",)
        assert done.split()[0].rstrip("ed") in line
        seen.add((between, done))
    assert seen == {
        ("oooooo", "nothing"),
        ("oooooo", "rolled back"),
        *(("n" * count + "o" * (6 - count), "finished") for count in range(7)),
        ("nnnnnn", "nothing"),
    }


@pytest.mark.parametrize("damage", [False, True], ids=["finish", "roll back"])
def test_killed_again_at_any_moment_of_the_recovery(
    tmp_path: Path, damage: bool
) -> None:
    def write() -> None:
        journal.replace_all(changes, tmp_path)

    def recover() -> None:
        journal.recover(tmp_path)

    def interrupt() -> None:
        make(tmp_path)
        killed_at(moment, write)
        if damage:
            last = json.loads((tmp_path / journal.NAME).read_text())["files"][-1]
            (tmp_path / last["staged"]).write_bytes(b"half")

    changes = make(tmp_path)
    names: list[str] = []
    with acting(names.append):
        write()
    # Before the first file is renamed (the journal was), in the middle, and before the last.
    renames = [moment for moment, name in enumerate(names) if name == "replace"]
    for moment in (renames[2], renames[7], renames[12]):
        interrupt()
        for again in range(moments(recover)):
            interrupt()
            killed_at(again, recover)
            assert "-" not in states(tmp_path)
            recover()
            assert whole(tmp_path), (moment, again, leftovers(tmp_path))
            assert (states(tmp_path) == "oooooo") is damage


def test_killed_at_random(tmp_path: Path) -> None:
    def write_for_ever() -> None:
        back = [Change(change.path, change.after, change.before) for change in there]
        while True:
            journal.replace_all(there, tmp_path)
            journal.replace_all(back, tmp_path)

    chance = random.Random(1)
    for _ in range(12):
        there = make(tmp_path)
        process = in_child(write_for_ever)
        time.sleep(chance.uniform(0.01, 0.15))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        assert "-" not in states(tmp_path)
        journal.recover(tmp_path)
        assert whole(tmp_path)


# Ctrl-C and what the system refuses.


def test_interrupted_at_any_moment(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    changes = make(tmp_path)
    total = moments(lambda: journal.replace_all(changes, tmp_path))
    ends = []
    for moment in range(total):
        make(tmp_path)
        with acting_at(moment, interrupt), pytest.raises(KeyboardInterrupt):
            journal.replace_all(changes, tmp_path)
        if leftovers(tmp_path):
            # A moment that belongs to nobody: a file is there, and not yet known to be.
            assert set(leftovers(tmp_path)) == {journal.DRAFT}
            assert journal.recover(tmp_path) is None
        assert whole(tmp_path), moment
        ends.append(states(tmp_path)[0])
    assert "".join(ends).lstrip("o").strip("n") == "" and {*ends} == {"o", "n"}


@pytest.mark.parametrize("name", ["open", "fsync", "chmod", "replace"])
def test_a_full_disk_at_any_moment(tmp_path: Path, name: str) -> None:
    """The n-th call of a function fails, for all n, and all is as it was."""
    changes = make(tmp_path)
    (owner,) = (owner for owner, step in STEPS if step == name)
    step = getattr(owner, name)
    for moment in range(100):
        count = 0

        def full(*args: Any, **rest: Any) -> Any:
            nonlocal count
            count += 1
            if count == moment + 1:  # noqa: B023
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return step(*args, **rest)

        make(tmp_path)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, full)
            try:
                journal.replace_all(changes, tmp_path)
            except SourceError as error:
                blamed = {change.path for change in changes}
                assert error.path in {*blamed, str(tmp_path / journal.NAME)}
                assert (
                    "cannot be written: No space left on device; none of the 6"
                    in str(error)
                )
                assert states(tmp_path) == "oooooo"
            else:
                # A directory that cannot be synced is no reason to give up.
                assert states(tmp_path) == "nnnnnn"
        assert leftovers(tmp_path) == []
        if count <= moment:
            break
    else:
        pytest.fail("endless")
    assert moment > 5


def test_copies_that_cannot_be_removed_are_left_to_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    changes = make(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        journal.replace_all(changes, tmp_path)
        with pytest.raises(SourceError, match="Permission denied"):
            journal.recover(tmp_path)
    assert states(tmp_path) == "nnnnnn" and journal.NAME in leftovers(tmp_path)
    with pytest.raises(SourceError, match="was interrupted: try --write again"):
        journal.replace_all(
            [Change(one.path, one.after, one.before) for one in changes], tmp_path
        )
    assert journal.recover(tmp_path) is not None
    assert whole(tmp_path) and states(tmp_path) == "nnnnnn"


def test_what_cannot_be_put_back_is_said_and_put_back_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.replace
    count = 0

    def breaking(path: Path, target: Path) -> Path:
        nonlocal count
        count += 1
        if count > 3:
            raise OSError(errno.EROFS, "Read-only file system")
        return rename(path, target)

    changes = make(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", breaking)
        with pytest.raises(SourceError, match=r"c\.py: .*others could not be put back"):
            journal.replace_all(changes, tmp_path)
    assert states(tmp_path) == "nnoooo"
    recovery = journal.recover(tmp_path)
    assert recovery is not None and recovery.lines[0].startswith("finished")
    assert whole(tmp_path)


def test_a_file_that_changed_meanwhile_keeps_the_others_from_being_written(
    tmp_path: Path,
) -> None:
    changes = make(tmp_path)
    (tmp_path / "f.py").write_bytes(b"newer")
    with pytest.raises(SourceError, match=r"f\.py: not written: it changed .*none of"):
        journal.replace_all(changes, tmp_path)
    assert states(tmp_path) == "ooooo-" and leftovers(tmp_path) == []


def test_a_file_that_changes_while_others_are_renamed(tmp_path: Path) -> None:
    changes = make(tmp_path)
    names: list[str] = []
    with acting(names.append):
        journal.replace_all(changes, tmp_path)
    third = [moment for moment, name in enumerate(names) if name == "replace"][6]
    for vanish in (False, True):
        make(tmp_path)

        def edit(vanish: bool = vanish) -> None:
            (tmp_path / "f.py").write_bytes(b"newer")
            if vanish:
                (tmp_path / "f.py").rename(tmp_path / "g.py")

        with acting_at(third, edit), pytest.raises(SourceError, match=r"f\.py: "):
            journal.replace_all(changes, tmp_path)
        assert states(tmp_path, NAMES[:-1]) == "ooooo" and leftovers(tmp_path) == []
        assert (tmp_path / "f.py").exists() is not vanish


def test_a_file_that_changes_right_after_it_was_renamed(tmp_path: Path) -> None:
    changes = make(tmp_path)
    names: list[str] = []
    with acting(names.append):
        journal.replace_all(changes, tmp_path)
    third = [moment for moment, name in enumerate(names) if name == "replace"][6]
    make(tmp_path)

    def edit() -> None:
        (tmp_path / "a.py").write_bytes(b"mine")
        (tmp_path / "f.py").write_bytes(b"mine, too")

    with acting_at(third, edit), pytest.raises(SourceError, match="could not be put"):
        journal.replace_all(changes, tmp_path)
    # What a.py was made from is rewritten: who edited it has to see all of it.
    assert states(tmp_path) == "-nnnn-"
    recovery = journal.recover(tmp_path)
    assert recovery is not None and not recovery.settled
    assert states(tmp_path) == "-nnnn-"


def test_names_are_on_disk_before_the_next_step_counts_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, str]] = []
    changes = make(tmp_path)
    for owner, name in [(os, "open"), (Path, "replace"), (Path, "unlink")]:

        def noting(
            path: Path,
            *args: Any,
            name: str = name,
            step: Any = getattr(owner, name),  # noqa: B008
            **rest: Any,
        ) -> Any:
            kind = "sync" if Path(path).is_dir() else name
            events.append((kind, os.path.relpath(path, tmp_path)))
            return step(path, *args, **rest)

        monkeypatch.setattr(owner, name, noting)
    journal.replace_all(changes, tmp_path)
    kinds = [kind for kind, _ in events]
    everywhere = {".", "pkg", str(Path("pkg/deep"))}
    counts = [(kind, len(list(run))) for kind, run in itertools.groupby(kinds)]
    publish = [("open", 1), ("replace", 1), ("sync", 1)]
    stage = [("open", 12), ("sync", 3)]
    assert counts == [*publish, *stage, ("replace", 6), ("sync", 3), ("unlink", 13)]
    assert events[0][1] == journal.DRAFT and events[-1][1] == journal.NAME
    for start in (15, 24):
        assert {path for _, path in events[start : start + 3]} == everywhere


def test_a_file_outside_the_root_goes_with_no_others(tmp_path: Path) -> None:
    changes = make(tmp_path, ["root/a.py", "b.py"])
    (tmp_path / "root/b.py").symlink_to("../b.py")
    inside = changes[0]
    outside = Change(str(tmp_path / "root/b.py"), old("b.py"), new("b.py"))
    with pytest.raises(SourceError, match=r"root/b\.py: .*outside the project root"):
        journal.replace_all([inside, outside], tmp_path / "root")
    assert states(tmp_path, ["root/a.py", "b.py"]) == "oo"


def test_a_file_goes_into_a_set_once(tmp_path: Path) -> None:
    (change,) = make(tmp_path, ["a.py"])
    (tmp_path / "b.py").symlink_to("a.py")
    again = Change(str(tmp_path / "b.py"), change.before, change.after)
    with pytest.raises(SourceError, match="twice"):
        journal.replace_all([change, again], tmp_path)


# Two at once.


def test_nobody_recovers_what_is_being_written(tmp_path: Path) -> None:
    changes = make(tmp_path)
    said = []

    def other_run(_step: str) -> None:
        if (tmp_path / journal.NAME).exists() or (tmp_path / journal.DRAFT).exists():
            said.append(journal.pending(tmp_path))
            with contextlib.suppress(SourceError):
                journal.replace_all(changes, tmp_path)
                said.append("written twice")
            with contextlib.suppress(SourceError):
                if journal.recover(tmp_path) is not None:
                    said.append("recovered")

    reading, writing = os.pipe()
    names: list[str] = []
    with acting(names.append):
        journal.replace_all(changes, tmp_path)
    make(tmp_path)
    busy = False

    def ask(name: str) -> None:
        nonlocal busy
        if not busy and name in ("replace", "unlink", "fsync"):
            busy = True
            process = in_child(lambda: (other_run(name), os.write(writing, tell())))
            os.waitpid(process, 0)
            busy = False

    def tell() -> bytes:
        return "".join(f"{line}\n" for line in said).encode()

    with acting(ask):
        journal.replace_all(changes, tmp_path)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        lines = set(pipe.read().splitlines())
    # Before the journal is there, there is nothing to say.
    path = tmp_path / journal.NAME
    assert lines == {"None", f"{path}: another run is writing just now"}
    assert whole(tmp_path) and states(tmp_path) == "nnnnnn"


# Somebody was there in between.


def interrupted(root: Path, renamed: int) -> list[dict[str, str]]:
    """Files whose writer was killed after so many of them; what its journal says."""
    changes = make(root)
    names: list[str] = []
    with acting(names.append):
        journal.replace_all(changes, root)
    renames = [moment for moment, name in enumerate(names) if name == "replace"]
    make(root)
    killed_at(renames[2 * renamed + 1], lambda: journal.replace_all(changes, root))
    assert states(root) == "n" * renamed + "o" * (6 - renamed)
    found: list[dict[str, str]] = json.loads((root / journal.NAME).read_text())["files"]
    return found


def bytes_below(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


def test_pending_says_what_would_be_done_and_does_nothing(tmp_path: Path) -> None:
    interrupted(tmp_path, 2)
    before = bytes_below(tmp_path)
    line = journal.pending(tmp_path)
    assert line == (
        f"an earlier run was interrupted while writing 6 files: {LIST}; --write will finish it"
    )
    assert bytes_below(tmp_path) == before


@pytest.mark.parametrize("edit", ["edited", "removed", "a link"])
@pytest.mark.parametrize("name", ["b.py", "f.py"], ids=["was new", "was old"])
def test_a_file_that_somebody_edited_is_not_overwritten(
    tmp_path: Path, edit: str, name: str
) -> None:
    entries = interrupted(tmp_path, 3)
    path = tmp_path / name
    path.unlink()
    if edit == "edited":
        path.write_bytes(b"mine")
    elif edit == "a link":
        (tmp_path / "else.py").write_bytes(new(name))
        path.symlink_to("else.py")
    sources = [
        entry["path"] for entry in entries if (tmp_path / entry["path"]).exists()
    ]
    before = {one: (tmp_path / one).read_bytes() for one in sources}
    assert "by hand" in (journal.pending(tmp_path) or "")

    recovery = journal.recover(tmp_path)
    assert recovery is not None and not recovery.settled
    assert before == {one: (tmp_path / one).read_bytes() for one in sources}
    lines = recovery.lines
    assert len(lines) == 8
    for line, entry in zip(lines[1:], entries, strict=False):
        target = tmp_path / entry["path"]
        if entry["path"] == name:
            assert line.startswith(
                f"  {name} was changed by somebody else; the old text"
            )
        elif before[entry["path"]] == new(entry["path"]):
            copy = target.with_name(entry["backup"])
            assert line == f"  {entry['path']} is rewritten; the old text is in {copy}"
            assert copy.read_bytes() == old(entry["path"])
        else:
            copy = target.with_name(entry["staged"])
            assert line == f"  {entry['path']} is as it was; the new text is in {copy}"
            assert copy.read_bytes() == new(entry["path"])
    (kept,) = (path for path in leftovers(tmp_path) if path.endswith(".kept"))
    assert lines[-1].endswith(f"then delete these copies and {tmp_path / kept}")

    # The next run is not held up, and takes no notice of what is kept.
    after = bytes_below(tmp_path)
    assert journal.pending(tmp_path) is None and journal.recover(tmp_path) is None
    assert bytes_below(tmp_path) == after


def test_an_edit_before_anything_was_replaced_is_no_obstacle(tmp_path: Path) -> None:
    interrupted(tmp_path, 0)
    (tmp_path / "b.py").write_bytes(b"mine")
    recovery = journal.recover(tmp_path)
    assert recovery is not None and recovery.lines[0].startswith("rolled back")
    assert states(tmp_path) == "o-oooo" and leftovers(tmp_path) == []


def test_a_damaged_copy_is_never_used(tmp_path: Path) -> None:
    entries = interrupted(tmp_path, 3)
    last, first = entries[-1], entries[0]
    (tmp_path / last["staged"]).write_bytes(new("f.py")[:-1])
    (tmp_path / first["backup"]).write_bytes(b"")
    recovery = journal.recover(tmp_path)
    assert recovery is not None and not recovery.settled
    assert states(tmp_path) == "nnnooo"
    assert "a damaged copy of the old text" in recovery.lines[1]


# Journals that no run of this program left.


def hostile(root: Path, **fields: object) -> None:
    """A journal that replaces ``victim.py``, but for what ``fields`` say."""
    (root / "victim.py").write_bytes(b"old")
    copy = ".amp-migrate-0123456789abcdef-0"
    (root / f"{copy}.new").write_bytes(b"new")
    (root / f"{copy}.old").write_bytes(b"old")
    entry = {
        "path": "victim.py",
        "old": hashlib.sha256(b"old").hexdigest(),
        "new": hashlib.sha256(b"new").hexdigest(),
        "staged": f"{copy}.new",
        "backup": f"{copy}.old",
        **fields,
    }
    content = {"version": 1, "files": [entry]}
    (root / journal.NAME).write_text(json.dumps(content))


HOSTILE: list[dict[str, object]] = [
    {"path": "../victim.py"},
    {"path": "sub/../../victim.py"},
    {"path": "out/victim.py"},
    {"path": ""},
    {"path": "."},
    {"path": "/"},
    {"path": "victim.py\0"},
    {"path": "victim\ud800.py"},
    {"path": None},
    {"path": ["victim.py"]},
    {"old": "0"},
    {"new": None},
    {"staged": "victim2.py"},
    {"staged": "../.amp-migrate-0123456789abcdef-0.new"},
    {"staged": ".amp-migrate-0123456789abcdef-0.old"},
    {"backup": "/etc/hostname"},
]


@pytest.mark.parametrize("fields", HOSTILE, ids=repr)
def test_a_journal_that_reaches_out_is_left_alone(
    tmp_path: Path, fields: dict[str, object]
) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "out").symlink_to("..")
    for directory in (tmp_path, root):
        hostile(directory, **fields)
    (tmp_path / journal.NAME).unlink()
    before = bytes_below(tmp_path)
    with pytest.raises(SourceError, match="damaged: delete it to go on") as caught:
        journal.recover(root)
    assert journal.pending(root) == str(caught.value)
    assert "\n" not in str(caught.value)
    assert bytes_below(tmp_path) == before


def test_an_absolute_path_is_not_taken_even_when_it_is_inside(tmp_path: Path) -> None:
    hostile(tmp_path, path=str(tmp_path / "victim.py"))
    with pytest.raises(SourceError, match="damaged"):
        journal.recover(tmp_path)


@pytest.mark.parametrize("what", ["target", "staged"])
def test_links_are_not_followed(tmp_path: Path, what: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    hostile(root)
    name = "victim.py" if what == "target" else ".amp-migrate-0123456789abcdef-0.new"
    (tmp_path / "mine").write_bytes((root / name).read_bytes())
    (root / name).unlink()
    (root / name).symlink_to("../mine")
    data = (tmp_path / "mine").read_bytes()
    recovery = journal.recover(root)
    assert recovery is not None and recovery.lines[0].startswith("rolled back")
    assert (tmp_path / "mine").read_bytes() == data
    assert (root / "victim.py").read_bytes() == b"old"


def test_what_is_not_known_by_its_hash_is_not_replaced(tmp_path: Path) -> None:
    for fields in ({"old": "0" * 64}, {"new": "0" * 64}):
        hostile(tmp_path, **fields)
        recovery = journal.recover(tmp_path)
        assert isinstance(recovery, Recovery)
        assert (tmp_path / "victim.py").read_bytes() == b"old"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b"[" * 100_000,
        b'{"version": 1, "files": []}',
    ],
    ids=lambda data: repr(data[:30]),
)
def test_a_damaged_journal_is_one_line_and_stays(tmp_path: Path, data: bytes) -> None:
    (tmp_path / journal.NAME).write_bytes(data)
    with pytest.raises(SourceError, match="damaged: delete it to go on"):
        journal.recover(tmp_path)
    assert (tmp_path / journal.NAME).read_bytes() == data


def test_every_cut_of_a_journal(tmp_path: Path) -> None:
    interrupted(tmp_path, 2)
    data = (tmp_path / journal.NAME).read_bytes()
    for end in range(0, len(data) - 1, 7):
        (tmp_path / journal.NAME).write_bytes(data[:end])
        with pytest.raises(SourceError, match="damaged"):
            journal.recover(tmp_path)
    (tmp_path / journal.NAME).write_bytes(data)
    assert journal.recover(tmp_path) is not None and whole(tmp_path)


def test_a_journal_of_another_version_is_left_to_that(tmp_path: Path) -> None:
    (tmp_path / journal.NAME).write_text('{"version": 2, "data": {}}')
    with pytest.raises(SourceError, match="another version"):
        journal.recover(tmp_path)


def test_what_is_named_like_a_journal_and_is_none(tmp_path: Path) -> None:
    path = tmp_path / journal.NAME
    os.mkfifo(path)
    with pytest.raises(SourceError, match="is not a file"):
        journal.recover(tmp_path)
    assert "is not a file" in (journal.pending(tmp_path) or "")
    path.unlink()
    (tmp_path / "else.json").write_text("{}")
    path.symlink_to("else.json")
    with pytest.raises(SourceError):
        journal.recover(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(SourceError):
        journal.recover(tmp_path)
    assert journal.pending(tmp_path) is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_journal_of_another_user_is_not_obeyed(tmp_path: Path) -> None:
    hostile(tmp_path)
    os.chown(tmp_path / journal.NAME, 12345, 12345)
    with pytest.raises(SourceError, match="belongs to another user"):
        journal.recover(tmp_path)
    # Whose directory it is may do there what they like.
    os.chown(tmp_path, 12345, 12345)
    assert journal.recover(tmp_path) is not None
