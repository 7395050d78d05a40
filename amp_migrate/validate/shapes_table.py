"""What the judged shapes look like: lines for a terminal, plain data for JSON."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from amp_migrate.validate.alignment import Misfit
from amp_migrate.validate.shapes import Gemm, Room, ShapesReport, SourceLine

MAX_ROWS = 12
_HEADER = ("line", "time", "FLOPs", "FLOP/B", "limit", "waste", "misaligned sizes")
_LEFT = (0, 4, 6)
"""Columns that are set flush left: words, not numbers."""


def lines_of(
    report: ShapesReport, root: Path | None = None, rows: int = MAX_ROWS
) -> list[str]:
    """For a terminal. Paths are shown relative to ``root``; the costliest ``rows`` lines, the rest
    counted."""
    profile = report.profile
    title = f"Shapes that ran, judged for {profile.name} ({profile.chip})"
    if not report.lines:
        return [f"{title}: no matrix product ran.", *_opaque(report)]
    lines = [
        f"{title}: {_count(report.flops)}FLOP.",
        f"Types: {_percent(report.half_share)} in half precision, "
        f"{_percent(report.tensor_core_share)} of a kind that Tensor Cores take.",
        _alignment(report),
        _limits(report),
        "",
        *_table(report, root, rows),
        "",
        "time: share of the least time that the profile allows; nothing here was timed.",
    ]
    return [*lines, *_opaque(report), *_room(report.room)]


def as_dict(report: ShapesReport) -> dict[str, Any]:
    """Plain data. Shares are of 1, times in seconds, sizes in elements."""
    return {
        "profile": asdict(report.profile),
        "flops": report.flops,
        "half_share": report.half_share,
        "tensor_core_share": report.tensor_core_share,
        "misaligned_share": report.misaligned_share,
        "worth_mending_share": report.worth_mending_share,
        "seconds_by_bound": report.seconds_by_bound,
        "waste": report.waste,
        "opaque": [{"op": name, "count": count} for name, count in report.opaque],
        "room": asdict(report.room) if report.room else None,
        "lines": [_line_dict(line) for line in report.lines],
    }


def _line_dict(line: SourceLine) -> dict[str, Any]:
    return {
        "path": line.path,
        "number": line.number,
        "function": line.function,
        "flops": line.flops,
        "seconds": line.seconds,
        "intensity": line.intensity,
        "bound": line.bound,
        "waste": line.waste,
        "worth_mending": line.worth_mending,
        "misfits": [asdict(misfit) for misfit in line.misfits],
        "gemms": [_gemm_dict(gemm) for gemm in line.gemms],
    }


def _gemm_dict(gemm: Gemm) -> dict[str, Any]:
    waste = gemm.tiling.waste if gemm.tiling else None
    return {**asdict(gemm), "intensity": gemm.intensity, "waste": waste}


def _table(report: ShapesReport, root: Path | None, rows: int) -> list[str]:
    total = sum(line.seconds for line in report.lines)
    shown, rest = report.lines[:rows], report.lines[rows:]
    table = [_HEADER]
    for line in shown:
        table.append(
            (
                _place(line, root),
                _percent(line.seconds / total),
                _count(line.flops),
                f"{line.intensity:.0f}",
                line.bound,
                "" if line.waste is None else _percent(line.waste),
                _misfits(line),
            )
        )
    if rest:
        seconds = sum(line.seconds for line in rest)
        flops = _count(sum(line.flops for line in rest))
        more = f"{len(rest)} more line{'s' * (len(rest) > 1)}"
        table.append((more, _percent(seconds / total), flops, "", "", "", ""))
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if index in _LEFT else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]


def _alignment(report: ShapesReport) -> str:
    if not report.misaligned_share:
        return "Aligned: every size of what can run on Tensor Cores."
    # Tensor Cores are used all the same, since cuBLAS 11 and cuDNN 7.6.3.
    share = _percent(report.misaligned_share)
    worth = _percent(report.worth_mending_share)
    return (
        f"Misaligned: {share} of the FLOPs, which take slower low-alignment kernels; "
        f"fixing them would matter for {worth}."
    )


def _limits(report: ShapesReport) -> str:
    total = sum(report.seconds_by_bound.values())
    parts = [
        f"{bound} {_percent(seconds / total)}"
        for bound, seconds in report.seconds_by_bound.items()
        if seconds
    ]
    waste = ""
    if report.waste is not None:
        waste = f" Tiles and waves waste about {_percent(report.waste)} of compute."
    return f"Limited by: {', '.join(parts)}.{waste}"


def _misfits(line: SourceLine) -> str:
    shown = line.misfits[:2]
    words = [_misfit(misfit) for misfit in shown]
    if len(line.misfits) > len(shown):
        words.append(f"{len(line.misfits) - len(shown)} more")
    text = ", ".join(words)
    return text if line.worth_mending or not text else f"({text}: would not matter)"


def _misfit(misfit: Misfit) -> str:
    adds = f" (+{misfit.adds_percent:.1f} %)" if misfit.adds_percent else ""
    return f"{misfit.what} {misfit.size} -> {misfit.padded}{adds}"


def _opaque(report: ShapesReport) -> Iterable[str]:
    if report.opaque:
        words = ", ".join(f"{name} ({count})" for name, count in report.opaque)
        yield f"May have multiplied matrices unseen (calls): {words}."


def _room(room: Room | None) -> Iterable[str]:
    if room is None:
        return
    gib = abs(room.freed_bytes) / 2**30
    if room.freed_bytes <= 0:
        yield f"Peak memory: AMP takes {gib:.2f} GiB more than fp32, no room for a larger batch."
        return
    bound = "at least " if room.at_least else ""
    yield (
        f"Peak memory: AMP takes {gib:.2f} GiB less than fp32; a batch of {bound}{room.allowed} "
        f"would fit where {room.batch} did."
    )


def _place(line: SourceLine, root: Path | None) -> str:
    if not line.path:
        return "unknown line"
    path = Path(line.path)
    if root is not None and path.is_relative_to(root):
        return f"{path.relative_to(root)}:{line.number}"
    return f"{path.name}:{line.number}"


def _percent(share: float) -> str:
    if 0 < share < 0.001:
        return "<0.1 %"
    return f"{100 * share:.1f} %"


def _count(number: float) -> str:
    units = ["", "k", "M", "G", "T", "P"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        del units[0]
    return f"{number:.{0 if number >= 100 else 1}f} {units[0]}"
