"""Where what is known of library functions is kept, by their dotted names."""

from __future__ import annotations

from collections.abc import Callable

from amp_migrate.analysis.sizes.domain.given import Given
from amp_migrate.analysis.sizes.domain.values import External, Frame, Value
from amp_migrate.analysis.sizes.interpreter.calls import Calls
from amp_migrate.program import ir

Model = Callable[[Calls, External, Given, ir.Call, Frame], Value]
"""What a call of a library's function gives: (machine, function, arguments, call, scope)."""

MODELS: dict[str, Model] = {}


def model(*origins: str) -> Callable[[Model], Model]:
    """Note a function as what is known of some dotted names."""

    def add(one: Model) -> Model:
        for origin in origins:
            MODELS[origin] = one
        return one

    return add
