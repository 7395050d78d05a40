"""What services that check pull requests need: names of files as the repository has them."""

from __future__ import annotations

import os
from pathlib import Path

from amp_migrate.report.findings.listing import relative_to
from amp_migrate.sources.discovery import lexical

_VARIABLES = ("GITHUB_WORKSPACE", "CI_PROJECT_DIR")
"""Where GitHub and GitLab tell the folder of the checkout."""


def checkout() -> Path:
    """The folder that names of files are relative to: the checkout's, else the current one."""
    here = Path.cwd()
    for variable in _VARIABLES:
        folder = Path(os.environ.get(variable) or os.sep)
        if folder != Path(os.sep) and (folder == here or folder in here.parents):
            return folder
    return here


def name(path: str, folder: Path) -> str:
    """A file as seen from ``folder``; as it is where it lies elsewhere, or is standard input."""
    if path.startswith("<"):
        return path
    relative = relative_to(folder, path)
    return Path(lexical(path)).as_posix() if relative.startswith("..") else relative
