"""Judges the matrix products that ran for a GPU: alignment, roofline, tiles and waves.

Nothing here is measured on a GPU. Sizes, types, counts and lines are what ran; times and waste are
what the published figures of a profile allow at best, by formulas that each name their source.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from amp_migrate.catalogue.gpus.profiles import Profile
from amp_migrate.catalogue.gpus.tiling import Tiling, tiling
from amp_migrate.validate.alignment import Misfit, is_depthwise, misfits

HALF = frozenset({"float16", "bfloat16"})

WORTH_INTENSITY = 64.0
"""FLOPs a byte below which a product waits for memory on every profile, by a factor of two or more:
its kernel hardly matters."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """Products of one line and size, judged."""

    path: str
    """Empty where the line is unknown."""
    number: int
    function: str
    phase: str
    form: str
    name: str
    """The sizes in words."""
    dtype: str
    count: int
    flops: int
    bytes: int
    seconds: float
    """The least that the profile allows for all of them, in `bound`'s terms."""
    bound: str
    """``compute``, ``memory`` or ``latency``; ``unknown`` for types that profiles say nothing of."""
    on_tensor_cores: bool
    """Whether the profile has Tensor Cores for such products of such a type."""
    misfits: tuple[Misfit, ...]
    worth_mending: bool
    """Whether a faster kernel would show: neither tiny nor bound by memory."""
    tiling: Tiling | None

    @property
    def intensity(self) -> float:
        return self.flops / self.bytes if self.bytes else 0.0


@dataclass(frozen=True, slots=True)
class SourceLine:
    """All products of one source line."""

    path: str
    number: int
    function: str
    gemms: tuple[Gemm, ...]
    """The costliest first."""

    @property
    def flops(self) -> int:
        return sum(gemm.flops for gemm in self.gemms)

    @property
    def seconds(self) -> float:
        return sum(gemm.seconds for gemm in self.gemms)

    @property
    def intensity(self) -> float:
        moved = sum(gemm.bytes for gemm in self.gemms)
        return self.flops / moved if moved else 0.0

    @property
    def bound(self) -> str:
        """What binds the most of its time."""
        return max(_seconds_by_bound(self.gemms).items(), key=lambda item: item[1])[0]

    @property
    def misfits(self) -> tuple[Misfit, ...]:
        """Each misaligned size once, those worth mending before the others."""
        ordered = sorted(self.gemms, key=lambda gemm: not gemm.worth_mending)
        found: dict[int, Misfit] = {}
        for misfit in (misfit for gemm in ordered for misfit in gemm.misfits):
            found.setdefault(misfit.size, misfit)
        return tuple(found.values())

    @property
    def worth_mending(self) -> bool:
        return any(gemm.misfits and gemm.worth_mending for gemm in self.gemms)

    @property
    def waste(self) -> float | None:
        """Share of the time of its compute-bound products that tiles and waves waste."""
        return _waste(self.gemms)


@dataclass(frozen=True, slots=True)
class Room:
    """What the freed memory is good for."""

    batch: int
    allowed: int
    """A batch of this size takes no more memory under AMP than `batch` took in fp32."""
    freed_bytes: int
    at_least: bool
    """Whether `allowed` is a lower bound: parameters and optimizer state were not known apart."""


@dataclass(frozen=True, slots=True)
class ShapesReport:
    """The products of a run, judged for one profile."""

    profile: Profile
    lines: tuple[SourceLine, ...]
    """The costliest first."""
    opaque: tuple[tuple[str, int], ...]
    """Operators whose products could not be seen, and how often each ran."""
    room: Room | None

    @property
    def gemms(self) -> tuple[Gemm, ...]:
        return tuple(gemm for line in self.lines for gemm in line.gemms)

    @property
    def flops(self) -> int:
        return sum(line.flops for line in self.lines)

    @property
    def half_share(self) -> float:
        """Share of the FLOPs that ran in fp16 or bf16."""
        return self._share(gemm for gemm in self.gemms if gemm.dtype in HALF)

    @property
    def tensor_core_share(self) -> float:
        """Share of the FLOPs of a form and type for which the profile has Tensor Cores."""
        return self._share(gemm for gemm in self.gemms if gemm.on_tensor_cores)

    @property
    def misaligned_share(self) -> float:
        """Share of the FLOPs with a misaligned dimension."""
        return self._share(gemm for gemm in self.gemms if gemm.misfits)

    @property
    def worth_mending_share(self) -> float:
        """Share of the FLOPs with a misaligned dimension where mending would show."""
        return self._share(
            gemm for gemm in self.gemms if gemm.misfits and gemm.worth_mending
        )

    @property
    def seconds_by_bound(self) -> dict[str, float]:
        return _seconds_by_bound(self.gemms)

    @property
    def waste(self) -> float | None:
        return _waste(self.gemms)

    def _share(self, chosen: Iterable[Gemm]) -> float:
        return sum(gemm.flops for gemm in chosen) / self.flops if self.flops else 0.0


def judge(
    rows: Iterable[dict[str, Any]], profile: Profile, room: Room | None = None
) -> ShapesReport:
    """From the lines ``gemm`` and ``opaque_op`` of a run's log; other kinds are passed over."""
    by_line: dict[tuple[str, int], list[Gemm]] = {}
    opaque: dict[str, int] = {}
    for row in rows:
        if row["kind"] == "gemm":
            gemm = _gemm(row, profile)
            by_line.setdefault((gemm.path, gemm.number), []).append(gemm)
        elif row["kind"] == "opaque_op":
            opaque[row["op"]] = opaque.get(row["op"], 0) + row["count"]
    lines = []
    for (path, number), gemms in by_line.items():
        gemms.sort(key=lambda gemm: -gemm.seconds)
        lines.append(SourceLine(path, number, gemms[0].function, tuple(gemms)))
    lines.sort(key=lambda line: -line.seconds)
    return ShapesReport(profile, tuple(lines), tuple(opaque.items()), room)


def room_for_batch(
    fp32_peak: int | None,
    amp_peak: int | None,
    batch: int | None,
    fixed: int | None = None,
) -> Room | None:
    """The batch that fits into the memory that fp32 took; None where that cannot be known.

    ``fixed``: bytes of parameters, gradients and optimizer state, which no batch changes. A peak is
    fixed + batch * (bytes of a sample). Without ``fixed`` all of it is taken to grow with the batch,
    which makes a sample look larger than it is: the answer is a lower bound. Bytes; batch in samples.
    """
    if not fp32_peak or not amp_peak or not batch:
        return None
    base = fixed or 0
    if base >= amp_peak:
        return None
    allowed = int(batch * (fp32_peak - base) / (amp_peak - base))
    return Room(batch, max(allowed, 0), fp32_peak - amp_peak, fixed is None)


def _gemm(row: dict[str, Any], profile: Profile) -> Gemm:
    path, number, function = row["line"] or ("", 0, "")
    layer = row["layer"]
    kind = _rate(row, profile)
    seconds, bound = _roofline(row, profile, kind)
    on_tensor_cores = kind not in ("float32", "")
    fused = row["form"] in ("attention", "vector") or is_depthwise(layer)
    intensity = row["flops"] / row["bytes"] if row["bytes"] else 0.0
    return Gemm(
        path=path,
        number=number,
        function=function,
        phase=row["phase"],
        form=row["form"],
        name=_name(row),
        dtype="tf32" if kind == "tf32" else row["dtype"],
        count=row["count"],
        flops=row["flops"],
        bytes=row["bytes"],
        seconds=seconds,
        bound=bound,
        on_tensor_cores=on_tensor_cores,
        misfits=misfits(row, profile) if on_tensor_cores else (),
        worth_mending=bound != "latency" and intensity >= WORTH_INTENSITY,
        tiling=(
            None
            if fused
            else tiling(row["m"], row["n"], row["k"], row["batch"], profile)
        ),
    )


def _rate(row: dict[str, Any], profile: Profile) -> str:
    """Which of the profile's peaks holds; empty for types that it says nothing of.

    A product with a vector, and a depthwise convolution, is no matrix product: no Tensor Cores.
    """
    dtype = row["dtype"]
    if dtype not in ("float16", "bfloat16", "float32"):
        return ""
    if row["form"] == "vector" or is_depthwise(row["layer"]):
        return "float32"
    wanted = "tf32" if dtype == "float32" and row["tf32"] else dtype
    return wanted if wanted in profile.tflops else "float32"


def _roofline(row: dict[str, Any], profile: Profile, kind: str) -> tuple[float, str]:
    """The least time, and what makes it: S. Williams et al., Roofline, CACM 52(4), 2009.

    Memory where the FLOPs a byte are below the ratio of peak and bandwidth (NVIDIA's matrix
    multiplication guide, "Math and memory bounds"); latency where a kernel is shorter than the
    launch of the next. Bytes are the least that must move, so a bound by memory is a certain one.
    """
    moving = row["bytes"] / (profile.bandwidth_gbs * 1e9)
    reckoning = row["flops"] / (profile.tflops[kind] * 1e12) if kind else 0.0
    launching = row["count"] * profile.launch_us * 1e-6
    seconds = max(moving, reckoning, launching)
    if seconds == launching:
        return seconds, "latency"
    if not kind:
        return seconds, "unknown"
    return seconds, "compute" if seconds == reckoning else "memory"


def _name(row: dict[str, Any]) -> str:
    layer = row["layer"]
    sizes = f"{row['m']}x{row['n']}x{row['k']}"
    many = f"{row['batch']} x " if row["batch"] > 1 else ""
    if row["form"] == "conv":
        taps = "x".join(map(str, layer["kernel"]))
        kind = "transposed conv" if layer["transposed"] else "conv"
        kind = "depthwise conv" if is_depthwise(layer) else kind
        return f"{kind} {layer['c_in']}->{layer['c_out']} {taps} {layer['role']}"
    if row["form"] == "attention":
        return f"attention {row['batch']} x {row['m']}x{row['n']}, head_dim {layer['head_dim']}"
    if row["form"].startswith("rnn_"):
        part = row["form"][4:]
        return f"recurrent {layer['input']}->{layer['hidden']} {part} {sizes}"
    if row["form"] == "vector":
        return f"vector {row['m']}x{row['k']}"
    return many + sizes


def _seconds_by_bound(gemms: Iterable[Gemm]) -> dict[str, float]:
    total = dict.fromkeys(("compute", "memory", "latency", "unknown"), 0.0)
    for gemm in gemms:
        total[gemm.bound] += gemm.seconds
    return total


def _waste(gemms: Iterable[Gemm]) -> float | None:
    """Of compute-bound products, weighted by time: where memory binds, idle units cost nothing."""
    cut = [gemm for gemm in gemms if gemm.tiling and gemm.bound == "compute"]
    seconds = sum(gemm.seconds for gemm in cut)
    if not seconds:
        return None
    wasted = sum(gemm.seconds * gemm.tiling.waste for gemm in cut if gemm.tiling)
    return wasted / seconds
