"""What a file and its program say about how much the sizes in it matter."""

from __future__ import annotations

import re
from dataclasses import dataclass

from amp_migrate.catalogue.gpus.target import Target, target
from amp_migrate.lint.context import Context
from amp_migrate.lint.misuse.order.amp import AUTOCAST, DTYPES
from amp_migrate.lint.shapes.scale import scale
from amp_migrate.program import ir
from amp_migrate.program.link import Program

_DEVICE = re.compile(r"(?i)cuda|gpu|device|accelerat|lightning|trainer|deepspeed")
_TRAINS = frozenset(
    "backward Trainer fit accelerate Accelerator GradScaler deepspeed optim Optimizer AdamW".split()
)
_RUNS = frozenset("no_grad inference_mode eval generate".split())
_BATCH = re.compile(r"(?i)batch_?size$|^bs$")
_SEQUENCES = re.compile(
    r"Embedding|[Aa]tten|[Tt]oken|(?i:seq)|[Pp]atch|Transformer|LSTM|GRU|RNN|rearrange"
)
"""Where these are, a row is not a sample."""
_FLOAT8 = re.compile(r"(torchao\.float8|transformer_engine)\b")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Of one file."""

    tested: bool
    """It holds tests."""
    from_checkpoint: bool
    """Its layers are filled from published weights."""
    compiled: bool
    """The program compiles its model, and the compiler pads by itself."""
    on_cpu: bool
    """The program trains, and mentions no GPU."""
    untrained: bool
    """The program runs its models, and trains none."""
    rows: int | None
    """Samples in a batch, where every row is a sample and the program writes the number down."""


def surroundings(context: Context, file: str) -> Surroundings:
    """What is said around the layers of a file."""
    mentioned = context.program.modules[file].identifiers
    on_cpu, untrained, rows = context.noted(_runs, context.program.around([file]))
    return Surroundings(
        tested=context.is_test(file),
        from_checkpoint=not scale().checkpoint.isdisjoint(mentioned),
        compiled=context.noted(_compiles),
        on_cpu=on_cpu,
        untrained=untrained,
        rows=rows,
    )


def _runs(context: Context, around: frozenset[str]) -> tuple[bool, bool, int | None]:
    """Of files that run together: whether on the CPU, whether untrained, and the rows of a batch."""
    program = context.program
    facts = [program.modules[one] for one in around if one in program.modules]
    texts = [context.sources.texts.get(one.path, "") for one in facts]
    return (
        _is_on_cpu(facts, texts),
        _is_untrained(facts),
        _rows(program, around, texts),
    )


def target_of(context: Context) -> Target:
    """What the sizes of a program are judged for.

    Raises ValueError where the user asks for a type that the profile does not have.
    """
    return context.noted(_target)


def _target(context: Context) -> Target:
    options = context.options.lint
    dtype = options.dtype or _autocast_type(context, options.profile)
    return target(options.profile, dtype, options.align)


def uses_float8(context: Context) -> bool:
    """Whether the program imports a library that computes linear layers in FP8."""
    return context.noted(_imports_float8)


def _imports_float8(context: Context) -> bool:
    return any(
        _FLOAT8.match(origin)
        for function in context.program.functions.values()
        for _, origin in function.imports
    )


def _compiles(context: Context) -> bool:
    return any(
        context.program.origin(call.func, function) == "torch.compile"
        for function, _, call in context.program.calls_named("compile")
    )


def _is_on_cpu(facts: list[ir.ModuleFacts], texts: list[str]) -> bool:
    """Whether a program trains on no GPU, as far as can be seen."""
    if not any("backward" in one.identifiers for one in facts):
        return False
    if any("torch_xla" in text for text in texts):
        return not any("cuda" in text for text in texts)
    return not any(_DEVICE.search(text) for text in texts)


def _is_untrained(facts: list[ir.ModuleFacts]) -> bool:
    """Whether models are only run. A library that does neither is trained by others."""
    mentioned = [one.identifiers for one in facts]
    return not all(map(_RUNS.isdisjoint, mentioned)) and all(
        map(_TRAINS.isdisjoint, mentioned)
    )


def _rows(program: Program, paths: frozenset[str], texts: list[str]) -> int | None:
    if any(map(_SEQUENCES.search, texts)):
        return None
    found = set()
    for name, function in program.functions.items():
        if ir.file_of(name) in paths:
            for stmt in ir.statements(function.body):
                if stmt.kind == "assign" and isinstance(stmt.value, ir.Const):
                    for target in stmt.targets:
                        if isinstance(target, ir.Name) and _BATCH.search(target.id):
                            found.add(stmt.value.value)
    for name, _, call in program.calls_named("DataLoader"):
        if ir.file_of(name) in paths:
            given = call.argument(1, "batch_size")
            if isinstance(given, ir.Const):
                found.add(given.value)
            elif not isinstance(given, ir.Name) or not _BATCH.search(given.id):
                return None
    numbers = [one for one in found if type(one) is int]
    return max(numbers) if numbers and len(numbers) == len(found) else None


def _autocast_type(context: Context, profile_name: str) -> str | None:
    """The one type that the program's own autocast names; None where there is none, or several."""
    program = context.program
    found = set()
    for function, _, call in program.calls_named("autocast"):
        made = AUTOCAST.fullmatch(program.origin(call.func, function) or "")
        if made is None or made["device"] not in (None, "cuda"):
            continue
        given = call.argument(99, "dtype")
        dtype = "" if given is None else program.origin(given, function) or ""
        found.add(DTYPES.get(dtype))
    if found == {"bfloat16"}:
        from amp_migrate.catalogue.gpus.profiles import profile

        return "bfloat16" if "bfloat16" in profile(profile_name).tflops else None
    return None
