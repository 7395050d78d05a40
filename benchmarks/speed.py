"""CPU time of lint and of a migration of whole projects, beside what parsing the same files takes.

``python benchmarks/speed.py PATH ...`` runs both jobs on each directory in one process, and writes
nothing. The peers are `ast.parse` and `libcst.parse_module` on the same files, in the same process.

``--cache`` times whole processes instead, on a copy of each directory: the first run, the next one with all
files as they were, one for a single file as a hook makes it, and one after that file has changed.

``--start`` tells the CPU time of processes that have next to nothing to do.
"""

from __future__ import annotations

import argparse
import ast
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path

import libcst as cst

from amp_migrate import api


def seconds(work: Callable[[], object]) -> float:
    """The CPU time of something."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    """Print one line for each directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", type=Path, nargs="*", metavar="PATH")
    parser.add_argument("--job", choices=["lint", "migrate"])
    parser.add_argument("--cache", action="store_true")
    parser.add_argument("--start", action="store_true")
    given = parser.parse_args()
    print(
        f"Python {platform.python_version()}, LibCST {version('libcst')}, {platform.machine()}"
    )
    if given.start:
        _start()
        return
    if given.cache:
        print("| project | files | job | first | again | ratio | one file | changed |")
        print("|---|---|---|---|---|---|---|---|")
        for path in given.paths:
            for job in ("lint", "migrate"):
                if given.job in (None, job):
                    print(f"| {' | '.join(_cached(path, job))} |", flush=True)
        return
    print("| project | files | lint | to ast.parse | migration | to LibCST's parse |")
    print("|---|---|---|---|---|---|")
    for path in given.paths:
        texts = [file.read_bytes() for file in sorted(path.rglob("*.py"))]
        cells = [path.name, str(len(texts))]
        for job, run, parse in (
            ("lint", api.lint_paths, ast.parse),
            ("migrate", api.migrate_paths, cst.parse_module),
        ):
            if given.job in (None, job):
                taken = seconds(partial(run, [path]))
                peer = seconds(partial(_parse_all, texts, parse))
                cells += [f"{taken:.1f} s", f"{taken / peer:.1f}"]
            else:
                cells += ["", ""]
        print(f"| {' | '.join(cells)} |", flush=True)


def _start() -> None:
    """One line for each of the commands that are to be there at once."""
    print("| command | CPU |")
    print("|---|---|")
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "plain.py").write_text("import os\n\nprint(os.getcwd())\n")
        for words in (
            "--help",
            "lint --help",
            "--version",
            "explain TCU101",
            "plain.py",
            "plain.py --no-cache",
            "lint plain.py",
        ):
            command = [sys.executable, "-m", "amp_migrate", *words.split()]
            taken = []
            for _ in range(7):
                before = _seconds_of_children()
                subprocess.run(command, cwd=scratch, capture_output=True, check=False)
                taken.append(_seconds_of_children() - before)
            print(f"| `{words}` | {min(taken) * 1e3:.0f} ms |", flush=True)


def _seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _cached(path: Path, job: str) -> list[str]:
    """What a cache is worth: seconds by the clock, of processes that do nothing else."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, path.resolve().name)
        shutil.copytree(path, copy, ignore=shutil.ignore_patterns(".git"))
        (copy / ".git").mkdir()
        files = sorted(copy.rglob("*.py"))
        # The smallest that has something to say: most edits are of a file like any other.
        one = min((f for f in files if b"torch" in f.read_bytes()), key=_size)

        def run(*paths: Path) -> tuple[float, tuple[int, bytes, bytes]]:
            options = ["--jobs", "1", "--cache-dir", str(Path(scratch, "cache"))]
            command = [sys.executable, "-m", "amp_migrate", job, *options]
            start = time.perf_counter()
            done = subprocess.run(
                [*command, *map(str, paths)], cwd=copy, capture_output=True, check=False
            )
            said = (done.returncode, done.stdout, done.stderr)
            return time.perf_counter() - start, said

        first, before = run()
        again, after = min(run() for _ in range(3))
        assert before == after, "the cache has changed an answer"
        run(one)
        single, _ = min(run(one) for _ in range(3))
        one.write_bytes(one.read_bytes() + b"# changed\n")
        changed, _ = run()
        return [
            copy.name,
            str(len(files)),
            job,
            f"{first:.2f} s",
            f"{again:.2f} s",
            f"{first / again:.0f}",
            f"{single:.2f} s",
            f"{changed:.2f} s",
        ]


def _size(path: Path) -> int:
    return path.stat().st_size


def _parse_all(texts: list[bytes], parse: Callable[[bytes], object]) -> None:
    for text in texts:
        # Python 2, or a template: the tool does not parse it, either.
        with suppress(SyntaxError, cst.ParserSyntaxError):
            parse(text)


if __name__ == "__main__":
    main()
