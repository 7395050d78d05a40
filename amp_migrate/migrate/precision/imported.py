"""What is imported by a name that is not in sight: it may do whatever raises in half precision."""

from __future__ import annotations

import builtins
from functools import cached_property

from amp_migrate.analysis.objects.contents import Contents
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of, each_call
from amp_migrate.program.link import Program

_IMPORTS = ("builtins.__import__", "importlib.import_module")
_LOADS = (
    *("importlib.util.module_from_spec", "importlib.machinery.SourceFileLoader"),
    *("imp.load_source", "pydoc.locate", "runpy.run_module", "runpy.run_path"),
)
"""What gives a file that they are told."""
_LIBRARIES = ("torch.", "torchvision.", "timm.", "transformers.")
_PASS_ON = (
    *("builtins.getattr", "builtins.vars", "functools.partial", "torch.nn.Sequential"),
    *(f"torch.nn.{kind}DataParallel" for kind in ("", "parallel.Distributed")),
    "torch.nn.parallel.DataParallel",
)
"""What they make runs what they are given."""


class Imported:
    """Answers for one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._contents = program.noted(Contents)

    def run_by(self, function: str, stmt: ir.Stmt) -> ir.Call | None:
        """The call of a statement that runs what is imported so: ``get_class(config.model)()``."""
        for call in calls_of(stmt) if self._importing or self._executing else ():
            if self._is_imported(call.func, function, set()):
                return call
        return None

    def _is_imported(
        self, expr: ir.Expr, function: str, seen: set[tuple[ir.Expr, str]]
    ) -> bool:
        """Whether it is made of what is imported so, and has no name by which it is in sight."""
        program = self.program
        if (expr, function) in seen:
            return False
        seen.add((expr, function))
        made: list[tuple[ir.Expr, str]] = []
        match expr:
            case ir.Call(func=func, args=args):
                callees = program.callees(expr, function)
                if expr in self._importing or any(
                    call in self._importing
                    for one in callees
                    for _, call in each_call(program.functions[one].body)
                ):
                    return True
                if program.origin(func, function) in _PASS_ON:
                    made = [(arg.value, function) for arg in args]
                elif callees:
                    made = [
                        (value, where)
                        for where, value in program.returns(expr, function)
                    ]
                else:
                    made = [(func, function)]
            case ir.Item(value=value, key=key):
                if program.origin(value, function) == "sys.modules":
                    return not isinstance(key, ir.Const) and key != ir.Name("__name__")
                made = [(value, function)]
            case ir.Display(items=items) | ir.Comprehension(elements=items):
                made = [(item, function) for item in items]
            case ir.Name() | ir.Attr():
                made = [
                    (one.value, one.function)
                    for one in program.definitions_of(expr, function)
                    if one.value is not None
                ]
                if isinstance(expr, ir.Name) and program.is_param(function, expr.id):
                    made += (
                        (value, caller)
                        for caller, value in program.arguments(function, expr.id)
                    )
                elif isinstance(expr, ir.Attr) and not any(
                    one.name == expr.attr for one in program.classes.values()
                ):
                    made.append((expr.value, function))
                if (
                    isinstance(expr, ir.Name)
                    and ir.file_of(function) in self._executing
                ):
                    # No statement gives it a value but one that is executed.
                    if not (
                        expr.id in dir(builtins)
                        or program.owner(expr.id, function)
                        or program.origin(expr, function)
                    ):
                        return True
                # By another name it may be any of what a call gives together with it.
                made += (
                    (put.value, put.function)
                    for put in self._contents.put_into(expr, function, of_dict=True)
                    if ir.last_of(put.holder) == ir.last_of(expr)
                )
        return any(self._is_imported(*one, seen) for one in made)

    @cached_property
    def _executing(self) -> frozenset[str]:
        """The files in which statements are executed that are not in sight."""
        return frozenset(
            ir.file_of(function)
            for function, _, call in self.program.calls_named("exec")
            if self.program.origin(call.func, function) == "builtins.exec"
        )

    @cached_property
    def _importing(self) -> list[ir.Call]:
        """The calls that import a file by a name of which nothing is known; not ``__name__``, their own."""
        program = self.program
        words = {origin.rpartition(".")[2] for origin in (*_IMPORTS, *_LOADS)}
        return [
            call
            for function, stmt in program.mentioning(*words)
            for call in calls_of(stmt)
            if call.args
            and not isinstance(name := call.args[-1].value, ir.Const)
            and (
                (origin := program.origin(call.func, function)) in _LOADS
                or (
                    origin in _IMPORTS
                    and not isinstance(name := call.args[0].value, ir.Const)
                    and name != ir.Name("__name__")
                    and not program.imported_by_name
                    and not self._begins_in_sight(name, function)
                )
            )
        ]

    def _begins_in_sight(self, name: ir.Expr, function: str) -> bool:
        """Whether a name is put together behind that of a library, or of a folder whose files are in sight:
        ``"models." + name``."""
        program = self.program
        made = [name, *(d.value for d in program.definitions_of(name, function))]
        if isinstance(name, ir.Name) and program.is_param(function, name.id):
            for caller, value in program.arguments(function, name.id):
                made += [
                    value,
                    *(d.value for d in program.definitions_of(value, caller)),
                ]
        for one in made:
            for part in ir.walk(one) if isinstance(one, ir.Operation) else ():
                if isinstance(part, ir.Const) and isinstance(part.value, str):
                    folder = part.value.rpartition(".")[0].replace(".", "/")
                    if part.value.startswith(_LIBRARIES) or (
                        folder
                        and any(f"/{folder}/" in f"/{file}" for file in program.modules)
                    ):
                        return True
        return False
