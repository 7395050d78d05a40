"""The Python API: text in, text out; files and the command line only wrap it."""

from __future__ import annotations

from pathlib import Path

from amp_migrate.options import Options
from amp_migrate.results import Diagnostic, Loop, Outcome, Place, Result, SourceError

__all__ = [
    "Diagnostic",
    "Loop",
    "Options",
    "Outcome",
    "Place",
    "Result",
    "SourceError",
    "migrate_source",
]

_DEFAULTS = Options()


def migrate_source(
    text: str,
    *,
    path: str = "<string>",
    options: Options = _DEFAULTS,
    root: Path | None = None,
) -> Result:
    """Migrate one file's text (newlines as ``\\n``).

    ``path`` is what diagnostics call the file, and where its imports are looked up from. Under
    ``root``, the project's other files are read: modules that this file imports, and files that use
    its functions. Without it only the text itself is looked at.

    Raises `SourceError` where the text is not valid for the Python that runs this.
    """
    if ".backward" not in text:
        return Result(path, text, text)
    from amp_migrate.migration import migrate_text

    return migrate_text(text, path=path, options=options, root=root)
