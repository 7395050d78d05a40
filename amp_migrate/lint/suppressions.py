"""Comments that silence lint: ``# amp: ignore[TCU101] reason`` and ``# noqa: TCU101``.

A comment at the end of a statement's first or last line concerns all of the statement; on a line in the
middle, what begins there, or else the nearest finding above. ``# amp: ignore`` alone on its line concerns
the line below. The lines of a statement are its own, without those of the blocks in it.

``# amp: off`` is another thing: it keeps the migration from a loop, and silences nothing here.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from amp_migrate.catalogue.rules import lint_codes, lint_rule
from amp_migrate.core.findings import Finding, Severity
from amp_migrate.lint.context import Context
from amp_migrate.lint.selection import Selection
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_now

UNUSED = "AMP100"

_MENTIONED = re.compile(r"#[^\n]*\b(?:amp:\s*ignore|noqa)\b", re.IGNORECASE)
_IGNORE = re.compile(
    r"#\s*amp:\s*ignore(?P<file>-file)?(?![\w-])\s*(?:\[(?P<codes>[^\]\n]*)\])?",
    re.IGNORECASE,
)
_NOQA = re.compile(
    r"#\s*noqa\b(?:\s*:\s*(?P<codes>[A-Z]+[0-9]+(?:[,\s]+[A-Z]+[0-9]+)*))?",
    re.IGNORECASE,
)
_OURS = re.compile(r"(?:AMP|TCU)\d*")


@dataclass(eq=False)
class _Mark:
    """One comment that silences something."""

    line: int
    column: int
    text: str
    codes: tuple[str, ...]
    """Prefixes; none stands for all codes."""
    alone: bool
    whole_file: bool = False
    noqa: bool = False
    used: set[str] = field(default_factory=set)
    """The prefixes that silenced something; "" where it is for all codes."""

    def fits(self, code: str) -> bool:
        """Whether it speaks of a code."""
        return not self.codes or any(code.startswith(one) for one in self.codes)

    def use(self, code: str) -> None:
        """Remember that it silenced a finding."""
        self.used |= {one for one in self.codes or ("",) if code.startswith(one)}


def silenced(
    context: Context, file: str, found: Iterable[Finding], selection: Selection
) -> tuple[list[Finding], list[Finding]]:
    """What is left of the findings of a file, with marks that silence nothing; and what is silenced."""
    text = context.sources.texts[file]
    if not _MENTIONED.search(text):
        return list(found), []
    marks = list(_marks(text))
    lines = _Lines(context, file)
    targets = [(mark, *lines.target(mark)) for mark in marks if not mark.whole_file]
    quiet: dict[int, Finding] = {}
    places = [(number, one, lines.of(one)) for number, one in enumerate(found)]
    for number, one, _ in places:
        for mark in marks:
            if mark.whole_file and mark.fits(one.code):
                mark.use(one.code)
                quiet[number] = one
    for mark, first, last, line in targets:
        concerned = [
            (number, one, at)
            for number, one, at in places
            if at is not None and first <= at <= last and mark.fits(one.code)
        ]
        if line is not None:
            on = max((at for *_, at in concerned if at and at <= line), default=None)
            concerned = [one for one in concerned if one[2] == on]
        for number, one, _ in concerned:
            mark.use(one.code)
            quiet[number] = one
    kept = [one for number, one, _ in places if number not in quiet]
    if selection.takes(UNUSED):
        kept += _unused(context, file, marks, selection)
    return kept, list(quiet.values())


def _marks(text: str) -> Iterator[_Mark]:
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and _MENTIONED.search(token.string):
                alone = not token.line[: token.start[1]].strip()
                yield from _marks_in(token.string, *token.start, alone=alone)
    except (tokenize.TokenError, SyntaxError):
        return  # what was read as a program is tokenized as one, but for oddities at its end


def _marks_in(comment: str, line: int, column: int, *, alone: bool) -> Iterator[_Mark]:
    for match in _IGNORE.finditer(comment):
        codes = () if match["codes"] is None else tuple(_split(match["codes"]))
        if match["codes"] is None or codes:
            yield _Mark(
                line,
                column + match.start() + 1,
                comment,
                codes,
                alone,
                bool(match["file"]),
            )
    for match in _NOQA.finditer(comment):
        codes = tuple(_split(match["codes"] or ""))
        ours = tuple(code for code in codes if _OURS.fullmatch(code))
        if ours or not codes:
            yield _Mark(
                line, column + match.start() + 1, comment, ours, False, noqa=True
            )


def _split(codes: str) -> list[str]:
    return [code.upper() for code in re.split(r"[,\s]+", codes) if code]


class _Lines:
    """Which lines of a file belong together."""

    def __init__(self, context: Context, file: str) -> None:
        self._text = context.sources.texts[file].split("\n")
        self._shown = context.telling.file(file)
        self._document = context.sources.documents.get(file)
        self._inside: dict[tuple[int, int], int] | None = None
        self._spans = sorted(set(_spans(context, file)))

    def of(self, finding: Finding) -> int | None:
        """The line of the program that a finding stands in; None if it stands in another file."""
        place = finding.place
        if place.path == self._shown:
            return place.line
        cell = place.path.removeprefix(f"{self._shown}:cell ")
        if self._document is None or not cell.isdecimal():
            return None
        if self._inside is None:
            # The mark before a cell goes by the same name as the cell's first line, which follows.
            numbers = range(1, len(self._text) + 1)
            self._inside = {self._document.place(line): line for line in numbers}
        return self._inside.get((int(cell), place.line))

    def target(self, mark: _Mark) -> tuple[int, int, int | None]:
        """The lines of the statement that a mark concerns; and a line of it, where that is not all."""
        line = mark.line
        if mark.alone:
            while line < len(self._text):
                line += 1
                if not self._text[line - 1].lstrip().startswith("#"):
                    break
        around = [span for span in self._spans if span[0] <= line <= span[1]]
        first, last = max(around, key=lambda s: (s[0], -s[1]), default=(line, line))
        if line == first or (line == last and not mark.alone):
            return first, last, None
        return (line, line, None) if mark.alone else (first, last, line)


def _spans(context: Context, file: str) -> Iterator[tuple[int, int]]:
    """The first and last of each statement's own lines."""
    program = context.program
    bodies = [
        one.body
        for table in (program.functions, program.classes)
        for key, one in table.items()
        if ir.file_of(key) == file
    ]
    for body in bodies:
        for stmt in ir.statements(body):
            calls = [*calls_now(stmt)]
            # Decorators stand above the line of what they decorate.
            first = min([stmt.line, *(call.line for call in calls if call.line)])
            last = stmt.end_line
            inner = [block.body for block in stmt.blocks]
            for name in stmt.names[1:] if stmt.kind.endswith("def") else ():
                one = program.functions.get(name) or program.classes.get(name)
                if one is not None:
                    inner.append(one.body)
            starts = [block[0].line for block in inner if block]
            yield int(first), max(int(stmt.line), min([last + 1, *starts]) - 1)


def _unused(
    context: Context, file: str, marks: Iterable[_Mark], selection: Selection
) -> Iterator[Finding]:
    known = lint_codes()
    for mark in marks:
        if any(one and UNUSED.startswith(one) for one in mark.codes):
            continue
        for prefix in mark.codes or ("",):
            if prefix in mark.used or (mark.noqa and not prefix):
                continue  # a bare noqa may be meant for others
            meant = [code for code in known if code.startswith(prefix)]
            if not prefix:
                judged = all(selection.takes(c) for c in meant if lint_rule(c).default)
                words = "silences nothing here"
            elif meant:
                judged = all(selection.takes(code) for code in meant)
                words = "silences nothing here"
            else:
                judged = not mark.noqa
                words = "no rule of lint has such a code"
            if judged:
                yield Finding(
                    code=UNUSED,
                    severity=Severity(lint_rule(UNUSED).severity),
                    place=context.telling.place(file, mark.line, mark.column),
                    message=f"`{_quoted(mark, prefix)}`: {words}",
                    expression=_quoted(mark, prefix),
                    data=(("prefix", prefix),),
                )


def _quoted(mark: _Mark, prefix: str) -> str:
    if mark.noqa:
        return f"# noqa: {prefix}"
    kind = "ignore-file" if mark.whole_file else "ignore"
    return f"# amp: {kind}[{prefix}]" if prefix else f"# amp: {kind}"
