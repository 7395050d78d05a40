"""Which argument of an optimizer's step is a closure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


def closure_of(
    args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Callable[[], Any] | None:
    """The first argument that ``step`` may call. Devices and modules can be called, too, but are none."""
    for given in (*args, *kwargs.values()):
        if callable(given) and not isinstance(given, (torch.device, torch.nn.Module)):
            found: Callable[[], Any] = given
            return found
    return None
