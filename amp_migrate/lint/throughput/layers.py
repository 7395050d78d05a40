"""Which layers take part where a file runs: whether its time goes into convolutions or products."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from amp_migrate.lint.context import Context
from amp_migrate.lint.throughput.training import Training
from amp_migrate.program import ir

_CONV2D = frozenset("Conv2d ConvTranspose2d".split())
_CONV = _CONV2D | frozenset("Conv1d Conv3d ConvTranspose1d ConvTranspose3d".split())
_ATTENTION = re.compile(r"MultiheadAttention|Transformer\w*")
_CONV_NETS = re.compile(
    r"torchvision\.models\.(\w+\.)*(resnet|resnext|wide_resnet|vgg|alexnet|squeezenet|inception|googlenet)\w*"
)
_MOST_USERS = 3
"""What more files than these use is a library, and its models are theirs."""
_RECURRENT = frozenset("RNN LSTM GRU RNNCell LSTMCell GRUCell".split())
_SMALL = 65_536
"""Weights: products with fewer are too small to matter."""


@dataclass(slots=True)
class Layers:
    """The layers of some files, as they are called in their texts."""

    conv2d: int = 0
    other_conv: int = 0
    grouped: int = 0
    linear: int = 0
    """Linear layers that are known to be large enough to matter."""
    open: int = 0
    """Linear layers of unknown size."""
    embeddings: int = 0
    recurrent: int = 0
    """cuDNN computes them, and uses TF32 by default."""
    attention: int = 0
    nets: set[str] = field(default_factory=set)
    """Convolutional networks of torchvision."""

    def add(self, other: Layers) -> None:
        """Those of another file."""
        for one in fields(self):
            own, more = getattr(self, one.name), getattr(other, one.name)
            setattr(self, one.name, own | more if one.name == "nets" else own + more)

    @property
    def is_convolutional(self) -> bool:
        """Whether the time goes into plain two-dimensional convolutions."""
        if self.nets:
            return True
        plain = self.conv2d - self.grouped
        rest = self.grouped + self.other_conv + self.attention
        return plain >= 4 and plain > self.linear + self.open and plain > 4 * rest

    @property
    def is_of_products(self) -> bool:
        """Whether it goes into products of matrices."""
        convolutions = self.conv2d + self.other_conv
        if convolutions or self.nets:
            return False
        of_words = self.open and self.embeddings and not self.recurrent
        return bool(self.linear or self.attention or of_words)


def layers_near(training: Training, file: str) -> Layers:
    """Those of the model that a file trains, as far as imports tell.

    All that takes part would be too much: a library brings networks of its own along.
    """
    counted = training.context.noted(_counted)
    found = Layers()
    for one in _near(training.imports, file):
        if one in counted:
            found.add(counted[one])
    return found


def _near(imports: Mapping[str, frozenset[str]], file: str) -> set[str]:
    """A file, those that start it, and what each of them imports by name, through packages too."""
    starting = {one for one, direct in imports.items() if file in direct}
    found: set[str] = set()
    for one in {file} | (starting if len(starting) <= _MOST_USERS else set()):
        direct = imports[one]
        packages = [path for path in direct if path.endswith("/__init__.py")]
        found |= {one, *direct}.union(*(imports[path] for path in packages))
    return found


def _counted(context: Context) -> dict[str, Layers]:
    """The layers that each file makes."""
    program = context.program
    by_file: dict[str, Layers] = {}
    for function, _, call in program.all_calls():
        found = by_file.setdefault(ir.file_of(function), Layers())
        origin = program.origin(call.func, function) or ""
        if _CONV_NETS.fullmatch(origin):
            found.nets.add(origin)
        if not origin.startswith("torch.nn."):
            continue
        name = origin.rpartition(".")[2]
        if name in _CONV:
            groups = call.argument(6, "groups")
            found.grouped += name in _CONV2D and groups not in (None, ir.Const(1))
            found.conv2d += name in _CONV2D
            found.other_conv += name not in _CONV2D
        elif name == "Linear":
            weights = _weights(call)
            found.linear += weights >= _SMALL
            found.open += not weights
        elif name in _RECURRENT:
            found.recurrent += 1
        elif name == "Embedding":
            found.embeddings += 1
        elif _ATTENTION.fullmatch(name):
            found.attention += 1
    return by_file


def _weights(call: ir.Call) -> int:
    """The number of weights of a linear layer; 0 where it is unknown."""
    sizes = [call.argument(0, "in_features"), call.argument(1, "out_features")]
    known = [
        size.value
        for size in sizes
        if isinstance(size, ir.Const) and isinstance(size.value, int)
    ]
    return known[0] * known[1] if len(known) == 2 else 0
