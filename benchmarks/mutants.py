"""How many broken migrations `amp-migrate validate` catches, and at which level.

Migrated fixtures are broken mechanically, in each way that `tests/validate/mutants.py` knows, and proven
against their originals: ``python benchmarks/mutants.py [--all]``. With ``--all`` every fixture that a
change touches is tried, not only those that each kind names; in some of them it does no harm.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from amp_migrate.validate.forms import Rewriting
from amp_migrate.validate.order import Entry
from amp_migrate.validate.runner import Limits, Program, Runner
from amp_migrate.validate.sites import sites
from amp_migrate.validate.validation import Validation
from amp_migrate.validate.verdict import Level, Outcome

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "fixtures" / "migrate"
sys.path.insert(0, str(ROOT / "tests" / "validate"))

from mutants import KINDS  # noqa: E402


def main() -> None:
    """Print a table: for each level, kinds, cases, those caught at that level, and caught at all."""
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--all", action="store_true", help="every fixture")
    everywhere = options.parse_args().all
    everything = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())
    counts: dict[Level, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    missed = []
    nothing = Program(Entry("none.py"), FIXTURES, frozenset())
    limits = Limits(seconds=120, memory=4 << 30, steps=30, threads=1)
    with Runner(sys.executable, nothing, limits, device="cpu") as runner:
        for kind in KINDS:
            row = counts[kind.level]
            row[0] += 1
            for name in everything if everywhere else kind.fixtures:
                caught = _caught(runner, name, kind.change)
                if caught is None:
                    continue
                row[1] += 1
                row[2] += kind.level in caught
                row[3] += bool(caught)
                if kind.level not in caught:
                    missed.append(f"{kind.name} in {name}")
    print("| level | kinds | cases | caught there | caught |")
    print("|---|---|---|---|---|")
    for level, (kinds, cases, there, at_all) in counts.items():
        print(f"| {level.value} | {kinds} | {cases} | {there} | {at_all} |")
    for one in missed:
        print(f"not there: {one}")


def _caught(
    runner: Runner, name: str, change: Callable[[str], str]
) -> set[Level] | None:
    """The levels that disprove a broken migration; None where the change changes nothing."""
    path = FIXTURES / name / "plain.py"
    plain = path.read_text(encoding="utf-8")
    golden = (path.parent / "migrated.py").read_text(encoding="utf-8")

    broken = change(golden)
    if broken == golden:
        return None
    try:
        places = tuple(sites(str(path), plain, broken))
    except SyntaxError:
        return None
    found = Rewriting(
        frozenset({str(path)}),
        {str(path): plain.encode()},
        {str(path): broken.encode()},
        places,
    )
    entry = Entry(str(path))
    runner.serve(Program(entry, path.parent, found.files, rewritten=found.rewritten))
    verdict = Validation(runner, found, lambda name, done: None).run()
    return {one.level for one in verdict.levels if one.outcome is Outcome.DISPROVED}


if __name__ == "__main__":
    main()
