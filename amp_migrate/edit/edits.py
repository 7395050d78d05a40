"""What a plan asks for: plain data, each edit addressed to a statement by its path."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from amp_migrate.program.ir import Path

Steps = tuple[int, ...]
"""The way from a simple statement's value down to an expression: the index among `ir.children`."""


def where_gradients(optimizer: str, code: str) -> str:
    """A statement under the test whether a step finds gradients: where there are none, a scaler raises, but
    no optimizer does."""
    return (
        f"if any(p.grad is not None for group in {optimizer}.param_groups "
        f'for p in group["params"]):\n    {code}'
    )


def none_without_all(
    norm: str, optimizers: Iterable[str], enabled: str, torch: tuple[int, int]
) -> str:
    """A statement behind a clip by one norm of what several optimizers hold: where that is not finite, none
    keeps gradients, and none steps.

    The clip carries what is not finite from the gradients of one to those of the others, which
    ``unscale_`` found finite. Before torch 2.0, what is zeroed stays, and steps.
    """
    given = "" if torch >= (2, 0) else "set_to_none=True"
    cleared = "".join(f"\n    {one}.zero_grad({given})" for one in optimizers)
    return f"if {enabled} and not {norm}.isfinite():{cleared}"


@dataclass(frozen=True, slots=True)
class Insert:
    """New statements before or after a statement, in its block."""

    path: Path
    code: str
    after: bool = True


@dataclass(frozen=True, slots=True)
class Autocast:
    """Put the statements from ``path`` to index ``last`` of the same block into one region.

    With ``hoists`` the statement at ``last`` is a `ScaleBackward` that takes its loss out: only that
    loss goes into the region, its backward stays outside.
    """

    path: Path
    last: int
    enabled: str
    """The expression that switches the region, ``scaler.is_enabled()``."""
    dtype: str
    """The expression for what it casts to, ``torch.float16``."""
    hoists: bool = False
    caches: bool = True
    """Whether casts of the weights are kept until its end."""


@dataclass(frozen=True, slots=True)
class FullPrecision:
    """Turn autocast off for the statements from ``path`` to index ``last`` of the same block."""

    path: Path
    last: int


@dataclass(frozen=True, slots=True)
class ScaleBackward:
    """``loss.backward()`` to ``scaler.scale(loss).backward()``; no switch: only the hoisting."""

    path: Path
    switch: str | None
    hoist: str | None = None
    """The name that the receiver is bound to first."""


@dataclass(frozen=True, slots=True)
class Scale:
    """``loss`` to ``scaler.scale(loss)``."""

    path: Path
    at: Steps
    switch: str


@dataclass(frozen=True, slots=True)
class ScalerStep:
    """``optimizer.step()`` to ``scaler.step(optimizer)``, with what else the step is given behind it.

    ``update`` adds ``scaler.update()`` behind it, ``guard`` puts both under "if any gradient exists".
    With ``closure``, ``loss = optimizer.step(closure)`` becomes ``loss = closure()`` first.
    """

    path: Path
    switch: str
    update: bool
    guard: bool = False
    closure: bool = False


@dataclass(frozen=True, slots=True)
class Protect:
    """Put the statements from ``path`` to index ``last`` into ``try`` with an update behind it.

    What goes before the first of them stays outside.
    """

    path: Path
    last: int
    switch: str


@dataclass(frozen=True, slots=True)
class AddParameter:
    """A new last parameter of the function defined at ``path``.

    ``off``: it defaults to None, which the body's first statement replaces by this expression, unless
    that is None, too.
    """

    path: Path
    name: str
    off: str | None = None


@dataclass(frozen=True, slots=True)
class AddArgument:
    """A new last keyword argument of the ``occurrence``-th call of ``callee`` in a statement."""

    path: Path
    callee: str
    occurrence: int
    name: str
    value: str


@dataclass(frozen=True, slots=True)
class SetArgument(AddArgument):
    """The same, where the call may have that argument: then only its value changes."""


@dataclass(frozen=True, slots=True)
class AddEntry:
    """A sibling for the dict entry (or keyword) whose value is ``beside``, ``optimizer.state_dict()``;
    or ``inside`` of that dict: ``{**optimizer.state_dict(), key: value}``."""

    path: Path
    beside: str
    key: str
    value: str
    inside: bool = False


@dataclass(frozen=True, slots=True)
class Island:
    """Put a simple statement into ``with torch.autocast("cuda", enabled=False):``."""

    path: Path


@dataclass(frozen=True, slots=True)
class Hoist:
    """Bind an expression to a name before its statement, and before an island around that.

    With ``island`` the new statement gets an island of its own.
    """

    path: Path
    at: Steps
    name: str
    island: bool = False


@dataclass(frozen=True, slots=True)
class Upcast:
    """``x`` to ``x.float()``."""

    path: Path
    at: Steps


@dataclass(frozen=True, slots=True)
class Widen:
    """A variable, attribute or element ``x`` to ``name``, which gets ``x.float()`` before the statement where
    that is half; what a call or an operation gives is bound to it first.

    For what may be of any dtype with AMP off: there this is ``x``.
    """

    path: Path
    at: Steps
    name: str
    dtype: str
    """As an option has it."""
    like: str | None = None
    """What may be no tensor gets the dtype of this one instead, where it is a tensor."""
    asks: bool = False
    """Whether it is a tensor is asked first."""


@dataclass(frozen=True, slots=True)
class Recast:
    """``x = x.float()`` before a statement; with ``dtype``, as an option has it, where ``x`` is half."""

    path: Path
    name: str
    dtype: str | None = None
    after: bool = False
    """It stands behind the statement, which gives ``x.data`` its value."""
    asks: bool = False
    """Whether it is a tensor is asked first."""


@dataclass(frozen=True, slots=True)
class CastLike:
    """``x`` to ``x.to(buffer.dtype)``."""

    path: Path
    at: Steps
    tensor: str
    """The expression that has the wanted dtype."""


@dataclass(frozen=True, slots=True)
class SplitLast:
    """``layers(x)`` to ``layers[-1](layers[:-1](x).float())``.

    With ``given`` the layers are the first argument of the call: ``data_parallel(layers, x)``.
    """

    path: Path
    at: Steps
    given: bool = False
    depth: int = 1
    """2: the last of the layers are layers, too, and it is their last."""
    full: bool = False
    """What the last gives is cast as well: it need not be one that keeps what it is given."""


@dataclass(frozen=True, slots=True)
class Bound:
    """``-1e9`` to ``max(-1e9, torch.finfo(x.dtype).min)``; a positive number likewise."""

    path: Path
    at: Steps
    tensor: str
    """The expression whose dtype has to hold the number."""
    negative: bool


@dataclass(frozen=True, slots=True)
class AddDecorator:
    """A new innermost decorator of the function defined at ``path``."""

    path: Path
    code: str


@dataclass(frozen=True, slots=True)
class AddImport:
    """A new last name of a ``from ... import``."""

    path: Path
    name: str


Edit = (
    Insert
    | Autocast
    | FullPrecision
    | ScaleBackward
    | Scale
    | ScalerStep
    | Protect
    | AddParameter
    | AddArgument
    | AddEntry
    | Island
    | Hoist
    | Upcast
    | Widen
    | Recast
    | CastLike
    | SplitLast
    | Bound
    | AddDecorator
    | AddImport
)


Placed = tuple[str, Edit]
"""An edit with the file it belongs to."""


@dataclass(frozen=True, slots=True)
class FilePlan:
    """All edits of one file. ``torch_name`` is what the file calls torch, ``imports`` the modules
    that must be imported for the edits, ``torch_version`` the oldest torch they are written for.
    """

    edits: tuple[Edit, ...]
    torch_name: str
    imports: tuple[str, ...]
    torch_version: tuple[int, int]
