"""The harness as one file: a zip archive that the user's interpreter finds on its path."""

from __future__ import annotations

import zipfile
from pathlib import Path

PACKAGE = "_amp_smoke"
"""What the harness is called in the archive: a name that no project has."""

_SOURCES = Path(__file__).parent / "harness"
_TOP_LEVEL = "sitecustomize.py"


def write(path: Path) -> None:
    """Pack the harness. Raises `OSError` where that cannot be written."""
    with zipfile.ZipFile(path, "w") as archive:
        for source in sorted(_SOURCES.rglob("*.py")):
            name = source.relative_to(_SOURCES).as_posix()
            archive.write(source, name if name == _TOP_LEVEL else f"{PACKAGE}/{name}")
