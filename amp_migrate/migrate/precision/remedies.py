"""What is known about the dtypes of a program's values, and what is planned for them."""

from __future__ import annotations

from amp_migrate.analysis.objects.flow import Flow
from amp_migrate.analysis.objects.modules import Modules
from amp_migrate.analysis.paths.loops import Refusal
from amp_migrate.analysis.values.dtypes import Dtypes
from amp_migrate.analysis.values.halves import Halves, Statements
from amp_migrate.edit.addresses import steps_to
from amp_migrate.edit.edits import Edit, Upcast
from amp_migrate.program import ir
from amp_migrate.program.link import Program

SHAPES = frozenset(
    """view squeeze unsqueeze reshape flatten permute transpose t contiguous clone detach expand
    view_as expand_as to cuda cpu float mean clamp clip clamp_min clamp_max repeat narrow
    squeeze_ requires_grad_""".split()
)
"""Functions and methods that leave a probability what it is, and its dtype."""

Found = tuple[str, Edit]
"""A function, and an edit of one of its statements."""


class Unclear(Exception):
    """Why a loss cannot have its island."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.refusal = Refusal("AMP020", message, line)


class Remedies:
    """One program, some of whose statements run under autocast; and the edits that this calls for."""

    def __init__(self, program: Program, under_autocast: Statements) -> None:
        self.program = program
        self.flow = Flow(program)
        self.modules = Modules(self.flow)
        self.dtypes = Dtypes(self.flow, self.modules)
        self.halves = Halves(self.flow, self.modules, under_autocast)
        self.edits: dict[Found, None] = {}

    def edit(self, function: str, edit: Edit) -> None:
        """Plan an edit; twice is once."""
        self.edits[function, edit] = None

    def upcast(self, function: str, stmt: ir.Stmt, expr: ir.Expr) -> None:
        """Plan a cast; raises `Unclear` where it cannot be written."""
        steps = steps_to(stmt, expr)
        if steps is None:
            raise Unclear(
                "an operand that has to be fp32 is not taken apart", stmt.line
            )
        self.edit(function, Upcast(stmt.path, steps))
