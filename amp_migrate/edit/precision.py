"""Edits of single expressions: they are computed, or held, in fp32, or scaled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import libcst as cst

from amp_migrate.edit.edits import (
    Bound,
    CastLike,
    Hoist,
    Scale,
    SplitLast,
    Steps,
    Upcast,
    Widen,
)
from amp_migrate.edit.mismatch import MismatchError

Hoisted = tuple[cst.SimpleStatementLine, bool]
"""A new statement, and whether it gets an island of its own."""

Expression = Bound | CastLike | Hoist | Scale | SplitLast | Upcast | Widen
_LINE = cst.SimpleStatementLine
HALVES = {
    "float16": ("float16",),
    "bfloat16": ("bfloat16",),
    "auto": ("float16", "bfloat16"),
}


def with_precision(
    line: cst.SimpleStatementLine | cst.If, edits: Iterable[Expression], torch: str
) -> tuple[list[Hoisted], list[str], cst.SimpleStatementLine | cst.If]:
    """What is hoisted out of a statement, in order, what is widened before that, and the statement with
    its edits."""
    value: object
    if isinstance(line, cst.If):
        value = line.test
    elif len(line.body) != 1:
        raise MismatchError("an expression of several statements in a line")
    else:
        value = getattr(line.body[0], "value", None)
    if not isinstance(value, cst.BaseExpression):
        raise MismatchError("an expression is wanted in a statement that has none")
    editor = _Editor(torch)
    for edit in edits:
        editor.edits[_at(value, edit.at)].append(edit)
    if isinstance(line, cst.If):
        test = value.visit(editor)
        assert isinstance(test, cst.BaseExpression)
        return editor.hoisted, list(editor.widened), line.with_changes(test=test)
    changed = line.visit(editor)
    assert isinstance(changed, cst.SimpleStatementLine)
    match changed.body[0], editor.hoisted:
        case cst.Expr(cst.Name()), [*_, (bound, False)] if len(editor.edits) == 1:
            # All that there was has got a name.
            return [], [], changed.with_changes(body=bound.body)
    return editor.hoisted, list(editor.widened), changed


def _at(value: cst.BaseExpression, steps: Steps) -> cst.BaseExpression:
    for step in steps:
        children = _children(value)
        if step >= len(children):
            raise MismatchError("an expression is not where the plan saw it")
        value = children[step]
    return value


def _children(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """As `ir.children` has them."""
    match node:
        case cst.Attribute():
            return [node.value]
        case cst.Call():
            # Positional arguments may follow a starred one, but never a keyword.
            return [node.func, *(arg.value for arg in node.args)]
        case cst.Subscript():
            element = node.slice[0].slice
            if len(node.slice) == 1 and isinstance(element, cst.Index):
                return [node.value, element.value]
            return [node.value]
        case cst.BinaryOperation() | cst.BooleanOperation():
            return [node.left, node.right]
        case cst.Comparison() if len(node.comparisons) == 1:
            return [node.left, node.comparisons[0].comparator]
        case cst.UnaryOperation():
            return [node.expression]
        case cst.IfExp():
            return [node.test, node.body, node.orelse]
        case cst.Tuple() | cst.List():
            return [element.value for element in node.elements]
        case cst.Dict():
            keys = [e.key for e in node.elements if isinstance(e, cst.DictElement)]
            return [*keys, *(element.value for element in node.elements)]
        case cst.ListComp() | cst.SetComp() | cst.GeneratorExp():
            return [node.elt]
        case cst.DictComp():
            return [node.key, node.value]
        case cst.Lambda():
            return [node.body]
    return []


class _Editor(cst.CSTTransformer):
    def __init__(self, torch: str) -> None:
        super().__init__()
        self.torch = torch
        self.edits: dict[cst.CSTNode, list[Expression]] = defaultdict(list)
        self.hoisted: list[Hoisted] = []
        self.widened: dict[str, None] = {}

    def on_leave(  # type: ignore[override]
        self, original_node: cst.CSTNode, updated_node: cst.CSTNode
    ) -> cst.CSTNode:
        changed = super().on_leave(original_node, updated_node)
        # The hoist comes last: what it takes out has its other edits by then.
        edits = sorted(
            self.edits.get(original_node, ()), key=lambda e: isinstance(e, Hoist)
        )
        for edit in edits:
            assert isinstance(changed, cst.BaseExpression)
            changed = self._edited(changed, edit)
        return changed  # type: ignore[return-value]

    def _edited(self, node: cst.BaseExpression, edit: Expression) -> cst.CSTNode:
        match edit:
            case Upcast():
                return upcast(node)
            case Widen():
                x = cst.Module([]).code_for_node(_bare(node))
                if not isinstance(node, (cst.Name, cst.Attribute, cst.Subscript)):
                    self.widened[f"{edit.name} = {x}"] = None
                    x = edit.name
                full = full_where_half(x, edit.dtype, self.torch, edit.asks)
                if edit.like is not None:
                    full = f"{x}.to({edit.like}.dtype) if {self.torch}.is_tensor({x}) else {x}"
                code = f"{edit.name} = {full}"
                self.widened[code] = None
                return cst.Name(edit.name, lpar=node.lpar, rpar=node.rpar)
            case Scale():
                scale = cst.parse_expression(f"{edit.switch}.scale")
                return cst.Call(scale, [cst.Arg(_bare(node))])
            case CastLike():
                dtype = cst.parse_expression(f"{edit.tensor}.dtype")
                return _method(node, "to", [cst.Arg(dtype)])
            case SplitLast():
                if not isinstance(node, cst.Call):
                    raise MismatchError("no call where the plan saw one")
                held = node.args[0].value if edit.given else node.func
                if isinstance(held, cst.Attribute) and held.attr.value == "forward":
                    held = held.value
                layers = cst.Module([]).code_for_node(held)
                last, others = (
                    cst.parse_expression(f"{layers}[{part}]") for part in ("-1", ":-1")
                )
                rest = node.with_changes(lpar=(), rpar=())
                for _ in range(edit.depth - 1):
                    before = rest.with_changes(func=others)
                    rest = cst.Call(last, [cst.Arg(before)])
                    layers += "[-1]"
                    last, others = (
                        cst.parse_expression(f"{layers}[{part}]")
                        for part in ("-1", ":-1")
                    )
                if edit.given:
                    first = node.args[0].with_changes(value=others)
                    rest = rest.with_changes(args=[first, *node.args[1:]])
                else:
                    rest = rest.with_changes(func=others)
                made = upcast(rest)
                whole = cst.Call(last, [cst.Arg(made)], lpar=node.lpar, rpar=node.rpar)
                return upcast(whole) if edit.full else whole
            case Bound():
                function, limit = ("max", "min") if edit.negative else ("min", "max")
                bound = f"{self.torch}.finfo({edit.tensor}.dtype).{limit}"
                comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
                return cst.Call(
                    cst.Name(function),
                    [
                        cst.Arg(_bare(node), comma=comma),
                        cst.Arg(cst.parse_expression(bound)),
                    ],
                )
            case Hoist():
                target = cst.AssignTarget(cst.Name(edit.name))
                line = _LINE([cst.Assign([target], _bare(node))])
                self.hoisted.append((line, edit.island))
                return cst.Name(edit.name)


def full_where_half(x: str, dtype: str, torch: str, asks: bool = False) -> str:
    """``x.float() if x.dtype is torch.float16 else x``; ``asks`` whether it is a tensor first."""
    halves = [f"{torch}.{name}" for name in HALVES[dtype]]
    test = f"in ({', '.join(halves)})" if halves[1:] else f"is {halves[0]}"
    asked = f"{torch}.is_tensor({x}) and " if asks else ""
    return f"{x}.float() if {asked}{x}.dtype {test} else {x}"


def upcast(node: cst.BaseExpression) -> cst.BaseExpression:
    """``x.float()``."""
    return _method(node, "float", [])


def _method(
    node: cst.BaseExpression, name: str, args: list[cst.Arg]
) -> cst.BaseExpression:
    if not node.lpar and not isinstance(
        node, (cst.Name, cst.Attribute, cst.Call, cst.Subscript)
    ):
        node = node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return cst.Call(cst.Attribute(node, cst.Name(name)), args)


def _bare(node: cst.BaseExpression) -> cst.BaseExpression:
    """Without parentheses, where nothing in them needs them."""
    code = cst.Module([]).code_for_node(node)
    return node if "\n" in code else node.with_changes(lpar=(), rpar=())
