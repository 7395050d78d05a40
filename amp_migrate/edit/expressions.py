"""Edits of the expressions on a statement's own line: arguments, dict entries, parameters."""

from __future__ import annotations

import libcst as cst

from amp_migrate.edit.edits import AddArgument, AddEntry, SetArgument
from amp_migrate.edit.lists import (
    insert_entry,
    separator_without_comment,
    without_comment,
)


class _HeaderTransformer(cst.CSTTransformer):
    """Transforms a statement's own expressions, not the blocks under it."""

    done = False

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> bool:
        return False

    def visit_SimpleStatementSuite(self, node: cst.SimpleStatementSuite) -> bool:
        return False

    def visit_Else(self, node: cst.Else) -> bool:
        return False


class ArgumentAdder(_HeaderTransformer):
    """Adds an argument to one call."""

    def __init__(self, edit: AddArgument, quote: str) -> None:
        super().__init__()
        self.edit = edit
        self.quote = quote
        self.seen = -1
        self.wanted: cst.Call | None = None

    def visit_Call(self, node: cst.Call) -> None:
        # Counted on the way in: outermost first, as the plan counts.
        if _compact(node.func) == self.edit.callee:
            self.seen += 1
            if self.seen == self.edit.occurrence:
                self.wanted = node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        if original_node is not self.wanted:
            return updated_node
        self.done = True
        value = cst.parse_expression(self.edit.value.replace('"', self.quote))
        if isinstance(self.edit, SetArgument):
            for index, arg in enumerate(updated_node.args):
                if arg.keyword is not None and arg.keyword.value == self.edit.name:
                    given = [*updated_node.args]
                    given[index] = arg.with_changes(value=value)
                    return updated_node.with_changes(args=given)
        new = cst.Arg(keyword=cst.Name(self.edit.name), value=value, equal=_TIGHT)
        args = insert_entry(
            updated_node.args,
            len(updated_node.args) - 1,
            new,
            updated_node.whitespace_before_args,
        )
        return updated_node.with_changes(args=args)


class EntryAdder(_HeaderTransformer):
    """Adds an entry to the dict that holds a given value."""

    def __init__(self, edit: AddEntry, quote: str) -> None:
        super().__init__()
        self.edit = edit
        self.quote = quote

    def leave_Dict(self, original_node: cst.Dict, updated_node: cst.Dict) -> cst.Dict:
        if self.edit.inside:
            return updated_node
        for index, element in enumerate(updated_node.elements):
            if self.done or not isinstance(element, cst.DictElement):
                continue
            if _compact(element.value) != self.edit.beside:
                continue
            self.done = True
            quote = self.quote
            if isinstance(element.key, cst.SimpleString):
                quote = element.key.quote
            key = cst.SimpleString(f"{quote}{self.edit.key}{quote}")
            new = element.with_changes(
                key=key,
                value=cst.parse_expression(self.edit.value),
                comma=cst.MaybeSentinel.DEFAULT,
            )
            opening = updated_node.lbrace.whitespace_after
            brace = updated_node.rbrace
            closing = brace.whitespace_before
            elements = insert_entry(  # type: ignore[type-var]
                updated_node.elements, index, new, opening, closing
            )
            if index == len(updated_node.elements) - 1:
                closing = without_comment(closing)
                brace = brace.with_changes(whitespace_before=closing)
            return updated_node.with_changes(elements=elements, rbrace=brace)
        return updated_node

    def leave_Call(
        self, original_node: cst.Call, updated_node: cst.Call
    ) -> cst.BaseExpression:
        if self.edit.inside:
            return self._around(updated_node)
        if _compact(updated_node.func) != "dict":
            return updated_node
        for index, arg in enumerate(updated_node.args):
            if (
                self.done
                or arg.keyword is None
                or _compact(arg.value) != self.edit.beside
            ):
                continue
            self.done = True
            new = arg.with_changes(
                keyword=cst.Name(self.edit.key),
                value=cst.parse_expression(self.edit.value),
                comma=cst.MaybeSentinel.DEFAULT,
            )
            opening = updated_node.whitespace_before_args
            return updated_node.with_changes(
                args=insert_entry(updated_node.args, index, new, opening)
            )
        return updated_node

    def _around(self, state: cst.Call) -> cst.BaseExpression:
        if self.done or _compact(state) != self.edit.beside:
            return state
        self.done = True
        quote = self.quote
        value = cst.parse_expression(self.edit.value)
        key = cst.SimpleString(f"{quote}{self.edit.key}{quote}")
        return cst.Dict([cst.StarredDictElement(state), cst.DictElement(key, value)])


_TIGHT = cst.AssignEqual(
    whitespace_before=cst.SimpleWhitespace(""),
    whitespace_after=cst.SimpleWhitespace(""),
)


def with_parameter(
    statement: cst.FunctionDef, name: str, default: str | None
) -> cst.FunctionDef:
    """A function with a new last parameter; keyword-only where it could not be last otherwise."""
    params = statement.params
    new = cst.Param(cst.Name(name))
    if default is not None:
        new = cst.Param(
            cst.Name(name), default=cst.parse_expression(default), equal=_TIGHT
        )
    opening = statement.whitespace_before_params
    keyword_only = (
        bool(params.kwonly_params)
        or isinstance(params.star_arg, (cst.Param, cst.ParamStar))
        or (
            default is None
            and any(param.default is not None for param in params.params)
        )
    )
    rest = [p for p in (params.star_arg,) if isinstance(p, cst.Param)]
    count = len(params.params) + (not keyword_only)
    after = len(params.params) - 1
    if keyword_only:
        after += len(rest) + len(params.kwonly_params)
    entries = [*params.params, *rest, *params.kwonly_params]
    if params.star_kwarg is not None:
        entries.append(params.star_kwarg)
    entries = insert_entry(entries, after, new, opening)
    changed: dict[str, object] = {"params": entries[:count]}
    if rest:
        changed["star_arg"] = entries[count]
    elif keyword_only and not params.kwonly_params:
        comma = entries[after].comma
        assert isinstance(comma, cst.Comma)
        changed["star_arg"] = cst.ParamStar(separator_without_comment(comma))
    if params.star_kwarg is not None:
        changed["star_kwarg"] = entries.pop()
    changed["kwonly_params"] = entries[count + len(rest) :]
    return statement.with_changes(params=params.with_changes(**changed))


def _compact(node: cst.BaseExpression) -> str:
    """The code of a simple expression without whitespace, with double quotes."""
    return "".join(cst.Module([]).code_for_node(node).split()).replace('"', "'")
