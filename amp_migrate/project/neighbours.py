"""The other files of a project, as far as one file's program needs to know them."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from amp_migrate.facts import ir, read_module
from amp_migrate.results import SourceError

_MOST_FILES = 400
"""How many files a search for mentions looks at before it answers "perhaps"."""
_SKIPPED = frozenset(
    {".git", ".venv", "venv", "node_modules", "build", "dist", "__pycache__"}
)


class Neighbourhood:
    """What surrounds the file at ``path`` under the project root."""

    def __init__(self, path: str, root: Path | None) -> None:
        self.root = root
        self.file = Path(path).resolve() if root is not None else None

    def imported_by(self, facts: ir.ModuleFacts) -> dict[str, ir.ModuleFacts]:
        """Facts of the project's files that a file imports, directly or through others."""
        if self.root is None or self.file is None:
            return {}
        found: dict[str, ir.ModuleFacts] = {}
        pending = [(facts, self.file)]
        seen = {self.file}
        while pending:
            current, at = pending.pop(0)
            for module in _imported_modules(current):
                target = self._locate(module, at)
                if target is None or target in seen:
                    continue
                seen.add(target)
                neighbour = _read(str(target), _stamp(target))
                if neighbour is not None:
                    found.setdefault(module, neighbour)
                    pending.append((neighbour, target))
        return found

    def _locate(self, module: str, importer: Path) -> Path | None:
        """The file of a dotted module, beside the importer, under the root or under ``src``."""
        assert self.root is not None
        level = len(module) - len(module.lstrip("."))
        parts = [part for part in module.lstrip(".").split(".") if part]
        if level:
            base = importer.parent
            for _ in range(level - 1):
                base = base.parent
            bases = [base]
        else:
            bases = [importer.parent, self.root, self.root / "src"]
        for base in bases:
            for length in range(len(parts), 0, -1):
                stem = base.joinpath(*parts[:length])
                for candidate in (stem.with_suffix(".py"), stem / "__init__.py"):
                    if candidate.is_file() and candidate.resolve() != self.file:
                        return candidate.resolve()
        return None

    def mentions(self, name: str) -> str | None:
        """A file of the project that imports this one and mentions ``name``, if there is one."""
        if self.root is None or self.file is None:
            return None
        stem = self.file.parent.name if self.file.stem == "__init__" else self.file.stem
        imports = re.compile(rf"\b(import|from)\b[^\n#]*\b{re.escape(stem)}\b")
        word = re.compile(rf"\b{re.escape(name)}\b")
        for count, other in enumerate(_python_files(str(self.root))):
            if count > _MOST_FILES:
                return "one of many files"
            if other == str(self.file):
                continue
            text = _text_of(other)
            if word.search(text) and imports.search(text):
                return str(Path(other).relative_to(self.root))
        return None


def _imported_modules(facts: ir.ModuleFacts) -> list[str]:
    found = [
        target
        for function in facts.functions.values()
        for _, target in function.imports
    ]
    return list(dict.fromkeys([*found, *facts.star_imports]))


def _stamp(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return (0, 0)
    return (status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=2048)
def _read(path: str, stamp: tuple[int, int]) -> ir.ModuleFacts | None:
    try:
        return read_module(
            Path(path).read_text(encoding="utf-8", errors="replace"), path
        )
    except (OSError, SourceError):
        return None


@lru_cache(maxsize=8)
def _python_files(root: str) -> tuple[str, ...]:
    found: list[str] = []
    pending = [Path(root)]
    while pending and len(found) <= _MOST_FILES:
        try:
            entries = sorted(pending.pop().iterdir())
        except OSError:
            continue
        for entry in entries:
            if (
                entry.is_symlink()
                or entry.name in _SKIPPED
                or entry.name.startswith(".")
            ):
                continue
            if entry.is_dir():
                pending.append(entry)
            elif entry.suffix in (".py", ".ipynb"):
                found.append(str(entry.resolve()))
    return tuple(found)


@lru_cache(maxsize=512)
def _text_of(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
