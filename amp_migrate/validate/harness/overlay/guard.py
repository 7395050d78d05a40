"""The safety net under the overlay: refuses writes to the user's files that got past it."""

from __future__ import annotations

import errno
import os
import sys
import threading
from typing import Any

from .disk import writes
from .layers import Layers

# Audit events, by name: which arguments are paths that change, and which the folder's descriptor of
# each. https://docs.python.org/3/library/audit_events.html
_EVENTS: dict[str, tuple[tuple[int, int], ...]] = {
    "os.rename": ((0, 2), (1, 3)),
    "os.remove": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rmdir": ((0, 1),),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, -1),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.setxattr": ((0, -1),),
    "os.removexattr": ((0, -1),),
    "sqlite3.connect": ((0, -1),),
}


class Guard:
    """An audit hook. It cannot be taken back, so there is one a process."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        self._mapping = threading.local()

    def install(self) -> None:
        """From now on such a write raises PermissionError."""
        sys.addaudithook(self._hear)

    def mapping(self) -> threading.local:
        """Its ``path`` is what this thread opens by an opener of Python, which is heard of apart."""
        return self._mapping

    def _hear(self, event: str, values: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = values[:3]
            if isinstance(flags, int) and writes(flags):
                if path is not getattr(self._mapping, "path", None):
                    self._refuse(event, path, None)
            return
        for path, folder in _EVENTS.get(event, ()):
            descriptor = values[folder] if 0 < folder < len(values) else -1
            self._refuse(event, values[path], descriptor if descriptor != -1 else None)

    def _refuse(self, event: str, path: Any, folder: int | None) -> None:
        if path is None or isinstance(path, int):
            return  # what is open already was judged when it was opened
        try:
            text = os.fsdecode(path)
        except TypeError:
            return
        if event == "sqlite3.connect" and (not text or text.startswith((":", "file:"))):
            return  # in memory, or a URI that has been mapped before
        # Not absolute(): the system takes a path from the real working folder.
        if not text.startswith("/"):
            base = os.getcwd() if folder is None else self._layers.of_descriptor(folder)
            text = base + "/" + text
        text = os.path.normpath(text)
        if not self._layers.is_free(text):
            raise PermissionError(
                errno.EACCES,
                f"amp-migrate: this run may not change the user's files, and {event} got past its overlay",
                text,
            )
