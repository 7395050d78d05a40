"""A program's texts through all rooms: facts, program, plan, edits, and the check of what came out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from amp_migrate.analysis.paths.loops import Refusal, TrainingLoop
from amp_migrate.analysis.values.device import Told
from amp_migrate.core import phases
from amp_migrate.core.beside import beside, shared
from amp_migrate.core.effort import cut
from amp_migrate.core.garbage import kept
from amp_migrate.core.options import Options
from amp_migrate.core.results import (
    Loop,
    Note,
    Outcome,
    Place,
    Result,
    SourceError,
    Unaligned,
)
from amp_migrate.edit.program_work import ProgramWork
from amp_migrate.edit.rewritten import WrongError
from amp_migrate.migrate.plan import Planned, plan_program
from amp_migrate.program import ir
from amp_migrate.program.link import Program
from amp_migrate.program.programs import ProgramSources


class Migration(ProgramWork):
    """The migration of one program."""

    def __init__(
        self,
        sources: ProgramSources,
        options: Options,
        given: Collection[str],
        shown: Mapping[str, str],
        *,
        told: Told = lambda function, birth: None,
        wanted: Callable[[TrainingLoop], bool] = lambda loop: True,
    ) -> None:
        """``told`` and ``wanted``: see `plan_program`."""
        super().__init__(sources, options, given, shown)
        self.told = told
        self.wanted = wanted
        self.unread = dict(sources.unread)
        self.program: Program | None = None
        """As it was before the migration, once it is read."""

    def run(self) -> dict[str, Result | SourceError]:
        """An entry for each given file that holds training loops, is to be changed, or cannot be read."""
        planned = self._plan(self.sources.texts)
        with beside(self._unaligned) as unaligned:
            outputs = self._outputs(planned)
            return self._results(planned, outputs, unaligned)

    def _outputs(self, planned: Planned) -> dict[str, str]:
        """The texts after the migration; where one is wrong, none is changed."""
        outputs = dict(self.sources.texts)
        if planned.file_plans:
            try:
                outputs |= self._rewrite(planned)
            except WrongError as wrong:
                refused = Refusal("AMP090", wrong.what, ir.Line(1, wrong.file))
                for loop in planned.loops:
                    if loop.refusal is None and not loop.off:
                        loop.refuse(refused)
        return outputs

    def _results(
        self,
        planned: Planned,
        outputs: Mapping[str, str],
        unaligned: Callable[[], Unaligned],
    ) -> dict[str, Result | SourceError]:
        groups = {
            id(loop): number
            for number, group in enumerate(planned.groups)
            for loop in group
        }
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
                    self.telling.file(file),
                    text,
                    outputs[file],
                    tuple(self._loop(loop, groups[id(loop)]) for loop in loops),
                    tuple(planned.explanation.get(file, ())),
                    tuple(
                        Note(self._place(note.line, 1), note.message)
                        for note in planned.notes.get(file, ())
                    ),
                )
        for file, one in found.items():
            if isinstance(one, Result):
                found[file] = replace(one, unaligned=unaligned())
                break
        return found

    def _unaligned(self) -> Unaligned:
        """The sizes that lint would warn of: a hint, which no migration fails for."""
        # Imported here: only programs that train have a use for it.
        from amp_migrate.lint.context import Context
        from amp_migrate.lint.shapes.count import unaligned

        assert self.program is not None
        context = Context(self.program, self.sources, self.options, self.telling)
        try:
            return unaligned(
                context, (one for one in self.given if one not in self.errors)
            )
        except (RecursionError, MemoryError):
            cut()
        except Exception:
            pass
        return Unaligned()

    def _plan(
        self,
        texts: Mapping[str, str],
        settled: Callable[[TrainingLoop], bool] = lambda loop: False,
    ) -> Planned:
        modules = []
        read = {} if self.program is None else self.program.modules
        with kept():
            for file, text in phases.each("reading files", texts.items()):
                if file in read and text == self.sources.texts[file]:
                    modules.append(read[file])
                    continue
                try:
                    modules.append(self.read(text, file))
                except SourceError as error:
                    self.errors[file] = self.telling.error(file, error)
                    self.unread[file] = text
        known = replace(self.sources, unread=self.unread)
        program = Program(modules, self.sources.layout)
        self.program = self.program or program
        return plan_program(
            program,
            self.options,
            writable=frozenset(self.given),
            mentioned_elsewhere=known.mentions,
            shown=self.telling.file,
            spot=self.telling.spot,
            told=self.told,
            wanted=self.wanted,
            settled=settled,
        )

    def _settled(
        self, planned: Planned, changed: Collection[str]
    ) -> Callable[[TrainingLoop], bool]:
        """Which loops stay as they are planned: those of a group that never runs with a changed file."""
        assert self.program is not None
        around = self.program.around
        known = {
            (loop.function, loop.path)
            for group in planned.groups
            if all(around((_file_of(one),)).isdisjoint(changed) for one in group)
            for loop in group
        }
        return lambda loop: (loop.function, loop.path) in known

    def _rewrite(self, planned: Planned) -> dict[str, str]:
        """The new texts; raises `WrongError` where one of them does not pass its check."""
        texts = self.sources.texts
        # Imported here, before others share the work: who has nothing to write does without them.
        from amp_migrate.edit.apply import apply_plan
        from amp_migrate.edit.verify import first_difference

        plans = list(planned.file_plans.items())

        def rewrite(number: int) -> str:
            file, plan = plans[number]
            phases.at("rewriting files", number, len(plans))
            return self.rewritten(
                file, lambda text, mode: apply_plan(text, plan, mode.line_length)
            )

        rewritten = shared(rewrite, len(plans))
        outputs = {file: text for (file, _), text in zip(plans, rewritten, strict=True)}
        wrong = first_difference(
            {file: (texts[file], output) for file, output in outputs.items()}
        )
        if wrong is not None:
            raise WrongError(*wrong)
        settled = self._settled(planned, outputs)
        again = self._plan({**texts, **outputs}, settled)
        if again.file_plans:
            raise WrongError(
                min(again.file_plans), "a second run would change it again"
            )
        return outputs

    # -- what is told ---------------------------------------------------------------------------

    def _loop(self, loop: TrainingLoop, group: int) -> Loop:
        event = loop.backwards[0].event
        place = self._place(event.line, event.column)
        function = ir.local_name(loop.function)
        if loop.off:
            return Loop(place, function, Outcome.OFF, group=group)
        found = loop.refusal
        if found is None:
            return Loop(place, function, Outcome.MIGRATED, group=group)
        blame = self._place(found.line, 1) if found.line else None
        diagnostic = self.diagnostic(
            found.code, place, found.message, blame, found.by_hand
        )
        outcome = Outcome.ALREADY if found.code == "AMP001" else Outcome.LEFT_ALONE
        return Loop(place, function, outcome, diagnostic, group)

    def _place(self, line: int, column: int) -> Place:
        assert isinstance(line, ir.Line)
        return self.telling.place(line.file, line, column)


def _file_of(loop: TrainingLoop) -> str:
    return ir.file_of(loop.function)


migrate_program = Migration.work
