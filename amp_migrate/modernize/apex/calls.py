"""``amp.initialize`` and ``amp.scale_loss``: what stands in their place without apex."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from amp_migrate.edit.comments import comments_of, own_lines
from amp_migrate.modernize.apex.branches import code_of, is_pure
from amp_migrate.modernize.apex.forms import Initialize, ScaledBackward
from amp_migrate.modernize.apex.level import Level, arguments_of, level_of
from amp_migrate.modernize.apex.text import ApexText

MODULE = "<module>"
"""Where a statement stands in no function."""


@dataclass(frozen=True, slots=True)
class Where:
    """The function that a statement stands in, and the conditions around it there."""

    function: str = MODULE
    tests: tuple[tuple[str, cst.If], ...] = ()


def initialized(
    stmt: cst.Assign, call: cst.Call, apex: ApexText, where: Where
) -> tuple[cst.BaseExpression | None, Initialize | None]:
    """What the same names are bound to without apex; None where they are it already."""
    given = arguments_of(call, ("models", "optimizers", "enabled", "opt_level"))
    if given is None or "models" not in given:
        raise apex.fail("amp.initialize() is given arguments not counted (*)", stmt)
    wanted = [given["models"]]
    optimizers: tuple[str, ...] = ()
    if "optimizers" in given and code_of(given["optimizers"]) != "None":
        wanted.append(given["optimizers"])
        optimizers = tuple(_elements(given["optimizers"]))
    level = level_of(given)
    if isinstance(level, str):
        raise apex.fail(level, stmt)
    # apex hands back a list for a list, and one thing for one thing.
    shapes = [_shape(one) for one in wanted]
    shape = tuple(shapes) if len(shapes) > 1 else shapes[0]
    same = [_shape(target.target) for target in stmt.targets] == [shape]
    plain = ", ".join(map(code_of, wanted))
    if not optimizers:
        # For inference, which is in fp32 then, as all evaluation is.
        if level != Level():
            message = "amp.initialize() is given no optimizer, and a level of its own"
            raise apex.fail(message, stmt)
        apex.see(call)
        return (None if same else cst.parse_expression(plain)), None
    at = apex.at(stmt)
    flags: list[str] = []
    for test, around in reversed(where.tests):
        if _assigns(around, optimizers, at[0], apex):
            break
        flags.insert(0, test)
    born = len(flags) < len(where.tests)
    apex.see(call)
    made = Initialize(where.function, at, tuple(flags), level, optimizers, born)
    value = None if same else cst.parse_expression(plain)
    return value, made


def scales(stmt: cst.With, apex: ApexText) -> bool:
    """Whether a statement is ``with amp.scale_loss(...)``."""
    return any(
        isinstance(item.item, cst.Call) and apex.calls(item.item, "scale_loss")
        for item in stmt.items
    )


def scaled(
    stmt: cst.With, apex: ApexText, where: Where
) -> tuple[cst.SimpleStatementLine, str, ScaledBackward]:
    """``loss.backward()`` for the statement that scales the loss, and what the scaled loss was called."""
    call, name = stmt.items[0].item, stmt.items[0].asname
    assert isinstance(call, cst.Call)
    given = arguments_of(call, ("loss", "optimizers", "loss_id"))
    if given is None or "loss" not in given or len(stmt.items) > 1 or not name:
        raise apex.fail("amp.scale_loss() is used in a way that is not known", stmt)
    for keyword, value in given.items():
        if keyword not in ("loss", "optimizers", "loss_id", "delay_unscale"):
            raise apex.fail(f"amp.scale_loss() is given {keyword}", stmt)
        if keyword != "loss" and not is_pure(value):
            raise apex.fail("amp.scale_loss() is given more than names", stmt)
    suite = stmt.body
    if isinstance(suite, cst.SimpleStatementSuite):
        suite = apex.on_its_own(suite)
    body = suite.body
    match list(body):
        case [
            cst.SimpleStatementLine(
                body=[
                    cst.Expr(
                        value=cst.Call(
                            func=cst.Attribute(
                                value=cst.Name(value=used),
                                attr=cst.Name(value="backward"),
                            )
                        ) as backward
                    )
                ]
            ) as line
        ] if used == code_of(name.name):
            pass
        case _:
            message = "not only one backward() is under amp.scale_loss()"
            if len(body) > 1:
                message = "more than backward() sees gradients that are still scaled"
            raise apex.fail(message, stmt)
    apex.see(call)
    loss = given["loss"]
    if not isinstance(loss, (cst.Name, cst.Attribute, cst.Call, cst.Subscript)):
        if not loss.lpar:
            loss = loss.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    func = backward.func.with_changes(value=loss)
    made = cst.Expr(backward.with_changes(func=func))
    tests = tuple(test for test, _ in where.tests)
    backward_of = ScaledBackward(where.function, apex.at(stmt), tests)
    # What stands between the header and the statement comes before it.
    assert isinstance(suite, cst.IndentedBlock)
    between = own_lines(comments_of([suite.header, *line.leading_lines]))
    plain = line.with_changes(
        body=[made], leading_lines=[*stmt.leading_lines, *between]
    )
    return plain, used, backward_of


def _elements(node: cst.BaseExpression) -> list[str]:
    if isinstance(node, (cst.List, cst.Tuple)):
        return [code_of(element.value) for element in node.elements]
    return [code_of(node)]


_Shape = str | tuple["_Shape", ...]


def _shape(node: cst.BaseExpression) -> _Shape:
    """What is bound, or given: a list or a tuple of such, whatever brackets it stands in."""
    if isinstance(node, (cst.List, cst.Tuple)):
        return tuple(_shape(element.value) for element in node.elements)
    return code_of(node.with_changes(lpar=(), rpar=()))


def _assigns(
    around: cst.If, names: tuple[str, ...], before: int, apex: ApexText
) -> bool:
    """Whether one of some names gets its value in a branch, above a line."""
    finder = _Targets(apex)
    around.visit(finder)
    return any(name in names and line < before for name, line in finder.found)


class _Targets(cst.CSTVisitor):
    def __init__(self, apex: ApexText) -> None:
        super().__init__()
        self.apex = apex
        self.found: list[tuple[str, int]] = []

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
        line = self.apex.at(node)[0]
        self.found += [(name, line) for name in _elements(node.target)]
