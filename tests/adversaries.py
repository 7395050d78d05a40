"""Short training programs that try to make the migrator write something wrong.

`python tests/adversaries.py SEED` prints the program of a seed, what becomes of it and what is wrong with
it; `--count 5000 --seed 7` tries so many, from that seed on; `--file PATH` tries a program of your own, such
as one that was shrunk by hand.
"""

from __future__ import annotations

import argparse
import collections
import difflib
import gc
import math
import re
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from adversary.drawing import drawn
from exactness import (
    MIXED,
    MOVING_SCALES,
    OFF,
    ORIGINAL,
    Mode,
    Run,
    compare,
    execute,
)

from amp_migrate.api import Outcome, Result, migrate_source

NEAR = 0.1
"""How far the losses may be from those of fp32, relative to their mean magnitude: half precision and a few
steps lead that far, where the program does not round or compare."""

DIVERGED = 100.0
"""From where losses are so many times the first, the program has lost its way in fp32, too: what it computes
leaves the range of half precision by itself, and what differs then says nothing."""

AMPLIFIED = 5.0
"""How many times the noise of twins, whose weights differ in the last bit of half precision."""


_IN_FULL = r"enabled=False\):|tensordot|torch\.inner|linalg|\.double\(\)|partial\("
"""Where it stands, products in fp32 are as they should be."""


_ROUNDS = (
    r"\.sample\(\)|multinomial|\.argm(in|ax)\(1\)\]|\.sign\(\)|if loss\.item\(\) >"
)
"""Where it stands, a little difference may become any."""


@dataclass
class Trial:
    """What became of one program."""

    text: str
    result: Result
    problems: list[str] = field(default_factory=list)

    @property
    def migrated(self) -> bool:
        return self.result.output != self.text

    @property
    def reasons(self) -> list[str]:
        return [
            f"{found.code} {found.message}"
            for found in (loop.diagnostic for loop in self.result.loops)
            if found is not None
        ]


def tried(text: str, scale: int = 0) -> Trial:
    """Migrate a program, and hold the outcome against it."""
    reference = execute(text, ORIGINAL)
    trial = Trial(text, migrate_source(text, path="train.py"))
    result = trial.result
    if "the derivative for" in reference.error:
        pass  # Two pieces of which torch differentiates neither twice.
    elif reference.error:
        trial.problems.append(f"the program itself fails: {reference.error}")
    elif not all(map(math.isfinite, reference.losses)):
        trial.problems.append("the program itself has a loss that is not finite")
    elif not reference.steps:
        trial.problems.append("the program itself makes no steps")
    elif trial.migrated:
        trial.problems += _wrong(reference, text, result.output, scale)
        again = migrate_source(result.output, path="train.py")
        if again.output != result.output:
            trial.problems.append("a second run changes it again")
    else:
        trial.problems += _unsaid(result)
    return trial


def _wrong(reference: Run, text: str, output: str, scale: int) -> list[str]:
    found = []
    off = execute(output, OFF)
    found += [f"off: {line}" for line in compare(reference, off)]
    new = sorted(set(off.warnings) - set(reference.warnings))
    found += [f"off: a new warning: {line}" for line in new]
    scaled = execute(output, MOVING_SCALES[scale % 3])
    found += [f"scaled: {line}" for line in compare(reference, scaled)]
    if scaled.plain_backwards:
        found.append(f"scaled: {scaled.plain_backwards} backwards were not")
    return found + [f"mixed: {line}" for line in _mixed(reference, text, output)]


def _mixed(reference: Run, text: str, output: str) -> list[str]:
    """What is wrong with both on, and is so at a small scale, too: where gradients leave the range of half
    precision by themselves, a scaler skips steps until its scale is that small."""
    found = _mixed_from(reference, text, output, MIXED)
    return found and _mixed_from(reference, text, output, replace(MIXED, init_scale=1))


def _mixed_from(reference: Run, text: str, output: str, mode: Mode) -> list[str]:
    mixed = execute(output, mode)
    if mixed.error:
        return [mixed.error]
    before, after = reference.losses, mixed.losses
    if len(before) != len(after):
        return [f"{len(before)} losses became {len(after)}"]
    grown = DIVERGED * max(1.0, abs(before[0]))
    stable = next((i for i, a in enumerate(before) if abs(a) > grown), len(before))
    before, after = before[:stable], after[:stable]
    if not all(map(math.isfinite, after)):
        return [f"losses that are not finite: {after}"]
    found = []
    far = _distances(before, after, before)
    if re.search(_ROUNDS, text) or max(far) <= NEAR:
        pass
    elif _is_far(text, output, mode, before, after):
        worst = far.index(max(far))
        found.append(f"loss {worst}, {before[worst]!r}, became {after[worst]!r}")
    if not mixed.steps:
        found.append("no step was made")
    if not mixed.half_gemms:
        found.append("nothing ran in half precision")
    elif mixed.full_gemms and not re.search(_IN_FULL, output):
        found.append(f"{mixed.full_gemms} products were left in fp32")
    return found


def _is_far(
    text: str, output: str, mode: Mode, before: list[float], after: list[float]
) -> bool:
    """Whether losses are farther from those of fp32 than a little rounding leads.

    The first one must be as near as twins of fp32 are, whose weights begin a little otherwise. Behind
    it, optimizers that go by the sign of a gradient make much of little: how far twins in half precision
    lead from each other counts, too.
    """
    far = _distances(before, after, before)
    noise = 0.0
    for script, how, usual in ((text, ORIGINAL, before), (output, mode, after)):
        for size in (2.0**-11, -(2.0**-11), 2.0**-10, -(2.0**-10)):
            twin = execute(script, replace(how, perturbation=size)).losses
            apart = _distances(usual, twin, before)
            noise = max([noise, *apart])
            if how is ORIGINAL and far[0] > max(NEAR, AMPLIFIED * apart[0]):
                return True
        if max(far) <= AMPLIFIED * noise:
            return False
    return True


def _distances(
    some: list[float], others: list[float], losses: list[float]
) -> list[float]:
    magnitude = max(0.01, sum(map(abs, losses)) / len(losses))
    return [abs(a - b) / magnitude for a, b in zip(some, others, strict=False)]


def _unsaid(result: Result) -> list[str]:
    if not result.loops and ".backward(" in result.source:
        return ["no loop was found"]
    return [
        f"line {loop.place.line} is left alone without a reason"
        for loop in result.loops
        if loop.outcome is not Outcome.OFF and loop.diagnostic is None
    ]


def shrunk(text: str) -> str:
    """A program without the lines that a problem does not need; its words have to stay the same."""

    def kinds(candidate: str) -> set[str]:
        try:
            compile(candidate, "train.py", "exec")
        except SyntaxError:
            return set()
        try:
            found = tried(candidate).problems
        except Exception as error:  # a crash is a problem, too
            found = [type(error).__name__]
        return {
            re.sub(r"[\d.]+(e-?\d+)?|[a-z]\w*_\d+", "", line)[:60] for line in found
        }

    wanted = kinds(text)
    lines = text.splitlines(keepends=True)
    size = len(lines) // 4
    while size:
        at = len(lines)
        while at > 0:
            at -= size
            fewer = lines[: max(at, 0)] + lines[at + size :]
            if wanted & kinds("".join(fewer)):
                lines = fewer
        size //= 2
    return "".join(lines)


def difference(trial: Trial) -> str:
    return "".join(
        difflib.unified_diff(
            trial.text.splitlines(keepends=True),
            trial.result.output.splitlines(keepends=True),
            "original",
            "migrated",
            n=100,
        )
    )


def _many(first: int, count: int, step: int, folder: Path | None) -> int:
    start = time.monotonic()
    tally: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    failed = 0
    gc.collect()
    gc.freeze()
    for seed in range(first, first + count, step):
        try:
            trial = tried(drawn(seed).text, seed)
        except Exception as error:  # a crash is what is looked for
            print(f"{seed}: {type(error).__name__}: {error}", flush=True)
            failed += 1
            if folder is not None:
                (folder / f"{seed}.py").write_text(drawn(seed).text)
            continue
        tally["migrated" if trial.migrated else "left alone"] += 1
        if not trial.migrated:
            reasons.update({reason.split()[0] for reason in trial.reasons})
        if folder is not None and not trial.migrated:
            for reason in trial.reasons:
                with (folder / "reasons.txt").open("a") as file:
                    file.write(f"{seed}: {reason}\n")
        if trial.problems:
            failed += 1
            print(f"{seed}: {'; '.join(trial.problems)}", flush=True)
            if folder is not None:
                (folder / f"{seed}.py").write_text(trial.text)
    print(
        dict(tally),
        dict(reasons.most_common()),
        f"{failed} failed",
        f"{time.monotonic() - start:.0f} s",
    )
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("only", nargs="?", type=int, help="a seed")
    parser.add_argument("--file", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument(
        "--folder", type=Path, help="where reasons and failing programs are kept"
    )
    parser.add_argument("--shrink", action="store_true", help="take lines away first")
    given = parser.parse_args()
    if given.only is None and given.file is None:
        if given.folder is not None:
            given.folder.mkdir(parents=True, exist_ok=True)
        return _many(given.seed, given.count, given.step, given.folder)
    text = given.file.read_text() if given.file else drawn(given.only).text
    if given.shrink:
        text = shrunk(text)
    trial = tried(text, given.only or 0)
    print(difference(trial) if trial.migrated else trial.text)
    for line in [*trial.reasons, *trial.problems]:
        print(line)
    return len(trial.problems)


if __name__ == "__main__":
    sys.exit(bool(main()))
