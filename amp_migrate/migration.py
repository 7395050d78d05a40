"""A program's texts through all rooms: facts, program, plan, codemod, and the check of what came out."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from amp_migrate.catalogue import refusal
from amp_migrate.facts import ir, read_module
from amp_migrate.options import Options
from amp_migrate.plan import Planned, plan_program
from amp_migrate.plan.edits import FilePlan
from amp_migrate.plan.loops import Refusal, TrainingLoop
from amp_migrate.programs import ProgramSources
from amp_migrate.project import Program
from amp_migrate.results import Diagnostic, Loop, Outcome, Place, Result, SourceError
from amp_migrate.sources.document import NOTEBOOK_SUFFIX, Source, open_document

if TYPE_CHECKING:
    from black import Mode


def migrate_program(
    sources: ProgramSources,
    options: Options,
    *,
    given: Collection[str],
    shown: Mapping[str, str],
) -> dict[str, Result | SourceError]:
    """Migrate the files of one program that are ``given``; the others are only read.

    ``shown``: what messages call a file, where that is not its path. The answer has an entry for each
    given file that holds training loops, is to be changed, or cannot be read.
    """
    return _Migration(sources, options, given, shown).run()


class _Migration:
    def __init__(
        self,
        sources: ProgramSources,
        options: Options,
        given: Collection[str],
        shown: Mapping[str, str],
    ) -> None:
        self.sources = sources
        self.options = options
        self.given = [file for file in sources.texts if file in given]
        self.shown = shown
        self.errors: dict[str, SourceError] = {}
        self.unread = dict(sources.unread)

    def run(self) -> dict[str, Result | SourceError]:
        planned = self._plan(self.sources.texts)
        outputs = dict(self.sources.texts)
        if planned.file_plans:
            try:
                outputs |= self._rewrite(planned)
            except _Wrong as wrong:
                for loop in planned.loops:
                    if loop.refusal is None and not loop.off:
                        loop.refuse(wrong.refusal)
        found: dict[str, Result | SourceError] = {}
        for file in self.given:
            if file in self.errors:
                found[file] = self.errors[file]
                continue
            loops = [loop for loop in planned.loops if _file_of(loop) == file]
            text = self.sources.texts[file]
            if loops or outputs[file] != text:
                loops.sort(key=lambda loop: loop.backwards[0].event.line)
                found[file] = Result(
                    self._shown(file),
                    text,
                    outputs[file],
                    tuple(self._loop(loop) for loop in loops),
                    tuple(planned.explanation.get(file, ())),
                )
        return found

    def _plan(self, texts: Mapping[str, str]) -> Planned:
        modules = []
        for file, text in texts.items():
            try:
                modules.append(read_module(text, file))
            except SourceError as error:
                self.errors[file] = self._error(file, error)
                self.unread[file] = text
        known = replace(self.sources, unread=self.unread)
        return plan_program(
            Program(modules, self.sources.layout),
            self.options,
            writable=frozenset(self.given),
            mentioned_elsewhere=known.mentions,
            shown=self._shown,
            spot=self._spot,
        )

    def _rewrite(self, planned: Planned) -> dict[str, str]:
        """The new texts; raises `_Wrong` where one of them does not pass its check."""
        texts = self.sources.texts
        outputs = {
            file: self._rewrite_file(file, texts[file], plan)
            for file, plan in planned.file_plans.items()
        }
        from amp_migrate.verify import first_difference

        wrong = first_difference(
            {file: (texts[file], output) for file, output in outputs.items()}
        )
        if wrong is not None:
            raise _Wrong(*wrong)
        again = self._plan({**texts, **outputs})
        if again.file_plans:
            raise _Wrong(min(again.file_plans), "a second run would change it again")
        return outputs

    def _rewrite_file(self, file: str, text: str, plan: FilePlan) -> str:
        # Imported only where something is written: most files of a run are only read.
        from amp_migrate.codemod.apply import apply_plan
        from amp_migrate.codemod.formatting import keep_clean, mode_of_file
        from amp_migrate.codemod.mismatch import MismatchError

        mode = mode_of_file(file)
        try:
            output = apply_plan(text, plan, mode.line_length)
        except MismatchError as error:
            raise _Wrong(file, str(error)) from error
        document = self.sources.documents.get(file)
        if document is None or not file.endswith(NOTEBOOK_SUFFIX):
            return keep_clean(text, output, mode)
        return self._rewrite_cells(file, document, output, mode)

    def _rewrite_cells(
        self, file: str, notebook: Source, output: str, mode: Mode
    ) -> str:
        """The new text of a notebook: each cell that was formatted stays so, and all can be told apart."""
        from amp_migrate.codemod.formatting import keep_cell_clean
        from amp_migrate.sources.ipython import LostMarkError

        try:
            befores, afters = notebook.split(notebook.text), notebook.split(output)
            pairs = zip(befores, afters, strict=True)
            output = notebook.join([keep_cell_clean(*pair, mode) for pair in pairs])
            data = notebook.encode(output)
            if open_document(notebook.path, data).text != output:
                raise _Wrong(file, "the notebook would be read as another program")
        except (LostMarkError, SourceError) as error:
            raise _Wrong(file, str(error)) from error
        return output

    # -- what is told ---------------------------------------------------------------------------

    def _spot(self, line: int, file: str) -> str:
        """What the words about a plan call a line."""
        document = self.sources.documents.get(file)
        cell, inside = (0, line) if document is None else document.place(line)
        return f"cell {cell}, line {inside}" if cell else f"line {line}"

    def _shown(self, file: str) -> str:
        """What messages call a file."""
        if file in self.shown:
            return self.shown[file]
        relative = os.path.relpath(file)
        return file if relative.startswith(os.pardir) else Path(relative).as_posix()

    def _loop(self, loop: TrainingLoop) -> Loop:
        event = loop.backwards[0].event
        place = self._place(event.line, event.column)
        function = ir.local_name(loop.function)
        if loop.off:
            return Loop(place, function, Outcome.OFF)
        found = loop.refusal
        if found is None:
            return Loop(place, function, Outcome.MIGRATED)
        blocker = None
        if found.line:
            blocker = self._place(found.line, 1)
            if (blocker.path, blocker.line) == (place.path, place.line):
                blocker = None
        by_hand = found.by_hand or tuple(refusal(found.code).by_hand)
        diagnostic = Diagnostic(found.code, place, found.message, blocker, by_hand)
        outcome = Outcome.ALREADY if found.code == "AMP001" else Outcome.LEFT_ALONE
        return Loop(place, function, outcome, diagnostic)

    def _error(self, file: str, error: SourceError) -> SourceError:
        shown, line = self._shown(file), error.line
        document = self.sources.documents.get(file)
        cell, inside = document.place(line) if document and line else (0, line)
        if cell:
            words = f"cell {cell}, line {inside}: {error.message}"
            return SourceError(shown, words)
        return SourceError(shown, error.message, line, error.column)

    def _place(self, line: int, column: int) -> Place:
        """Where a line of the program stands: in a notebook, by its cell and the line in that."""
        assert isinstance(line, ir.Line)
        file, shown = line.file, self._shown(line.file)
        text = self.sources.texts[file].split("\n")
        if not 0 < line <= len(text):
            return Place(shown, int(line), column)
        document = self.sources.documents.get(file)
        if document is None:
            return Place(shown, int(line), column, text[line - 1].strip())
        cell, inside = document.place(line)
        said = document.said(line)
        # A cell may be indented as a whole.
        column += max(said.find(text[line - 1]), 0)
        return Place(
            f"{shown}:cell {cell}" if cell else shown, inside, column, said.strip()
        )


class _Wrong(Exception):
    """A rewrite that did not pass its own check."""

    def __init__(self, file: str, what: str) -> None:
        super().__init__(what)
        line = ir.Line(1, file)
        self.refusal = Refusal(
            "AMP090", f"the rewrite did not pass its own check: {what}", line
        )


def _file_of(loop: TrainingLoop) -> str:
    return ir.file_of(loop.function)
