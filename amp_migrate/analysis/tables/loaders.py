"""Which expressions stand for data, as far as their names say."""

from __future__ import annotations

import re

from amp_migrate.program import ir

_LOADER = re.compile(
    r"(?i)load|data|batch|iter|train|valid|test|tqdm|enumerate|range|^dl|len"
)


def names_data(expr: ir.Expr) -> bool:
    """A loader by its name: no module is called, and nothing of a model is iterated over."""
    return all(
        _LOADER.search(inner.attr if isinstance(inner, ir.Attr) else inner.id)
        for inner in ir.walk(expr)
        if (isinstance(inner, ir.Name) and inner.id != "self")
        or (isinstance(inner, ir.Attr) and inner.value == ir.Name("self"))
    ) and not any(
        isinstance(inner, ir.Call)
        and (ir.key_of(inner.func) or "").rsplit(".", 1)[-1]
        not in ("enumerate", "tqdm", "iter", "next", "range", "len", "trange")
        for inner in ir.walk(expr)
    )
