"""What a probe saw, put to the layers that were read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace

from amp_migrate.analysis.sizes.domain.site import Instance, LayerSite, Size
from amp_migrate.core.findings import Confidence, Step
from amp_migrate.lint.context import Context
from amp_migrate.lint.probe.build import Frame, Made
from amp_migrate.program import ir

Here = Mapping[str, tuple[tuple[Made, Frame], ...]]
"""What was made, by the file of the program that the line stands in which made it."""


def merged(
    context: Context, file: str, sites: Iterable[LayerSite]
) -> tuple[LayerSite, ...]:
    """The layers of a file: where reading knew a size by default only, or not at all, what the probe saw."""
    here = context.noted(_here).get(file, ())
    if not here:
        return tuple(sites)
    found = []
    taken: set[int] = set()
    for site in sites:
        mine = [made for made, frame in here if _is_at(made, frame, site)]
        taken |= {id(made) for made in mine}
        found.append(_with(site, mine) if mine and not _is_certain(site) else site)
    # Layers by a name that reading could not follow: of a class that is passed around.
    calls = _calls(context, file)
    unread: dict[tuple[int, int], list[Made]] = {}
    for made, frame in here:
        if id(made) not in taken and frame.column is not None:
            unread.setdefault((frame.line, frame.column + 1), []).append(made)
    for place, several in unread.items():
        if place in calls and len({made.layer for made in several}) == 1:
            function, call = calls[place]
            site = LayerSite(several[0].layer, function, call, (), False)
            found.append(_with(site, several))
    found.sort(key=lambda site: (site.call.line, site.call.column))
    return tuple(found)


def _here(context: Context) -> Here:
    """By file, for each layer the innermost lines of the program, those of subclasses apart."""
    files = {os.path.realpath(file): file for file in context.program.modules}
    found: dict[str, list[tuple[Made, Frame]]] = {}
    for made in context.options.lint.probed:
        assert isinstance(made, Made)
        for frame in made.frames:
            file = files.get(os.path.realpath(frame.path))
            if file is not None:
                found.setdefault(file, []).append((made, frame))
                break
    return {file: tuple(each) for file, each in found.items()}


def _is_at(made: Made, frame: Frame, site: LayerSite) -> bool:
    if made.layer != site.layer or frame.line != site.call.line:
        return False
    return frame.column is None or frame.column + 1 == site.call.column


def _is_certain(site: LayerSite) -> bool:
    return (
        site.complete
        and bool(site.instances)
        and all(
            size.value is not None and size.confidence is Confidence.CERTAIN
            for instance in site.instances
            for size in instance.sizes.values()
        )
    )


def _with(site: LayerSite, several: list[Made]) -> LayerSite:
    different = {tuple(sorted(made.sizes.items())): made for made in several}
    instances = tuple(
        Instance(
            {
                name: Size(value, chain=(Step(f"probe {made.target}"),))
                for name, value in made.sizes.items()
            }
        )
        for made in different.values()
    )
    return replace(site, instances=instances, complete=True)


def _calls(context: Context, file: str) -> dict[tuple[int, int], tuple[str, ir.Call]]:
    """The calls of a file by line and column."""
    return {
        (call.line, call.column): (function, call)
        for function, _, call in context.program.all_calls()
        if ir.file_of(function) == file
    }
