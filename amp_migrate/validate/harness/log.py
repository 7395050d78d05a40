"""The log of a run: one JSON object a line, on disk as soon as it is said."""

from __future__ import annotations

import json
import math
import os
import threading
from typing import Any


class Log:
    """Appends lines to a file. Threads may share it, and processes: each line is one write."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._lock = threading.Lock()

    def say(self, kind: str, **fields: Any) -> None:
        """Write one line. Numbers that JSON does not have are written as the words for them."""
        line = json.dumps({"kind": kind, **_plain(fields)}, default=str) + "\n"
        with self._lock:
            os.write(self._file, line.encode("utf-8", "backslashreplace"))


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
