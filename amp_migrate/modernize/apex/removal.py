"""Plain fp32 code for code under apex.amp.

Only the forms that apex's own documentation teaches are known. Whatever else mentions apex.amp is a
reason to take nothing out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from amp_migrate.edit.comments import comments_of, led_by, lost_comments, own_lines
from amp_migrate.edit.names.uses import Position
from amp_migrate.modernize.apex.branches import (
    code_of,
    is_pure,
    only_declines,
    same_but_parameters,
    sets_constant,
    simplified,
)
from amp_migrate.modernize.apex.calls import MODULE, Where, initialized, scaled, scales
from amp_migrate.modernize.apex.expressions import Expressions
from amp_migrate.modernize.apex.forms import (
    Initialize,
    Removed,
    ScaledBackward,
    UnknownFormError,
)
from amp_migrate.modernize.apex.names import ApexNames
from amp_migrate.modernize.apex.text import ApexText


def without_apex(text: str, names: ApexNames) -> Removed:
    """The text without apex.amp; raises `UnknownFormError`."""
    if names.unclear is not None:
        raise UnknownFormError("amp is apex.amp or something else", names.unclear)
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    positions = wrapper.resolve(PositionProvider)
    apex = ApexText(names, positions)
    remover = _Remover(apex)
    module = remover.module(wrapper.module)
    for at, dotted in sorted(names.mentions.items()):
        if at not in apex.seen:
            raise UnknownFormError(f"{dotted} is used in a way that is not known", at)
    for name, spans in remover.scaled.items():
        for line, column in names.others.get(name, ()):
            if not any(first <= line <= last for first, last in spans):
                message = f"{name} is used outside of amp.scale_loss()"
                raise UnknownFormError(message, (line, column))
    for name, places in apex.available.items():
        bound = [at for at in names.bound[name] if at not in remover.unset]
        if len(names.others.get(name, ())) > places or bound:
            at = (bound or names.others[name])[0]
            raise UnknownFormError(f"{name} is used for more than apex.amp", at)
    return Removed(module.code, remover.initializes, remover.backwards)


class _Remover:
    def __init__(self, apex: ApexText) -> None:
        self.apex = apex
        self.initializes: list[Initialize] = []
        self.backwards: list[ScaledBackward] = []
        self.scaled: dict[str, list[tuple[int, int]]] = {}
        """The names of scaled losses, with the lines between which each is one."""
        self.where = Where()
        self.unset: set[Position] = set()
        """Where a variable that says whether apex is there got a value, in statements that are gone."""

    # -- blocks -------------------------------------------------------------------------------

    def module(self, module: cst.Module) -> cst.Module:
        """A module without apex."""
        body, rest = self.block(module.body)
        for index, stmt in reversed(list(enumerate(body))):
            # `AVAILABLE = False`, before it is tried.
            if sets_constant(stmt, ("False",)) in self.apex.available:
                self.unset.add(self.apex.at(stmt))
                del body[index]
                if index < len(body):
                    body[index] = led_by(own_lines(comments_of([stmt])), body[index])
        return module.with_changes(body=body, footer=[*rest, *module.footer])

    def block(
        self, body: Sequence[cst.BaseStatement]
    ) -> tuple[list[cst.BaseStatement], list[cst.EmptyLine]]:
        """The statements that stay, and the comments that are left behind the last of them."""
        kept: list[cst.BaseStatement] = []
        comments: list[cst.EmptyLine] = []
        for stmt in body:
            if not self.apex.concerns(stmt):
                kept.append(led_by(comments, stmt))
                comments = []
                continue
            made = self._statement(stmt)
            lost = lost_comments(stmt, made)
            if made:
                head, tail = lost
                kept += [led_by([*comments, *head], made[0]), *made[1:]]
                comments = tail
            else:
                comments += [*lost[0], *lost[1]]
        return kept, comments

    def _suite(self, suite: cst.BaseSuite) -> cst.IndentedBlock | None:
        """The statements under a header; None where none is left."""
        if isinstance(suite, cst.SimpleStatementSuite):
            # `if fp16: backward()`, on lines of their own.
            suite = self.apex.on_its_own(suite)
        assert isinstance(suite, cst.IndentedBlock)
        body, comments = self.block(suite.body)
        if not body:
            return None
        return suite.with_changes(body=body, footer=[*comments, *suite.footer])

    # -- statements ---------------------------------------------------------------------------

    def _statement(self, stmt: cst.BaseStatement) -> list[cst.BaseStatement]:
        match stmt:
            case cst.SimpleStatementLine():
                return self._line(stmt)
            case cst.With() if scales(stmt, self.apex):
                return [self._scaled(stmt)]
            case cst.If():
                return self._if(stmt)
            case cst.Try():
                return self._try(stmt)
            case cst.FunctionDef() | cst.ClassDef():
                outer = self.where
                name = stmt.name.value
                if outer.function != MODULE:
                    name = f"{outer.function}.{name}"
                self.where = Where(name)
                made = self._compound(stmt)
                self.where = outer
                return [made]
            case cst.For() | cst.While() | cst.With():
                return [self._compound(stmt)]
        raise self.apex.fail("apex.amp is used in a statement that is not known", stmt)

    def _compound(
        self, stmt: cst.FunctionDef | cst.ClassDef | cst.For | cst.While | cst.With
    ) -> cst.BaseStatement:
        body = self._suite(stmt.body)
        if body is None:
            raise self.apex.fail("nothing would be left of a block", stmt)
        changes: dict[str, object] = {"body": body}
        if isinstance(stmt, cst.For):
            changes["iter"] = stmt.iter.visit(Expressions(self.apex))
        if isinstance(stmt, (cst.For, cst.While)) and stmt.orelse is not None:
            orelse = self._suite(stmt.orelse.body)
            if orelse is None:
                raise self.apex.fail("nothing would be left of a block", stmt)
            changes["orelse"] = stmt.orelse.with_changes(body=orelse)
        return stmt.with_changes(**changes)

    def _line(self, line: cst.SimpleStatementLine) -> list[cst.BaseStatement]:
        if len(line.body) > 1:
            raise self.apex.fail("apex.amp shares a line with other statements", line)
        small = line.body[0]
        match small:
            case cst.Import() | cst.ImportFrom():
                return self._import(line, small)
            case cst.Assign(value=cst.Call() as call) if self.apex.calls(
                call, "initialize"
            ):
                value, start = initialized(small, call, self.apex, self.where)
                if start is not None:
                    self.initializes.append(start)
                if value is None:
                    return []
                return [line.with_changes(body=[small.with_changes(value=value)])]
            case cst.Expr(value=cst.Call() as call) if self.apex.calls(
                call, "load_state_dict"
            ):
                self.apex.see(call)
                return []
            case cst.Assign(
                targets=[cst.AssignTarget(target=cst.Subscript())],
                value=cst.Call(args=[]) as call,
            ) if self.apex.calls(call, "state_dict"):
                self.apex.see(call)
                return []
            case cst.Assert(test=test):
                if self._simplified(test) is True:
                    return []
                raise self.apex.fail("apex.amp is used in a condition", line)
            case cst.Assign(value=value):
                value = self._answered(value)
                line = line.with_changes(body=[small.with_changes(value=value)])
        return [line.visit(Expressions(self.apex))]  # type: ignore[list-item]

    def _simplified(self, test: cst.BaseExpression) -> cst.BaseExpression | bool:
        """A condition where apex is there; as it was, if it does not ask for that."""
        found, asked = simplified(test, self.apex.available.keys(), self.apex.is_apex)
        for name in filter(None, asked):
            self.apex.available[name] += 1
        return found

    def _answered(self, value: cst.BaseExpression) -> cst.BaseExpression:
        """A value that may hang on whether apex is there."""
        match value:
            case cst.Call(func=cst.Name(value="bool"), args=[cst.Arg(star="") as arg]):
                inner = self._answered(arg.value)
                return value.with_changes(args=[arg.with_changes(value=inner)])
        found = self._simplified(value)
        return cst.Name(str(found)) if isinstance(found, bool) else found

    def _import(
        self, line: cst.SimpleStatementLine, small: cst.Import | cst.ImportFrom
    ) -> list[cst.BaseStatement]:
        if isinstance(small.names, cst.ImportStar):
            return [] if self.apex.at(small) in self.apex.names.imports else [line]
        kept = [
            a for a in small.names if self.apex.at(a) not in self.apex.names.imports
        ]
        if not kept:
            return []
        if len(kept) < len(small.names):
            if isinstance(small, cst.Import) or small.lpar is None:
                kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            small = small.with_changes(names=kept)
        return [line.with_changes(body=[small])]

    def _scaled(self, stmt: cst.With) -> cst.BaseStatement:
        plain, used, backward = scaled(stmt, self.apex, self.where)
        span = (self.apex.at(stmt)[0], self.apex.end(stmt))
        self.scaled.setdefault(used, []).append(span)
        self.backwards.append(backward)
        return plain

    def _if(self, stmt: cst.If) -> list[cst.BaseStatement]:
        test = self._simplified(stmt.test)
        if isinstance(test, bool):
            return self._branch_taken(stmt, test)
        if self.apex.concerns(test):
            raise self.apex.fail("apex.amp is used in a condition", stmt)
        text, outer, first = code_of(test), self.where, len(self.backwards)
        self.where = replace(outer, tests=(*outer.tests, (text, stmt)))
        body = self._suite(stmt.body)
        second = len(self.backwards)
        self.where = replace(outer, tests=(*outer.tests, (f"not ({text})", stmt)))
        orelse = self._orelse(stmt.orelse)
        self.where = outer
        pure = is_pure(test)
        if body is None and stmt.orelse is None and pure:
            return []
        lost = orelse is None and stmt.orelse is not None and not pure
        if body is None or lost:
            raise self.apex.fail("nothing would be left of a branch", stmt)
        if isinstance(orelse, list) and pure and same_but_parameters(body.body, orelse):
            own = self.apex.concerns(stmt.body)
            end = second if own else len(self.backwards)
            start = first if own else second
            for index in range(start, end):
                one = self.backwards[index]
                collapsed = (*one.collapsed, text if own else f"not ({text})")
                self.backwards[index] = ScaledBackward(
                    one.function, one.at, one.tests, collapsed
                )
            # The branch that never knew of apex is what both are without it.
            return list(orelse) if own else list(body.body)
        touched = self.apex.concerns(stmt.body)
        made = stmt.with_changes(body=body if touched else stmt.body, test=test)
        if isinstance(stmt.orelse, cst.Else) and not self.apex.concerns(stmt.orelse):
            return [made]
        if isinstance(orelse, list):
            if (
                len(orelse) == 1
                and isinstance(orelse[0], cst.If)
                and isinstance(stmt.orelse, cst.If)
            ):
                return [made.with_changes(orelse=orelse[0])]
            block: cst.BaseSuite = cst.IndentedBlock(orelse)
            if isinstance(stmt.orelse, cst.Else):
                block = stmt.orelse.body.with_changes(body=orelse)
            old = stmt.orelse if isinstance(stmt.orelse, cst.Else) else cst.Else(block)
            return [made.with_changes(orelse=old.with_changes(body=block))]
        return [made.with_changes(orelse=None)]

    def _orelse(
        self, orelse: cst.If | cst.Else | None
    ) -> list[cst.BaseStatement] | None:
        if orelse is None:
            return None
        if isinstance(orelse, cst.Else):
            suite = self._suite(orelse.body)
            return None if suite is None else list(suite.body)
        if not self.apex.concerns(orelse):
            return [orelse]
        return self._if(orelse) or None

    def _branch_taken(self, stmt: cst.If, test: bool) -> list[cst.BaseStatement]:
        if test:
            if stmt.orelse is not None and self.apex.concerns(stmt.orelse):
                raise self.apex.fail("apex.amp is used where there is no apex", stmt)
            suite = self._suite(stmt.body)
            return [] if suite is None else list(suite.body)
        if self.apex.concerns(stmt.body):
            raise self.apex.fail("apex.amp is used where there is no apex", stmt)
        return self._orelse(stmt.orelse) or []

    def _try(self, stmt: cst.Try) -> list[cst.BaseStatement]:
        body = self._suite(stmt.body)
        rest: list[cst.BaseStatement] = [] if body is None else list(body.body)
        names = only_declines(stmt, rest)
        if names is None or stmt.finalbody is not None:
            if body is None:
                raise self.apex.fail("more hangs on the import of apex", stmt)
            others = [*stmt.handlers, stmt.orelse, stmt.finalbody]
            if any(sets_constant(line, ("True",)) for line in rest):
                raise self.apex.fail("more hangs on the import of apex", stmt)
            if any(other is not None and self.apex.concerns(other) for other in others):
                raise self.apex.fail("apex.amp is used where there is no apex", stmt)
            return [stmt.with_changes(body=body)]
        self.apex.available |= dict.fromkeys(names, 0)
        first, last = self.apex.at(stmt)[0], self.apex.end(stmt)
        for name in names:
            inside = [
                at for at in self.apex.names.bound[name] if first <= at[0] <= last
            ]
            self.unset.update(inside)
        return []
