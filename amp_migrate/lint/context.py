"""What a check is given: the program, the options, and a way to say what it found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from amp_migrate.catalogue.rules import lint_rule
from amp_migrate.core.findings import Confidence, Finding, Fix, Severity, Step
from amp_migrate.core.options import Options
from amp_migrate.program import ir
from amp_migrate.program.display_names import Telling
from amp_migrate.program.link import Program
from amp_migrate.program.programs import ProgramSources
from amp_migrate.program.testing import is_test

_Kept = TypeVar("_Kept")


@dataclass
class Context:
    """One program, as its checks see it."""

    program: Program
    sources: ProgramSources
    options: Options
    telling: Telling
    _noted: dict[tuple[object, ...], object] = field(default_factory=dict)

    def noted(self, look: Callable[..., _Kept], *given: object) -> _Kept:
        """What one look at a program, or at a file of it, finds, which is taken once for all checks."""
        key = look, *given
        if key not in self._noted:
            self._noted[key] = look(self, *given)
        return self._noted[key]  # type: ignore[return-value]

    def functions(self, file: str) -> list[str]:
        """The functions of a file, its top level included, in source order."""
        return list(self.program.modules[file].functions)

    def is_test(self, file: str) -> bool:
        """Whether a file holds tests, whose speed is nobody's concern."""
        return is_test(self.telling.file(file))

    def finding(
        self,
        code: str,
        function: str,
        at: ir.Call | ir.Stmt,
        message: str = "",
        *,
        severity: Severity | None = None,
        expression: str = "",
        chain: tuple[Step, ...] = (),
        confidence: Confidence = Confidence.CERTAIN,
        data: tuple[tuple[str, object], ...] = (),
        fix: Fix | None = None,
    ) -> Finding:
        """A finding in ``function``; where words or severity are not given, they are the rule's own.

        ``expression`` is the source of what is judged; the source line where it is not given.
        """
        rule = lint_rule(code)
        file = ir.file_of(function)
        place = self.telling.place(file, at.line, at.column)
        end = at.end_line if isinstance(at, ir.Stmt) and not at.blocks else at.line
        symbol = ir.local_name(function)
        return Finding(
            code=code,
            severity=severity or Severity(rule.severity),
            place=place,
            message=_begun(message or rule.message.rstrip(".")),
            symbol="" if ir.is_top(function) else symbol,
            expression=expression or place.text,
            chain=tuple(map(self._told, chain)),
            confidence=confidence,
            data=data,
            end_line=place.line + end - at.line,
            fix=fix,
        )

    def _told(self, step: Step) -> Step:
        """A step whose place is one of the program, in the words for the user."""
        place = step.place
        if place is None or place.path not in self.sources.texts:
            return step
        told = self.telling.place(place.path, place.line, place.column)
        return replace(step, place=told)


def _begun(message: str) -> str:
    """With a capital, where it begins with a word and not with a name of the program."""
    first = message.split(" ", 1)[0]
    return message[0].upper() + message[1:] if first.isalpha() else message
