"""``loss = optimizer.step(closure)`` as a call of the closure and a plain step behind it."""

from __future__ import annotations

import libcst as cst

from amp_migrate.edit.mismatch import MismatchError


class _Taker(cst.CSTTransformer):
    """Puts a call of the closure where the step is."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[cst.Call] = []

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        func = updated_node.func
        if not isinstance(func, cst.Attribute) or func.attr.value != "step":
            return updated_node
        if len(updated_node.args) != 1:
            return updated_node
        self.steps.append(updated_node)
        (given,) = updated_node.args
        closure = given.value
        if isinstance(closure, (cst.Name, cst.Attribute)):
            closure = closure.with_changes(lpar=(), rpar=())
        return updated_node.with_changes(
            func=closure, args=(), whitespace_before_args=_with_comment(updated_node)
        )


def _with_comment(call: cst.Call) -> cst.BaseParenthesizableWhitespace:
    """The space inside the parentheses of a call: that which holds a comment, if any does."""
    (given,) = call.args
    places = [call.whitespace_before_args, given.whitespace_after_arg]
    if isinstance(given.comma, cst.Comma):
        places.insert(1, given.comma.whitespace_after)
    for place in places:
        if isinstance(place, cst.ParenthesizedWhitespace):
            comments = [line.comment for line in place.empty_lines]
            if any((place.first_line.comment, *comments)):
                return place
    return cst.SimpleWhitespace("")


def called_first(
    statement: cst.SimpleStatementLine | cst.BaseCompoundStatement,
) -> tuple[cst.SimpleStatementLine, cst.SimpleStatementLine]:
    """The statement with the closure called in it, and the step without it as a line of its own.

    Raises `MismatchError` where it is no line with one such step.
    """
    taker = _Taker()
    changed = statement.visit(taker)
    if not isinstance(changed, cst.SimpleStatementLine) or len(taker.steps) != 1:
        raise MismatchError("no step(closure) where the plan saw one")
    step = cst.Call(taker.steps[0].func)
    return changed, cst.SimpleStatementLine([cst.Expr(step)])
