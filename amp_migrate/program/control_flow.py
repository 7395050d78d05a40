"""The control-flow graph of one function: which bindings a place can see, what runs before it.

One graph answers reaching definitions and dominance (Aho, Lam, Sethi, Ullman, "Compilers", 9.2 and
9.6), backwards from the place that asks. Each statement has two nodes: one *before* it, and one where
its own line has taken effect. An exception leaves a statement of a ``try`` from before it; a
``finally`` goes on to wherever those go who come into it, so there are more ways here than a program
has, never fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import cached_property

from amp_migrate.core.effort import spend
from amp_migrate.program import ir
from amp_migrate.program.bindings import bindings, calls_now, unpacked

Binds = Callable[[ir.Stmt], bool]

_LOOPS = ("for", "while")
_TRIES = ("try", "trystar")
_ENTRY = 0
_END = 1
_EXITS = (("exit",), ("quit",), ("sys", "exit"), ("os", "_exit"))
_JUMPS = ("raise", "return", "break", "continue")

_Targets = dict[str, int]
"""By kind of jump, the node that it leads to."""


class ControlFlow:
    """Answers for one function, or for the top level of a file."""

    def __init__(self, function: ir.Function) -> None:
        self.function = function
        self._before: dict[ir.Path, int] = {}
        self._preds: list[list[int]] = [[], []]
        self._effects: dict[int, ir.Stmt] = {}
        """By node, the statement whose own line takes effect there."""
        self._reaching: dict[tuple[str, ir.Path], tuple[list[ir.Stmt], bool]] = {}
        self._paired: dict[
            tuple[tuple[str, str], ir.Path],
            set[tuple[ir.Path | None, ir.Path | None]],
        ] = {}
        jumps = {**dict.fromkeys(_JUMPS, _END), "raise": self._node([])}
        self._preds[_END] += self._block(function.body, [_ENTRY], jumps)

    # -- questions ----------------------------------------------------------------------------

    def reaching(self, name: str, path: ir.Path) -> tuple[list[ir.Stmt], bool]:
        """The statements whose value a variable, or ``variable.attribute``, may have where a statement
        begins, in the order of the source, and whether it may be the one that it has when the function
        is called.

        An augmented assignment counts beside those whose value it adds to. Of code that is never come
        to, everything is said to come from the start.
        """
        key = (name, path)
        if key not in self._reaching:
            bind = self._binders.get(name, {})
            found: dict[int, ir.Stmt] = {}

            def stops(node: int) -> bool:
                if node not in bind:
                    return False
                found[node] = bind[node]
                return bind[node].kind != "augassign"

            started = self._meets_entry(path, stops) or not found
            stmts = [found[node] for node in sorted(found)]
            self._reaching[key] = (stmts, started)
        return self._reaching[key]

    def together(
        self, names: tuple[str, str], path: ir.Path
    ) -> set[tuple[ir.Path | None, ir.Path | None]]:
        """The statements that may have given two variables their values on one way to where a statement
        begins; None for what a variable had before.

        What binds a name to something made of its own value, ``net = net.to(device)``, is passed over.
        """
        known = self._paired
        if (names, path) not in known:
            binders = [
                {
                    node: stmt.path
                    for node, stmt in self._binders.get(name, {}).items()
                    if stmt.value is None or ir.Name(name) not in ir.walk(stmt.value)
                }
                for name in names
            ]
            known[names, path] = self._pairs(path, binders)
        return known[names, path]

    def is_passed(self, binds: Binds, path: ir.Path | None = None) -> bool:
        """Whether every way to where a statement begins, or to where the function returns, passes one
        that ``binds``."""

        def stops(node: int) -> bool:
            stmt = self._effects.get(node)
            return stmt is not None and binds(stmt)

        return not self._meets_entry(path, stops)

    def is_reached(self, path: ir.Path) -> bool:
        """Whether any way leads from the entry to where a statement begins."""
        return self._meets_entry(path, lambda node: False)

    def dominates(self, one: ir.Path, other: ir.Path) -> bool:
        """Whether every way to where a statement begins passes another."""
        return self.is_passed(lambda stmt: stmt.path == one, other)

    def leads(self, one: ir.Path, other: ir.Path) -> bool:
        """Whether some way leads from a statement to another, or to itself again."""
        met = False

        def notes(node: int) -> bool:
            nonlocal met
            stmt = self._effects.get(node)
            met |= stmt is not None and stmt.path == one
            return met

        self._meets_entry(other, notes)
        return met

    def is_on(
        self,
        path: ir.Path | None,
        on: Collection[ir.Path],
        off: Binds,
        at_first: bool = False,
    ) -> bool:
        """Whether on every way to where a statement begins, or to where the function returns, one of ``on``
        comes behind the last that is ``off``; a loop counts where it ends, however many turns it took.
        ``at_first``: whether it is on where the function begins."""
        loops = {self._before[one] for one in on if self.statements[one].kind == "for"}
        may_be_off = False

        def stops(node: int) -> bool:
            nonlocal may_be_off
            stmt = self._effects.get(node)
            if node in loops or (stmt is not None and stmt.path in on):
                return True
            may_be_off |= stmt is not None and off(stmt)
            return may_be_off

        return (not self._meets_entry(path, stops) or at_first) and not may_be_off

    def around(self, path: ir.Path) -> Iterator[ir.Stmt]:
        """The statements that one stands in, from the inside out."""
        for size in range(len(path) - 1, len(self.function.path), -1):
            if path[:size] in self.statements:
                yield self.statements[path[:size]]

    def block(self, path: ir.Path) -> tuple[ir.Stmt, ...]:
        """The block that a statement stands in; empty for the body of a class."""
        parent, (field, _) = path[:-1], path[-1]
        if parent == self.function.path:
            return self.function.body
        outer = self.statements.get(parent)
        blocks = () if outer is None else outer.blocks
        return next((b.body for b in blocks if b.field == field), ())

    @cached_property
    def statements(self) -> dict[ir.Path, ir.Stmt]:
        """Every statement, by where it stands."""
        return {stmt.path: stmt for stmt in ir.statements(self.function.body)}

    # -- search -------------------------------------------------------------------------------

    @cached_property
    def _binders(self) -> dict[str, dict[int, ir.Stmt]]:
        found: dict[str, dict[int, ir.Stmt]] = {}
        for node, stmt in self._effects.items():
            for name, _, _ in bindings(stmt):
                found.setdefault(name, {})[node] = stmt
        for node, stmt in self._effects.items():
            for target, _, _ in unpacked(stmt):
                if isinstance(target, ir.Attr) and isinstance(target.value, ir.Name):
                    root = target.value.id
                    name = f"{root}.{target.attr}"
                    found.setdefault(name, dict(found.get(root, ())))[node] = stmt
        return found

    def _meets_entry(self, path: ir.Path | None, stops: Callable[[int], bool]) -> bool:
        """Whether a search back from a statement meets the entry, through no node that stops it."""
        while path and path not in self._before:
            # In the body of a class.
            path = path[:-1]
        pending = [_END if path is None else self._before.get(path, _ENTRY)]
        seen = set(pending)
        while pending:
            for one in self._preds[pending.pop()]:
                if one not in seen:
                    seen.add(one)
                    if not stops(one):
                        pending.append(one)
        spend(len(seen))
        return _ENTRY in seen

    def _pairs(
        self, path: ir.Path, binders: list[dict[int, ir.Path]]
    ) -> set[tuple[ir.Path | None, ir.Path | None]]:
        State = tuple[int, ir.Path | None, ir.Path | None]
        pending: list[State] = [(self._before.get(path, _ENTRY), None, None)]
        seen = set(pending)
        found: set[tuple[ir.Path | None, ir.Path | None]] = set()
        while pending:
            node, one, other = pending.pop()
            if node == _ENTRY or (one and other):
                found.add((one, other))
                continue
            for pred in self._preds[node]:
                state = (
                    pred,
                    one or binders[0].get(pred),
                    other or binders[1].get(pred),
                )
                if state not in seen:
                    seen.add(state)
                    pending.append(state)
        spend(len(seen))
        return found

    # -- building -----------------------------------------------------------------------------

    def _node(self, preds: list[int]) -> int:
        self._preds.append(list(preds))
        return len(self._preds) - 1

    def _block(
        self, body: tuple[ir.Stmt, ...], into: list[int], jumps: _Targets
    ) -> list[int]:
        """Add a block's statements; the nodes from which what follows it is come to."""
        for stmt in body:
            before = self._node(into)
            self._before[stmt.path] = before
            self._preds[jumps["raise"]].append(before)
            into = self._statement(stmt, before, jumps)
        return into

    def _statement(self, stmt: ir.Stmt, before: int, jumps: _Targets) -> list[int]:
        blocks = {block.field: block.body for block in stmt.blocks}
        if stmt.kind in _TRIES:
            return self._try(stmt, blocks, before, jumps)
        if stmt.kind in _LOOPS:
            return self._loop(stmt, blocks, before, jumps)
        line = self._node([before])
        self._effects[line] = stmt
        if not stmt.blocks:
            if not _leaves(stmt):
                return [line]
            target = jumps[stmt.kind if stmt.kind in _JUMPS else "raise"]
            self._preds[target].append(line)
            return []
        if stmt.kind == "with":
            if _suppresses(stmt):
                jumps = {**jumps, "raise": self._node([])}
                inside = self._block(blocks["body"], [line], jumps)
                return [*inside, jumps["raise"]]
            inside = self._block(blocks["body"], [line], jumps)
            self._preds[jumps["raise"]] += inside
            return inside
        after: list[int] = []
        for body in blocks.values():
            after += self._block(body, [line], jumps)
        is_main = stmt.value is not None and is_main_guard(stmt.value)
        if "orelse" not in blocks and not is_main:
            after.append(line)
        return after

    def _loop(
        self,
        stmt: ir.Stmt,
        blocks: dict[str, tuple[ir.Stmt, ...]],
        before: int,
        jumps: _Targets,
    ) -> list[int]:
        head = self._node([before])
        self._preds[jumps["raise"]].append(head)
        line = self._node([head])
        self._effects[line] = stmt
        if stmt.kind == "while":
            # Its test is asked again after each turn.
            self._before[stmt.path] = head
        left = self._node([])
        inner = {**jumps, "break": left, "continue": head}
        self._preds[head] += self._block(blocks["body"], [line], inner)
        # The test has been made where it fails; the target of a `for` is bound where there is a turn.
        done = [head] if stmt.kind == "for" else [line]
        if stmt.kind == "while" and _is_true(stmt.value):
            done = []
        return [*self._block(blocks.get("orelse", ()), done, jumps), left]

    def _try(
        self,
        stmt: ir.Stmt,
        blocks: dict[str, tuple[ir.Stmt, ...]],
        before: int,
        jumps: _Targets,
    ) -> list[int]:
        outer = jumps
        if "finalbody" in blocks:
            jumps = {kind: self._node([]) for kind in _JUMPS}
        raised = self._node([])
        after = self._block(blocks["body"], [before], {**jumps, "raise": raised})
        after = self._block(blocks.get("orelse", ()), after, jumps)
        self._preds[jumps["raise"]].append(raised)
        caught = self._node([raised])
        self._effects[caught] = stmt
        for field, body in blocks.items():
            if field.startswith("handlers"):
                after += self._block(body, [caught], jumps)
        if "finalbody" in blocks:
            come = [*after, *(n for n in jumps.values() if self._preds[n])]
            final = self._block(blocks["finalbody"], come, outer)
            for kind, node in jumps.items():
                if self._preds[node]:
                    self._preds[outer[kind]] += final
            return final if after else []
        return after


def ends(block: tuple[ir.Stmt, ...]) -> bool:
    """Whether what follows a block is not reached through it."""
    return bool(block) and _leaves(block[-1])


def is_main_guard(test: ir.Expr) -> bool:
    """``__name__ == "__main__"``."""
    return (
        isinstance(test, ir.Operation)
        and test.op == "=="
        and ir.Name("__name__") in test.operands
    )


def _leaves(stmt: ir.Stmt) -> bool:
    """Whether nothing follows a statement."""
    if stmt.kind == "expr" and isinstance(stmt.value, ir.Call):
        return ir.dotted(stmt.value.func) in _EXITS
    return stmt.kind in _JUMPS


def _suppresses(stmt: ir.Stmt) -> bool:
    return any(
        (ir.dotted(call.func) or ("",))[-1] == "suppress" for call in calls_now(stmt)
    )


def _is_true(test: ir.Expr | None) -> bool:
    return isinstance(test, ir.Const) and bool(test.value)
