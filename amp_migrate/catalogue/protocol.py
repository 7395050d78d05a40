"""The protocol of gradient scalers, as ``rules/protocol.toml`` has it: one automaton for whoever reads a
program, plans one, or watches it run."""

from __future__ import annotations

from functools import cache
from typing import Any

from amp_migrate.catalogue.rules import lint_code, rules_folder
from amp_migrate.catalogue.tables import read_table

READY, UNSCALED, STEPPED = "ready", "unscaled", "stepped"
"""Where an optimizer stands with its scaler; torch/amp/grad_scaler.py calls it ``OptState``."""
SCALED, STALE, PLAIN, OTHER = "scaled", "stale", "plain", "other"
"""What its gradients hold."""


@cache
def protocol() -> dict[str, Any]:
    """The whole table, as plain data."""
    return read_table(rules_folder() / "protocol.toml")


@cache
def after(call: str, state: str) -> str | None:
    """Where an optimizer stands after a call of its scaler; None where the call breaks a rule."""
    found: str = protocol()["calls"][call][state]
    return found if found in protocol()["calls"][call] else None


@cache
def broken_by(call: str, state: str, behind_backward: bool = False) -> str:
    """The code of the rule that a call of a scaler breaks."""
    name: str = protocol()["calls"][call][state]
    return lint_code(protocol()["behind-backward"][name] if behind_backward else name)


@cache
def broken_with(use: str, gradients: str, state: str = READY) -> str:
    """The code of the rule that a use of gradients breaks."""
    return lint_code(protocol()["gradients"][state][use][gradients])
