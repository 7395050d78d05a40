"""One text through all rooms: facts, program, plan, codemod, and the check of what came out."""

from __future__ import annotations

from pathlib import Path

from amp_migrate.catalogue import refusal
from amp_migrate.facts import read_module
from amp_migrate.options import Options
from amp_migrate.plan import Planned, plan_program
from amp_migrate.plan.loops import Refusal, TrainingLoop
from amp_migrate.project import Program
from amp_migrate.project.neighbours import Neighbourhood
from amp_migrate.results import Diagnostic, Loop, Outcome, Place, Result


def migrate_text(
    text: str, *, path: str, options: Options, root: Path | None
) -> Result:
    """What `api.migrate_source` promises."""
    if ".backward" not in text:
        return Result(path, text, text)
    facts = read_module(text, path)
    neighbourhood = Neighbourhood(path, root)
    program = Program(facts, neighbourhood.imported_by(facts))
    planned = plan_program(program, options, neighbourhood.mentions)
    lines = text.split("\n")
    if not planned.file_plan.edits:
        return _result(path, text, text, planned, lines)
    output, wrong = _rewrite(text, path, planned, options, root)
    if wrong is not None:
        internal = Refusal("AMP090", f"the rewrite did not pass its own check: {wrong}")
        for loop in planned.loops:
            if loop.refusal is None and not loop.off:
                loop.refuse(internal)
        return _result(path, text, text, planned, lines)
    return _result(path, text, output, planned, lines)


def _rewrite(
    text: str, path: str, planned: Planned, options: Options, root: Path | None
) -> tuple[str, str | None]:
    """The new text, and what is wrong with it, if anything is."""
    # Imported only where something is written: most files of a run are only read.
    from amp_migrate.codemod.apply import MismatchError, apply_plan
    from amp_migrate.codemod.formatting import keep_clean, mode_of_file
    from amp_migrate.verify import difference

    mode = mode_of_file(path)
    try:
        output = apply_plan(text, planned.file_plan, mode.line_length)
        output = keep_clean(text, output, mode)
    except MismatchError as error:
        return text, str(error)
    wrong = difference(text, output)
    if wrong is not None:
        return text, wrong
    facts = read_module(output, path)
    neighbourhood = Neighbourhood(path, root)
    again = plan_program(
        Program(facts, neighbourhood.imported_by(facts)),
        options,
        neighbourhood.mentions,
    )
    if again.file_plan.edits:
        return text, "a second run would change it again"
    return output, None


def _result(
    path: str, text: str, output: str, planned: Planned, lines: list[str]
) -> Result:
    loops = tuple(_loop(path, loop, lines) for loop in planned.loops)
    return Result(path, text, output, loops, tuple(planned.explanation))


def _loop(path: str, loop: TrainingLoop, lines: list[str]) -> Loop:
    event = loop.backwards[0].event
    place = Place(path, event.line, event.column, _text(lines, event.line))
    if loop.off:
        return Loop(place, loop.function, Outcome.OFF)
    if loop.refusal is None:
        return Loop(place, loop.function, Outcome.MIGRATED)
    found = loop.refusal
    blocker = None
    if found.line and found.line != event.line:
        blocker = Place(path, found.line, 1, _text(lines, found.line))
    by_hand = refusal(found.code).by_hand
    diagnostic = Diagnostic(found.code, place, found.message, blocker, tuple(by_hand))
    outcome = Outcome.ALREADY if found.code == "AMP001" else Outcome.LEFT_ALONE
    return Loop(place, loop.function, outcome, diagnostic)


def _text(lines: list[str], line: int) -> str:
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""
