"""A rewritten text in the layout that its file had: formatted where it was, cell by cell in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amp_migrate.core.results import SourceError
from amp_migrate.sources.document import NOTEBOOK_SUFFIX, Source, open_document

if TYPE_CHECKING:
    from black import Mode


class WrongError(Exception):
    """A rewrite that did not pass its own check."""

    def __init__(self, file: str, what: str) -> None:
        super().__init__(what)
        self.file = file
        self.what = f"the rewrite did not pass its own check: {what}"


def laid_out(
    file: str, before: str, after: str, document: Source | None, mode: Mode
) -> str:
    """``after``, formatted with black if ``before`` was; raises `WrongError`."""
    from amp_migrate.edit.formatting import keep_clean

    if document is None or not file.endswith(NOTEBOOK_SUFFIX):
        return keep_clean(before, after, mode)
    return _cells_laid_out(file, document, after, mode)


def _cells_laid_out(file: str, notebook: Source, output: str, mode: Mode) -> str:
    """The new text of a notebook: each cell that was formatted stays so, and all can be told apart."""
    from amp_migrate.edit.formatting import keep_cell_clean
    from amp_migrate.sources.ipython import LostMarkError

    try:
        befores, afters = notebook.split(notebook.text), notebook.split(output)
        pairs = zip(befores, afters, strict=True)
        output = notebook.join([keep_cell_clean(*pair, mode) for pair in pairs])
        data = notebook.encode(output)
        if open_document(notebook.path, data).text != output:
            raise WrongError(file, "the notebook would be read as another program")
    except (LostMarkError, SourceError) as error:
        raise WrongError(file, str(error)) from error
    return output
