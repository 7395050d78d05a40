"""The rules of the AMP monitor: what each is called, how bad it is, and what it means."""

from __future__ import annotations

from typing import NamedTuple

ERROR = "error"
"""Training is wrong, or it raises on CUDA."""
WARNING = "warning"
"""Training goes on, with worse numbers, a lost state, or without the speed that was wanted."""
NOTE = "note"
"""Nothing is wrong, but something has no effect."""


class Rule(NamedTuple):
    """``message`` is one line, without a full stop."""

    severity: str
    message: str


RULES: dict[str, Rule] = {
    "backward-not-scaled": Rule(
        ERROR,
        "the gradients of this backward were not scaled, but the scaler divides them by its scale",
    ),
    "backward-in-autocast": Rule(
        WARNING, "backward runs inside an autocast region; end the region before it"
    ),
    "backward-over-two-scalers": Rule(
        ERROR,
        "the gradients that this scaler divides by its scale were scaled by another scaler",
    ),
    "step-outside-scaler": Rule(
        ERROR, "optimizer.step() applies scaled gradients; it has to be scaler.step()"
    ),
    "step-without-inf-check": Rule(
        WARNING,
        "the gradients were unscaled, but optimizer.step() applies them even where they overflowed",
    ),
    "step-in-autocast": Rule(
        ERROR,
        "an optimizer steps inside an autocast region, whose cached half copies of the weights stay as"
        " they are: training freezes",
    ),
    "closure-in-scaler-step": Rule(
        ERROR,
        "scaler.step() with a closure: the new gradients that the closure makes are neither unscaled"
        " nor checked",
    ),
    "clipped-scaled-gradients": Rule(
        ERROR, "gradients are clipped while they are scaled; scaler.unscale_() first"
    ),
    "read-scaled-gradients": Rule(
        WARNING,
        "values of gradients are used while they are scaled; scaler.unscale_() first",
    ),
    "edited-scaled-gradients": Rule(
        ERROR, "gradients are changed while they are scaled; scaler.unscale_() first"
    ),
    "unscaled-twice": Rule(ERROR, "the same gradients are divided by the scale twice"),
    "unscaled-between-backwards": Rule(
        ERROR,
        "gradients are unscaled here, and later scaled ones are added to them before the next step",
    ),
    "updated-between-backwards": Rule(
        ERROR,
        "the scale may change here, between backwards that accumulate into the same gradients",
    ),
    "updated-before-step": Rule(
        ERROR,
        "the scale may change here, while an optimizer has yet to step with gradients that have the"
        " old one",
    ),
    "missing-update": Rule(
        ERROR, "this scaler.step() is not followed by a scaler.update()"
    ),
    "update-without-step": Rule(
        ERROR, "scaler.update() raises: no gradients were unscaled since the last one"
    ),
    "scaler-reborn": Rule(
        WARNING,
        "a new scaler takes over an optimizer that another one has stepped: the scale starts again",
    ),
    "half-parameters": Rule(
        ERROR,
        "parameters are float16, whose gradients no scaler unscales; keep them float32 under autocast",
    ),
    "scaler-with-bfloat16": Rule(
        NOTE, "a scaler has no use where autocast computes in bfloat16"
    ),
    "forward-outside-autocast": Rule(
        WARNING,
        "this forward runs in float32, outside autocast, and a scaled loss depends on it",
    ),
    "bce-in-autocast": Rule(
        ERROR,
        "binary cross entropy inside an autocast region raises on CUDA; use the version with logits,"
        " or float32 in a region that is not enabled",
    ),
    "autocast-left-on": Rule(
        ERROR, "autocast is switched on here and never switched off"
    ),
    "autocast-reentered": Rule(
        ERROR,
        "the same autocast object is entered while it is open: autocast stays on after it",
    ),
    "checkpoint-without-scaler": Rule(
        WARNING,
        "a checkpoint has the state of the optimizer, but not that of its scaler",
    ),
    "scaler-state-not-loaded": Rule(
        WARNING,
        "this checkpoint has the state of a scaler, and training resumes without it",
    ),
}
"""By name. Everything that tells or documents a finding takes its words from here."""
