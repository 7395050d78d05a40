"""A stand-in for the core, so that these tests are about what surrounds it.

It follows orders that stand in comments of the source. Run as a script, it is the command line with
this core in it; so it is in the processes that the command line starts.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from amp_migrate.core.options import Options
from amp_migrate.core.results import (
    Diagnostic,
    Loop,
    Outcome,
    Place,
    Result,
    SourceError,
)
from amp_migrate.migrate import program as migration
from amp_migrate.program.programs import ProgramSources

PLAIN = "loss.backward()"
MIGRATED = "scaler.scale(loss).backward()"


def migrate_program(
    sources: ProgramSources,
    options: Options,
    *,
    given: Collection[str],
    shown: Mapping[str, str],
) -> dict[str, Result | SourceError]:
    root = sources.layout.root if sources.layout else None
    found: dict[str, Result | SourceError] = {}
    for file in given:
        try:
            result = migrate_text(sources.texts[file], shown[file], f"{options} {root}")
        except SourceError as error:
            found[file] = error
        else:
            if result.loops or result.changed:
                found[file] = result
    return found


def migrate_text(text: str, path: str, plan: str) -> Result:
    assert "\r" not in text and "\ufeff" not in text
    if "# core: crash" in text:
        raise RuntimeError("first line\nsecond line")
    if "# core: recurse" in text:
        raise RecursionError
    if "# core: memory" in text:
        raise MemoryError
    if found := re.search("# core: die once (.+)", text):
        if not Path(found[1]).exists():
            Path(found[1]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    elif "# core: die" in text:
        os._exit(3)
    if "# core: interrupt" in text:
        raise KeyboardInterrupt
    if found := re.search("# core: wait ?(.*)", text):
        (Path(found[1]) / f"at-work-{os.getpid()}").touch()
        time.sleep(600)
    if "# core: invalid" in text:
        raise SourceError(path, "not valid for Python 3.99", 3)
    loops = []
    output = []
    for number, line in enumerate(text.split("\n"), 1):
        code, _, comment = line.partition("#")
        place = Place(path, number, line.find(PLAIN) + 1, line.strip())
        if PLAIN not in code:
            output.append(line)
        elif "amp: off" in comment:
            loops.append(Loop(place, "<module>", Outcome.OFF))
            output.append(line)
        elif "AMP" in comment:
            found = Diagnostic(
                comment.strip(),
                place,
                "it cannot be.",
                blocker=Place(path, number - 1, 1, "loss = x"),
                by_hand=("with autocast():", "    loss = x"),
            )
            loops.append(Loop(place, "<module>", Outcome.LEFT_ALONE, found))
            output.append(line)
        else:
            loops.append(Loop(place, "<module>", Outcome.MIGRATED))
            indent = line[: len(line) - len(line.lstrip())]
            output.append(line.replace(PLAIN, MIGRATED))
            output.append(
                indent + ("# ☃" if "# core: snowman" in text else "scaler.update()")
            )
    return Result(path, text, "\n".join(output), tuple(loops), (f"{path}: {plan}",))


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in takes the place of the core for one test."""
    monkeypatch.setattr(migration, "migrate_program", migrate_program)


if __name__ in ("__main__", "__mp_main__"):
    migration.migrate_program = migrate_program

if __name__ == "__main__":
    from amp_migrate.cli.main import main

    main(prog_name="amp-migrate")
