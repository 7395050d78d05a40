"""Applies the edits of a plan to one file's text."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

import libcst as cst

from amp_migrate.edit.closures import called_first
from amp_migrate.edit.comments import split
from amp_migrate.edit.edits import (
    AddArgument,
    AddDecorator,
    AddEntry,
    AddImport,
    AddParameter,
    Autocast,
    Bound,
    CastLike,
    Edit,
    FilePlan,
    FullPrecision,
    Hoist,
    Insert,
    Island,
    Protect,
    Recast,
    Scale,
    ScaleBackward,
    ScalerStep,
    SplitLast,
    Upcast,
    Widen,
    where_gradients,
)
from amp_migrate.edit.expressions import ArgumentAdder, EntryAdder, with_parameter
from amp_migrate.edit.imports import with_import
from amp_migrate.edit.lists import insert_entry
from amp_migrate.edit.mismatch import MismatchError
from amp_migrate.edit.precision import full_where_half, with_precision
from amp_migrate.edit.snippets import Snippets
from amp_migrate.edit.spelling import spelled
from amp_migrate.program.ir import Path

Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
_Parts = tuple[list[Statement], list[Statement], list[Statement], list[Statement]]
"""What goes before a statement, what is hoisted out of it, the statement itself, what goes after."""


_MAY_CHANGE = r"\w_\(|\]\s*=[^=]|[-+*/@%&|^]=|(?<![\w.])[^\W\d]\w*\("
"""What changes a tensor in place, or calls what may bind a variable anew, in the text of a statement."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Statements ``first`` .. ``last`` of a block as they are after their edits."""

    first: int
    last: int
    statements: _Parts


def apply_plan(text: str, plan: FilePlan, line_length: int = 88) -> str:
    """The text with all edits applied.

    Raises `MismatchError` where an edit's statement is not of the kind that the plan saw.
    """
    return apply_to_module(cst.parse_module(text), plan, line_length).code


def apply_to_module(
    module: cst.Module, plan: FilePlan, line_length: int = 88
) -> cst.Module:
    """As `apply_plan`, on a tree."""
    if not plan.edits:
        return module
    editor = _Editor(Snippets(module, line_length), plan)
    body = editor.block(module.body, (), "body", "")
    if editor.pending:
        raise MismatchError(f"no statement for {sorted(map(str, editor.pending))[0]}")
    for name in plan.imports:
        body = with_import(body, name)
    return module.with_changes(body=body)


class _Editor:
    def __init__(self, snippets: Snippets, plan: FilePlan) -> None:
        self.snippets = snippets
        self.plan = plan
        self.edits: dict[Path, list[Edit]] = defaultdict(list)
        self.prefixes: set[Path] = set()
        for edit in plan.edits:
            self.edits[edit.path].append(edit)
            for length in range(1, len(edit.path)):
                self.prefixes.add(edit.path[:length])
        self.pending = set(plan.edits)
        self.made: dict[int, tuple[object, bool]] = {}
        """By the identity of its body: an island of this plan, or a line that widens; whether an island."""

    def _take(self, path: Path, *kinds: type) -> list[Edit]:
        found = [edit for edit in self.edits.get(path, ()) if isinstance(edit, kinds)]
        self.pending.difference_update(found)
        return found

    # -- blocks -------------------------------------------------------------------------------

    def block(
        self,
        statements: Sequence[cst.BaseStatement],
        parent: Path,
        field: str,
        indent: str,
    ) -> list[cst.BaseStatement]:
        """A block's statements with the edits of its own and of nested blocks applied."""
        units = self._units(statements, parent, field)
        regions = {
            edit.path[-1][1]: edit
            for index, _ in units
            for edit in self._take((*parent, (field, index)), Autocast)
            if isinstance(edit, Autocast)
        }
        protected = {
            edit.path[-1][1]: edit
            for index, _ in units
            for edit in self._take((*parent, (field, index)), Protect)
            if isinstance(edit, Protect)
        }
        result: list[cst.BaseStatement] = []
        unprotected: list[cst.BaseStatement] = []
        protection: Protect | None = None
        inside: list[cst.BaseStatement] = []
        region: Autocast | None = None
        for piece in self._pieces(units, parent, field, indent):
            before, hoisted, edited, after = piece.statements
            if piece.first in regions:
                region, inside = regions[piece.first], []
            if piece.first in protected:
                protection, unprotected, result = (
                    protected[piece.first],
                    [*result, *before],
                    [],
                )
                before = []
            if protection is not None and piece.last == protection.last:
                body = [*result, *before, *hoisted, *edited]
                result = [*unprotected, *self._try(protection, body, indent), *after]
                protection = None
                continue
            if region is None:
                result += [*before, *hoisted, *edited, *after]
                continue
            if piece.last < region.last:
                inside += [*before, *edited, *after]
                continue
            if region.hoists:
                if not hoisted:
                    raise MismatchError("a region that hoists has nothing to hoist")
                body = self._joined([*inside, *hoisted])
                result += [self._with(region, body, indent), *edited, *after]
            else:
                inside = self._joined([*inside, *before, *edited])
                result += [self._with(region, inside, indent), *after]
            region = None
        if region is not None:
            raise MismatchError("a region ends outside its block")
        if protection is not None:
            raise MismatchError("a step ends outside its block")
        return self._joined(result)

    def _joined(self, statements: list[cst.BaseStatement]) -> list[cst.BaseStatement]:
        """A block in which islands that follow each other are one, with what is widened between them; and
        nothing is widened twice."""
        result: list[cst.BaseStatement] = []
        between: list[cst.BaseStatement] = []
        island: cst.With | None = None
        for statement in statements:
            if island is not None and self._is_made(statement, island=False):
                between.append(statement)
            elif self._is_made(statement, island=True):
                assert isinstance(statement, cst.With)
                if island is None:
                    result.append(statement)
                    island = statement
                else:
                    more = [*between, *_with_lines_above(statement).body.body]
                    body = self._told_once([*island.body.body, *more], result[:-1])
                    suite = island.body.with_changes(body=body)
                    self.made[id(suite)] = suite, True
                    result[-1] = island = island.with_changes(body=suite)
                between = []
            else:
                result += [*between, statement]
                island, between = None, []
        return self._told_once([*result, *between], [])

    def _is_made(self, statement: cst.BaseStatement, island: bool) -> bool:
        _, is_island = self.made.get(id(getattr(statement, "body", None)), (0, None))
        return is_island is island

    def _told_once(
        self,
        statements: list[cst.BaseStatement],
        before: list[cst.BaseStatement],
    ) -> list[cst.BaseStatement]:
        """Some statements without the lines that widen what is wide already, by them or those ``before``."""
        result = [*before]
        above: tuple[cst.EmptyLine, ...] = ()
        for statement in statements:
            assert isinstance(
                statement, (cst.SimpleStatementLine, cst.BaseCompoundStatement)
            )
            if above:
                statement = _with_leading(statement, (*above, *_leading(statement)))
                above = ()
            if self._is_made(statement, island=False) and any(
                _says_the_same(result[at], statement, result[at + 1 :])
                for at in reversed(range(len(result)))
            ):
                above = tuple(_leading(statement))
            else:
                result.append(statement)
        return result[len(before) :]

    def _pieces(
        self,
        units: list[tuple[int, Statement]],
        parent: Path,
        field: str,
        indent: str,
    ) -> list[_Piece]:
        """The edited statements of a block, those that autocast is turned off for as one each."""
        off = {
            index: edit.last
            for index, _ in units
            for edit in self._take((*parent, (field, index)), FullPrecision)
            if isinstance(edit, FullPrecision)
        }
        pieces: list[_Piece] = []
        first = last = -1
        body: list[Statement] = []
        for index, unit in units:
            statements = self._statement(unit, (*parent, (field, index)), indent)
            if index in off:
                first, last, body = index, off[index], []
            if index > last:
                pieces.append(_Piece(index, index, statements))
                continue
            body += [statement for part in statements for statement in part]
            if index == last:
                made = self._island(body, indent)
                pieces.append(_Piece(first, last, ([], [], [made], [])))
        if last > units[-1][0]:
            raise MismatchError("autocast is turned off beyond the end of a block")
        return pieces

    def _units(
        self, statements: Sequence[cst.BaseStatement], parent: Path, field: str
    ) -> list[tuple[int, Statement]]:
        """(index, statement) as the plan counts them: each small statement of a line by itself.

        A line of several small statements is taken apart only where an edit falls on one of them.
        """
        regions = [
            (edit.path[-1][1], edit.last)
            for path, edits in self.edits.items()
            if path[:-1] == parent and path[-1][0] == field
            for edit in edits
            if isinstance(edit, (Autocast, FullPrecision))
        ]
        units: list[tuple[int, Statement]] = []
        index = 0
        for statement in statements:
            if (
                not isinstance(statement, cst.SimpleStatementLine)
                or len(statement.body) == 1
            ):
                assert isinstance(
                    statement, (cst.SimpleStatementLine, cst.BaseCompoundStatement)
                )
                units.append((index, statement))
                index += 1
                continue
            count = len(statement.body)
            touched = any(
                (*parent, (field, i)) in self.edits
                or any(a <= i <= b for a, b in regions)
                for i in range(index, index + count)
            )
            if touched:
                units += [(index + i, line) for i, line in enumerate(split(statement))]
            else:
                units.append((index, statement))
            index += count
        return units

    def _with(
        self, region: Autocast, body: list[cst.BaseStatement], indent: str
    ) -> cst.With:
        called = spelled(
            "autocast" if region.caches else "autocast without a cache",
            self.plan.torch_version,
            self.plan.torch_name,
            dtype=region.dtype,
            enabled=region.enabled,
        )
        return self._around(f"with {called}:", body, indent)

    def _around(
        self, header: str, body: Sequence[cst.BaseStatement], indent: str
    ) -> cst.With:
        """A new ``with`` statement around some others, with what stood above the first above it."""
        first = body[0]
        assert isinstance(first, (cst.SimpleStatementLine, cst.BaseCompoundStatement))
        leading = _leading(first)
        made = self.snippets.with_statement(
            header, [_with_leading(first, ()), *body[1:]], indent
        )
        return made.with_changes(leading_lines=leading)

    def _try(
        self, edit: Protect, body: list[cst.BaseStatement], indent: str
    ) -> list[cst.BaseStatement]:
        code = f"try:\n    pass\nfinally:\n    {edit.switch}.update()"
        (made,) = self.snippets.statements(code, indent)
        assert isinstance(made, cst.Try)
        first = body[0]
        assert isinstance(first, (cst.SimpleStatementLine, cst.BaseCompoundStatement))
        lines = list(_leading(first))
        blank = list(takewhile(lambda line: line.comment is None, lines))
        first = _with_leading(first, lines[len(blank) :])
        inner = self.snippets.indented([first, *body[1:]], indent)
        return [made.with_changes(body=inner, leading_lines=blank)]

    # -- statements ---------------------------------------------------------------------------

    def _statement(self, statement: Statement, path: Path, indent: str) -> _Parts:
        """A statement with its edits."""
        before: list[Statement] = []
        hoisted: list[Statement] = []
        after: list[Statement] = []
        steps = self._take(path, ScalerStep)
        plain_step: Statement | None = None
        for edit in steps:
            assert isinstance(edit, ScalerStep)
            if edit.closure:
                statement, plain_step = called_first(statement)
        edited: list[Statement] = [statement]
        if path in self.prefixes or path in self.edits:
            edited = [self._nested(statement, path, indent)]
        for edit in self._take(path, AddArgument, AddEntry):
            edited = [self._expression_edit(edited[0], edit)]
        for edit in self._take(path, AddImport):
            assert isinstance(edit, AddImport)
            edited = [_with_imported(edited[0], edit.name)]
        for edit in self._take(path, AddParameter):
            assert isinstance(edit, AddParameter)
            edited = [self._add_parameter(edited[0], edit, indent)]
        for edit in self._take(path, AddDecorator):
            assert isinstance(edit, AddDecorator)
            edited = [self._decorated(edited[0], edit, indent)]
        taken, edited = self._precise(edited, path, indent)
        for edit in self._take(path, ScaleBackward):
            assert isinstance(edit, ScaleBackward)
            hoisted, line = self._scale(edited[0], edit, indent)
            edited = [line]
        if self._take(path, Island):
            if hoisted:
                hoisted = [self._island(hoisted, indent)]
            else:
                edited = [self._island(edited, indent)]
        for edit in steps:
            assert isinstance(edit, ScalerStep)
            if plain_step is None:
                edited = self._step(edited[0], edit, indent)
            else:
                edited = [edited[0], *self._step(plain_step, edit, indent)]
        for edit in self._take(path, Recast):
            assert isinstance(edit, Recast)
            value = f"{edit.name}.float()"
            if edit.dtype is not None:
                torch = self.plan.torch_name
                value = full_where_half(edit.name, edit.dtype, torch, edit.asks)
            made = self.snippets.statements(f"{edit.name} = {value}", indent)
            if edit.after:
                after += made
            else:
                before += made
        for edit in self._take(path, Insert):
            assert isinstance(edit, Insert)
            made = self.snippets.statements(edit.code, indent)
            joined = self._with_global(edited[-1], made[0], indent)
            if edit.after and joined is not None:
                edited[-1] = joined
            elif edit.after:
                after += made
            else:
                before += made
        if hoisted:
            hoisted = [*taken, *hoisted]
            hoisted[0] = _with_leading(hoisted[0], _leading(edited[0]))
            edited[0] = _with_leading(edited[0], ())
        elif taken:
            taken[0] = _with_leading(taken[0], _leading(edited[0]))
            edited[0] = _with_leading(edited[0], ())
            edited = [*taken, *edited]
        return before, hoisted, edited, after

    def _precise(
        self, edited: list[Statement], path: Path, indent: str
    ) -> tuple[list[Statement], list[Statement]]:
        """What is taken out of a statement to stand before it, and the statement with the rest."""
        edits = [
            edit
            for edit in self._take(
                path, Bound, CastLike, Hoist, Scale, SplitLast, Upcast, Widen
            )
            if isinstance(
                edit, (Bound, CastLike, Hoist, Scale, SplitLast, Upcast, Widen)
            )
        ]
        if not edits:
            return [], edited
        line = edited[0]
        if not isinstance(line, (cst.SimpleStatementLine, cst.If)):
            raise MismatchError("no simple statement where the plan saw one")
        taken, widened, line = with_precision(line, edits, self.plan.torch_name)
        return [
            *(
                made
                for code in widened
                for made in self._noted(self.snippets.statements(code, indent))
            ),
            *(self._island([made], indent) if apart else made for made, apart in taken),
        ], [line]

    def _noted(self, lines: Iterable[Statement]) -> Iterator[Statement]:
        for line in lines:
            self.made[id(line.body)] = line.body, False
            yield line

    def _island(self, body: Sequence[cst.BaseStatement], indent: str) -> cst.With:
        called = spelled("off", self.plan.torch_version, self.plan.torch_name)
        made = self._around(f"with {called}:", body, indent)
        self.made[id(made.body)] = made.body, True
        return made

    def _nested(self, statement: Statement, path: Path, indent: str) -> Statement:
        """A compound statement with its blocks edited."""
        match statement:
            case cst.If():
                orelse = statement.orelse
                if isinstance(orelse, cst.If):
                    inner_path = (*path, ("orelse", 0))
                    before, hoisted, edited, after = self._statement(
                        orelse, inner_path, indent
                    )
                    if before or hoisted or after or len(edited) != 1:
                        raise MismatchError("nothing can stand beside an elif")
                    orelse = edited[0]  # type: ignore[assignment]
                elif orelse is not None:
                    orelse = orelse.with_changes(
                        body=self._suite(orelse.body, path, "orelse", indent)
                    )
                return statement.with_changes(
                    body=self._suite(statement.body, path, "body", indent),
                    orelse=orelse,
                )
            case cst.For() | cst.While():
                changes: dict[str, object] = {
                    "body": self._suite(statement.body, path, "body", indent)
                }
                if statement.orelse is not None:
                    body = self._suite(statement.orelse.body, path, "orelse", indent)
                    changes["orelse"] = statement.orelse.with_changes(body=body)
                return statement.with_changes(**changes)
            case cst.Try() | cst.TryStar():
                handlers: list[cst.CSTNode] = []
                for i, handler in enumerate(statement.handlers):
                    assert isinstance(
                        handler, (cst.ExceptHandler, cst.ExceptStarHandler)
                    )
                    field = f"handlers[{i}].body"
                    suite = self._suite(handler.body, path, field, indent)
                    handlers.append(handler.with_changes(body=suite))
                changes = {
                    "body": self._suite(statement.body, path, "body", indent),
                    "handlers": handlers,
                }
                if statement.orelse is not None:
                    body = self._suite(statement.orelse.body, path, "orelse", indent)
                    changes["orelse"] = statement.orelse.with_changes(body=body)
                if statement.finalbody is not None:
                    body = self._suite(
                        statement.finalbody.body, path, "finalbody", indent
                    )
                    changes["finalbody"] = statement.finalbody.with_changes(body=body)
                return statement.with_changes(**changes)
            case cst.Match():
                cases = [
                    case.with_changes(
                        body=self._suite(case.body, path, f"cases[{i}].body", indent)
                    )
                    for i, case in enumerate(statement.cases)
                ]
                return statement.with_changes(cases=cases)
            case cst.SimpleStatementLine(
                body=[cst.Expr(value=cst.ListComp(elt=element) as listed)]
            ):
                return self._each(statement, listed, element, path, indent)
            case cst.With() | cst.FunctionDef() | cst.ClassDef():
                body = self._suite(statement.body, path, "body", indent)
                return statement.with_changes(body=body)
        return statement

    def _each(
        self,
        statement: cst.SimpleStatementLine,
        listed: cst.ListComp,
        element: cst.BaseExpression,
        path: Path,
        indent: str,
    ) -> Statement:
        """``[opt.step() for opt in opts]``, which is addressed as the loop that it is."""
        inside = (*path, ("body", 0))
        if inside not in self.edits:
            return statement
        line = cst.SimpleStatementLine([cst.Expr(element)])
        before, hoisted, edited, after = self._statement(line, inside, indent)
        if before or hoisted or after or len(edited) != 1:
            raise MismatchError("nothing can stand beside the element of a list")
        changed = listed.with_changes(elt=_lone_expression(edited[0]))
        return statement.with_changes(body=[cst.Expr(changed)])

    def _suite(
        self, suite: cst.BaseSuite, path: Path, field: str, indent: str
    ) -> cst.BaseSuite:
        depth = len(path)
        below = any(
            len(edited) > depth and edited[:depth] == path and edited[depth][0] == field
            for edited in self.edits
        )
        if not below:
            return suite
        suite = _spread(suite)
        with self.snippets.inside(suite) as step:
            body = self.block(suite.body, path, field, indent + step)
        return suite.with_changes(body=body)

    # -- single edits -------------------------------------------------------------------------

    def _with_global(
        self, statement: Statement, made: Statement, indent: str
    ) -> Statement | None:
        """A ``global`` statement that declares what another one does too, where the line has room."""
        declared, new = _lone_global(statement), _lone_global(made)
        if declared is None or new is None:
            return None
        names = [name.with_changes(comma=_COMMA) for name in declared.names]
        joined = declared.with_changes(names=[*names, *new.names])
        width = len(indent.expandtabs(4) + cst.Module([]).code_for_node(joined))
        if width > self.snippets.line_length:
            return None
        return statement.with_changes(body=[joined])

    def _scale(
        self, statement: Statement, edit: ScaleBackward, indent: str
    ) -> tuple[list[Statement], Statement]:
        line, call = _lone_call(statement, "backward")
        assert isinstance(call.func, cst.Attribute)
        receiver = call.func.value
        hoisted: list[Statement] = []
        if edit.hoist is not None:
            value = receiver
            if not _needs_its_parentheses(value):
                value = value.with_changes(lpar=(), rpar=())
            assign = cst.Assign([cst.AssignTarget(cst.Name(edit.hoist))], value)
            hoisted = [cst.SimpleStatementLine([assign])]
            receiver = cst.Name(edit.hoist)
        if edit.switch is not None:
            if not _needs_its_parentheses(receiver):
                receiver = receiver.with_changes(lpar=(), rpar=())
            scale = cst.Attribute(cst.parse_expression(edit.switch), cst.Name("scale"))
            receiver = cst.Call(scale, [cst.Arg(receiver)])
        changed = call.with_changes(func=call.func.with_changes(value=receiver))
        return hoisted, _with_call(line, changed)

    def _step(
        self, statement: Statement, edit: ScalerStep, indent: str
    ) -> list[Statement]:
        line, call = _lone_call(statement, "step")
        assert isinstance(call.func, cst.Attribute)
        switch = cst.parse_expression(edit.switch)
        optimizer = call.func.value
        stepped = cst.Call(
            cst.Attribute(switch, cst.Name("step")), [cst.Arg(optimizer), *call.args]
        )
        if call.args:
            space = call.whitespace_before_args
            stepped = stepped.with_changes(whitespace_before_args=space)
        lines: list[Statement] = [_with_call(line, stepped)]
        if edit.update:
            lines += self.snippets.statements(f"{edit.switch}.update()", indent)
        if not edit.guard:
            return lines
        text = cst.Module([]).code_for_node(optimizer)
        made = self.snippets.statements(where_gradients(text, "pass"), indent)[0]
        leading = _leading(lines[0])
        lines[0] = _with_leading(lines[0], ())
        guarded = made.with_changes(
            body=self.snippets.indented(lines, indent), leading_lines=leading
        )
        return [guarded]

    def _add_parameter(
        self, statement: Statement, edit: AddParameter, indent: str
    ) -> Statement:
        if not isinstance(statement, cst.FunctionDef):
            raise MismatchError("a parameter is wanted where no function is defined")
        changed = with_parameter(
            statement, edit.name, "None" if edit.off is not None else None
        )
        if edit.off in (None, "None"):
            return changed
        suite = _spread(changed.body)
        code = f"if {edit.name} is None:\n    {edit.name} = {edit.off}"
        with self.snippets.inside(suite) as step:
            made = self.snippets.statements(code, indent + step)
        body = list(suite.body)
        first = body[0]
        documented = (
            isinstance(first, cst.SimpleStatementLine)
            and isinstance(first.body[0], cst.Expr)
            and isinstance(
                first.body[0].value, (cst.SimpleString, cst.ConcatenatedString)
            )
        )
        at = 1 if documented else 0
        return changed.with_changes(
            body=suite.with_changes(body=[*body[:at], *made, *body[at:]])
        )

    def _decorated(
        self, statement: Statement, edit: AddDecorator, indent: str
    ) -> Statement:
        if not isinstance(statement, cst.FunctionDef):
            raise MismatchError("a decorator is wanted where no function is defined")
        made = self.snippets.statements(f"@{edit.code}\ndef f():\n    pass", indent)[0]
        assert isinstance(made, cst.FunctionDef)
        return statement.with_changes(
            decorators=[*statement.decorators, *made.decorators]
        )

    def _expression_edit(self, statement: Statement, edit: Edit) -> Statement:
        """An edit of an expression on the statement's own line; nested blocks are not entered."""
        assert isinstance(edit, (AddArgument, AddEntry))
        editor = (
            ArgumentAdder(edit, self.snippets.quote)
            if isinstance(edit, AddArgument)
            else EntryAdder(edit, self.snippets.quote)
        )
        changed = statement.visit(editor)
        if not editor.done or not isinstance(
            changed, (cst.SimpleStatementLine, cst.BaseCompoundStatement)
        ):
            raise MismatchError(f"not found on its line: {edit}")
        return changed


_COMMA = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def _with_imported(statement: Statement, name: str) -> Statement:
    """``from settings import optimizer`` with one more name."""
    small = (
        statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    )
    if not isinstance(small, cst.ImportFrom) or isinstance(small.names, cst.ImportStar):
        raise MismatchError("a name is to be imported where nothing is")
    assert isinstance(statement, cst.SimpleStatementLine)
    opening = small.lpar.whitespace_after if small.lpar else cst.SimpleWhitespace("")
    new = cst.ImportAlias(cst.Name(name))
    names = insert_entry(list(small.names), len(small.names) - 1, new, opening)
    changed = small.with_changes(names=names)
    return statement.with_changes(body=[changed, *statement.body[1:]])


def _lone_global(statement: Statement) -> cst.Global | None:
    """The ``global`` that a line consists of."""
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        small = statement.body[0]
        return small if isinstance(small, cst.Global) else None
    return None


def _spread(suite: cst.BaseSuite) -> cst.IndentedBlock:
    """A block with its statements on lines of their own."""
    if isinstance(suite, cst.SimpleStatementSuite):
        lines = split(cst.SimpleStatementLine(body=suite.body))
        lines[-1] = lines[-1].with_changes(
            trailing_whitespace=suite.trailing_whitespace
        )
        return cst.IndentedBlock(body=lines)
    assert isinstance(suite, cst.IndentedBlock)
    return suite


def _leading(statement: cst.BaseStatement) -> Sequence[cst.EmptyLine]:
    lines: Sequence[cst.EmptyLine] = getattr(statement, "leading_lines", ())
    return lines


def _with_leading(statement: Statement, lines: Iterable[cst.EmptyLine]) -> Statement:
    return statement.with_changes(leading_lines=tuple(lines))


def _with_lines_above(island: cst.With) -> cst.With:
    """A ``with`` statement, what stands above which stands above the first statement in it."""
    first, *others = island.body.body
    assert isinstance(first, (cst.SimpleStatementLine, cst.BaseCompoundStatement))
    lines = (*island.leading_lines, *_leading(first))
    body = island.body.with_changes(body=[_with_leading(first, lines), *others])
    return island.with_changes(body=body)


def _says_the_same(
    before: cst.CSTNode, line: cst.CSTNode, between: Sequence[cst.CSTNode]
) -> bool:
    """Whether ``full_x = ...`` stands already before some statements that do not speak of ``x``, nor change
    anything in place: it may be a part of ``x``."""
    assert isinstance(line, cst.SimpleStatementLine)
    assign = line.body[0]
    if not isinstance(before, cst.SimpleStatementLine) or not any(
        part.deep_equals(assign) for part in before.body
    ):
        return False
    assert isinstance(assign, cst.Assign)
    code = cst.Module([])
    name, value = (
        code.code_for_node(node) for node in (assign.targets[0].target, assign.value)
    )
    variable = value.rpartition(" else ")[2]
    said = " ".join(map(code.code_for_node, between))
    return variable.isidentifier() and not re.search(
        rf"\b{variable}\b|\b{name} = |{_MAY_CHANGE}", said
    )


def _lone_call(
    statement: Statement, method: str
) -> tuple[cst.SimpleStatementLine, cst.Call]:
    """The line and its one call of ``something.method(...)``."""
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        small = statement.body[0]
        if isinstance(small, (cst.Expr, cst.Assign)) and isinstance(
            small.value, cst.Call
        ):
            func = small.value.func
            if isinstance(func, cst.Attribute) and func.attr.value == method:
                return statement, small.value
    raise MismatchError(f"no lone call of .{method}() where the plan saw one")


def _lone_expression(statement: Statement) -> cst.BaseExpression:
    if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1:
        small = statement.body[0]
        if isinstance(small, cst.Expr):
            return small.value
    raise MismatchError("no lone expression where the plan saw one")


def _with_call(
    line: cst.SimpleStatementLine, call: cst.Call
) -> cst.SimpleStatementLine:
    expression = line.body[0]
    assert isinstance(expression, (cst.Expr, cst.Assign))
    return line.with_changes(body=[expression.with_changes(value=call)])


def _needs_its_parentheses(node: cst.BaseExpression) -> bool:
    """Whether parentheses around an expression hold something (a line break) that needs them."""
    code = cst.Module([]).code_for_node(node)
    return (
        "\n" in code
        or "\r" in code
        or isinstance(node, (cst.Yield, cst.Tuple, cst.NamedExpr))
    )
