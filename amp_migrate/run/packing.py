"""What a job reads of this machine's disk beside the sources, read here for a worker that cannot."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from amp_migrate.core.options import LayerFile, LintOptions, Options
from amp_migrate.edit.formatting import mode_of_file
from amp_migrate.lint.probe.build import Made
from amp_migrate.program.programs import ProgramSources


def packed(sources: ProgramSources, options: Options) -> dict[str, Any]:
    """The sources and the options of a program, which need no file from now on."""
    by_folder: dict[str, Any] = {}
    modes = {}
    for file in sources.texts:
        folder = os.path.dirname(file)  # noqa: PTH120
        if folder not in by_folder:
            by_folder[folder] = mode_of_file(file)
        modes[file] = by_folder[folder]
    lint = replace(
        options.lint,
        extend_rules=tuple(map(_read, options.lint.extend_rules)),
        probed=_placed(options.lint, sources),
    )
    return {
        "sources": replace(sources, modes=modes),
        "options": replace(options, lint=lint),
    }


def _read(file: str | LayerFile) -> LayerFile:
    if isinstance(file, LayerFile):
        return file
    path = Path(file)
    return LayerFile(path.name, path.read_text(encoding="utf-8"))


def _placed(lint: LintOptions, sources: ProgramSources) -> tuple[object, ...]:
    """The layers that were seen to be made, by the names that files have in the program."""
    if not lint.probed:
        return ()
    names = {os.path.realpath(file): file for file in sources.texts}
    return tuple(
        replace(
            made,
            frames=tuple(
                replace(
                    frame,
                    path=names.get(path := os.path.realpath(frame.path), path),
                )
                for frame in made.frames
            ),
        )
        for made in lint.probed
        if isinstance(made, Made)
    )
