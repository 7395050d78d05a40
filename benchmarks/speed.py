"""CPU time of lint and of a migration of whole projects, beside what parsing the same files takes.

``python benchmarks/speed.py PATH ...`` runs both jobs on each directory, and writes nothing. The peers are
`ast.parse` and `libcst.parse_module` on the same files. Each is a process of its own, with its start: among
what another has left behind, the collector of garbage makes a parser up to three times slower.

``--cache`` times whole processes instead, on a copy of each directory: the first run, the next one with all
files as they were, one for a single file as a hook makes it, and one after that file has changed.

``--peers`` sets other tools beside it, each as a process of its own: TorchFix, Fixit, a LibCST codemod that
changes nothing, black. Who is not installed is passed over; ``--python`` names an interpreter that has them.

``--diff`` sets a migration beside what it is made of: lint, and LibCST, which parses each file that changes,
and writes it, twice.

``--cores`` runs the jobs on one core and on two.

``--start`` tells the CPU time of processes that have next to nothing to do.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

_TRAINING = """\
import torch
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.randn(4, 8, 8).cuda():
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
"""


def seconds(command: Sequence[str | Path], cwd: Path | str | None = None) -> float:
    """The CPU time of a process, whatever it says."""
    before = _seconds_of_children()
    subprocess.run(command, cwd=cwd, capture_output=True, check=False)
    return _seconds_of_children() - before


def main() -> None:
    """Print one line for each directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("paths", type=Path, nargs="*", metavar="PATH")
    parser.add_argument("--job", choices=["lint", "migrate"])
    parser.add_argument("--cache", action="store_true")
    parser.add_argument("--start", action="store_true")
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--cores", action="store_true")
    parser.add_argument("--diff", action="store_true")
    parser.add_argument("--python", default=sys.executable, metavar="INTERPRETER")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as bytecode:
        _compile_once(bytecode)
        _measure(given)


def _compile_once(folder: str) -> None:
    """Have all processes find bytecode, as those of an installed package do, whatever is said here of
    writing any."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = folder
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "train.py").write_text(_TRAINING)
        for words in (["lint", "train.py"], ["train.py"]):
            seconds([sys.executable, "-m", "amp_migrate", *words], cwd=scratch)


def _measure(given: argparse.Namespace) -> None:
    print(
        f"Python {platform.python_version()}, LibCST {version('libcst')}, {platform.machine()}"
    )
    if given.start:
        _start()
        return
    if given.peers:
        for path in given.paths:
            _peers(path, given.python)
        return
    if given.diff:
        print("| project | files | changed | lint | LibCST | --diff | ratio |")
        print("|---|---|---|---|---|---|---|")
        for path in given.paths:
            print(f"| {' | '.join(_diff(path))} |", flush=True)
        return
    if given.cores:
        print("| project | job | one core | two cores | speed |")
        print("|---|---|---|---|---|")
        for path in given.paths:
            for job in ("lint", "migrate"):
                if given.job in (None, job):
                    print(f"| {' | '.join(_cores(path, job))} |", flush=True)
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
        cells = [path.name, str(len([*path.rglob("*.py")]))]
        for job, parse in (("lint", "ast.parse"), ("migrate", "libcst.parse_module")):
            if given.job in (None, job):
                own = [sys.executable, "-m", "amp_migrate", job]
                taken = seconds([*own, "--no-cache", "--jobs", "1", path])
                peer = seconds([sys.executable, "-c", _PARSES, path, parse])
                cells += [f"{taken:.1f} s", f"{taken / peer:.1f}"]
            else:
                cells += ["", ""]
        print(f"| {' | '.join(cells)} |", flush=True)


_NO_CHANGE = """
import sys
from pathlib import Path
import libcst as cst
from libcst.codemod import CodemodContext, VisitorBasedCodemodCommand, transform_module
class Nothing(VisitorBasedCodemodCommand):
    DESCRIPTION = "changes nothing"
for path in sorted(Path(sys.argv[1]).rglob("*.py")):
    transform_module(Nothing(CodemodContext(filename=str(path))), path.read_text("utf-8", "replace"))
"""
_PARSES = """
import sys
from importlib import import_module
from pathlib import Path
module, name = sys.argv[2].split(".")
parse = getattr(import_module(module), name)
for path in sorted(Path(sys.argv[1]).rglob("*.py")):
    try:
        parse(path.read_bytes())
    except Exception:
        pass  # Python 2, or a template: the tool does not parse it, either
"""


_WRITES_TWICE = """
import sys
from pathlib import Path
import libcst
for path in sys.argv[1:]:
    for _ in range(2):
        libcst.parse_module(Path(path).read_bytes()).bytes
"""


def _diff(path: Path) -> list[str]:
    """CPU time of a migration, and how many times that of its parts it is."""
    own = [sys.executable, "-m", "amp_migrate"]
    options = ["--no-cache", "--jobs", "1", path.absolute()]
    before = _seconds_of_children()
    said = subprocess.run(
        [*own, "--diff", *options],
        capture_output=True,
        encoding="utf-8",
        errors="surrogateescape",  # a diff is in the encoding of its file
        check=False,
        cwd="/",
    )
    taken = _seconds_of_children() - before
    changed = [
        f"/{line.removeprefix('+++ b/')}"
        for line in said.stdout.splitlines()
        if line.startswith("+++ b/") and line.endswith(".py")
    ]
    lint = seconds([*own, "lint", *options])
    peer = seconds([sys.executable, "-c", _WRITES_TWICE, *changed])
    files = str(len([*path.rglob("*.py")]))
    times = (f"{one:.1f} s" for one in (lint, peer, taken))
    ratio = f"{taken / (lint + peer):.2f}"
    return [path.name, files, str(len(changed)), *times, ratio]


def _peers(path: Path, python: str) -> None:
    """One line for each tool, on a copy of a directory, one process each."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch, path.resolve().name)
        shutil.copytree(path, copy, ignore=shutil.ignore_patterns(".git"))
        (copy / ".git").mkdir()
        own = [sys.executable, "-m", "amp_migrate"]
        options = ["--no-cache", "--jobs", "1", str(copy)]
        torchfix = ["-m", "torchfix", "-j", "1", str(copy)]
        commands = {
            "ast.parse": ([sys.executable, "-c", _PARSES, copy, "ast.parse"], ""),
            "amp-migrate lint": ([*own, "lint", *options], ""),
            "amp-migrate --diff": ([*own, "--diff", *options], ""),
            "TorchFix": ([python, *torchfix], "torchfix"),
            "Fixit": ([python, "-m", "fixit", "lint", str(copy)], "fixit"),
            "LibCST, no change": ([python, "-c", _NO_CHANGE, str(copy)], "libcst"),
            "black": (
                [python, "-m", "black", "--check", "-q", "--workers", "1", str(copy)],
                "black",
            ),
        }
        files = len([*copy.rglob("*.py")])
        print(f"\n{copy.name}, {files} files:\n")
        print("| tool | CPU | to ast.parse |")
        print("|---|---|---|")
        parse = 0.0
        for name, (command, module) in commands.items():
            if (
                module
                and subprocess.run(
                    [command[0], "-c", f"import {module}"],
                    capture_output=True,
                    check=False,
                ).returncode
            ):
                print(f"| {name} | not installed | |", flush=True)
                continue
            # Not in the copy, whose files may go by the names of modules.
            taken = seconds(command, cwd=scratch)
            parse = parse or taken
            print(f"| {name} | {taken:.1f} s | {taken / parse:.1f} |", flush=True)


def _cores(path: Path, job: str) -> list[str]:
    """By the clock, of whole processes: only a machine that does nothing else tells anything."""
    taken = []
    for jobs in ("1", "2"):
        command = [sys.executable, "-m", "amp_migrate", job, "--no-cache"]
        start = time.perf_counter()
        subprocess.run(
            [*command, "--jobs", jobs, str(path)], capture_output=True, check=False
        )
        taken.append(time.perf_counter() - start)
    one, two = taken
    return [path.name, job, f"{one:.1f} s", f"{two:.1f} s", f"{one / two:.2f}"]


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
            taken = min(seconds(command, cwd=scratch) for _ in range(7))
            print(f"| `{words}` | {taken * 1e3:.0f} ms |", flush=True)


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


if __name__ == "__main__":
    main()
