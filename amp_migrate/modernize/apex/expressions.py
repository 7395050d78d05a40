"""What stands inside of a statement: the parameters of an optimizer, and apex's own state."""

from __future__ import annotations

import libcst as cst

from amp_migrate.modernize.apex.branches import MASTER_PARAMETERS, code_of, is_pure
from amp_migrate.modernize.apex.level import arguments_of
from amp_migrate.modernize.apex.text import ApexText


class Expressions(cst.CSTTransformer):
    """``master_params`` spelled out, and dicts without apex's state."""

    def __init__(self, apex: ApexText) -> None:
        super().__init__()
        self.apex = apex

    def leave_Call(
        self, original_node: cst.Call, updated_node: cst.Call
    ) -> cst.BaseExpression:
        if self.apex.calls(original_node, "master_params"):
            given = arguments_of(original_node, ("optimizer",))
            if given and set(given) == {"optimizer"} and is_pure(given["optimizer"]):
                self.apex.see(original_node)
                optimizer = code_of(given["optimizer"])
                return cst.parse_expression(MASTER_PARAMETERS.format(optimizer))
        args = list(updated_node.args)
        kept = [
            arg
            for old, arg in zip(original_node.args, args, strict=True)
            if old.keyword is None or not self._is_state(old.value)
        ]
        if len(kept) == len(args):
            return updated_node
        if kept and args[-1] is not kept[-1]:
            kept[-1] = kept[-1].with_changes(comma=args[-1].comma)
        return updated_node.with_changes(args=kept)

    def leave_Dict(self, original_node: cst.Dict, updated_node: cst.Dict) -> cst.Dict:
        elements = list(updated_node.elements)
        kept = [
            element
            for old, element in zip(original_node.elements, elements, strict=True)
            if not isinstance(old, cst.DictElement) or not self._is_state(old.value)
        ]
        if len(kept) == len(elements):
            return updated_node
        if kept and elements[-1] is not kept[-1]:
            kept[-1] = kept[-1].with_changes(comma=elements[-1].comma)
        return updated_node.with_changes(elements=kept)

    def _is_state(self, value: cst.BaseExpression) -> bool:
        """``amp.state_dict()``, perhaps only under a condition, with None otherwise."""
        match value:
            case cst.Call(args=[]) if self.apex.calls(value, "state_dict"):
                self.apex.see(value)
                return True
            case cst.IfExp(test=test, body=body, orelse=cst.Name(value="None")):
                return is_pure(test) and self._is_state(body)
        return False
