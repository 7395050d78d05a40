"""What a loss is without its scale, also where scaled losses are combined before their backward."""

from __future__ import annotations

from typing import Any

MOST_NODES = 256
"""How far a graph is searched for what a scaler has made: combinations are small."""

_KEY = "amp_smoke_scale"


def mark(result: Any, loss: Any, scale: float) -> None:
    """Remember that a scaler has made ``result`` of ``loss``."""
    result._amp_smoke_true = loss.detach().clone()
    if result.grad_fn is not None:
        result.grad_fn.metadata[_KEY] = scale


def true_loss(root: Any) -> Any:
    """The loss that was scaled to ``root``; None where no scaler has had part in it.

    Of a combination (``scaler.scale(a) / n``) it is the quotient, which is exact for powers of two.
    """
    true = getattr(root, "_amp_smoke_true", None)
    if true is not None:
        return true
    seen: set[Any] = set()
    waiting = [root.grad_fn]
    while waiting and len(seen) < MOST_NODES:
        node = waiting.pop(0)
        if node is None or node in seen:
            continue
        seen.add(node)
        scale = node.metadata.get(_KEY)
        if scale is not None:
            return root.detach() / scale
        waiting += [above for above, _ in node.next_functions]
    return None
