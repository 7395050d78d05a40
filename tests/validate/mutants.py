"""Ways in which a migration goes wrong, done to migrated scripts by force.

Each kind says which level of `amp-migrate validate` has to catch it. A kind is a change of text, and
none where the text has nothing that it could change.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from amp_migrate.validate.verdict import Level


@dataclass(frozen=True)
class Kind:
    """One way to go wrong."""

    name: str
    level: Level
    change: Callable[[str], str]
    fixtures: tuple[str, ...]
    """Migrated fixtures in which it does harm."""

    def __str__(self) -> str:
        return self.name


_SCALER = r"[\w.]*[sS]caler\w*"


def _sub(pattern: str, new: str, count: int = 1) -> Callable[[str], str]:
    return lambda text: re.sub(pattern, new, text, count=count, flags=re.MULTILINE)


def _regions(text: str) -> list[tuple[int, int, int]]:
    """The enabled autocast regions: first line, first line of the body, line after the body."""
    lines = text.splitlines(keepends=True)
    found = []
    for first, line in enumerate(lines):
        if not re.match(r"\s*with (torch\.)?autocast\(", line):
            continue
        body = first
        while not re.search(r":\s*(#.*)?$", lines[body]):
            body += 1
        header = "".join(lines[first : body + 1])
        if "enabled=False" in header:
            continue
        depth = _depth(line)
        end = body + 1
        while end < len(lines) and (
            not lines[end].strip() or _depth(lines[end]) > depth
        ):
            end += 1
        while not lines[end - 1].strip():
            end -= 1
        found.append((first, body + 1, end))
    return found


def _depth(line: str) -> int:
    return len(line) - len(line.lstrip())


def _without_regions(text: str) -> str:
    """No forward is in an autocast region any more."""
    lines = text.splitlines(keepends=True)
    for first, body, end in reversed(_regions(text)):
        shift = _depth(lines[body]) - _depth(lines[first])
        lines[first:end] = [line[shift:] or line for line in lines[body:end]]
    return "".join(lines)


def _longer_region(until: str) -> Callable[[str], str]:
    """The last region reaches up to the line that begins like ``until``, that line included."""

    def change(text: str) -> str:
        lines = text.splitlines(keepends=True)
        for first, body, end in reversed(_regions(text)):
            depth = _depth(lines[first])
            shift = lines[body][depth : _depth(lines[body])]
            for last in range(end, len(lines)):
                line = lines[last]
                if line.strip() and _depth(line) < depth:
                    break
                if _depth(line) == depth and re.match(until, line.strip()):
                    for index in range(end, last + 1):
                        lines[index] = shift + lines[index]
                    return "".join(lines)
        return text

    return change


def _whole_loop(text: str) -> str:
    """One region around the first loop that holds one, instead of those in it."""
    regions = _regions(text)
    if not regions:
        return text
    lines = text.splitlines(keepends=True)
    first, body, _ = regions[0]
    header = " ".join(line.strip() for line in lines[first:body])
    start = next(
        index
        for index in range(first, -1, -1)
        if lines[index].strip() and _depth(lines[index]) < _depth(lines[first])
    )
    plain = _without_regions(text).splitlines(keepends=True)
    depth = _depth(plain[start])
    stop = start + 1
    while stop < len(plain) and (
        not plain[stop].strip() or _depth(plain[stop]) > depth
    ):
        stop += 1
    block = ["    " + line if line.strip() else line for line in plain[start:stop]]
    return "".join([*plain[:start], " " * depth + header + "\n", *block, *plain[stop:]])


def _reborn(text: str) -> str:
    """The scaler is made anew in every pass of the loop."""
    made = re.search(rf"(?m)^( *)({_SCALER}) = (torch\..*GradScaler\(.*\))$", text)
    regions = _regions(text)
    if made is None or not regions:
        return text
    lines = text.splitlines(keepends=True)
    first = regions[0][0]
    indent = " " * _depth(lines[first])
    lines.insert(first, f"{indent}{made[2]} = {made[3]}\n")
    return "".join(lines)


def _drop(pattern: str) -> Callable[[str], str]:
    return _sub(rf"^(\s*){pattern}.*$", r"\1pass")


def _twice(pattern: str) -> Callable[[str], str]:
    return _sub(rf"^(\s*)({pattern}.*)$", r"\1\2\n\1\2")


PLAIN = ("checkpoint_resume_dict", "mnist_style_cnn")
CLIPPED = ("clip_gradient_helper", "grad_norm_logging")
SAVED = ("checkpoint_resume_dict",)

KINDS = (
    # What any change of the program is, AMP or not.
    Kind("a step is lost", Level.OFF, _drop(rf"{_SCALER}\.step\("), PLAIN),
    Kind("zero_grad is lost", Level.OFF, _drop(r"[\w.]+\.zero_grad\("), PLAIN),
    Kind(
        "another learning rate",
        Level.OFF,
        _sub(r"\blr=([\w.-]+)", r"lr=2 * \1"),
        ("checkpoint_resume_dict", "gan_two_optimizers"),
    ),
    Kind("the schedule is lost", Level.OFF, _drop(r"[\w.]*scheduler\.step\("), PLAIN),
    Kind(
        "train() is lost",
        Level.OFF,
        _sub(r"^(\s*)([\w.]+)\.train\(\)$", r"\1\2.eval()"),
        ("mnist_style_cnn",),
    ),
    Kind("eval() is lost", Level.OFF, _drop(r"[\w.]+\.eval\(\)"), ("mnist_style_cnn",)),
    Kind(
        "clipping is lost",
        Level.OFF,
        _drop(r"clip_gradient\("),
        ("clip_gradient_helper",),
    ),
    Kind(
        "more randomness",
        Level.OFF,
        _sub(rf"^(\s*)({_SCALER}\.step\()", r"\1torch.rand(1)\n\1\2"),
        PLAIN,
    ),
    Kind(
        "half of the data",
        Level.OFF,
        _sub(
            rf"^(\s*)({_SCALER}\.scale\(\w+\))\.backward\(\)", r"\1\2.div(2).backward()"
        ),
        ("checkpoint_resume_dict",),
    ),
    Kind(
        "another checkpoint",
        Level.OFF,
        _sub(r'"model_state_dict": model', '"model_state_dict": optimizer'),
        SAVED,
    ),
    # The plumbing of loss scaling.
    Kind(
        "no unscale_ before clipping",
        Level.SCALED,
        _drop(rf"{_SCALER}\.unscale_\("),
        CLIPPED,
    ),
    Kind("no update", Level.SCALED, _drop(rf"{_SCALER}\.update\("), PLAIN),
    Kind("update twice", Level.SCALED, _twice(rf"{_SCALER}\.update\("), PLAIN),
    Kind("unscale_ twice", Level.SCALED, _twice(rf"{_SCALER}\.unscale_\("), CLIPPED),
    Kind(
        "step outside the scaler",
        Level.SCALED,
        _sub(rf"{_SCALER}\.step\((\w+)\)", r"\1.step()"),
        PLAIN,
    ),
    Kind(
        "backward not scaled",
        Level.SCALED,
        _sub(rf"{_SCALER}\.scale\(([^()]+)\)\.backward", r"\1.backward"),
        PLAIN,
    ),
    Kind(
        "another scaler's step",
        Level.SCALED,
        _sub(r"scalerD\.step\(", "scalerG.step("),
        ("gan_two_optimizers",),
    ),
    Kind(
        "another scaler's backward",
        Level.SCALED,
        _sub(r"scalerG\.scale\(", "scalerD.scale("),
        ("gan_two_optimizers",),
    ),
    Kind(
        "update before step",
        Level.SCALED,
        _sub(
            rf"^(\s*)({_SCALER}\.step\(.*\))\n\s*({_SCALER}\.update\(\))$",
            r"\1\3\n\1\2",
        ),
        PLAIN,
    ),
    Kind(
        "scaled losses printed",
        Level.SCALED,
        _sub(
            rf"^(\s*)({_SCALER}\.scale\((\w+)\))\.backward\(\)",
            r"\1\3 = \2\n\1\3.backward()",
        ),
        ("checkpoint_resume_dict",),
    ),
    # What half precision does to numbers.
    Kind(
        "BCE under autocast",
        Level.MIXED,
        _sub(
            r'autocast\("cuda", enabled=False\)',
            'autocast("cuda", dtype=torch.float16)',
        ),
        ("bce_after_sigmoid",),
    ),
    Kind(
        "a mask beyond fp16",
        Level.MIXED,
        _sub(r"max\(-1e9, .*?\.min\)", "-1e9"),
        ("mask_minus_1e9",),
    ),
    Kind("no autocast at all", Level.MIXED, _without_regions, PLAIN),
    # What bits cannot show.
    Kind("scaler reborn", Level.MONITOR, _reborn, PLAIN),
    Kind(
        "backward inside autocast",
        Level.MONITOR,
        _longer_region(rf"{_SCALER}\.scale\("),
        PLAIN,
    ),
    Kind(
        "step inside autocast",
        Level.MONITOR,
        _longer_region(rf"{_SCALER}\.step\("),
        PLAIN,
    ),
    Kind("one region around the loop", Level.MONITOR, _whole_loop, PLAIN),
    Kind(
        "checkpoint without the scaler",
        Level.MONITOR,
        _sub(r'^\s*"scaler_state_dict": .*\n', ""),
        SAVED,
    ),
    Kind(
        "scaler state never loaded",
        Level.MONITOR,
        _drop(rf"{_SCALER}\.load_state_dict\("),
        SAVED,
    ),
)
