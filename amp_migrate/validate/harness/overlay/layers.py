"""Two layers of files seen as one: the user's, which are only read, and the script's own, in scratch.

All state lies on disk, so that the processes of a run share it:

- ``overlay/<path>``: the files that the script wrote, under their own absolute paths;
- ``removed/<path>``: a file here says that the user's entry of that path, and what is below it, is
  no longer to be seen (what others call a whiteout);
- ``changes``: grows by a byte whenever what a process remembers of folders may have become wrong.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat
import threading
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from .disk import Real, error, is_folder, lstat, write_copy, writes

try:
    import fcntl
except ImportError:  # no processes share the scratch folder there
    fcntl = None  # type: ignore[assignment]

_MOST_LINKS = 40  # as Linux has it
_MOST_REMEMBERED = 50_000


class Place(NamedTuple):
    """Where a path leads.

    ``path``: the path as the script sees it, absolute, links followed; ``real``: where it is on disk;
    ``status``: its lstat, None if there is nothing or it was not looked at; ``free``: whether the
    overlay has nothing to say about it.
    """

    path: str
    real: str
    status: os.stat_result | None
    free: bool = False


class _Folder(NamedTuple):
    path: str
    touched: (
        bool  # whether either layer but the user's says anything about what is in it
    )


class Layers:
    """The two layers. Threads and processes may share it; paths are POSIX paths."""

    def __init__(
        self, scratch: str, passed: Sequence[str], guarded: Sequence[str] = ()
    ) -> None:
        """``passed``: what is below these paths is left alone, but not what is below ``guarded``."""
        self.scratch = os.path.realpath(scratch)
        self.upper = self.scratch + "/overlay"
        self._removed = self.scratch + "/removed"
        self._changes = self.scratch + "/changes"
        self._numbers = itertools.count()
        for folder in (self.upper, self._removed, self.scratch + "/copies"):
            os.makedirs(folder, exist_ok=True)
        os.close(Real.open(self._changes, os.O_WRONLY | os.O_CREAT, 0o600))
        roots = {}
        for answer, paths in ((True, [*passed, scratch]), (False, guarded)):
            for path in paths:
                roots[os.path.abspath(path).rstrip("/") + "/"] = answer
                roots[os.path.realpath(path).rstrip("/") + "/"] = answer
        # The longest root that fits decides.
        self._roots = sorted(roots.items(), key=lambda root: -len(root[0]))
        self._prefixes = tuple(roots)
        self._seen: tuple[int, dict[str, _Folder]] = (-1, {})
        self._lock = threading.RLock()
        self._taken = False
        if hasattr(os, "register_at_fork"):
            # A process must not be forked while another of its threads is in the middle of a change.
            os.register_at_fork(
                before=self._lock.acquire,
                after_in_parent=self._lock.release,
                after_in_child=self._lock.release,
            )

    # Looking

    def is_free(self, path: str) -> bool:
        """Whether an absolute path without ``..`` is one that the overlay leaves alone."""
        path += "/"
        if not path.startswith(self._prefixes):
            return False  # sooner said of most paths
        for root, free in self._roots:
            if path.startswith(root):
                return free
        return False

    def shown(self, real: str) -> str:
        """The path under which the script knows a path on disk."""
        if real.startswith(self.upper + "/"):
            return real[len(self.upper) :]
        return "/" if real == self.upper else real

    def working_folder(self) -> str:
        """The current directory as the script sees it."""
        return self.shown(Real.getcwd())

    def absolute(self, path: Any, dir_fd: int | None = None) -> str:
        """An absolute form of the path, links and ``..`` kept; the empty path stays empty."""
        text = path if type(path) is str else os.fsdecode(path)
        if text[:1] == "/" or not text:
            return text
        folder = self.working_folder() if dir_fd is None else self.of_descriptor(dir_fd)
        return folder.rstrip("/") + "/" + text

    def of_descriptor(self, descriptor: int) -> str:
        """The path, as the script sees it, of an open file or folder.

        Raises OSError where the system does not tell.
        """
        return self.shown(self.real_of_descriptor(descriptor))

    def real_of_descriptor(self, descriptor: int) -> str:
        """The path on disk of an open file or folder."""
        path = Real.readlink("/proc/self/fd/" + str(descriptor))
        if not path.startswith("/"):
            raise error(errno.EBADF, path)  # a pipe or the like
        return path

    def locate(
        self, path: Any, follow: bool = True, dir_fd: int | None = None
    ) -> Place:
        """Where a path leads; ``follow`` links also in its last part."""
        full = self.absolute(path, dir_fd)
        dotted = ".." in full
        if not full or (not dotted and self.is_free(full)):
            return Place(full, full, None, True)
        if full.endswith("/"):
            full, follow = full.rstrip("/") or "/", True
        head, _, name = full.rpartition("/")
        if not name or name in (".", ".."):
            place = self.at(self._walk(full))
        else:
            folder = self._folder(head or "/")
            shown = folder.path.rstrip("/") + "/" + name
            if folder.touched or (folder.path != head and self.is_free(shown)):
                place = self.at(shown)
            else:
                place = Place(shown, shown, lstat(shown))
        if follow and place.status is not None and stat.S_ISLNK(place.status.st_mode):
            place = self.at(self._walk(place.path))
        return place

    def at(self, path: str) -> Place:
        """Where a path leads that is known to have no links before its last part."""
        if self.is_free(path):
            return Place(path, path, lstat(path), True)
        upper = self.upper + path
        status = lstat(upper)
        if status is not None or self._is_removed(path):
            return Place(path, upper, status)
        return Place(path, path, lstat(path))

    def sides(self, path: str) -> list[str]:
        """The real folders that make up a folder, the script's own first."""
        sides = []
        if path and self._folder(path).touched:
            if is_folder(lstat(self.upper + path)):
                sides.append(self.upper + path)
            if self._is_removed(path):
                return sides
        if is_folder(lstat(path)):
            sides.append(path)
        return sides

    def removed_names(self, folder: str) -> set[str]:
        """Which of the user's entries of a folder, itself not removed, are no longer to be seen."""
        try:
            names = Real.listdir(self._removed + folder)
        except OSError:
            return set()
        return {
            name for name in names if self._is_removed(folder.rstrip("/") + "/" + name)
        }

    def names(self, place: Place) -> list[str]:
        """What is in a folder."""
        if place.free:
            return Real.listdir(place.real)
        sides = self.sides(place.path)
        if sides == [place.path] and not self.is_touched(place):
            return Real.listdir(place.path)
        found: dict[str, None] = {}
        for side in sides:
            gone = self.removed_names(place.path) if side == place.path else ()
            found.update(
                (name, None) for name in Real.listdir(side) if name not in gone
            )
        return list(found)

    def to_enter(self, path: Any) -> str:
        """The folder on disk to make the working folder.

        It is the user's own where there is one: C finds the user's files there by relative paths.
        """
        place = self.locate(path)
        sides = [] if place.free else self.sides(place.path)
        return sides[-1] if sides else place.real

    def is_touched(self, place: Place) -> bool:
        """Whether the script may see something else in a folder than what the user has there."""
        return not place.free and self._folder(place.path).touched

    # Changing

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Only one thread of one process changes the layers at a time."""
        with self._lock:
            if self._taken or fcntl is None:
                yield
                return
            lock = Real.open(self.scratch + "/lock", os.O_RDWR | os.O_CREAT, 0o600)
            self._taken = True
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield
            finally:
                self._taken = False
                os.close(lock)

    def to_open(self, place: Place, flags: int) -> str:
        """Makes ready what ``os.open`` with these flags will write; the path to open."""
        if place.free or not writes(flags):
            return place.real
        with self.turn():
            place = self.at(place.path)
            if place.status is None:
                if not flags & os.O_CREAT:
                    raise error(errno.ENOENT, place.path)
                return self.room(place.path)
            if flags & os.O_CREAT and flags & os.O_EXCL:
                raise error(errno.EEXIST, place.path)
            if is_folder(place.status):
                raise error(errno.EISDIR, place.path)
            if stat.S_ISREG(place.status.st_mode):
                return self.own(place, empty=bool(flags & os.O_TRUNC))
            return place.real  # pipes and devices are no files of anyone's

    def room(self, path: str) -> str:
        """Where on disk a new entry of that path belongs. Raises as the system does without a folder."""
        parent = self.at(os.path.dirname(path))
        if parent.status is None:
            raise error(errno.ENOENT, path)
        if not is_folder(parent.status):
            raise error(errno.ENOTDIR, path)
        self._make_parents(path)
        return self.upper + path

    def own(self, place: Place, whole: bool = False, empty: bool = False) -> str:
        """The script's own copy of what is there, made now if there is none; its path on disk.

        ``whole``: of a folder with all that is in it; ``empty``: of a file without what is in it.
        """
        if place.free or place.status is None:
            return place.real
        with self.turn():
            if place.real == place.path:
                self._copy(place, empty)
            if whole and is_folder(place.status):
                for name in self.names(place):
                    self.own(self.at(place.path.rstrip("/") + "/" + name), whole=True)
        return self.upper + place.path

    def hide(self, path: str) -> None:
        """The user's entry of that path, if there is one, is no longer to be seen."""
        if lstat(path) is None or self._is_removed(path):
            return
        mark = self._removed + path
        if is_folder(lstat(mark)):
            import shutil

            shutil.rmtree(mark)
        os.makedirs(os.path.dirname(mark), exist_ok=True)
        os.close(Real.open(mark, os.O_WRONLY | os.O_CREAT, 0o600))
        self.changed()

    def changed(self) -> None:
        """Tell all processes that what they remember of folders may be wrong."""
        changes = Real.open(self._changes, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(changes, b".")
        finally:
            os.close(changes)

    def _copy(self, place: Place, empty: bool) -> None:
        assert place.status is not None
        self._make_parents(place.path)
        target = self.upper + place.path
        mode = stat.S_IMODE(place.status.st_mode)
        if is_folder(place.status):
            self._make_folder(target, mode)
            return
        draft = f"{self.scratch}/copies/{os.getpid()}-{next(self._numbers)}"
        if stat.S_ISLNK(place.status.st_mode):
            Real.symlink(Real.readlink(place.real), draft)
        else:
            write_copy(None if empty else place.real, draft)
            Real.chmod(draft, mode)
            Real.utime(draft, ns=(place.status.st_atime_ns, place.status.st_mtime_ns))
        Real.rename(draft, target)

    def _make_parents(self, path: str) -> None:
        parent = os.path.dirname(path)
        if is_folder(lstat(self.upper + parent)):
            return
        self._make_parents(parent)
        status = self.at(parent).status
        self._make_folder(
            self.upper + parent, stat.S_IMODE(status.st_mode) if status else 0o777
        )

    def _make_folder(self, real: str, mode: int) -> None:
        Real.mkdir(real)
        Real.chmod(real, mode | 0o700)
        self.changed()

    # What is remembered

    def _folder(self, path: str) -> _Folder:
        size = Real.stat(self._changes).st_size
        seen_at, seen = self._seen
        if seen_at != size or len(seen) > _MOST_REMEMBERED:
            seen = {}
            self._seen = (size, seen)
        folder = seen.get(path)
        if folder is None:
            shown = self._walk(path + "/.")
            touched = lstat(self.upper + shown) is not None or self._speaks_of(shown)
            folder = seen[path] = _Folder(shown, touched)
        return folder

    def _walk(self, path: str) -> str:
        """The path without links, ``.`` and ``..``; its last part need not exist.

        Raises what the system raises where a folder on the way is missing, or is none.
        """
        done, links = "", 0
        place = self.at("/")
        rest = path.split("/")[::-1]
        while rest:
            name = rest.pop()
            if not name:
                continue
            if place.status is None:
                Real.lstat(place.real)  # raises what is wrong
            if not is_folder(place.status):
                raise error(errno.ENOTDIR, path)
            if name == ".":
                continue
            done = done.rpartition("/")[0] if name == ".." else done + "/" + name
            place = self.at(done or "/")
            if place.status is not None and stat.S_ISLNK(place.status.st_mode):
                links += 1
                if links > _MOST_LINKS:
                    raise error(errno.ELOOP, path)
                target = Real.readlink(place.real)
                done = "" if target.startswith("/") else done.rpartition("/")[0]
                place = self.at(done or "/")
                rest.extend(target.split("/")[::-1])
        return done or "/"

    def _is_removed(self, path: str) -> bool:
        try:
            mode = Real.lstat(self._removed + path).st_mode
        except NotADirectoryError:
            return True  # a folder above it was removed
        except OSError:
            return False
        return not stat.S_ISDIR(mode)

    def _speaks_of(self, path: str) -> bool:
        try:
            Real.lstat(self._removed + path)
        except FileNotFoundError:
            return False
        except OSError:
            pass
        return True
