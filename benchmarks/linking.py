"""How the time of a run grows with the number of programs, beside the time LibCST takes to parse them.

``python benchmarks/linking.py [--copies 1 10 100]`` copies the projects of ``fixtures/projects`` into a
temporary folder, once, ten times and a hundred times, and migrates each tree in one process. Reading,
linking, planning and rewriting are all in the time. The peer is `libcst.parse_module` on the same
files, in the same process: what any tool on LibCST spends before it does anything.

The memory is the most that a process had resident which does nothing but one lint, or one migration, of the
tree by the command line. ``--memory`` measures that alone.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import libcst as cst

from amp_migrate.run import config, engine

PROJECTS = Path(__file__).resolve().parent.parent / "fixtures" / "projects"
NAMES = ("reference_engine_utils", "base_trainer_template", "src_layout_reexports")


MEASURED = """\
import resource, sys
from amp_migrate.cli.main import main
try:
    main(sys.argv[1:], prog_name="amp-migrate")
except SystemExit:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


def tree(folder: Path, copies: int) -> list[Path]:
    """That many copies of the projects below ``folder``; their Python files."""
    for number in range(copies):
        for name in NAMES:
            shutil.copytree(PROJECTS / name / "plain", folder / f"{name}_{number}")
    return sorted(folder.rglob("*.py"))


def seconds_to_migrate(folder: Path) -> tuple[float, int]:
    """(seconds, loops migrated)"""
    settings = config.load([str(folder)])
    start = time.perf_counter()
    report = engine.run([folder], settings=settings, jobs=1)
    seconds = time.perf_counter() - start
    assert not report.failures
    return seconds, sum(result.changed for result in report.results)


def seconds_to_parse(files: list[Path]) -> float:
    """What the peer needs for the same files."""
    start = time.perf_counter()
    for file in files:
        cst.parse_module(file.read_bytes())
    return time.perf_counter() - start


def main() -> None:
    """Print one line for each number of copies."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--copies", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--memory", action="store_true")
    given = parser.parse_args()
    copies = given.copies
    print(
        f"Python {platform.python_version()}, LibCST {version('libcst')}, {platform.machine()}"
    )
    if given.memory:
        print("copies  files  lint [MiB]  migration [MiB]")
        for count in copies:
            files, lint, migration = peaks(count)
            print(f"{count:6d} {files:6d} {lint:11.0f} {migration:16.0f}")
        return
    print("copies  files  changed   run [s]  a copy [ms]  to LibCST's parse")
    measure(copies[0])  # imports and caches are warm from here on
    for count in copies:
        files, changed, seconds, parse = measure(count)
        print(
            f"{count:6d} {files:6d} {changed:8d} {seconds:9.2f} "
            f"{seconds / count * 1e3:12.1f} {seconds / parse:10.2f}"
        )


def peaks(copies: int) -> tuple[int, float, float]:
    """(files, MiB of a lint, MiB of a migration)"""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "pyproject.toml").touch()
        files = tree(folder, copies)
        options = ["--jobs", "1", "--no-cache", "--quiet", str(folder)]
        found = []
        for job in ("lint", "migrate"):
            done = subprocess.run(
                [sys.executable, "-c", MEASURED, job, *options],
                capture_output=True,
                check=True,
                text=True,
            )
            found.append(int(done.stderr.split()[-1]) / 2**10)
    return len(files), found[0], found[1]


def measure(copies: int) -> tuple[int, int, float, float]:
    """(files, files changed, seconds of the run, seconds of the peer)"""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "pyproject.toml").touch()
        files = tree(folder, copies)
        parse = seconds_to_parse(files)
        seconds, changed = seconds_to_migrate(folder)
    return len(files), changed, seconds, parse


if __name__ == "__main__":
    main()
