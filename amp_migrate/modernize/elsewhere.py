"""Whether other files import a variable from the file that imports it from torch."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping

from amp_migrate.edit.names.uses import Uses
from amp_migrate.modernize.names import FileNames
from amp_migrate.program.layout import Ambiguous, Layout


class Elsewhere:
    """The files of one program, as they see one another's names."""

    def __init__(
        self,
        texts: Mapping[str, str],
        layout: Layout | None,
        read: Callable[[str], Uses | None],
    ) -> None:
        self._texts = texts
        self._layout = layout
        self._read = read

    def seen(self, file: str, name: str) -> str | None:
        """A file that uses another one's variable, or the file itself where it is meant for others."""
        uses = self._read(file)
        assert uses is not None
        if name in uses.exported or posixpath.basename(file) == "__init__.py":
            return file
        if self._layout is None:
            return None
        word = re.compile(rf"\b{re.escape(name)}\b")
        for other, text in self._texts.items():
            if other != file and (word.search(text) or "import *" in text):
                if self._uses(other, file, name):
                    return other
        return None

    def _uses(self, other: str, file: str, name: str) -> bool:
        uses = self._read(other)
        if uses is None:
            # It cannot be read, and speaks of such a name.
            return True
        for scope in uses.scopes:
            for bindings in scope.bindings.values():
                for binding in bindings:
                    if binding.target and self._leads(
                        other, binding.target, file, name
                    ):
                        return True
        for module, _ in uses.stars:
            if self._leads(other, module, file, "") and not name.startswith("_"):
                if any(
                    mention.parts[0] == name and uses.owner(name, mention.scope) is None
                    for mention in uses.mentions
                ):
                    return True
        names = FileNames(uses)
        return any(
            self._leads(other, dotted, file, name)
            for mention in uses.mentions
            if name in mention.parts[1:]
            and (dotted := names.dotted(mention.parts, mention.scope))
        )

    def _leads(self, importer: str, dotted: str, file: str, name: str) -> bool:
        assert self._layout is not None
        found = self._layout.locate(importer, dotted)
        if found is None:
            return False
        if isinstance(found, Ambiguous):
            return file in found.files
        return found.file == file and (not name or found.rest[:1] == (name,))
