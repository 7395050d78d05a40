"""All that is known of what functions of Python and of libraries give."""

from __future__ import annotations

from amp_migrate.sizes import (  # noqa: F401  (each notes what it knows)
    bundles,
    command_line,
    dicts,
    iterables,
    numbers,
    reflection,
    sequences,
    tensors,
    texts,
)
from amp_migrate.sizes.models import MODELS, Model


def model_of(origin: str) -> Model | None:
    """What a library's function is known to do."""
    return MODELS.get(origin)
