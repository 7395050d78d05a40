"""A program's texts through all rooms: facts, plan, rewriting, and the check of what came out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from amp_migrate.core import phases
from amp_migrate.core.results import OldUse, Outcome, Result, SourceError
from amp_migrate.edit.names.edits import Edit
from amp_migrate.edit.names.uses import Uses
from amp_migrate.edit.program_work import ProgramWork
from amp_migrate.edit.rewritten import WrongError
from amp_migrate.modernize.elsewhere import Elsewhere
from amp_migrate.modernize.plan import Reason, Unit, plan
from amp_migrate.modernize.uses_reader import read_uses

_GAP = r"(?:\s|\\|#.*\n)*"
_OLD = re.compile(
    rf"\b(?:cuda|cpu){_GAP}\.{_GAP}amp\b"
    r"|\bfrom\s+torch\.(?:cuda|cpu)\s+import\b|\b(?:cuda|cpu)\s+as\b"
    r"|\bapex\b"
)
_HANDED_ON = re.compile(rf"\.{_GAP}(?:cuda|cpu)\b(?!{_GAP}[.(])")
_MEMBER = re.compile(rf"\.{_GAP}amp\b(?!\s+import)")
"""torch.cuda as a value, and an ``amp`` that may be its own."""
_APEX = re.compile(r"\bapex\b")
_AMP = re.compile(r"\bamp\b|autocast|GradScaler")


def is_old(text: str) -> bool:
    """Whether a text may speak of an older AMP interface."""
    if _OLD.search(text) is not None:
        return True
    return bool(_HANDED_ON.search(text) and _MEMBER.search(text))


class Modernization(ProgramWork):
    """The modernization of one program."""

    def run(self) -> dict[str, Result | SourceError]:
        """An entry for each given file that uses an older interface, or cannot be read."""
        texts = self.sources.texts
        units = self._plan(texts)
        outputs = dict(texts)
        try:
            outputs |= self._rewrite(units)
        except WrongError as wrong:
            for unit in units:
                if _changes(unit):
                    unit.reason = Reason("AMP090", wrong.what, wrong.file, (1, 0))
        apex = self._apex(outputs)
        found: dict[str, Result | SourceError] = {}
        for file in self.given:
            own = [unit for unit in units if unit.file == file]
            own.sort(key=lambda unit: unit.at)
            if file in self.errors:
                if is_old(texts[file]):
                    found[file] = self.errors[file]
            elif own or file in apex:
                uses = [self._told(unit) for unit in own]
                found[file] = Result(
                    self.telling.file(file),
                    texts[file],
                    outputs[file],
                    old_uses=(*uses, *apex.get(file, ())),
                )
        return found

    def _apex(self, outputs: dict[str, str]) -> dict[str, list[OldUse]]:
        """What became of apex.amp in each file; its new text is put among the outputs."""
        sources = replace(self.sources, texts=dict(outputs))
        uses = {}
        for file, text in outputs.items():
            if _APEX.search(text) and file not in self.errors:
                try:
                    uses[file] = read_uses(text, file)
                except SourceError as error:
                    self.errors[file] = self.telling.error(file, error)
        if not uses:
            return {}
        # Imported here: it brings all that migrating needs.
        from amp_migrate.modernize.apex.program import Apex, Stays, apart

        shown = {file: self.telling.file(file) for file in outputs}
        found: dict[str, list[OldUse]] = {}
        for group in apart(sources, uses):
            apex = Apex(sources, group, self.options, self.given, shown)
            if not apex.is_used or any(uses[file].off for file in apex.names):
                continue
            outcome = apex.run()
            for file, at in apex.places().items():
                if file not in self.given:
                    continue
                unit = Unit(file, at)
                if isinstance(outcome, Stays):
                    unit.reason = Reason(
                        outcome.code, outcome.message, outcome.file, outcome.at
                    )
                found[file] = [self._told(unit)]
            if not isinstance(outcome, Stays):
                outputs |= outcome
                sources = replace(sources, texts=dict(outputs))
        return found

    def _plan(self, texts: Mapping[str, str]) -> list[Unit]:
        @cache
        def read(file: str) -> Uses | None:
            if file not in texts:
                return None
            try:
                return read_uses(texts[file], file)
            except SourceError as error:
                self.errors[file] = self.telling.error(file, error)
                return None

        program = {
            file: uses
            for file, text in phases.each("reading files", texts.items())
            if _AMP.search(text) and (uses := read(file)) is not None
        }
        elsewhere = Elsewhere(
            {**texts, **self.sources.unread}, self.sources.layout, read
        )
        return plan(
            program,
            texts,
            self.options.torch_version,
            elsewhere,
            frozenset(self.given),
            self.telling.file,
        )

    def _rewrite(self, units: list[Unit]) -> dict[str, str]:
        """The new texts; raises `WrongError` where one of them does not pass its check."""
        texts = self.sources.texts
        edits: dict[str, list[Edit]] = defaultdict(list)
        for unit in filter(_changes, units):
            edits[unit.file] += unit.edits
        outputs = {
            file: self._rewrite_file(file, found)
            for file, found in edits.items()
            if found
        }
        if not outputs:
            return outputs
        for unit in self._plan({**texts, **outputs}):
            if _changes(unit) and unit.edits:
                raise WrongError(unit.file, "a second run would change it again")
        return outputs

    def _rewrite_file(self, file: str, edits: list[Edit]) -> str:
        # Imported only where something is written: most files of a run are only read.
        from amp_migrate.edit.names.rewrite import rewrite
        from amp_migrate.modernize.verify import difference

        output = self.rewritten(file, lambda text, mode: rewrite(text, edits))
        wrong = difference(self.sources.texts[file], output)
        if wrong is not None:
            raise WrongError(file, wrong)
        return output

    def _told(self, unit: Unit) -> OldUse:
        place = self.telling.place(unit.file, unit.at[0], unit.at[1] + 1)
        if unit.silent:
            return OldUse(place, Outcome.OFF)
        reason = unit.reason
        if reason is None:
            return OldUse(place, Outcome.MODERNIZED)
        blame = self.telling.place(reason.file, reason.at[0], reason.at[1] + 1)
        found = self.diagnostic(reason.code, place, reason.message, blame)
        return OldUse(place, Outcome.LEFT_ALONE, found)


def _changes(unit: Unit) -> bool:
    return unit.reason is None and not unit.silent


modernize_program = Modernization.work
