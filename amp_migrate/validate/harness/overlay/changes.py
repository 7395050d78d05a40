"""What os does to entries of folders, done to the script's layer only.

Errors are those of the system, with the path as the script sees it.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import Any

from .disk import Real, error, is_folder, lstat
from .layers import Layers, Place

# What link() does on Linux if it is not told, whatever os.link says of its default.
_LINK_FOLLOWS = sys.platform == "darwin"


class Changes:
    """The functions of os that make, move and remove entries."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers

    def mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        """As os.mkdir."""
        with self._layers.turn():
            place = self._layers.locate(path, False, dir_fd)
            if place.free:
                Real.mkdir(place.real, mode)
                return
            Real.mkdir(self._new(place), mode)
            self._layers.changed()

    def symlink(
        self,
        src: Any,
        dst: Any,
        target_is_directory: bool = False,
        *,
        dir_fd: int | None = None,
    ) -> None:
        """As os.symlink; the text of the link stays as it was given."""
        with self._layers.turn():
            place = self._layers.locate(dst, False, dir_fd)
            if place.free:
                Real.symlink(src, place.real)
                return
            Real.symlink(os.fsdecode(src), self._new(place))
            self._layers.changed()

    def link(
        self,
        src: Any,
        dst: Any,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
        follow_symlinks: bool = _LINK_FOLLOWS,
    ) -> None:
        """As os.link; a user's file gets the script's own copy first."""
        with self._layers.turn():
            source = self._layers.locate(src, follow_symlinks, src_dir_fd)
            if not source.free and source.status is None:
                raise error(errno.ENOENT, source.path)
            place = self._layers.locate(dst, False, dst_dir_fd)
            target = place.real if place.free else self._new(place)
            own = self._layers.own(source)
            try:
                Real.link(own, target)
            except OSError as problem:
                if problem.errno != errno.EXDEV:
                    raise
                _copy(own, target)

    def unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        """As os.unlink and os.remove."""
        with self._layers.turn():
            place = self._there(path, dir_fd)
            if place.free:
                Real.unlink(place.real)
                return
            if is_folder(place.status):
                raise error(errno.EISDIR, place.path)
            was_link = place.status is not None and stat.S_ISLNK(place.status.st_mode)
            if place.real != place.path:
                Real.unlink(place.real)
            self._layers.hide(place.path)
            if was_link:
                self._layers.changed()

    def rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        """As os.rmdir."""
        with self._layers.turn():
            place = self._there(path, dir_fd)
            if place.free:
                Real.rmdir(place.real)
                return
            if not is_folder(place.status):
                raise error(errno.ENOTDIR, place.path)
            if self._layers.names(place):
                raise error(errno.ENOTEMPTY, place.path)
            if place.real != place.path:
                Real.rmdir(place.real)
            self._layers.hide(place.path)
            self._layers.changed()

    def rename(
        self,
        src: Any,
        dst: Any,
        *,
        src_dir_fd: int | None = None,
        dst_dir_fd: int | None = None,
    ) -> None:
        """As os.rename and os.replace."""
        with self._layers.turn():
            source = self._layers.locate(src, False, src_dir_fd)
            place = self._layers.locate(dst, False, dst_dir_fd)
            if source.free and place.free:
                Real.rename(source.real, place.real)
                return
            # Of free places, their status is not known yet.
            source, place = self._layers.at(source.path), self._layers.at(place.path)
            if {_last(src), _last(dst)} & {".", ".."}:
                raise error(errno.EBUSY, source.path)
            if source.status is None:
                raise error(errno.ENOENT, source.path)
            if source.path == place.path:
                return
            self._must_fit(source, place)
            own = self._layers.own(source, whole=True)
            target = place.real if place.free else self._layers.room(place.path)
            if is_folder(lstat(target)):
                Real.rmdir(target)
            _move(own, target)
            if is_folder(source.status) and not place.free:
                self._layers.hide(
                    place.path
                )  # what the user has below it must not come back
            if not source.free:
                self._layers.hide(source.path)
            self._layers.changed()

    def _there(self, path: Any, dir_fd: int | None) -> Place:
        place = self._layers.locate(path, False, dir_fd)
        if place.status is None and not place.free:
            raise error(errno.ENOENT, place.path)
        return place

    def _new(self, place: Place) -> str:
        if place.status is not None:
            raise error(errno.EEXIST, place.path)
        return self._layers.room(place.path)

    def _must_fit(self, source: Place, place: Place) -> None:
        if place.path.startswith(source.path + "/"):
            raise error(errno.EINVAL, place.path)
        if source.path.startswith(place.path + "/"):
            raise error(errno.ENOTEMPTY, place.path)
        if place.status is None:
            return
        if is_folder(source.status):
            if not is_folder(place.status):
                raise error(errno.ENOTDIR, place.path)
            if self._layers.names(place):
                raise error(errno.ENOTEMPTY, place.path)
        elif is_folder(place.status):
            raise error(errno.EISDIR, place.path)


def _last(path: Any) -> str:
    return os.fsdecode(path).rstrip("/").rpartition("/")[2]


def _move(source: str, target: str) -> None:
    try:
        Real.rename(source, target)
    except OSError as problem:
        if problem.errno != errno.EXDEV:
            raise
        _copy(source, target)
        if is_folder(lstat(source)):
            import shutil

            shutil.rmtree(source)
        else:
            Real.unlink(source)


def _copy(source: str, target: str) -> None:
    """To another device. Both lie outside the user's folders, so shutil may be used."""
    import shutil

    if is_folder(lstat(source)):
        shutil.copytree(source, target, symlinks=True)
    else:
        shutil.copy2(source, target, follow_symlinks=False)
