"""CPU time of lint and of a migration of whole projects, beside what parsing the same files takes.

``python benchmarks/speed.py PATH ...`` runs both jobs on each directory in one process, and writes
nothing. The peers are `ast.parse` and `libcst.parse_module` on the same files, in the same process.
"""

from __future__ import annotations

import argparse
import ast
import platform
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
    parser.add_argument("paths", type=Path, nargs="+", metavar="PATH")
    parser.add_argument("--job", choices=["lint", "migrate"])
    given = parser.parse_args()
    print(
        f"Python {platform.python_version()}, LibCST {version('libcst')}, {platform.machine()}"
    )
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


def _parse_all(texts: list[bytes], parse: Callable[[bytes], object]) -> None:
    for text in texts:
        # Python 2, or a template: the tool does not parse it, either.
        with suppress(SyntaxError, cst.ParserSyntaxError):
            parse(text)


if __name__ == "__main__":
    main()
