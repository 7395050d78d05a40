"""A program's texts through all rooms of lint: facts, program, checks, and what the user wants to hear."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING

from amp_migrate.core import phases
from amp_migrate.core.beside import beside, is_helped
from amp_migrate.core.effort import cut
from amp_migrate.core.findings import Finding
from amp_migrate.core.garbage import kept
from amp_migrate.core.options import LintOptions
from amp_migrate.core.results import Result, SourceError
from amp_migrate.edit.program_work import ProgramWork
from amp_migrate.lint.checks import CHECKS, SHAPES, Check
from amp_migrate.lint.context import Context
from amp_migrate.lint.selection import Selection, selection
from amp_migrate.lint.suppressions import silenced
from amp_migrate.program.link import Program
from amp_migrate.program.programs import ProgramSources

if TYPE_CHECKING:
    from amp_migrate.lint.fixes.mending import Look


class Lint(ProgramWork):
    """The lint of one program."""

    wanted: Callable[[Finding], bool] = staticmethod(lambda finding: True)
    """Which findings are fixed, where any are."""

    def run(self) -> dict[str, Result | SourceError]:
        """An entry for each given file that uses torch, or cannot be read."""
        before = Looked(self)
        after: Look = before
        fixed: Mapping[str, list[Finding]] = {}
        if self.options.lint.fix:
            # Imported only where something may be written.
            from amp_migrate.lint.fixes.mending import Mender

            mender = Mender(
                before, unsafe=self.options.lint.unsafe_fixes, wanted=self.wanted
            )
            after, fixed = mender.run(), mender.fixed
        found: dict[str, Result | SourceError] = {}
        for file in self.given:
            if file in self.errors:
                found[file] = self.errors[file]
            elif file in before.found:
                found[file] = Result(
                    self.telling.file(file),
                    self.sources.texts[file],
                    after.work.sources.texts[file],
                    findings=after.found[file],
                    fixed=tuple(fixed.get(file, ())),
                    silenced=after.silenced[file],
                )
        return found


class Looked:
    """What all checks found in the given files of a program."""

    def __init__(self, work: ProgramWork) -> None:
        self.work = work
        texts, layout = work.sources.texts, work.sources.layout
        root = None if layout is None else layout.root
        scaled = any("caler" in text for text in texts.values())
        checks: dict[str, list[Check]] = {}
        chosen: dict[str, Selection] = {}
        for file in work.given:
            about_torch = "torch" in texts[file]
            if not about_torch and not scaled:
                continue
            wanted = selection(file, root, work.options.lint)
            found_in = _checks(texts[file], wanted, work.options.lint)
            if not about_torch:
                # What is given a scaler, or gradients, need not know where they come from.
                found_in = [c for c in found_in if c.is_about_misuse]
            if about_torch or found_in:
                chosen[file], checks[file] = wanted, found_in
        # The rest of the program is read where a check may look at it: most files of a run need none.
        self.program = self._read(texts if any(checks.values()) else work.given)
        context = Context(self.program, work.sources, work.options, work.telling)
        found: dict[str, tuple[Finding, ...]] = {}
        silent: dict[str, tuple[Finding, ...]] = {}
        told = self._told(context, checks)
        for file, wanted in chosen.items():
            if file in work.errors:
                continue
            if told[file] is None:
                cut()
                error = SourceError(file, "nested too deeply to be analysed")
                work.errors[file] = work.telling.error(file, error)
                continue
            all_told = [one for one in told[file] or () if wanted.takes(one.code)]
            kept, quiet = silenced(context, file, all_told, wanted)
            found[file] = tuple(sorted(kept, key=_order))
            silent[file] = tuple(sorted(quiet, key=_order))
        self.found: Mapping[str, tuple[Finding, ...]] = found
        self.silenced: Mapping[str, tuple[Finding, ...]] = silent

    def _told(
        self, context: Context, checks: Mapping[str, list[Check]]
    ) -> dict[str, list[Finding] | None]:
        """What the checks find in each file, in their order; None where one of them went too deep."""
        checks = {f: found for f, found in checks.items() if f not in self.work.errors}

        def run(shares: Mapping[str, list[Check]]) -> dict[str, list[Finding] | None]:
            turns = phases.each("checking", range(sum(map(len, shares.values()))))
            told: dict[str, list[Finding] | None] = {}
            for file, share in shares.items():
                try:
                    told[file] = [
                        finding
                        for check, _ in zip(share, turns, strict=False)
                        for finding in check.run(context, file)
                    ]
                except RecursionError:
                    told[file] = None
            return told

        if not is_helped():
            return run(checks)
        # About half of the time goes into the sizes of layers, which the other checks do without.
        shapes = {f: [c for c in found if c in SHAPES] for f, found in checks.items()}
        others = {f: found[len(shapes[f]) :] for f, found in checks.items()}
        with beside(lambda: run(shapes)) as sized:
            rest = run(others)
            told = sized()
        return {
            file: (
                None if one is None or rest[file] is None else one + (rest[file] or [])
            )
            for file, one in told.items()
        }

    def again(self, sources: ProgramSources) -> Looked:
        """The same for other texts; raises `SourceError` where they cannot be read."""
        old = self.work
        work = Lint(sources, old.options, old.given, old.shown)
        work.read = old.read
        looked = Looked(work)
        for file, error in looked.work.errors.items():
            if file not in old.errors:
                raise error
        return looked

    def _read(self, files: Collection[str]) -> Program:
        modules = []
        with kept():
            for file in phases.each("reading files", files):
                text = self.work.sources.texts[file]
                try:
                    modules.append(self.work.read(text, file))
                except SourceError as error:
                    if "torch" in text:
                        self.work.errors[file] = self.work.telling.error(file, error)
        return Program(modules, self.work.sources.layout)


def _checks(text: str, chosen: Selection, options: LintOptions) -> list[Check]:
    """Those that may find something in a text that the user wants to hear of."""
    wanted = [check for check in CHECKS if any(map(chosen.takes, check.codes))]
    # Several checks look for the same words, and for some of them.
    holds = cache(text.__contains__)
    said = {w for w in {one.words for one in wanted} if w.are_in(text, holds)}
    return [
        check
        for check in wanted
        if check.words in said or check.is_about_own(text, options)
    ]


def _order(one: Finding) -> tuple[int, str, int, int, str]:
    # Names of cells that are longer are those of later cells.
    place = one.place
    return (len(place.path), place.path, place.line, place.column, one.code)


lint_program = Lint.work
