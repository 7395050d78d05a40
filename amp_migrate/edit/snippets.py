"""New statements as LibCST nodes, laid out as black would at the place where they go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import cache, lru_cache

import black
import libcst as cst


class Snippets:
    """Makes statements for one module: its newline, indentation, line length and quotes."""

    def __init__(self, module: cst.Module, line_length: int) -> None:
        self.config = module.config_for_parsing
        self.newline = module.default_newline
        self.default = module.default_indent
        habits = Habits(module)
        self.indent = habits.indent
        """That of the blocks around the place where a statement goes."""
        self.line_length = line_length
        self.quote = habits.quote

    @contextmanager
    def inside(self, block: cst.IndentedBlock) -> Iterator[str]:
        """Make what goes into a block; gives the block's own indentation."""
        outer = self.indent
        step = self.default if block.indent is None else block.indent
        self.indent = step
        try:
            yield step
        finally:
            self.indent = outer

    def statements(
        self, code: str, outer_indent: str
    ) -> list[cst.SimpleStatementLine | cst.BaseCompoundStatement]:
        """``code`` (black's own indentation) parsed for a block indented by ``outer_indent``."""
        width = len(outer_indent.expandtabs(4))
        text = _formatted(code, max(self.line_length - width, 20))
        lines = []
        for line in text.splitlines():
            stripped = line.lstrip(" ")
            lines.append(self.indent * ((len(line) - len(stripped)) // 4) + stripped)
        source = self.newline.join([*lines, ""])
        made = cst.parse_module(source, self.config)
        if self.quote != '"':
            made = made.visit(_Requoter(self.quote))
        return list(made.body)

    def with_statement(
        self, header: str, body: list[cst.BaseStatement], outer_indent: str
    ) -> cst.With:
        """A ``with`` statement around a body."""
        parsed = self.statements(f"{header}\n    pass", outer_indent)[0]
        assert isinstance(parsed, cst.With)
        return parsed.with_changes(body=self.indented(body, outer_indent))

    def indented(
        self, body: Sequence[cst.BaseStatement], outer_indent: str
    ) -> cst.IndentedBlock:
        """A block of statements that stood one level further out."""
        # LibCST indents lines by their place in the tree, but not those behind a backslash.
        deeper = _Deeper(self.indent, outer_indent, self.default)
        moved = [statement.visit(deeper) for statement in body]
        step = None if self.indent == self.default else self.indent
        return cst.IndentedBlock(body=moved, indent=step)  # type: ignore[arg-type]


class _Requoter(cst.CSTTransformer):
    """Gives strings another quote where that changes nothing else."""

    def __init__(self, quote: str) -> None:
        super().__init__()
        self.quote = quote

    def leave_SimpleString(
        self, original_node: cst.SimpleString, updated_node: cst.SimpleString
    ) -> cst.SimpleString:
        if not _is_plain(updated_node):
            return updated_node
        inner = updated_node.raw_value
        value = f"{updated_node.prefix}{self.quote}{inner}{self.quote}"
        return updated_node.with_changes(value=value)


def _is_plain(string: cst.SimpleString) -> bool:
    """Whether either kind of quote would do."""
    inner = string.raw_value
    return len(string.quote) == 1 and not any(c in inner for c in "\\'\"")


class Habits:
    """What most blocks of a module are indented by, and most of its strings quoted with."""

    def __init__(self, module: cst.Module) -> None:
        blocks = Counter({module.default_indent: 0})
        quotes: Counter[str] = Counter()
        # A visitor makes every node anew, to tell in the end that none has changed.
        pending: list[object] = [module]
        while pending:
            node = pending.pop()
            if isinstance(node, cst.IndentedBlock):
                blocks[node.indent or module.default_indent] += 1
            elif isinstance(node, cst.SimpleString) and _is_plain(node):
                quotes[node.quote] += 1
            if isinstance(node, cst.CSTNode):
                pending += map(node.__getattribute__, _parts_of(type(node)))
            elif isinstance(node, (list, tuple)):
                pending += node
        self.indent = blocks.most_common(1)[0][0]
        self.quote = "'" if quotes["'"] > quotes['"'] else '"'


@cache
def _parts_of(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    """The fields of a kind of node in which other nodes are."""
    return tuple(one.name for one in fields(kind) if "whitespace" not in one.name)


class _Deeper(cst.CSTTransformer):
    """Indents the lines that follow a backslash, and leaves those that hold only whitespace."""

    def __init__(self, indent: str, outer: str, default: str) -> None:
        super().__init__()
        self.indent = indent
        self.default = default
        self.around = [outer]
        """The indentation of the block that is visited, and of those around it, as it was."""

    def visit_IndentedBlock(self, node: cst.IndentedBlock) -> None:
        step = self.default if node.indent is None else node.indent
        self.around.append(self.around[-1] + step)

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        self.around.pop()
        return updated_node

    def leave_EmptyLine(
        self, original_node: cst.EmptyLine, updated_node: cst.EmptyLine
    ) -> cst.EmptyLine:
        if not updated_node.indent or updated_node.comment is not None:
            return updated_node
        space = self.around[-1] + updated_node.whitespace.value
        return updated_node.with_changes(
            indent=False, whitespace=cst.SimpleWhitespace(space)
        )

    def leave_SimpleWhitespace(
        self, original_node: cst.SimpleWhitespace, updated_node: cst.SimpleWhitespace
    ) -> cst.SimpleWhitespace:
        value = updated_node.value
        if "\\" not in value:
            return updated_node
        lines = value.splitlines(keepends=True)
        return updated_node.with_changes(value=self.indent.join(lines))


@lru_cache(maxsize=256)
def _formatted(code: str, line_length: int) -> str:
    return black.format_str(code, mode=black.Mode(line_length=line_length)).rstrip("\n")
