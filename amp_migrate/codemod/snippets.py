"""New statements as LibCST nodes, laid out as black would at the place where they go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache

import black
import libcst as cst


class Snippets:
    """Makes statements for one module: its newline, indentation, line length and quotes."""

    def __init__(self, module: cst.Module, line_length: int) -> None:
        self.config = module.config_for_parsing
        self.newline = module.default_newline
        self.indent = module.default_indent
        self.line_length = line_length
        self.quote = _preferred_quote(module)

    def statements(
        self, code: str, outer_indent: str, *, quoted: bool = False
    ) -> list[cst.SimpleStatementLine | cst.BaseCompoundStatement]:
        """``code`` (black's own indentation) parsed for a block indented by ``outer_indent``.

        ``quoted``: its strings have the file's own quotes already.
        """
        width = len(outer_indent.expandtabs(4))
        text = _formatted(code, max(self.line_length - width, 20), quoted)
        lines = []
        for line in text.splitlines():
            stripped = line.lstrip(" ")
            lines.append(self.indent * ((len(line) - len(stripped)) // 4) + stripped)
        source = self.newline.join([*lines, ""])
        made = cst.parse_module(source, self.config)
        if self.quote != '"' and not quoted:
            made = made.visit(_Requoter(self.quote))
        return list(made.body)

    def with_statement(
        self, header: str, body: list[cst.BaseStatement], outer_indent: str
    ) -> cst.With:
        """A ``with`` statement around a body."""
        parsed = self.statements(f"{header}\n    pass", outer_indent)[0]
        assert isinstance(parsed, cst.With)
        return parsed.with_changes(body=self.indented(body))

    def indented(self, body: Sequence[cst.BaseStatement]) -> cst.IndentedBlock:
        """A block of statements that stood one level further out."""
        # LibCST indents lines by their place in the tree, but not those behind a backslash.
        deeper = _Continuations(self.indent)
        moved = [statement.visit(deeper) for statement in body]
        return cst.IndentedBlock(body=moved)  # type: ignore[arg-type]


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


class _Quotes(cst.CSTVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def visit_SimpleString(self, node: cst.SimpleString) -> None:
        if _is_plain(node):
            self.found[node.quote] += 1


def _preferred_quote(module: cst.Module) -> str:
    quotes = _Quotes()
    module.visit(quotes)
    return "'" if quotes.found["'"] > quotes.found['"'] else '"'


class _Continuations(cst.CSTTransformer):
    """Indents the lines that follow a backslash."""

    def __init__(self, indent: str) -> None:
        super().__init__()
        self.indent = indent

    def leave_SimpleWhitespace(
        self, original_node: cst.SimpleWhitespace, updated_node: cst.SimpleWhitespace
    ) -> cst.SimpleWhitespace:
        value = updated_node.value
        if "\\" not in value:
            return updated_node
        lines = value.splitlines(keepends=True)
        return updated_node.with_changes(value=self.indent.join(lines))


@lru_cache(maxsize=256)
def _formatted(code: str, line_length: int, quoted: bool) -> str:
    mode = black.Mode(line_length=line_length, string_normalization=not quoted)
    return black.format_str(code, mode=mode).rstrip("\n")
