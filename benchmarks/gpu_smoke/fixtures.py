"""Runs `validate` over training scripts and what the tool made of them, as they are checked in.

So no rewriting is done here, and its libraries are not needed; a test of the repository says that the
rewritten files are what the tool makes of the others.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from amp_migrate.validate.forms import Rewriting
from amp_migrate.validate.order import Entry
from amp_migrate.validate.runner import HarnessError, Limits, Program, Runner
from amp_migrate.validate.sites import sites
from amp_migrate.validate.validation import Validation
from amp_migrate.validate.verdict import Outcome, Verdict

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "migrate"

SELECTED = (
    "cifar_train_globals",
    "gan_two_optimizers",
    "gpt_microsteps",
    "bce_after_sigmoid",
    "truncated_backpropagation",
    "gradient_penalty",
    "closure_in_trainer",
    "checkpoint_resume_dict",
)
"""One of each kind, the most usual first: as many are run as there is time for."""

LIMIT = 30.0
"""Seconds of one run: they take one or two, and the start of CUDA."""

MEMORY = 16 * 2**30


def names() -> list[str]:
    """All of them."""
    return sorted(path.parent.name for path in FIXTURES.glob("*/migrated.py"))


def validate(
    python: str,
    chosen: Sequence[str],
    *,
    device: str,
    steps: int,
    deadline: float | None,
    progress: Callable[[str], None],
) -> dict[str, Verdict]:
    """By name. With a deadline (of `time.monotonic`), none is begun that would last beyond it, if it
    lasted as long as the longest before it."""
    found: dict[str, Verdict] = {}
    longest = 0.0
    for name in chosen:
        begun = time.monotonic()
        if deadline is not None and begun + longest > deadline:
            break
        progress(name)
        found[name] = _validate(python, name, device, steps)
        longest = max(longest, time.monotonic() - begun)
    return found


def _validate(python: str, name: str, device: str, steps: int) -> Verdict:
    folder = FIXTURES / name
    path = os.path.realpath(folder / "plain.py")
    before = Path(path).read_bytes()
    after = (folder / "migrated.py").read_bytes()
    places = sites(path, before.decode(), after.decode())
    rewriting = Rewriting(
        frozenset({path}), {path: before}, {path: after}, tuple(places)
    )
    program = Program(Entry("plain.py"), folder, rewriting.files)
    limits = Limits(seconds=LIMIT, memory=MEMORY, steps=steps)
    try:
        with Runner(python, program, limits, device=device) as runner:
            runner.serve(replace(program, rewritten=rewriting.rewritten))
            return Validation(runner, rewriting, lambda *_: None).run()
    except HarnessError as error:
        return Verdict(name, Outcome.NOT_JUDGED, str(error))
