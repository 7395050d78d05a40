"""Proves and times migrations on a GPU: one command, less than ten minutes, Python and torch only.

``python benchmarks/gpu_smoke.py`` in a checkout, on a machine with CUDA:

- times four models of real size, each as it was written, as the tool migrated it and as one would
  migrate it by hand, with fp16 and bf16, with TF32 and without. Milliseconds between two backward
  passes by CUDA events, after a warm-up, median and quartiles of two rounds; peak memory.
- runs `amp-migrate validate`'s levels over a selection of `fixtures/migrate` (``--all``: over all,
  which takes longer than ten minutes).

It prints Markdown, and writes it to ``benchmarks/results/``. The tool itself is not run: the migrated
files are checked in beside the originals, and a test says that they are what it makes of them.

``--tiny`` runs all of it at small sizes for two steps, on the CPU too, to see whether it works. That
measures nothing, and no figure is shown.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# A checkout is enough: neither this program nor the tool has to be installed.
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT)]

from gpu_smoke import fixtures, measure, tables  # noqa: E402
from gpu_smoke.cases import CASES, DTYPES, FP32  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results"

MODELS_SHARE = 0.7
"""Of the time, for the models; the fixtures get what is left."""

NOTHING = (
    "Nothing was measured: these are tiny sizes, run to see whether everything works."
)


def main() -> int:
    """0 where all ran and all fixtures are proven, else 1; 2 where nothing can be run."""
    options = _options()
    begun = time.monotonic()
    try:
        machine = measure.probe(options.python)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if machine["device"] is None and not options.tiny:
        print(
            "error: no CUDA device here; --tiny runs everything at small sizes on the CPU,"
            " and measures nothing",
            file=sys.stderr,
        )
        return 2
    deadline = begun + options.seconds
    rows = _models(options, machine, begun + MODELS_SHARE * options.seconds)
    chosen = fixtures.SELECTED[:1] if options.tiny else fixtures.SELECTED
    if options.all:
        chosen = fixtures.names()
    verdicts = fixtures.validate(
        options.python,
        chosen,
        device="auto",
        steps=2 if options.tiny else 30,
        deadline=None if options.all or options.tiny else deadline,
        progress=_say,
    )
    failed = list(tables.errors(rows))
    date = datetime.date.today().isoformat()
    text = "\n".join(
        [
            f"# GPU smoke test, {tables.machine(machine, _driver(), date)}",
            "",
            *(
                [NOTHING, *_ran(rows)]
                if options.tiny
                else [*tables.models(rows), "", tables.aim(rows)]
            ),
            *(["", "Did not run:", "", *failed] if failed else []),
            "",
            *tables.verdicts(verdicts),
            "",
            f"{len(verdicts)} of {len(fixtures.names())} fixtures; {time.monotonic() - begun:.0f} s in all.",
        ]
    )
    print(text)
    target = options.output
    if target is None and not options.tiny:
        device = re.sub(r"[^a-z0-9]+", "-", machine["device"].lower()).strip("-")
        target = RESULTS / f"gpu_smoke-{date}-{device}.md"
    if target is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text + "\n", encoding="utf-8")
        _say(f"written to {target}")
    return int(bool(failed) or not all(one.proven for one in verdicts.values()))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tiny", action="store_true", help="small sizes, two steps, no figures"
    )
    parser.add_argument(
        "--all", action="store_true", help="all fixtures, however long it takes"
    )
    parser.add_argument(
        "--models",
        nargs="+",
        choices=sorted({one.folder for one in CASES}),
        metavar="NAME",
        help="only these: bert_base, gpt2_small, resnet50, tacotron",
    )
    parser.add_argument(
        "--python", default=sys.executable, help="the Python with torch: this one"
    )
    parser.add_argument(
        "--seconds", type=float, default=540.0, help="that it may take: 540"
    )
    parser.add_argument(
        "--output", type=Path, help="instead of a file in benchmarks/results/"
    )
    return parser.parse_args()


def _models(
    options: argparse.Namespace, machine: dict[str, Any], deadline: float
) -> list[tables.Row]:
    # Before Ampere there is neither TF32 nor bf16 in Tensor Cores.
    on_cuda = machine["device"] is not None
    modern = on_cuda and machine["capability"] >= [8, 0]
    dtypes = list(DTYPES) if modern or not on_cuda else ["fp16"]
    cases = [
        one for one in CASES if options.models is None or one.folder in options.models
    ]
    forms = [FP32, *(form for dtype in dtypes for form in DTYPES[dtype])]
    rows = []
    for tf32 in (False, True) if modern else (False,):
        for case in cases:
            _say(f"{case.title}, TF32 {'on' if tf32 else 'off'}")
            timings = measure.measure(
                options.python,
                case,
                forms,
                tf32=tf32,
                tiny=options.tiny,
                timeout=max(1.0, deadline - time.monotonic()),
            )
            rows += [tables.Row(case, tf32, dtype, timings) for dtype in dtypes]
    return sorted(rows, key=lambda row: (CASES.index(row.case), row.tf32))


def _ran(rows: Sequence[tables.Row]) -> list[str]:
    timings = [
        timing
        for row in rows
        for form, timing in row.timings.items()
        if form in DTYPES[row.dtype] or form == FP32
    ]
    good = sum(not timing.error for timing in timings)
    return ["", f"{good} of {len(timings)} forms of the models ran."]


def _driver() -> str:
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.splitlines()[0].strip() or "unknown"


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
