"""Plain fp32 code for code under apex.amp.

Only the forms that apex's own documentation teaches are known. Whatever else mentions apex.amp is a
reason to take nothing out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from amp_migrate.modernize.apex_branches import (
    MASTER_PARAMETERS,
    code_of,
    is_pure,
    only_declines,
    same_but_parameters,
    sets_constant,
    simplified,
)
from amp_migrate.modernize.apex_level import Level, arguments_of, level_of
from amp_migrate.modernize.apex_names import ApexNames
from amp_migrate.modernize.comments import comments_of, led_by, lost_comments, own_lines
from amp_migrate.modernize.uses import Position


@dataclass(frozen=True, slots=True)
class Initialize:
    """``model, optimizer = amp.initialize(...)``."""

    function: str
    at: Position
    flags: tuple[str, ...]
    """The conditions under which it runs, and the optimizer is not made."""
    level: Level
    optimizers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScaledBackward:
    """``with amp.scale_loss(...)``."""

    function: str
    at: Position
    tests: tuple[str, ...]
    """All conditions around it in its function."""
    collapsed: tuple[str, ...] = ()
    """Those of them that are gone: their other branch is the same without apex."""


@dataclass(slots=True)
class Removed:
    """A text without apex.amp, and what it had of it."""

    text: str
    initializes: list[Initialize] = field(default_factory=list)
    backwards: list[ScaledBackward] = field(default_factory=list)


class UnknownFormError(Exception):
    """Why nothing is taken out."""

    def __init__(self, message: str, at: Position) -> None:
        super().__init__(message)
        self.at = at


def without_apex(text: str, names: ApexNames) -> Removed:
    """The text without apex.amp; raises `UnknownFormError`."""
    if names.unclear is not None:
        raise UnknownFormError("amp is apex.amp or something else", names.unclear)
    wrapper = MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
    positions = wrapper.resolve(PositionProvider)
    remover = _Remover(names, positions)
    module = remover.module(wrapper.module)
    for at, dotted in sorted(names.mentions.items()):
        if at not in remover.seen:
            raise UnknownFormError(f"{dotted} is used in a way that is not known", at)
    for name, spans in remover.scaled.items():
        for line, column in names.others.get(name, ()):
            if not any(first <= line <= last for first, last in spans):
                message = f"{name} is used outside of amp.scale_loss()"
                raise UnknownFormError(message, (line, column))
    for name, places in remover.available.items():
        bound = [at for at in names.bound[name] if at not in remover.unset]
        if len(names.others.get(name, ())) > places or bound:
            at = (bound or names.others[name])[0]
            raise UnknownFormError(f"{name} is used for more than apex.amp", at)
    return Removed(module.code, remover.initializes, remover.backwards)


class _Remover:
    def __init__(self, names: ApexNames, positions: object) -> None:
        self.names = names
        self.positions: dict[cst.CSTNode, object] = positions  # type: ignore[assignment]
        self.initializes: list[Initialize] = []
        self.backwards: list[ScaledBackward] = []
        self.seen: set[Position] = set()
        self.available: dict[str, int] = {}
        """Variables that say whether apex could be imported, and how often one was asked."""
        self.scaled: dict[str, list[tuple[int, int]]] = {}
        """The names of scaled losses, with the lines between which each is one."""
        self.function = "<module>"
        self.tests: tuple[tuple[str, cst.If], ...] = ()
        self.unset: set[Position] = set()
        """Where such a variable got a value, in statements that are gone."""

    def at(self, node: cst.CSTNode) -> Position:
        """Where a node stands."""
        start = self.positions[node].start  # type: ignore[attr-defined]
        return start.line, start.column

    def _fail(self, message: str, node: cst.CSTNode) -> UnknownFormError:
        return UnknownFormError(message, self.at(node))

    def _concerns(self, node: cst.CSTNode) -> bool:
        found = _Names(self)
        node.visit(found)
        return found.hit

    # -- blocks -------------------------------------------------------------------------------

    def module(self, module: cst.Module) -> cst.Module:
        """A module without apex."""
        body, rest = self.block(module.body)
        for index, stmt in reversed(list(enumerate(body))):
            # `AVAILABLE = False`, before it is tried.
            if sets_constant(stmt, ("False",)) in self.available:
                self.unset.add(self.at(stmt))
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
            if not self._concerns(stmt):
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
        if not isinstance(suite, cst.IndentedBlock):
            raise self._fail("a statement stands on the line of its header", suite)
        body, comments = self.block(suite.body)
        if not body:
            return None
        return suite.with_changes(body=body, footer=[*comments, *suite.footer])

    # -- statements ---------------------------------------------------------------------------

    def _statement(self, stmt: cst.BaseStatement) -> list[cst.BaseStatement]:
        match stmt:
            case cst.SimpleStatementLine():
                return self._line(stmt)
            case cst.With() if self._scales(stmt):
                return [self._scaled(stmt)]
            case cst.If():
                return self._if(stmt)
            case cst.Try():
                return self._try(stmt)
            case cst.FunctionDef() | cst.ClassDef():
                outer = self.function, self.tests
                prefix = "" if outer[0] == "<module>" else f"{outer[0]}."
                self.function, self.tests = f"{prefix}{stmt.name.value}", ()
                made = self._compound(stmt)
                self.function, self.tests = outer
                return [made]
            case cst.For() | cst.While() | cst.With():
                return [self._compound(stmt)]
        raise self._fail("apex.amp is used in a statement that is not known", stmt)

    def _compound(
        self, stmt: cst.FunctionDef | cst.ClassDef | cst.For | cst.While | cst.With
    ) -> cst.BaseStatement:
        body = self._suite(stmt.body)
        if body is None:
            raise self._fail("nothing would be left of a block", stmt)
        changes: dict[str, object] = {"body": body}
        if isinstance(stmt, (cst.For, cst.While)) and stmt.orelse is not None:
            orelse = self._suite(stmt.orelse.body)
            if orelse is None:
                raise self._fail("nothing would be left of a block", stmt)
            changes["orelse"] = stmt.orelse.with_changes(body=orelse)
        return stmt.with_changes(**changes)

    def _line(self, line: cst.SimpleStatementLine) -> list[cst.BaseStatement]:
        if len(line.body) > 1:
            raise self._fail("apex.amp shares a line with other statements", line)
        small = line.body[0]
        match small:
            case cst.Import() | cst.ImportFrom():
                return self._import(line, small)
            case cst.Assign(value=cst.Call() as call) if self._is(call, "initialize"):
                value = self._initialize(small, call)
                if value is None:
                    return []
                return [line.with_changes(body=[small.with_changes(value=value)])]
            case cst.Expr(value=cst.Call() as call) if self._is(
                call, "load_state_dict"
            ):
                self._see(call)
                return []
            case cst.Assign(
                targets=[cst.AssignTarget(target=cst.Subscript())],
                value=cst.Call(args=[]) as call,
            ) if self._is(call, "state_dict"):
                self._see(call)
                return []
        return [line.visit(_Expressions(self))]  # type: ignore[list-item]

    def _import(
        self, line: cst.SimpleStatementLine, small: cst.Import | cst.ImportFrom
    ) -> list[cst.BaseStatement]:
        if isinstance(small.names, cst.ImportStar):
            return [line]
        kept = [a for a in small.names if self.at(a) not in self.names.imports]
        if not kept:
            return []
        if len(kept) < len(small.names):
            if isinstance(small, cst.Import) or small.lpar is None:
                kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            small = small.with_changes(names=kept)
        return [line.with_changes(body=[small])]

    def _initialize(
        self, stmt: cst.Assign, call: cst.Call
    ) -> cst.BaseExpression | None:
        """What the same names are bound to without apex; None where they are it already."""
        given = arguments_of(call, ("models", "optimizers", "enabled", "opt_level"))
        if given is None or "models" not in given:
            raise self._fail(
                "amp.initialize() is given arguments not counted (*)", stmt
            )
        wanted = [code_of(given["models"])]
        optimizers: tuple[str, ...] = ()
        if "optimizers" in given and code_of(given["optimizers"]) != "None":
            wanted.append(code_of(given["optimizers"]))
            optimizers = tuple(_elements(given["optimizers"]))
        level = level_of(given)
        if isinstance(level, str):
            raise self._fail(level, stmt)
        bound = [code_of(target.target) for target in stmt.targets]
        same = len(bound) == 1 and _flat(bound[0]) == _flat(", ".join(wanted))
        if not optimizers:
            # For inference, which is in fp32 then, as all evaluation is.
            if level != Level():
                message = (
                    "amp.initialize() is given no optimizer, and a level of its own"
                )
                raise self._fail(message, stmt)
            self._see(call)
            return None if same else cst.parse_expression(wanted[0])
        flags = []
        for test, around in reversed(self.tests):
            if _assigns(around, optimizers, self.at(stmt)[0], self):
                break
            flags.append(test)
        self._see(call)
        self.initializes.append(
            Initialize(
                self.function, self.at(stmt), tuple(reversed(flags)), level, optimizers
            )
        )
        if same:
            return None
        return cst.parse_expression(", ".join(wanted))

    def _scales(self, stmt: cst.With) -> bool:
        return any(
            isinstance(item.item, cst.Call) and self._is(item.item, "scale_loss")
            for item in stmt.items
        )

    def _scaled(self, stmt: cst.With) -> cst.BaseStatement:
        """``loss.backward()`` for the statement that scales the loss."""
        call, name = stmt.items[0].item, stmt.items[0].asname
        assert isinstance(call, cst.Call)
        given = arguments_of(call, ("loss", "optimizers", "loss_id"))
        if given is None or "loss" not in given or len(stmt.items) > 1 or not name:
            raise self._fail(
                "amp.scale_loss() is used in a way that is not known", stmt
            )
        for keyword, value in given.items():
            if keyword not in ("loss", "optimizers", "loss_id", "delay_unscale"):
                raise self._fail(f"amp.scale_loss() is given {keyword}", stmt)
            if keyword != "loss" and not is_pure(value):
                raise self._fail("amp.scale_loss() is given more than names", stmt)
        body = stmt.body.body if isinstance(stmt.body, cst.IndentedBlock) else ()
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
                    message = (
                        "more than backward() sees gradients that are still scaled"
                    )
                raise self._fail(message, stmt)
        self._see(call)
        end = self.positions[stmt].end.line  # type: ignore[attr-defined]
        self.scaled.setdefault(used, []).append((self.at(stmt)[0], end))
        loss = given["loss"]
        if not isinstance(loss, (cst.Name, cst.Attribute, cst.Call, cst.Subscript)):
            if not loss.lpar:
                loss = loss.with_changes(
                    lpar=[cst.LeftParen()], rpar=[cst.RightParen()]
                )
        func = backward.func.with_changes(value=loss)
        made = cst.Expr(backward.with_changes(func=func))
        tests = tuple(test for test, _ in self.tests)
        self.backwards.append(ScaledBackward(self.function, self.at(stmt), tests))
        return line.with_changes(body=[made], leading_lines=stmt.leading_lines)

    def _if(self, stmt: cst.If) -> list[cst.BaseStatement]:
        test, asked = simplified(stmt.test, self.available.keys(), self._is_apex)
        for name in filter(None, asked):
            self.available[name] += 1
        if isinstance(test, bool):
            return self._branch_taken(stmt, test)
        if self._concerns(stmt.test) and not asked:
            raise self._fail("apex.amp is used in a condition", stmt)
        text, outer, first = code_of(test), self.tests, len(self.backwards)
        self.tests = (*outer, (text, stmt))
        body = self._suite(stmt.body)
        second = len(self.backwards)
        self.tests = (*outer, (f"not ({text})", stmt))
        orelse = self._orelse(stmt.orelse)
        self.tests = outer
        pure = is_pure(test)
        if body is None and stmt.orelse is None and pure:
            return []
        if body is None or (orelse is None and stmt.orelse is not None):
            if body is None:
                raise self._fail("nothing would be left of a branch", stmt)
            if not pure:
                raise self._fail("nothing would be left of a branch", stmt)
        if isinstance(orelse, list) and pure and same_but_parameters(body.body, orelse):
            own = self._concerns_any(stmt.body)
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
        made = stmt.with_changes(body=body, test=test)
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

    def _concerns_any(self, suite: cst.BaseSuite) -> bool:
        return self._concerns(suite)

    def _orelse(
        self, orelse: cst.If | cst.Else | None
    ) -> list[cst.BaseStatement] | None:
        if orelse is None:
            return None
        if isinstance(orelse, cst.Else):
            suite = self._suite(orelse.body)
            return None if suite is None else list(suite.body)
        if not self._concerns(orelse):
            return [orelse]
        return self._if(orelse) or None

    def _branch_taken(self, stmt: cst.If, test: bool) -> list[cst.BaseStatement]:
        if test:
            if stmt.orelse is not None and self._concerns(stmt.orelse):
                raise self._fail("apex.amp is used where there is no apex", stmt)
            suite = self._suite(stmt.body)
            return [] if suite is None else list(suite.body)
        if self._concerns(stmt.body):
            raise self._fail("apex.amp is used where there is no apex", stmt)
        return self._orelse(stmt.orelse) or []

    def _try(self, stmt: cst.Try) -> list[cst.BaseStatement]:
        body = self._suite(stmt.body)
        rest: list[cst.BaseStatement] = [] if body is None else list(body.body)
        names = only_declines(stmt, rest)
        if names is None or stmt.finalbody is not None:
            if body is None:
                raise self._fail("more hangs on the import of apex", stmt)
            others = [*stmt.handlers, stmt.orelse, stmt.finalbody]
            if any(sets_constant(line, ("True",)) for line in rest):
                raise self._fail("more hangs on the import of apex", stmt)
            if any(other is not None and self._concerns(other) for other in others):
                raise self._fail("apex.amp is used where there is no apex", stmt)
            return [stmt.with_changes(body=body)]
        self.available |= dict.fromkeys(names, 0)
        first, last = self.at(stmt)[0], self.positions[stmt].end.line  # type: ignore[attr-defined]
        for name in names:
            inside = [at for at in self.names.bound[name] if first <= at[0] <= last]
            self.unset.update(inside)
        return []

    # -- names --------------------------------------------------------------------------------

    def _root(self, node: cst.BaseExpression) -> Position | None:
        while isinstance(node, cst.Attribute):
            node = node.value
        return self.at(node) if isinstance(node, cst.Name) else None

    def _is(self, call: cst.Call, name: str) -> bool:
        root = self._root(call.func)
        if root is None:
            return False
        return self.names.mentions.get(root) == f"apex.amp.{name}"

    def _is_apex(self, node: cst.BaseExpression) -> bool:
        """Whether an expression is apex.amp, asked whether it is there."""
        root = self._root(node)
        if root is None or self.names.mentions.get(root) != "apex.amp":
            return False
        self.seen.add(root)
        return True

    def _see(self, call: cst.Call) -> None:
        root = self._root(call.func)
        assert root is not None
        self.seen.add(root)


class _Names(cst.CSTVisitor):
    """Whether anything of apex.amp, or that says whether it is there, is mentioned."""

    def __init__(self, remover: _Remover) -> None:
        super().__init__()
        self.remover = remover
        self.hit = False

    def visit_Name(self, node: cst.Name) -> None:
        names = self.remover.names
        if node.value in self.remover.available:
            self.hit = True
        elif self.remover.positions.get(node) is not None:
            self.hit = self.hit or self.remover.at(node) in names.mentions

    def visit_ImportAlias(self, node: cst.ImportAlias) -> None:
        if self.remover.at(node) in self.remover.names.imports:
            self.hit = True


class _Expressions(cst.CSTTransformer):
    """``master_params`` spelled out, and dicts without apex's state."""

    def __init__(self, remover: _Remover) -> None:
        super().__init__()
        self.remover = remover

    def leave_Call(
        self, original_node: cst.Call, updated_node: cst.Call
    ) -> cst.BaseExpression:
        if self.remover._is(original_node, "master_params"):
            given = arguments_of(original_node, ("optimizer",))
            if given and set(given) == {"optimizer"} and is_pure(given["optimizer"]):
                self.remover._see(original_node)
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
            case cst.Call(args=[]) if self.remover._is(value, "state_dict"):
                self.remover._see(value)
                return True
            case cst.IfExp(test=test, body=body, orelse=cst.Name(value="None")):
                return is_pure(test) and self._is_state(body)
        return False


# -- amp.initialize ---------------------------------------------------------------------------------


def _elements(node: cst.BaseExpression) -> list[str]:
    if isinstance(node, (cst.List, cst.Tuple)):
        return [code_of(element.value) for element in node.elements]
    return [code_of(node)]


def _flat(code: str) -> str:
    """Targets and arguments in one spelling, whatever brackets they stand in."""
    return "".join(c for c in code if c not in " \n\t()[]").rstrip(",")


def _assigns(
    around: cst.If, names: tuple[str, ...], before: int, remover: _Remover
) -> bool:
    """Whether one of some names gets its value in a branch, above a line."""
    finder = _Targets(remover)
    around.visit(finder)
    return any(name in names and line < before for name, line in finder.found)


class _Targets(cst.CSTVisitor):
    def __init__(self, remover: _Remover) -> None:
        super().__init__()
        self.remover = remover
        self.found: list[tuple[str, int]] = []

    def visit_AssignTarget(self, node: cst.AssignTarget) -> None:
        line = self.remover.at(node)[0]
        self.found += [(name, line) for name in _elements(node.target)]
