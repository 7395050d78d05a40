"""A syntax tree with apex.amp in it: where it is mentioned, and which of that has been dealt with."""

from __future__ import annotations

from collections.abc import Mapping

import libcst as cst
from libcst.metadata import CodeRange

from amp_migrate.edit.names.uses import Position
from amp_migrate.modernize.apex.forms import UnknownFormError
from amp_migrate.modernize.apex.names import ApexNames


class ApexText:
    """The mentions of apex.amp in one tree."""

    def __init__(
        self, names: ApexNames, positions: Mapping[cst.CSTNode, CodeRange]
    ) -> None:
        self.names = names
        self.positions = dict(positions)
        self.seen: set[Position] = set()
        """The mentions that are dealt with."""
        self.available: dict[str, int] = {}
        """Variables that say whether apex could be imported, and how often one was asked."""

    def at(self, node: cst.CSTNode) -> Position:
        """Where a node stands."""
        start = self.positions[node].start
        return start.line, start.column

    def end(self, node: cst.CSTNode) -> int:
        """The line on which a node ends."""
        return self.positions[node].end.line

    def fail(self, message: str, node: cst.CSTNode) -> UnknownFormError:
        """What to raise where a node is not known."""
        return UnknownFormError(message, self.at(node))

    def on_its_own(self, suite: cst.SimpleStatementSuite) -> cst.IndentedBlock:
        """The statements behind a header on a line of their own."""
        line = cst.SimpleStatementLine(
            suite.body, trailing_whitespace=suite.trailing_whitespace
        )
        block = cst.IndentedBlock([line])
        self.positions[line] = self.positions[block] = self.positions[suite]
        return block

    def concerns(self, node: cst.CSTNode) -> bool:
        """Whether anything of apex.amp, or that says whether it is there, is mentioned."""
        found = _Names(self)
        node.visit(found)
        return found.hit

    def calls(self, call: cst.Call, name: str) -> bool:
        """Whether a call is one of ``amp.<name>``."""
        root = self._root(call.func)
        return root is not None and self.names.mentions.get(root) == f"apex.amp.{name}"

    def is_apex(self, node: cst.BaseExpression) -> bool:
        """Whether an expression is apex.amp, asked whether it is there."""
        root = self._root(node)
        if root is None or self.names.mentions.get(root) != "apex.amp":
            return False
        self.seen.add(root)
        return True

    def see(self, call: cst.Call) -> None:
        """A call is dealt with."""
        root = self._root(call.func)
        assert root is not None
        self.seen.add(root)

    def _root(self, node: cst.BaseExpression) -> Position | None:
        while isinstance(node, cst.Attribute):
            node = node.value
        return self.at(node) if isinstance(node, cst.Name) else None


class _Names(cst.CSTVisitor):
    def __init__(self, apex: ApexText) -> None:
        super().__init__()
        self.apex = apex
        self.hit = False

    def visit_Name(self, node: cst.Name) -> None:
        if node.value in self.apex.available:
            self.hit = True
        elif self.apex.positions.get(node) is not None:
            self.hit = self.hit or self.apex.at(node) in self.apex.names.mentions

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        if isinstance(node.names, cst.ImportStar):
            self.hit = self.hit or self.apex.at(node) in self.apex.names.imports

    def visit_ImportAlias(self, node: cst.ImportAlias) -> None:
        if self.apex.at(node) in self.apex.names.imports:
            self.hit = True
