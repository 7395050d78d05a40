"""Who gives the answers: this program, and whatever else of the installation they depend upon."""

from __future__ import annotations

import os
import platform
import re
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import amp_migrate
from amp_migrate.catalogue.rules import rules_folder
from amp_migrate.program.glance import digest, digest_of

_LIBRARIES = ("black", "libcst", "nbformat", "pathspec")
"""Those that can change what is read or written."""


@cache
def identity() -> str | None:
    """A digest that is another one where any answer may be another; None where that cannot be told."""
    package = Path(amp_migrate.__file__).parent
    try:
        # All of it, also where it is installed: no version says that somebody has changed a line.
        sources = _contents(package)
        rules = rules_folder()
        if isinstance(rules, Path) and not rules.is_relative_to(package):
            sources += _contents(rules)
    except OSError:
        return None
    return digest_of(
        [
            amp_migrate.__version__,
            sources,
            sys.version,
            platform.python_implementation(),
            os.name,
            sys.getfilesystemencoding(),
            [_version(name) for name in _LIBRARIES],
        ]
    )


def _contents(folder: Path) -> list[tuple[str, str]]:
    """The files below a folder that code or rules stand in, with digests."""
    found = []
    pending = [str(folder)]
    while pending:
        with os.scandir(pending.pop()) as listing:
            for entry in listing:
                if entry.is_dir():
                    if entry.name != "__pycache__":
                        pending.append(entry.path)
                elif entry.name.endswith((".py", ".toml")):
                    data = Path(entry.path).read_bytes()
                    found.append((entry.path[len(str(folder)) :], digest(data)))
    return sorted(found)


def _version(name: str) -> str:
    """The version of a library that is installed, by the name of its folder of metadata."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return ""
    place = Path(spec.origin).parent.parent
    pattern = re.compile(rf"{name}-(.+)\.(?:dist|egg)-info", re.IGNORECASE)
    names = (path.name for path in place.iterdir())
    found = [match[1] for name in names if (match := pattern.fullmatch(name))]
    if len(found) == 1:
        return found[0]
    # Imported here: it takes longer than all the rest.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return str(place)
