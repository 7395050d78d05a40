"""All that is known of what functions of Python and of libraries give."""

from __future__ import annotations

from amp_migrate.analysis.sizes.interpreter.models import MODELS, Model
from amp_migrate.analysis.sizes.library import (  # noqa: F401  (each notes what it knows)
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


def model_of(origin: str) -> Model | None:
    """What a library's function is known to do."""
    return MODELS.get(origin)
