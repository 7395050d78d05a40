"""Replacing several files as one: all of them or none, also when the process is killed in between.

Before anything else is written, a journal in the project root says what is going to be. Then the
new and the old bytes of each file are put on disk beside it, then the new ones are renamed into
place one by one, then the copies are removed, and last the journal. So whatever a killed process
leaves has a journal that names it, and `recover` can finish the set or take it back.

The writer keeps the journal locked (``flock``) for as long as it lives, so nobody takes a set that
is being written for one that was interrupted. Where a file system has no such locks, and on
Windows, two runs that write at the same time are not kept apart.

A journal is found by a run with the same project root. It names files by paths that are relative to
that root and lead through no links, so that a journal that somebody else made (one that came with a
cloned repository) touches nothing outside; inside, it replaces only files whose content it knows,
with content that lies beside them under a name that only this program uses.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import IO

from amp_migrate.core.results import SourceError
from amp_migrate.sources import files

if sys.platform != "win32":
    import fcntl

NAME = f"{files.PREFIX}journal.json"
"""The journal, in the project root."""

DRAFT = f"{files.PREFIX}journal.tmp"
"""A journal that is not complete yet: nothing else has been written."""

VERSION = 1

_COPY = re.compile(rf"{re.escape(files.PREFIX)}([0-9a-f]{{16}})-\d+\.(?:new|old)")
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Change:
    """What is to become of one file."""

    path: str
    before: bytes
    """What was read."""
    after: bytes


@dataclass(frozen=True, slots=True)
class Recovery:
    """What was done about an interrupted set."""

    lines: tuple[str, ...]
    """For the user."""
    settled: bool
    """False where the files are left half old and half new, for the user to decide."""


class _State(Enum):
    OLD = "old"
    NEW = "new"
    OTHER = "other"
    """Edited or removed by somebody else."""


class _Way(Enum):
    """What can be done about an interrupted set."""

    FINISH = "--write will finish it"
    ROLL_BACK = "--write will roll it back"
    LEAVE = "it has to be repaired by hand; --write will say how"


@dataclass(frozen=True, slots=True)
class _Entry:
    path: str
    """Relative to the project root, with slashes."""
    target: Path
    old: str
    """SHA-256, as is ``new``."""
    new: str
    staged: Path
    """Beside the target: its new bytes."""
    backup: Path
    """Beside the target: its old bytes."""

    def state(self) -> _State:
        found = _digest(self.target)
        if found == self.new:
            return _State.NEW
        return _State.OLD if found == self.old else _State.OTHER

    def can_finish(self) -> bool:
        return _digest(self.staged) == self.new

    def can_roll_back(self) -> bool:
        return _digest(self.backup) == self.old


def replace_all(changes: Sequence[Change], root: str | Path) -> None:
    """Put each ``after`` where its ``before`` was: in all of the files, or in none.

    Each is replaced as by `files.replace`. When one of them cannot be, or anything is raised
    (KeyboardInterrupt, too), those that were are put back; what not even that reaches, `recover`
    does in the next run. Raises `SourceError` for the file that is to blame: it no longer holds
    what was read, it cannot be written, or it lies outside ``root``, where `recover` would not
    look for it. A single file needs no journal, and may lie anywhere.
    """
    changes = [change for change in changes if change.before != change.after]
    if len(changes) < 2:
        for change in changes:
            files.replace(change.path, change.before, change.after)
        return
    base = Path(root).resolve()
    try:
        entries = _entries(changes, base)
        journal = _publish(base, entries)
    except SourceError as error:
        raise _none_written(error, len(changes)) from None
    with contextlib.closing(journal):
        _write(changes, entries, base)


def recover(root: str | Path) -> Recovery | None:
    """Finish or take back what an interrupted run left; None where there is nothing to say.

    The set is finished where every file is as the journal knows it and all that is missing is there,
    otherwise taken back. Where somebody has edited a file meanwhile and others are new already,
    or copies are missing, no file is touched: the lines say which is new and which old, the copies
    stay, and the journal is renamed, so that the next run is not held up by it.

    Raises `SourceError` where another process is writing just now, where the journal is damaged or
    not to be trusted (it is left as it is), and where the files cannot be written.
    """
    base = Path(root).resolve()
    draft = _hold(base / DRAFT, base)
    if draft is not None:
        with contextlib.closing(draft), _blaming(base / DRAFT):
            (base / DRAFT).unlink(missing_ok=True)
    file = _hold(base / NAME, base)
    if file is None:
        return None
    with contextlib.closing(file), _blaming(base / NAME):
        entries = _parse(file.read(), base)
        if sys.platform == "win32":
            file.close()  # An open file is not removed there.
        way = _way(entries)
        if way is _Way.FINISH:
            _finish(entries, base)
            done = "finished an interrupted write of"
        elif way is _Way.ROLL_BACK:
            _roll_back(entries, base)
            done = "rolled back an interrupted write of"
        else:
            return _set_aside(entries, base)
    return Recovery((f"{done} {_listed(entries)}",), settled=True)


def pending(root: str | Path) -> str | None:
    """One line on what an interrupted run left, for a run that writes nothing; None for nothing."""
    base = Path(root).resolve()
    try:
        file = _hold(base / NAME, base, to_write=False)
        if file is None:
            return None
        with contextlib.closing(file), _blaming(base / NAME):
            entries = _parse(file.read(), base)
    except SourceError as error:
        return str(error)
    what = f"an earlier run was interrupted while writing {_listed(entries)}"
    return f"{what}; {_way(entries).value}"


def _listed(entries: Sequence[_Entry]) -> str:
    count = "1 file" if len(entries) == 1 else f"{len(entries)} files"
    return f"{count}: {', '.join(entry.path for entry in entries)}"


# Writing a set.


def _entries(changes: Sequence[Change], base: Path) -> list[_Entry]:
    token = secrets.token_hex(8)
    entries: dict[Path, _Entry] = {}
    for index, change in enumerate(changes):
        target = files.unchanged(change.path, change.before)
        if not target.is_relative_to(base):
            raise SourceError(
                change.path,
                f"not written: it is outside the project root {base};"
                f" name it as {target}, or its project by itself",
            )
        if target in entries:
            raise SourceError(change.path, "not written: it is there twice")
        copy = f"{files.PREFIX}{token}-{index}"
        entries[target] = _Entry(
            target.relative_to(base).as_posix(),
            target,
            old=hashlib.sha256(change.before).hexdigest(),
            new=hashlib.sha256(change.after).hexdigest(),
            staged=target.with_name(f"{copy}.new"),
            backup=target.with_name(f"{copy}.old"),
        )
    return list(entries.values())


def _write(changes: Sequence[Change], entries: Sequence[_Entry], base: Path) -> None:
    renamed = 0
    try:
        for change, entry in zip(changes, entries, strict=True):
            with _blaming(change.path):
                files.stage(entry.target, change.after, entry.staged.name)
                files.stage(entry.target, change.before, entry.backup.name)
        _sync(entries)
        for change, entry in zip(changes, entries, strict=True):
            # Again, and as late as can be: staging takes a while.
            if files.unchanged(change.path, change.before) != entry.target:
                raise SourceError(change.path, "not written: it is another file now")
            with _blaming(change.path):
                entry.staged.replace(entry.target)
            renamed += 1
        _sync(entries)
    except BaseException as error:
        put_back = _take_back(entries, base, renamed)
        if not isinstance(error, SourceError):
            raise
        if put_back:
            raise _none_written(error, len(entries)) from None
        raise SourceError(
            error.path,
            f"{error.message}; others could not be put back: run amp-migrate --write again",
        ) from None
    try:
        _sweep(entries, base)
    except OSError:
        pass  # The files are written. The journal goes last, so the next run sweeps.
    except BaseException:
        with contextlib.suppress(OSError):
            _sweep(entries, base)
        raise


def _none_written(error: SourceError, count: int) -> SourceError:
    return SourceError(
        error.path,
        f"{error.message}; none of the {count} files that change together was written",
    )


def _take_back(entries: Sequence[_Entry], base: Path, renamed: int) -> bool:
    """Whether all files are as they were; if not, nothing is lost, and the journal is there."""
    # The next one may have been renamed, too, or it is the one that somebody has edited.
    states = [entry.state() for entry in entries]
    possible = all(state is _State.NEW for state in states[:renamed]) and all(
        entry.can_roll_back()
        for entry, state in zip(entries, states, strict=True)
        if state is _State.NEW
    )
    if possible:
        try:
            _roll_back(entries, base)
        except (OSError, SourceError):
            return False
    return possible


# What a writer does in the end, and who recovers its set. Each of these can be interrupted and done
# again.


def _way(entries: Sequence[_Entry]) -> _Way:
    states = [(entry, entry.state()) for entry in entries]
    if all(
        state is _State.NEW or (state is _State.OLD and entry.can_finish())
        for entry, state in states
    ):
        return _Way.FINISH
    new = [entry for entry, state in states if state is _State.NEW]
    if not new:
        # Whoever has edited a file edited the old one.
        return _Way.ROLL_BACK
    if any(state is _State.OTHER for _, state in states):
        return _Way.LEAVE
    return _Way.ROLL_BACK if all(entry.can_roll_back() for entry in new) else _Way.LEAVE


def _finish(entries: Sequence[_Entry], base: Path) -> None:
    for entry in entries:
        if entry.state() is _State.OLD:
            with _blaming(entry.target):
                entry.staged.replace(entry.target)
    _sync(entries)
    _sweep(entries, base)


def _roll_back(entries: Sequence[_Entry], base: Path) -> None:
    for entry in entries:
        if entry.state() is _State.NEW:
            with _blaming(entry.target):
                entry.backup.replace(entry.target)
    _sync(entries)
    _sweep(entries, base)


def _sweep(entries: Sequence[_Entry], base: Path) -> None:
    """Remove the copies, and then the journal, so that no copy is left that no journal names."""
    for entry in entries:
        entry.staged.unlink(missing_ok=True)
        entry.backup.unlink(missing_ok=True)
    (base / NAME).unlink(missing_ok=True)


def _set_aside(entries: Sequence[_Entry], base: Path) -> Recovery:
    lines = [f"an interrupted write of {len(entries)} files can no longer be finished"]
    for entry in entries:
        state = entry.state()
        words = {
            _State.OLD: "is as it was",
            _State.NEW: "is rewritten",
            _State.OTHER: "was changed by somebody else",
        }
        line = f"  {entry.path} {words[state]}"
        here = _digest(entry.target)
        for name, copy, known in (
            ("old", entry.backup, entry.old),
            ("new", entry.staged, entry.new),
        ):
            if not os.path.lexists(copy):
                continue
            found = _digest(copy)
            if found is not None and found == here:
                copy.unlink()
            elif found == known:
                line += f"; the {name} text is in {copy}"
            else:
                line += f"; a damaged copy of the {name} text is in {copy}"
        lines.append(line)
    token = _COPY.sub(r"\1", entries[0].staged.name)
    kept = base / f"{files.PREFIX}journal-{token}.kept"
    (base / NAME).replace(kept)
    lines.append(
        f"no file was touched: make them agree by hand, then delete these copies and {kept}"
    )
    return Recovery(tuple(lines), settled=False)


def _sync(entries: Iterable[_Entry]) -> None:
    for directory in {entry.target.parent for entry in entries}:
        _sync_directory(directory)


def _sync_directory(directory: Path) -> None:
    """Make the names in a directory outlast a power cut, where the system can do that."""
    with contextlib.suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _digest(path: Path) -> str | None:
    """None for what is not there, and for links and other things that are no files."""
    try:
        if not stat.S_ISREG(path.lstat().st_mode):
            return None
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


# The journal as a file.


def _publish(base: Path, entries: Sequence[_Entry]) -> IO[bytes]:
    """The journal, on disk, complete, and locked until it is closed.

    Raises `SourceError` where there is one already.
    """
    data = json.dumps(
        {
            "about": "amp-migrate was interrupted; amp-migrate --write recovers",
            "version": VERSION,
            "files": [
                {
                    "path": entry.path,
                    "old": entry.old,
                    "new": entry.new,
                    "staged": entry.staged.name,
                    "backup": entry.backup.name,
                }
                for entry in entries
            ],
        },
        indent=1,
    )
    draft, journal = base / DRAFT, base / NAME
    busy = SourceError(
        str(journal), "another run is writing or was interrupted: try --write again"
    )
    try:
        # Whoever has made this file may make the journal, and nobody else.
        file = os.fdopen(_open(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL), "w+b")
    except FileExistsError:
        raise busy from None
    except OSError as error:
        raise files.unwritable(str(journal), error) from None
    try:
        with _blaming(journal):
            # Somebody who recovers may have taken it for a dead one, before it was locked.
            if not _lock(file) or not _is_at(file, draft) or os.path.lexists(journal):
                raise busy
            file.write(data.encode())
            file.flush()
            os.fsync(file.fileno())
            if sys.platform == "win32":
                file.close()  # An open file is not renamed there.
            draft.replace(journal)
            _sync_directory(base)
    except BaseException:
        for path in (draft, journal):
            if not file.closed and _is_at(file, path):
                path.unlink(missing_ok=True)
        file.close()
        raise
    return file


def _hold(path: Path, base: Path, *, to_write: bool = True) -> IO[bytes] | None:
    """The file, locked until it is closed; None where there is none.

    Raises `SourceError` where another process holds it, or it is not one to trust.
    """
    with _blaming(path):
        try:
            handle = _open(path, os.O_RDWR if to_write else os.O_RDONLY)
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            _check(os.fstat(handle), path, base)
            file = os.fdopen(handle, "r+b" if to_write else "rb")
        except BaseException:
            os.close(handle)
            raise
        try:
            if not _lock(file, shared=not to_write):
                raise SourceError(str(path), "another run is writing just now")
            if _is_at(file, path):
                return file
        except BaseException:
            file.close()
            raise
        file.close()
        return None


def _check(status: os.stat_result, path: Path, base: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise SourceError(str(path), "is not a file; remove it to go on")
    if hasattr(os, "geteuid"):
        # As git does: in a directory like /tmp, anybody may have put it there.
        if status.st_uid not in {os.geteuid(), base.stat().st_uid}:
            raise SourceError(str(path), "belongs to another user; remove it to go on")


def _open(path: Path, flags: int) -> int:
    for name in ("O_BINARY", "O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"):
        flags |= getattr(os, name, 0)
    return os.open(path, flags, 0o666)


def _lock(file: IO[bytes], *, shared: bool = False) -> bool:
    """False where another process has it; True also where there is no locking."""
    if sys.platform != "win32":
        try:
            how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
            fcntl.flock(file.fileno(), how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:
            pass
    return True


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except OSError:
        return False


def _parse(data: bytes, base: Path) -> list[_Entry]:
    """What a journal says. Raises `SourceError` unless this program may have written it."""
    journal = str(base / NAME)
    damaged = SourceError(
        journal,
        "the journal of an interrupted write is damaged: delete it to go on, after a look at"
        f" the files and at the copies beside them ({files.PREFIX}*)",
    )
    try:
        content = json.loads(data)
        if content["version"] != VERSION:
            raise SourceError(
                journal, "written by another version of amp-migrate, which can recover"
            )
        entries = [_entry(one, base) for one in content["files"]]
    except (ValueError, KeyError, TypeError, RuntimeError):
        raise damaged from None
    if not entries or len({entry.target for entry in entries}) != len(entries):
        raise damaged
    return entries


def _entry(fields: dict[str, object], base: Path) -> _Entry:
    def text(key: str) -> str:
        value = fields[key]
        if not isinstance(value, str):
            raise TypeError(key)
        return value

    path, old, new = text("path"), text("old"), text("new")
    staged, backup = text("staged"), text("backup")
    if not (_HASH.fullmatch(old) and _HASH.fullmatch(new)):
        raise ValueError("not a hash")
    if not (_COPY.fullmatch(staged) and _COPY.fullmatch(backup)) or staged == backup:
        raise ValueError("not the name of a copy")
    if b"\0" in os.fsencode(path):
        raise ValueError("not a path")
    relative = PurePosixPath(path)
    target = base / relative
    if relative.is_absolute() or ".." in relative.parts or not relative.name:
        raise ValueError("not below the root")
    # The last part is looked at with the content: it may have become a link since.
    if target.parent.resolve() != target.parent:
        raise ValueError("through a link")
    return _Entry(
        path,
        target,
        old,
        new,
        staged=target.with_name(staged),
        backup=target.with_name(backup),
    )


@contextlib.contextmanager
def _blaming(path: str | Path) -> Iterator[None]:
    """Turn what the system refuses into a `SourceError` for ``path``."""
    try:
        yield
    except OSError as error:
        raise files.unwritable(str(path), error) from None
