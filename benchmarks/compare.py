"""What one version of amp-migrate says, beside another, on the same trees.

    python benchmarks/compare.py OLD NEW TREE...

``OLD`` and ``NEW`` are checkouts, wheels, or git revisions of the checkout that this script stands in. Each
``TREE`` is a folder that is migrated and linted as a whole, in memory, by both; nothing is written there.
Each look is a process of its own that runs `amp_migrate.api` of its version, with the same interpreter.

Listed is every difference: loops that are migrated, left alone, or left alone for another reason; files that
are rewritten otherwise; findings; files that could not be processed; exit codes; looks that crashed or ran
out of time. Then come the counts, the refusals by code, and the CPU time of both.

``--diffs FOLDER`` writes, for each file whose rewrite differs, what both versions make of it, to be read.
``--validate`` proves each script that only NEW rewrites, or rewrites otherwise: **it runs the trees' code**.
``--json FILE`` writes everything for a script. ``--cache FOLDER`` keeps looks by the content of version and
tree, so that the old version is not asked again at every step.

What counts as an exit code here: 2 where a file could not be processed, else 1 where one would change or an
error is found, as `amp-migrate --check` and `amp-migrate lint` have it.

Exit codes of this script: 0 no difference, 1 differences, 2 NEW crashed where OLD did not, or usage.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import hashlib
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
JOBS = ("migrate", "lint")
MIGRATED = "migrated"
NOT_OURS = ("under AMP already", "off")
"""Outcomes of loops with nothing to migrate."""
NO_STEP_OR_DEVICE = ("AMP005", "AMP011")
"""Refusals of loops that have no GPU, or no optimizer step: AMP is not for them."""

LISTED, UNLISTED = ("error", "warning"), ("info",)
"""Severities of findings: those that text lists, and those that it counts."""
COUNTED = ("info", "wording")

Look = dict[str, Any]
"""What one version says of one tree, in one job: see `look`."""


Ask = Callable[[int, Path, str], Look]
"""What the old (0) or new (1) version says of a tree in a job."""


# In the process of one version -------------------------------------------------------------------


def look(job: str) -> Look:
    """What the version that this process imports says of the current directory. Plain data:

    ``sites`` (of migrate) and ``findings`` (of lint), ``diffs`` by path, ``failures``, ``exit_code``,
    ``files``, ``seconds`` (CPU), ``traceback`` of what escaped.
    """
    from amp_migrate import api

    start = time.process_time()
    try:
        report = getattr(api, f"{job}_paths")(["."])
    except Exception:
        return {"traceback": traceback.format_exc()}
    seconds = time.process_time() - start
    found: Look = {
        "seconds": seconds,
        "files": report.files,
        "sites": [_site(loop) for result in report.results for loop in result.loops],
        "findings": [
            _finding(one) for result in report.results for one in result.findings
        ],
        "diffs": {
            result.path: _diff(result.path, result.source, result.output)
            for result in report.results
            if result.changed
        },
        "notes": [
            f"{note.place.path}:{note.place.line} {note.message}"
            for result in report.results
            # Versions before notes have none.
            for note in getattr(result, "notes", ())
        ],
        "failures": sorted(str(error) for error in report.errors),
    }
    worst = any(one["severity"] == "error" for one in found["findings"])
    found["exit_code"] = 2 if found["failures"] else int(bool(found["diffs"]) or worst)
    return found


def _site(loop: Any) -> dict[str, Any]:
    said = loop.diagnostic
    return {
        "place": f"{loop.place.path}:{loop.place.line}:{loop.place.column}",
        "outcome": loop.outcome.value,
        "code": said.code if said else "",
        "message": said.message if said else "",
        "blocker": (
            f"{said.blocker.path}:{said.blocker.line}" if said and said.blocker else ""
        ),
    }


def _finding(one: Any) -> dict[str, Any]:
    return {
        "place": f"{one.place.path}:{one.place.line}:{one.place.column}",
        "code": one.code,
        "severity": one.severity.value,
        "message": one.message,
    }


def _diff(path: str, source: str, output: str) -> str:
    old, new = source.splitlines(keepends=True), output.splitlines(keepends=True)
    return "".join(difflib.unified_diff(old, new, f"a/{path}", f"b/{path}"))


# Versions and trees ------------------------------------------------------------------------------


@contextlib.contextmanager
def version(what: str) -> Iterator[Path]:
    """A folder to import that version from: of a checkout, a wheel, or a git revision of this one."""
    path = Path(what)
    if (path / "amp_migrate" / "api.py").is_file():
        yield path.resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        if path.suffix == ".whl" and path.is_file():
            with zipfile.ZipFile(path) as wheel:
                wheel.extractall(folder)
        else:
            archive = ["git", "-C", str(ROOT), "archive", what, "amp_migrate", "rules"]
            packed = subprocess.run(archive, capture_output=True)
            if packed.returncode:
                raise SystemExit(f"{what} is no checkout, wheel or revision")
            with tarfile.open(fileobj=BytesIO(packed.stdout)) as tree:
                tree.extractall(folder, filter="data")
        yield Path(folder)


def digest(folder: Path, pattern: str) -> str:
    """Of the files below a folder: their paths and contents."""
    found = hashlib.sha256()
    for path in sorted(folder.glob(pattern)):
        if path.is_file() and "__pycache__" not in path.parts:
            found.update(f"{path.relative_to(folder)}\0".encode())
            found.update(path.read_bytes())
    return found.hexdigest()


def remembered(
    version: Path, tree: Path, job: str, seconds: float, cache: Path | None
) -> Look:
    """`looked`, or what it said before. A look that ended badly is not kept."""
    if cache is None:
        return looked(version, tree, job, seconds)
    contents = (
        digest(version, "amp_migrate/**/*"),
        digest(version, "rules/*"),
        digest(tree, "**/*"),
    )
    name = hashlib.sha256("".join(contents).encode()).hexdigest()[:32]
    file = cache / f"{tree.name}-{job}-{name}.json"
    if file.is_file():
        kept: Look = json.loads(file.read_text(encoding="utf-8"))
        return kept
    found = looked(version, tree, job, seconds)
    if "traceback" not in found:
        cache.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found), encoding="utf-8")
    return found


def looked(version: Path, tree: Path, job: str, seconds: float) -> Look:
    """`look`, in a process of that version in that tree."""
    paths = [str(version), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONHASHSEED": "0",
    }
    command = [sys.executable, str(Path(__file__).resolve()), "--look", job]
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return {"traceback": f"not done after {seconds:.0f} s"}
    try:
        found: Look = json.loads(done.stdout)
    except ValueError:
        return {"traceback": f"exit code {done.returncode}\n{done.stderr[-2000:]}"}
    return found


# Comparing ---------------------------------------------------------------------------------------


@dataclass
class Difference:
    """One thing that the versions do not say alike."""

    tree: str
    kind: str
    place: str
    old: str
    new: str
    verdict: str = ""
    """What `amp-migrate validate` says of the new rewrite, where it was asked."""

    def __str__(self) -> str:
        line = f"{self.kind}: {self.place}: {self.old or '-'}  ->  {self.new or '-'}"
        return f"{line}  [{self.verdict}]" if self.verdict else line


@dataclass
class Compared:
    """One tree, looked at by both."""

    tree: str
    looks: dict[str, tuple[Look, Look]]
    """By job: old and new."""
    differences: list[Difference] = field(default_factory=list)

    @property
    def crashed(self) -> bool:
        """Whether a look of the new version ended badly where the old one's did not."""
        return any(
            "traceback" in new and "traceback" not in old
            for old, new in self.looks.values()
        )


def compare(tree: Path, ask: Ask, jobs: Sequence[str]) -> Compared:
    """Look at one tree with both versions."""
    compared = Compared(
        tree.name, {job: (ask(0, tree, job), ask(1, tree, job)) for job in jobs}
    )
    for job, (old, new) in compared.looks.items():
        crashes = (_last_line(old), _last_line(new))
        if any(crashes):
            rows = [("crash", *({job: crash} for crash in crashes))]
        else:
            rows = [
                (
                    "exit code",
                    {job: str(old["exit_code"])},
                    {job: str(new["exit_code"])},
                ),
                ("note", _each(old["notes"]), _each(new["notes"])),
                ("failure", _each(old["failures"]), _each(new["failures"])),
                ("loop", _sites(old), _sites(new)),
                ("reason", _reasons(old), _reasons(new)),
                ("finding", _findings(old, LISTED), _findings(new, LISTED)),
                ("info", _findings(old, UNLISTED), _findings(new, UNLISTED)),
                ("rewrite", _rewrites(old, new), _rewrites(new, old)),
            ]
        for kind, before, after in rows:
            for place in sorted({*before, *after}):
                said = (before.get(place, ""), after.get(place, ""))
                if kind == "reason" and not all(said):
                    continue  # told as another code of the loop
                if said[0] == said[1] and kind != "rewrite":
                    continue
                same_grade = said[0].partition(":")[0] == said[1].partition(":")[0]
                told = "wording" if kind in ("finding", "info") and same_grade else kind
                compared.differences.append(Difference(tree.name, told, place, *said))
    return compared


def _last_line(found: Look) -> str:
    return str(found.get("traceback", "")).strip().rsplit("\n", 1)[-1]


def _each(lines: Sequence[str]) -> dict[str, str]:
    return dict.fromkeys(lines, "said")


def _sites(found: Look) -> dict[str, str]:
    return {
        site["place"]: f"{site['outcome']} {site['code']}".strip()
        for site in found["sites"]
    }


def _reasons(found: Look) -> dict[str, str]:
    return {
        f"{site['place']} {site['code']}": f"{site['message']} (blocked by {site['blocker'] or 'itself'})"
        for site in found["sites"]
        if site["code"]
    }


def _findings(found: Look, severities: Sequence[str]) -> dict[str, str]:
    return {
        f"{one['place']} {one['code']}": f"{one['severity']}: {one['message']}"
        for one in found["findings"]
        if one["severity"] in severities
    }


def _rewrites(these: Look, others: Look) -> dict[str, str]:
    """The files that the other version leaves alone or rewrites otherwise."""
    return {
        path: f"+{diff.count(chr(10) + '+')} -{diff.count(chr(10) + '-')} lines"
        for path, diff in these["diffs"].items()
        if others["diffs"].get(path) != diff
    }


def validate(compared: Compared, tree: Path, version: Path, seconds: float) -> None:
    """Have each rewrite of a script that only the new version makes proven by running it."""
    for one in compared.differences:
        if one.kind == "rewrite" and one.new and one.place.endswith(".py"):
            command = [
                sys.executable,
                "-m",
                "amp_migrate",
                "validate",
                "-q",
                "--steps",
                "10",
                one.place,
            ]
            environment = {**os.environ, "PYTHONPATH": str(version)}
            try:
                done = subprocess.run(
                    command,
                    cwd=tree,
                    env=environment,
                    capture_output=True,
                    text=True,
                    timeout=seconds,
                )
            except subprocess.TimeoutExpired:
                one.verdict = "validate: out of time"
                continue
            meaning = {0: "proven", 1: "WRONG"}.get(
                done.returncode, "could not be judged"
            )
            said = (done.stdout + done.stderr).strip().splitlines()
            one.verdict = f"validate: {meaning}; {said[0] if said else ''}"


# Reporting ---------------------------------------------------------------------------------------


def listing(compared: Compared) -> Iterator[str]:
    """One tree's differences, a line each; those of little weight are counted."""
    counts = Counter(one.kind for one in compared.differences if one.kind in COUNTED)
    counted = "".join(
        f", {number} of them {kind}" for kind, number in sorted(counts.items())
    )
    yield f"{compared.tree}: {len(compared.differences) or 'no'} differences{counted}"
    for one in compared.differences:
        if one.kind not in COUNTED:
            yield f"  {one}"


def outcomes(all_compared: Sequence[Compared], side: int) -> Counter[str]:
    """How many loops became what in one version: refusals by code."""
    return Counter(
        site["code"] if site["outcome"] == "left alone" else site["outcome"]
        for one in all_compared
        if "migrate" in one.looks and "traceback" not in one.looks["migrate"][side]
        for site in one.looks["migrate"][side]["sites"]
    )


def table(all_compared: Sequence[Compared]) -> Iterator[str]:
    """The counts, as Markdown."""
    old, new = outcomes(all_compared, 0), outcomes(all_compared, 1)
    yield "| loops | old | new |"
    yield "|---|---:|---:|"
    for name in sorted({*old, *new}, key=lambda name: (name.startswith("AMP"), name)):
        yield f"| {name} | {old[name]} | {new[name]} |"
    for name, without in (
        ("of those not under AMP", NOT_OURS),
        ("of those with a step and a device", (*NOT_OURS, *NO_STEP_OR_DEVICE)),
    ):
        shares = [_share(counts, without) for counts in (old, new)]
        yield f"| migrated {name} | {shares[0]} | {shares[1]} |"
    yield ""
    yield "| CPU time | old [s] | new [s] | new to old |"
    yield "|---|---:|---:|---:|"
    for job in JOBS:
        pairs = [one.looks[job] for one in all_compared if job in one.looks]
        pairs = [
            pair for pair in pairs if all("traceback" not in found for found in pair)
        ]
        if pairs:
            sums = [sum(pair[side]["seconds"] for pair in pairs) for side in (0, 1)]
            yield f"| {job}, {len(pairs)} trees | {sums[0]:.1f} | {sums[1]:.1f} | {sums[1] / sums[0]:.2f} |"


def _share(counts: Counter[str], without: Sequence[str]) -> str:
    whole = sum(number for name, number in counts.items() if name not in without)
    return (
        f"{counts[MIGRATED]} of {whole} ({counts[MIGRATED] / whole:.0%})"
        if whole
        else "-"
    )


def write_diffs(compared: Compared, folder: Path) -> None:
    """What both versions make of each file that they rewrite differently, for a reader."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in compared.differences:
        if one.kind == "rewrite":
            for name, found in zip(
                ("old", "new"), compared.looks["migrate"], strict=True
            ):
                if one.place in found["diffs"]:
                    file = (
                        folder
                        / f"{compared.tree}__{one.place.replace('/', '__')}.{name}.diff"
                    )
                    file.write_text(found["diffs"][one.place], encoding="utf-8")


def main() -> int:
    """Compare and report; the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", metavar="OLD")
    parser.add_argument("new", metavar="NEW")
    parser.add_argument("trees", metavar="TREE", nargs="+", type=Path)
    parser.add_argument("--job", choices=JOBS, action="append", help="only this one")
    parser.add_argument(
        "--jobs", type=int, default=1, help="trees at a time; CPU times are best with 1"
    )
    parser.add_argument("--timeout", type=float, default=900, help="seconds for a look")
    parser.add_argument("--diffs", type=Path, metavar="FOLDER")
    parser.add_argument(
        "--validate",
        action="store_true",
        help="run what NEW rewrites; mind what it does",
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--cache", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    trees = [tree.resolve() for tree in options.trees]
    for tree in trees:
        if not tree.is_dir():
            parser.error(f"{tree} is no folder")
    jobs = options.job or JOBS
    all_compared = []
    with (
        version(options.old) as old,
        version(options.new) as new,
        ThreadPoolExecutor(options.jobs) as pool,
    ):

        def ask(side: int, tree: Path, job: str) -> Look:
            return remembered(
                (old, new)[side], tree, job, options.timeout, options.cache
            )

        for tree, compared in zip(
            trees, pool.map(lambda tree: compare(tree, ask, jobs), trees), strict=True
        ):
            if options.validate:
                validate(compared, tree, new, options.timeout)
            if options.diffs and "migrate" in jobs:
                write_diffs(compared, options.diffs)
            all_compared.append(compared)
            print("\n".join(listing(compared)), flush=True)
    print()
    print("\n".join(table(all_compared)))
    if options.json:
        options.json.write_text(
            json.dumps([asdict(one) for one in all_compared], indent=1),
            encoding="utf-8",
        )
    if any(one.crashed for one in all_compared):
        return 2
    return int(any(one.differences for one in all_compared))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--look"]:
        print(json.dumps(look(sys.argv[2])))
        sys.exit()
    sys.exit(main())
