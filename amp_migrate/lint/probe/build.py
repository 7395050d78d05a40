"""Builds a model in the user's interpreter, with limits on time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from amp_migrate.catalogue.layers import LayerTable, layer_table
from amp_migrate.core import limits
from amp_migrate.core.options import LayerFile

POLL = 0.05
"""Seconds between two looks at the process."""

SECONDS = 120.0
"""How long building a model may take, the import of torch included."""

_RECORDER = Path(__file__).with_name("recorder.py")


class ProbeError(Exception):
    """A model cannot be built: one line that names the factory and the reason."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A line of Python that was running."""

    path: str
    line: int
    column: int | None
    """In bytes, from 0; None before Python 3.11."""
    function: str


@dataclass(frozen=True, slots=True)
class Made:
    """A layer that was made."""

    layer: str
    """By the name of ``rules/layers.toml``; of a subclass, that of the layer that it derives from."""
    sizes: Mapping[str, int]
    """By the names of ``rules/layers.toml``."""
    target: str
    """What was built."""
    frames: tuple[Frame, ...]
    """What made it, the innermost first, without torch's own lines."""


def build_all(
    targets: Iterable[str],
    folder: Path,
    interpreter: str,
    extend_rules: tuple[str | LayerFile, ...] = (),
) -> tuple[Made, ...]:
    """The layers that several factories make; see `build`."""
    table = layer_table(extend_rules)
    return tuple(
        made for one in targets for made in build(one, folder, table, interpreter)
    )


def build(
    target: str,
    folder: Path,
    table: LayerTable,
    interpreter: str,
    *,
    seconds: float = SECONDS,
    memory: int | None = None,
) -> tuple[Made, ...]:
    """The layers that ``package.module:factory`` (or ``file.py:factory``) makes when it is called.

    The user's code runs, in ``folder``, from which its modules are imported. Raises `ProbeError`.
    """
    module, _, name = target.rpartition(":")
    if not module or not name:
        raise ProbeError(f"--probe {target}: must be package.module:factory")
    with tempfile.TemporaryDirectory(
        prefix="amp-migrate-", ignore_cleanup_errors=True
    ) as scratch:
        answer = Path(scratch, "answer.json")
        order = {
            "target": target,
            "folder": str(folder.resolve()),
            "layers": _layers(table),
            "answer": str(answer),
        }
        said = _run(
            interpreter,
            order,
            folder,
            Path(scratch),
            seconds,
            limits.most_memory() if memory is None else memory,
        )
        if said:
            raise ProbeError(f"--probe {target}: {said}")
        told: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if "error" in told:
        raise ProbeError(f"--probe {target}: {told['error']}")
    return tuple(_made(one, target, table) for one in told["layers"])


def _layers(table: LayerTable) -> dict[str, dict[str, Any]]:
    """What the recorder hooks: classes, not functions."""
    return {
        origin: {
            "layer": layer.name,
            "parameters": layer.positional,
            "sizes": list(layer.sizes.values()),
        }
        for layer in table.layers.values()
        if not layer.weight
        for origin in layer.origins
    }


def _run(
    interpreter: str,
    order: dict[str, Any],
    folder: Path,
    scratch: Path,
    seconds: float,
    memory: int,
) -> str:
    """Run the recorder; the answer is what went wrong, empty where it answered."""
    path, output = scratch / "order.json", scratch / "output.txt"
    path.write_text(json.dumps(order), encoding="utf-8")
    # No GPU: sizes need none, and one that others train on is theirs.
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONDONTWRITEBYTECODE": "1",
        "MPLBACKEND": "Agg",
    }
    with path.open("rb") as stdin, output.open("wb") as said:
        try:
            child = subprocess.Popen(
                [interpreter, str(_RECORDER)],
                cwd=folder,
                env=environment,
                stdin=stdin,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        except OSError as error:
            return f"{interpreter}: {error.strerror or error}"
        begun = time.monotonic()
        reason = ""
        try:
            while child.poll() is None and not reason:
                if time.monotonic() - begun > seconds:
                    reason = f"took more than {seconds:g} s"
                elif limits.resident_memory(child.pid) > memory:
                    reason = f"took more than {memory / 2**30:.1f} GiB of memory"
                else:
                    time.sleep(POLL)
        finally:
            limits.end(child.pid)
            child.wait()
    if reason or Path(order["answer"]).exists():
        return reason
    lines = output.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"{interpreter} died: {lines[-1] if lines else 'it said nothing'}"


def _made(told: dict[str, Any], target: str, table: LayerTable) -> Made:
    layer = table.layers[told["layer"]]
    sizes = {}
    for name, parameter in layer.sizes.items():
        value = told["sizes"].get(parameter)
        if isinstance(value, list):
            value = prod(value)
        elif value is not None and name == "kernel":
            value **= layer.spatial
        if value:
            sizes[name] = value
    for name, other in layer.same.items():
        if name not in sizes and other in sizes:
            sizes[name] = sizes[other]
    frames = tuple(Frame(**one) for one in told["frames"])
    return Made(layer.name, sizes, target, frames)
