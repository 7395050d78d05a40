"""Runs in the user's interpreter: builds a model, and tells of every layer what it is, where and how large.

Python 3.8 and torch 2.0, or later; the standard library and torch, nothing else. The order is a JSON
object on standard input, the answer one in the file that the order names. Weights are not allocated.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any

MOST_FRAMES = 12
"""Lines that are told of one layer, the innermost first: a subclass of a layer has its own above."""


_HOOKED = "_amp_migrate_probe"


class Recorder:
    """Hooks in the constructors of torch's layers."""

    def __init__(self, torch: ModuleType, layers: dict[str, dict[str, Any]]) -> None:
        """``layers``: by name, such as ``torch.nn.Linear``, what it is called in the answer (``layer``), its
        ``parameters`` in order, and those that are sizes (``sizes``)."""
        self.torch = torch
        self.found: list[dict[str, Any]] = []
        self.layers_on_meta = False
        """Whether each layer is put on the meta device by itself, and all else where it says."""
        self._making: list[Any] = []
        self._own = (
            os.path.join(os.path.dirname(os.path.abspath(torch.__file__ or "")), ""),
            os.path.abspath(__file__),
        )
        self._waiting = dict(layers)
        self.hook()

    def hook(self) -> None:
        """Hook the layers of all modules that are loaded by now."""
        for name in list(self._waiting):
            module, _, short = name.rpartition(".")
            layer = getattr(sys.modules.get(module), short, None)
            if isinstance(layer, type):
                self._hook(layer, self._waiting.pop(name))

    def _hook(self, layer: Any, known: dict[str, Any]) -> None:
        inner = layer.__dict__.get("__init__")
        if inner is None or hasattr(inner, _HOOKED):
            # It has its base's, which is hooked where it is a layer; or it has two names.
            return
        torch = self.torch

        @functools.wraps(inner)
        def init(layer: Any, *args: Any, **kwargs: Any) -> None:
            within = self._making[-1] if self._making else None
            if within is not None:  # made by a layer, or the base's part of a layer
                inner(layer, *args, **kwargs)
                return
            self._making.append(layer)
            try:
                with torch.device("meta") if self.layers_on_meta else _nothing():
                    inner(layer, *args, **kwargs)
            finally:
                self._making.pop()
            self._say(layer, known, (args, kwargs), sys._getframe(1))

        setattr(init, _HOOKED, True)
        layer.__init__ = init

    def _say(
        self, layer: Any, known: dict[str, Any], given: Any, frame: FrameType | None
    ) -> None:
        bound = dict(zip(known["parameters"], given[0]))
        bound.update(given[1])
        sizes = {}
        for size in known["sizes"]:
            for value in (getattr(layer, size, None), bound.get(size)):
                if isinstance(value, (int, tuple)) and not isinstance(value, bool):
                    sizes[size] = value
                    break
        frames: list[dict[str, Any]] = []
        while frame is not None and len(frames) < MOST_FRAMES:
            code = frame.f_code
            if not code.co_filename.startswith(self._own):
                line, column = _position(frame)
                frames.append(
                    {
                        "path": os.path.abspath(code.co_filename),
                        "line": line,
                        "column": column,
                        "function": code.co_name,
                    }
                )
            frame = frame.f_back
        self.found.append(
            {
                "layer": known["layer"],
                "sizes": sizes,
                "frames": frames,
            }
        )


@contextlib.contextmanager
def _nothing() -> Iterator[None]:
    yield


def _position(frame: FrameType) -> tuple[int, int | None]:
    """Line and column (in bytes, from 0) of what runs in a frame; no column before Python 3.11."""
    positions = getattr(frame.f_code, "co_positions", None)
    if positions is not None and frame.f_lasti >= 0:
        for number, found in enumerate(positions()):
            if number == frame.f_lasti // 2:
                if found[0] is not None:
                    return found[0], found[2]
                break
    return frame.f_lineno, None


def load(target: str, folder: str) -> Any:
    """What ``package.module:name`` or ``file.py:name`` names."""
    where, _, name = target.rpartition(":")
    if where.endswith(".py"):
        path = os.path.join(folder, where)
        sys.path.insert(0, os.path.dirname(path))
        stem = os.path.splitext(os.path.basename(path))[0]
        spec = importlib.util.spec_from_file_location(stem, path)
        assert spec is not None and spec.loader is not None
        found: Any = importlib.util.module_from_spec(spec)
        sys.modules[stem] = found
        spec.loader.exec_module(found)
    else:
        sys.path.insert(0, folder)
        found = importlib.import_module(where)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def build(recorder: Recorder, factory: Callable[[], Any]) -> str:
    """Call the factory, and say how: on the meta device, with only its layers there, or on the CPU.

    Constructors that ask for a number (``torch.linspace(...).item()``) cannot have everything on the
    meta device; those that move their layers cannot have the layers there.
    """
    torch = recorder.torch
    before = len(recorder.found)
    try:
        with torch.device("meta"):
            factory()
        return "meta"
    except Exception:
        del recorder.found[before:]
    recorder.layers_on_meta = True
    try:
        factory()
        return "layers"
    except Exception:
        del recorder.found[before:]
    recorder.layers_on_meta = False
    factory()
    return "cpu"


def record(order: dict[str, Any]) -> dict[str, Any]:
    """The answer to an order: layers and how they were made, or an error in one line."""
    try:
        import torch
    except Exception as error:
        return {"error": "no torch that can be imported: " + _line(error)}
    recorder = Recorder(torch, order["layers"])
    target = order["target"]
    try:
        factory = load(target, order["folder"])
        recorder.hook()
    except BaseException as error:
        return {"error": "cannot be imported: " + _line(error, order["folder"])}
    how = "made by the import"
    if not isinstance(factory, torch.nn.Module):
        if not callable(factory):
            return {"error": "is no function or class"}
        try:
            how = build(recorder, factory)
        except BaseException as error:
            return {"error": "raised " + _line(error, order["folder"])}
    return {"how": how, "torch": torch.__version__, "layers": recorder.found}


def _line(error: BaseException, folder: str = "") -> str:
    said = " ".join(str(error).split())[:300]
    text = type(error).__name__ + (": " + said if said else "")
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = os.path.abspath(frame.filename)
        if path == os.path.abspath(__file__):
            break
        if folder and path.startswith(os.path.join(folder, "")):
            name = os.path.relpath(frame.filename, folder)
            return "{} ({}:{})".format(text, name, frame.lineno)
    return text


def main() -> None:
    """Read an order, answer it."""
    order = json.load(sys.stdin)
    # Its own folder is no place to import from.
    sys.path[:] = [one for one in sys.path if one != os.path.dirname(__file__)]
    sys.argv = [order["target"]]
    answer = record(order)
    with open(order["answer"], "w", encoding="utf-8") as file:
        json.dump(answer, file)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    # Threads and exit handlers of what was imported have no part in the answer.
    os._exit(0)
