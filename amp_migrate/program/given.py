"""What objects are given by a name in other ways than by assignment: ``self.register_buffer("a", x)``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

from amp_migrate.program import ir
from amp_migrate.program.bindings import unpacked
from amp_migrate.program.link import Program
from amp_migrate.program.names import Definition

_REGISTERS = {"register_buffer": "tensor", "register_parameter": "param"}
"""Methods that give a module a tensor, and what the argument is called."""
_TENSORS = ("Parameter", "Tensor", "Buffer")
_KEEPING = frozenset("+ - * /".split())


class Given:
    """Answers for one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._named: dict[str, list[tuple[ir.Expr, Definition]]] = defaultdict(list)
        """By attribute: the object, and what it is given."""
        self._unnamed: list[tuple[ir.Expr, Definition]] = []
        """The same where the name is not in sight."""
        for method, called in _REGISTERS.items():
            for function, stmt, call in program.calls_named(method):
                if isinstance(call.func, ir.Attr):
                    name, value = call.argument(0, "name"), call.argument(1, called)
                    made = Definition(function, stmt, value)
                    self._add(call.func.value, name, made)
        self._registered = set(self._named)
        for function, stmt, call in program.calls_named("setattr"):
            holder, name, value = (call.argument(i, "") for i in range(3))
            if holder is not None:
                self._add(holder, name, Definition(function, stmt, value))
        for function, stmt, call in program.calls_named("update"):
            match call.func:
                case ir.Attr(value=ir.Attr(value=holder, attr="__dict__")):
                    for arg in call.args:
                        made = Definition(function, stmt, arg.value)
                        if arg.name is not None:
                            self._add(holder, ir.Const(arg.name), made)
        self._to_any_tensor: list[Definition] = []
        """What becomes the data of tensors of which it is not in sight which they are."""
        self.to_variables: dict[tuple[str, str], list[Definition]] = defaultdict(list)
        """What becomes the data of a variable, by where it lives and its name."""
        for function, stmt in program.all_statements():
            for target, value, index in unpacked(stmt):
                made = Definition(function, stmt, value, index)
                match target:
                    case ir.Attr(value=of, attr="data"):
                        if (value is None or not _keeps(value, of)) and not (
                            is_object(program, of, function)
                            or _is_of_library(program, of, function)
                        ):
                            self._add_data(of, made)
                    case ir.Item(
                        value=ir.Attr(
                            value=holder, attr="_buffers" | "_parameters" | "__dict__"
                        )
                        | ir.Call(
                            func=ir.Name(id="vars"), args=(ir.Arg(value=holder),)
                        ),
                        key=name,
                    ):
                        self._add(holder, name, made)

    def to(
        self, classes: Collection[str], attr: str, assigned: list[Definition]
    ) -> Iterator[Definition]:
        """What objects of some classes are given under a name, which is also assigned to."""
        family = {name for one in classes for name in self.program.family(one)}
        for holder, made in self._named.get(attr, ()):
            owners = self.program.instance_classes(holder, made.function)
            if not owners or owners & family:
                yield made
        for holder, made in self._unnamed:
            if self.program.instance_classes(holder, made.function) & family:
                yield made
        if attr in self._registered or any(
            isinstance(d.value, ir.Call)
            and (self.program.origin(d.value.func, d.function) or "").endswith(
                ("Parameter", "ParameterList", "ParameterDict")
            )
            for d in assigned
        ):
            yield from self._to_any_tensor

    def _add(self, holder: ir.Expr, name: ir.Expr | None, made: Definition) -> None:
        if isinstance(name, ir.Const):
            self._named[str(name.value)].append((holder, made))
        else:
            self._unnamed.append((holder, made))

    def _add_data(self, of: ir.Expr, made: Definition) -> None:
        """``x.data = y``: then it is another tensor, maybe of another dtype."""
        known = [of]
        if isinstance(of, ir.Name):
            owner = self.program.owner(of.id, made.function)
            if owner is not None:
                self.to_variables[owner, of.id].append(made)
            known = [
                d.value
                for d in (self.program.definitions(owner, of.id) if owner else ())
                if d.value is not None
            ]
        for expr in known:
            while isinstance(expr, ir.Item):
                expr = expr.value
            if isinstance(expr, ir.Attr):
                self._named[expr.attr].append((expr.value, made))
            else:
                self._to_any_tensor.append(made)
        if not known:
            self._to_any_tensor.append(made)


def is_object(program: Program, expr: ir.Expr, function: str) -> bool:
    """Whether an expression is an object of a class of the program that is no kind of tensor."""
    classes = program.instance_classes(expr, function)
    return bool(classes) and not any(
        base == "?" or base.endswith(_TENSORS)
        for class_name in classes
        for base in program.external_bases(class_name)
    )


def _is_of_library(program: Program, expr: ir.Expr, function: str) -> bool:
    """Whether it is an object of another library's class: a node of a configuration."""
    refs = program.resolve(expr, function)
    return bool(refs) and all(
        ref.kind == "made"
        and not ref.name.startswith("torch.")
        and ref.name.rpartition(".")[2][:1].isupper()
        and not ref.name.endswith(_TENSORS)
        for ref in refs
    )


def _keeps(value: ir.Expr, tensor: ir.Expr) -> bool:
    """Whether a value is computed from a tensor such that it is at least of its precision."""
    match value:
        case ir.Operation(op=op, operands=operands) if op in _KEEPING:
            return any(_keeps(one, tensor) for one in operands)
        case ir.Attr(attr="data", value=inner):
            return _keeps(inner, tensor)
    return value == tensor
