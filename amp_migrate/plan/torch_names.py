"""What each file calls torch, in code that is inserted there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from amp_migrate.facts import ir
from amp_migrate.project.link import Program


@dataclass(frozen=True, slots=True)
class TorchName:
    """``missing``: an import must be added; ``shadowed``: a line that gives the name another meaning."""

    name: str
    missing: bool
    shadowed: int


class TorchNames:
    """The names of one program's files."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self.of_file = cache(self._of_file)

    def of(self, function: str) -> str:
        """What the file of a function calls torch."""
        return self.of_file(ir.file_of(function)).name

    def _of_file(self, file: str) -> TorchName:
        facts = self._program.modules[file]
        for local, target in facts.top.imports:
            if target == "torch":
                name, missing = local, False
                break
        else:
            name, missing = "torch", True
        for function in facts.functions.values():
            if name in function.bound and not (function is facts.top and not missing):
                imported = {
                    local for local, target in function.imports if target == "torch"
                }
                if name not in imported:
                    return TorchName(name, missing, function.line)
        defined = self._program.definitions(facts.top.qualname, name)
        others = [d for d in defined if d.stmt.kind not in ("import", "importfrom")]
        return TorchName(name, missing, others[0].stmt.line if others else 0)
