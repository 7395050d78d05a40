"""The matrix products that ran, as a table; what is missing in the data is left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any

from amp_migrate.report.axes import number
from amp_migrate.report.markup import Markup, element, joined

MAX_ROWS = 12

BOUNDS = ("compute", "memory", "latency", "unknown")

_HEADER = (
    ("line", ""),
    ("time", "number"),
    ("FLOP", "number"),
    ("FLOP/byte", "number"),
    ("limit", ""),
    ("waste", "number"),
    ("misaligned sizes", ""),
)


def shapes(found: Mapping[str, Any]) -> Markup:
    """What `validate.shapes_table.as_dict` says."""
    lines = [line for line in found.get("lines") or () if isinstance(line, Mapping)]
    return joined(
        element("p", _summary(found, lines)),
        _bounds(found.get("seconds_by_bound") or {}),
        _table(lines) if lines else "",
        *(element("p", text, class_="remark") for text in _remarks(found, lines)),
    )


def _summary(found: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]) -> str:
    profile = found.get("profile") or {}
    words = f"Judged for {profile.get('name', 'a GPU')}"
    if profile.get("chip"):
        words += f" ({profile['chip']})"
    if not lines:
        return f"{words}: no matrix product ran."
    words += f": {_count(found.get('flops', 0))}FLOP, {_percent(found.get('half_share'))} in 16 bits."
    if found.get("misaligned_share"):
        words += (
            f" {_percent(found['misaligned_share'])} have a misaligned size;"
            f" fixing them would matter for {_percent(found.get('worth_mending_share'))}."
        )
    else:
        words += " Every size that matters is aligned."
    return words


def _bounds(seconds: Mapping[str, float]) -> Markup:
    total = sum(seconds.get(bound, 0.0) for bound in BOUNDS)
    if not total:
        return Markup("")
    shares = [(bound, seconds[bound] / total) for bound in BOUNDS if seconds.get(bound)]
    return joined(
        element(
            "div",
            *(
                element("span", class_=bound, style=f"width: {100 * share:.2f}%")
                for bound, share in shares
            ),
            class_="share",
            aria_hidden="true",
        ),
        element(
            "p",
            *(
                element(
                    "span",
                    element("span", class_=f"key {bound}"),
                    f"limited by {bound}: {_percent(share)}",
                )
                for bound, share in shares
            ),
            class_="keys",
        ),
    )


def _table(lines: Sequence[Mapping[str, Any]]) -> Markup:
    total = sum(line.get("seconds", 0.0) for line in lines) or 1.0
    head = [
        element("th", name, class_=class_ or None, scope="col")
        for name, class_ in _HEADER
    ]
    rows = []
    for line in lines[:MAX_ROWS]:
        waste = line.get("waste")
        cells = (
            element("span", _place(line), class_="place"),
            _percent(line.get("seconds", 0.0) / total),
            _count(line.get("flops", 0)),
            number(round(line.get("intensity", 0.0), 1)),
            str(line.get("bound", "")),
            "" if waste is None else _percent(waste),
            _misfits(line),
        )
        rows.append(
            element(
                "tr",
                *(
                    element("td", cell, class_=class_ or None)
                    for cell, (_, class_) in zip(cells, _HEADER, strict=True)
                ),
            )
        )
    return element(
        "div",
        element(
            "table", element("thead", element("tr", *head)), element("tbody", *rows)
        ),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label="shapes that ran",
    )


def _place(line: Mapping[str, Any]) -> str:
    if not line.get("path"):
        return "unknown line"
    return f"{PurePath(str(line['path'])).name}:{line.get('number', 0)}"


def _misfits(line: Mapping[str, Any]) -> str:
    words = []
    for misfit in line.get("misfits") or ():
        text = f"{misfit.get('what', '')} {misfit.get('size', '')} → {misfit.get('padded', '')}"
        if misfit.get("adds_percent"):
            text += f" (+{misfit['adds_percent']:.1f} %)"
        words.append(text.strip())
    text = ", ".join(words)
    if words and not line.get("worth_mending"):
        text += ": fixing it would not matter"
    return text


def _remarks(
    found: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]
) -> Sequence[str]:
    remarks = []
    if len(lines) > MAX_ROWS:
        remarks.append(f"{len(lines) - MAX_ROWS} more lines are in the JSON.")
    if lines:
        remarks.append(
            "Times are the least that the GPU's published figures allow; nothing here was timed."
        )
    opaque = [
        f"{one.get('op')} ({one.get('count')})" for one in found.get("opaque") or ()
    ]
    if opaque:
        remarks.append(
            f"May have multiplied matrices unseen (calls): {', '.join(opaque)}."
        )
    room = found.get("room")
    if room and room.get("freed_bytes", 0) > 0:
        least = "at least " if room.get("at_least") else ""
        remarks.append(
            f"AMP takes {room['freed_bytes'] / 2**30:.2f} GiB less than fp32: a batch of"
            f" {least}{room.get('allowed')} would fit where {room.get('batch')} did."
        )
    return remarks


def _percent(share: float | None) -> str:
    if share is None:
        return "an unknown share"
    return "<0.1 %" if 0 < share < 0.001 else f"{100 * share:.1f} %"


def _count(amount: float) -> str:
    for unit in ("", "k", "M", "G", "T"):
        if amount < 1000:
            return f"{amount:.{0 if amount >= 100 or not unit else 1}f} {unit}"
        amount /= 1000
    return f"{amount:.1f} P"
