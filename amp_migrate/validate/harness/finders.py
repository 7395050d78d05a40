"""Asking the finders of modules that come after one of ours."""

from __future__ import annotations

import sys
from typing import Any


def next_spec(finder: Any, name: str, path: Any, target: Any) -> Any:
    """What the finders behind ``finder`` in `sys.meta_path` give; None where none knows the module.

    Only those behind: two that asked all others would ask each other for ever.
    """
    for other in sys.meta_path[sys.meta_path.index(finder) + 1 :]:
        find: Any = getattr(other, "find_spec", None)
        spec = find(name, path, target) if find is not None else None
        if spec is not None:
            return spec
    return None
