"""Conditions and branches around apex.amp: what they amount to without it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Sequence

import libcst as cst

MASTER_PARAMETERS = '[p for group in {}.param_groups for p in group["params"]]'
"""What ``amp.master_params(optimizer)`` yields where the master parameters are the model's own."""

_MASTER = re.compile(
    r"\[p for group in [\w.\[\]']+\.param_groups for p in group\['params'\]\]"
)
_PARAMETERS = re.compile(r"[\w.\[\]']+\.parameters\(\)")
_PURE = (
    ast.Name,
    ast.Attribute,
    ast.Constant,
    ast.Compare,
    ast.BoolOp,
    ast.UnaryOp,
    ast.BinOp,
    ast.Subscript,
    ast.List,
    ast.Tuple,
    ast.expr_context,
    ast.boolop,
    ast.operator,
    ast.unaryop,
    ast.cmpop,
)
_DECLINES = ("ImportError", "ModuleNotFoundError", "Exception", "")
_TOLD = re.compile(r"(?i)print|log|warn|info|exit")


def code_of(node: cst.CSTNode) -> str:
    """The code of an expression, on one line."""
    return " ".join(cst.Module([]).code_for_node(node).split())


def is_pure(node: cst.BaseExpression) -> bool:
    """Whether evaluating an expression does nothing else."""
    tree = ast.parse(code_of(node), mode="eval")
    return all(isinstance(inner, _PURE) for inner in ast.walk(tree.body))


def same_but_parameters(
    left: Sequence[cst.BaseStatement], right: Sequence[cst.BaseStatement]
) -> bool:
    """Whether two branches say the same, an optimizer's parameters being those of a model."""
    return _plain(left) == _plain(right)


def _plain(body: Sequence[cst.BaseStatement]) -> str:
    code = ast.unparse(ast.parse(cst.Module(list(body)).code))  # type: ignore[arg-type]
    return _PARAMETERS.sub("PARAMETERS", _MASTER.sub("PARAMETERS", code))


Present = Callable[[cst.BaseExpression], bool]


def simplified(
    test: cst.BaseExpression, true: Collection[str], present: Present
) -> tuple[cst.BaseExpression | bool, list[str]]:
    """A condition in which some variables are true, and which of them it asked.

    ``present``: whether an expression is apex.amp itself, which is there.
    """
    match test:
        case cst.Name(value=name) if name in true:
            return True, [name]
        case cst.Name() if present(test):
            return True, [""]
        case cst.Comparison(
            left=cst.Name(value=name) as left,
            comparisons=[
                cst.ComparisonTarget(
                    operator=operator, comparator=cst.Name(value=value)
                )
            ],
        ) if value in ("True", "False", "None"):
            known = name in true
            if not known and not (value == "None" and present(left)):
                return test, []
            same = isinstance(operator, (cst.Is, cst.Equal))
            if not same and not isinstance(operator, (cst.IsNot, cst.NotEqual)):
                return test, []
            return same == (value == "True"), [name if known else ""]
        case cst.UnaryOperation(operator=cst.Not(), expression=inner):
            found, asked = simplified(inner, true, present)
            if isinstance(found, bool):
                return not found, asked
            return test.with_changes(expression=found), asked
        case cst.BooleanOperation(left=left, operator=operator, right=right):
            first, asked_first = simplified(left, true, present)
            second, asked_second = simplified(right, true, present)
            asked = [*asked_first, *asked_second]
            if not asked:
                return test, []
            stops = isinstance(operator, cst.Or)
            if first is stops or second is stops:
                return stops, asked
            if isinstance(first, bool):
                return second, asked
            if isinstance(second, bool):
                return first, asked
            match first:
                case cst.UnaryOperation(operator=cst.Not(), expression=inner) if (
                    stops and is_pure(second) and code_of(inner) == code_of(second)
                ):
                    # `not fp16 or fp16 and AVAILABLE`
                    return True, asked
            return test.with_changes(left=first, right=second), asked
        case cst.IfExp(test=question, body=body, orelse=orelse):
            answer, asked = simplified(question, true, present)
            if isinstance(answer, bool):
                return (body if answer else orelse), asked
    return test, []


def only_declines(
    stmt: cst.Try, rest: Sequence[cst.BaseStatement]
) -> tuple[str, ...] | None:
    """The variables that say whether an import worked, where a ``try`` does nothing more.

    ``rest``: what its body does beside the import.
    """
    orelse = (
        list(stmt.orelse.body.body)
        if stmt.orelse is not None and isinstance(stmt.orelse.body, cst.IndentedBlock)
        else []
    )
    names: set[str] = set()
    for line in (*rest, *orelse):
        name = sets_constant(line, ("True",))
        if not name:
            return None
        names.add(name)
    for handler in stmt.handlers:
        kind = "" if handler.type is None else code_of(handler.type)
        if kind not in _DECLINES or not isinstance(handler.body, cst.IndentedBlock):
            return None
        for line in handler.body.body:
            if (
                sets_constant(line, ("None",))
                or sets_constant(line, ("False",)) in names
            ):
                continue
            match line:
                case cst.SimpleStatementLine(body=[cst.Raise() | cst.Pass()]):
                    pass
                case cst.SimpleStatementLine(
                    body=[cst.Expr(value=cst.Call(func=func))]
                ) if _TOLD.search(code_of(func)):
                    pass
                case _:
                    return None
    return tuple(sorted(names))


def sets_constant(line: cst.CSTNode, values: Collection[str]) -> str:
    """The variable that a statement sets to one of some constants, and does nothing else."""
    match line:
        case cst.SimpleStatementLine(
            body=[
                cst.Assign(
                    targets=[cst.AssignTarget(target=cst.Name(value=name))],
                    value=cst.Name(value=value),
                )
            ]
        ) if (
            value in values
        ):
            return name
    return ""
