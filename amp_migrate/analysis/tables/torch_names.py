"""What each file calls torch, in code that is inserted there."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache

from amp_migrate.program import ir
from amp_migrate.program.link import Program

_TORCH = "torch"


@dataclass(frozen=True, slots=True)
class TorchName:
    """``missing``: an import must be added."""

    name: str
    missing: bool
    shadowed: tuple[tuple[ir.Path, int], ...]
    """The functions in which the name has another meaning, with the lines that say so; an empty path where
    it has one in all of the file."""
    line: int
    """Where it is imported, or 0."""

    def lost(self, paths: Collection[ir.Path]) -> int:
        """A line that gives the name another meaning where one of some statements stands, or 0."""
        return next(
            (
                line
                for outer, line in self.shadowed
                if any(path[: len(outer)] == outer for path in paths)
            ),
            0,
        )


class TorchNames:
    """The names of torch in one program's files."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.of_file = cache(self._of_file)

    def of(self, function: str) -> str:
        """What the file of a function calls torch."""
        return self.of_file(ir.file_of(function)).name

    def _of_file(self, file: str) -> TorchName:
        facts = self._program.modules[file]
        typing_only = _typing_only(facts.top)
        for local, target in facts.top.imports:
            if target == _TORCH and local not in typing_only:
                name, missing = local, False
                break
        else:
            name, missing = _TORCH, True
        shadowed = []
        for function in facts.functions.values():
            if name in function.bound and not (function is facts.top and not missing):
                imported = {
                    local for local, target in function.imports if target == _TORCH
                }
                if name not in imported:
                    shadowed.append((function.path, function.line))
        defined = self._program.definitions(facts.top.qualname, name)
        others = [d for d in defined if d.stmt.kind not in ("import", "importfrom")]
        imports = [d.stmt.line for d in defined if d not in others]
        shadowed += (((), one.stmt.line) for one in others[:1])
        return TorchName(
            name,
            missing,
            tuple(shadowed),
            0 if missing or not imports else min(imports),
        )


def _typing_only(top: ir.Function) -> set[str]:
    """Names that are imported under ``if TYPE_CHECKING:`` and nowhere else: not there at run time."""
    under: set[str] = set()
    others: set[str] = set()
    for stmt in top.body:
        checks = stmt.kind == "if" and (
            ir.key_of(stmt.value) if stmt.value else ""
        ) in (
            "TYPE_CHECKING",
            "typing.TYPE_CHECKING",
        )
        for inner in ir.statements((stmt,)):
            if inner.kind in ("import", "importfrom"):
                (under if checks and inner is not stmt else others).update(inner.names)
    return under - others
