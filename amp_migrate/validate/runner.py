"""Runs orders in the user's interpreter, each in a process group with limits on time and memory."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from amp_migrate.catalogue.protocol import protocol
from amp_migrate.core import limits
from amp_migrate.validate.order import Entry, Order
from amp_migrate.validate.record import Line, Record, read

PACKAGE = "_amp_smoke"
"""What the harness is called where it runs: a name that no project has."""

_SOURCES = Path(__file__).parent / "harness"
_TOP_LEVEL = "sitecustomize.py"

POLL = 0.02
"""Seconds between two looks at a run."""


START = 120.0
"""Seconds that loading torch may take, at least."""

GRACE = 5.0
"""Seconds that the server has to end a run that nobody wants any more."""


class HarnessError(Exception):
    """The user's interpreter cannot be started, has no torch, or died: one line."""


@dataclass(frozen=True)
class Program:
    """What is run, and the rewritten texts of it."""

    entry: Entry
    folder: Path
    """The working directory."""
    files: frozenset[str]
    """Paths of the program's files: the user's own, wherever they lie."""
    original: Mapping[str, bytes] = field(default_factory=dict)
    """By path, the texts that take the place of files in a run of the original."""
    rewritten: Mapping[str, bytes] = field(default_factory=dict)
    """By path, those in a run of the rewrite."""


@dataclass(frozen=True)
class Limits:
    """What one run may use."""

    seconds: float
    memory: int
    """Resident bytes."""
    steps: int
    """Applied optimizer steps."""
    threads: int | None = None


@dataclass(frozen=True)
class Machine:
    """The interpreter and what it runs on."""

    python: str
    torch: str
    gpu: Mapping[str, Any] | None
    """What the harness says of the GPU; None where there is none."""

    @property
    def torch_version(self) -> tuple[int, int]:
        """Major and minor."""
        major, minor = self.torch.split(".")[:2]
        return int(major), int(minor)


class Runner:
    """A server in the user's interpreter, as a context manager.

    Entering raises `HarnessError` where there is no such interpreter, or no torch in it. Leaving ends
    a run that is under way.
    """

    def __init__(
        self,
        interpreter: str,
        program: Program,
        limits_: Limits,
        *,
        device: str,
        scratch: Path | None = None,
    ) -> None:
        """``device``: "cuda", "cpu", or "auto" for CUDA where there is one."""
        self.interpreter = interpreter
        self.program = program
        self.limits = limits_
        self.device = device
        self.standin = False
        """Whether scripts see a stand-in for CUDA."""
        self.launched = False
        """Whether scripts find in the environment what a launcher says to the only process."""
        self.paths: list[str] = []
        """Folders that modules are looked for in where they are nowhere else."""
        self._scratch = scratch
        self._made: tempfile.TemporaryDirectory[str] | None = None
        self._number = 0
        self._sources = 0
        self._read = 0
        """Bytes of what the server says that were read."""
        self._busy = False

    def __enter__(self) -> Runner:
        if self._scratch is None:
            self._made = tempfile.TemporaryDirectory(
                prefix="amp-migrate-", ignore_cleanup_errors=True
            )
            self._scratch = Path(self._made.name)
        self.scratch = self._scratch.resolve()
        self._status = self.scratch / "status.jsonl"
        try:
            self._archive = self.scratch / "harness.zip"
            _pack(self._archive)
            self._server = self._start()
        except OSError as error:
            self._clean()
            reason = error.strerror or str(error)
            raise HarnessError(f"{self.interpreter}: {reason}") from None
        try:
            self.machine = self._meet()
            self.serve(self.program)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server.stdin is not None
        with contextlib.suppress(OSError):  # of an order that it did not live to read
            self._server.stdin.close()
        if self._busy:
            # It ends the run first.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(GRACE)
        self._server.kill()
        self._server.wait()
        self._clean()

    def _start(self) -> subprocess.Popen[str]:
        with (self.scratch / "server.txt").open("wb") as said:
            return subprocess.Popen(
                [self.interpreter, "-m", PACKAGE, "serve", self._status],
                cwd=self.program.folder,
                env=self._environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=said,
                text=True,
                # Ctrl-C is for the program that waits for it, which then ends it.
                start_new_session=True,
            )

    def _clean(self) -> None:
        if self._made is not None:
            self._made.cleanup()

    @property
    def on_cpu(self) -> bool:
        """Whether the runs are made on the CPU."""
        return self.machine.gpu is None

    def leave_gpu(self) -> None:
        """From now on, runs are made on the CPU."""
        self.machine = replace(self.machine, gpu=None)

    @property
    def confined(self) -> bool:
        """Whether the kernel keeps runs to their scratch folder: not where that hides the GPU."""
        gpu = self.machine.gpu
        return gpu is None or bool(gpu["confined"])

    def serve(self, program: Program) -> None:
        """From now on, this is what is run; its working directory stays the one at the start."""
        self.program = program
        self._served = {
            False: self._write_sources(program.original),
            True: self._write_sources(program.rewritten),
        }

    def run(self, order: Order) -> Record:
        """Make one run; it ends by itself, or by the limits.

        Raises `HarnessError` where the interpreter that serves all runs is gone.
        """
        program = self.program
        self._number += 1
        folder = self.scratch / f"run{self._number}"
        folder.mkdir()
        told = {
            **order.as_fields(),
            "log": str(folder / "log.jsonl"),
            "scratch": str(folder),
            "served": self._served[order.rewritten],
            "files": sorted(program.files),
            "cwd": str(program.folder),
            "stdout": str(folder / "stdout.txt"),
            "stderr": str(folder / "stderr.txt"),
            "entry": {
                "name": program.entry.name,
                "arguments": list(program.entry.arguments),
                "module": program.entry.module,
                "paths": self.paths,
            },
            "steps": self.limits.steps * order.longer,
            "threads": self.limits.threads,
            "on_cpu": self.on_cpu,
            "confined": self.confined,
            "standin": self.standin,
            "launched": self.launched,
            "protocol": protocol(),
        }
        path = folder / "run.json"
        path.write_text(json.dumps(told), encoding="utf-8")
        killed = self._send("run", path, self.limits.seconds)
        stdout = folder / "stdout.txt"
        text = ""
        if stdout.exists():
            text = stdout.read_text(encoding="utf-8", errors="replace")
        return Record(order, read(folder / "log.jsonl"), text, killed)

    def _meet(self) -> Machine:
        seconds = max(START, self.limits.seconds)
        deadline = time.monotonic() + seconds
        while True:
            lines = self._heard()
            if lines:
                break
            if self._server.poll() is not None or time.monotonic() > deadline:
                said = (self.scratch / "server.txt").read_text(errors="replace")
                last = (said.strip().splitlines() or ["it said nothing"])[-1]
                raise HarnessError(f"{self.interpreter} does not start: {last}")
            time.sleep(POLL)
        hello = lines[0]
        if hello["kind"] == "broken":
            raise HarnessError(
                f"{self.interpreter} has no torch that can be imported ({hello['message']});"
                " --python names another"
            )
        gpu = None
        if self.device != "cpu":
            path = self.scratch / "machine.jsonl"
            killed = self._send("probe", path, seconds)
            found = read(path)
            if not found:
                reason = killed or "it died"
                raise HarnessError(f"{self.interpreter} was asked for CUDA: {reason}")
            gpu = found[0] if found[0]["cuda"] else None
            if gpu is None and self.device == "cuda":
                raise HarnessError(f"{self.interpreter} sees no CUDA device")
        return Machine(hello["python"], hello["torch"], gpu)

    def _send(self, word: str, path: Path, seconds: float) -> str:
        """Have the server do something, and wait; the answer is why it was ended, if it was."""
        assert self._server.stdin is not None
        self._busy = True
        with contextlib.suppress(OSError):  # it is gone, which is seen below
            self._server.stdin.write(f"{word} {path}\n")
            self._server.stdin.flush()
        begun = time.monotonic()
        weigh = begun
        group = 0
        killed = ""
        while True:
            for line in self._heard():
                if line["kind"] == "started":
                    group = line["pid"]
                elif line["kind"] == "ended":
                    if group:
                        # What the script started and left behind.
                        limits.end(group)
                    self._busy = False
                    return killed
            if self._server.poll() is not None:
                if group:
                    limits.end(group)
                raise HarnessError(f"{self.interpreter} died during a run")
            if group and not killed:
                now = time.monotonic()
                if now - begun > seconds:
                    killed = f"it took more than {seconds:g} s"
                elif now >= weigh:
                    if limits.resident_memory(group) > self.limits.memory:
                        killed = f"it took more than {self.limits.memory / 2**30:.1f} GiB of memory"
                    # It looks at all processes there are, which may be many: not to hold up the run.
                    done = time.monotonic()
                    weigh = done + 20 * (done - now)
                if killed:
                    limits.end(group)
            time.sleep(POLL)

    def _heard(self) -> list[Line]:
        """What the server has said since it was last asked."""
        if not self._status.exists():
            return []
        with self._status.open("rb") as said:
            said.seek(self._read)
            new = said.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        return [json.loads(line) for line in whole.splitlines()]

    def _write_sources(self, texts: Mapping[str, bytes]) -> dict[str, str]:
        written = {}
        for path, text in sorted(texts.items()):
            self._sources += 1
            copy = self.scratch / f"source{self._sources}.py"
            copy.write_bytes(text)
            written[path] = str(copy)
        return written

    def _environment(self) -> dict[str, str]:
        environment = dict(os.environ)
        # Of a launcher for several processes: the script would wait for the others.
        for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            environment.pop(name, None)
        own = os.fspath(self._archive)
        before = environment.get("PYTHONPATH")
        environment.update(
            PYTHONPATH=own if not before else os.pathsep.join((own, before)),
            PYTHONHASHSEED="0",
            PYTHONBREAKPOINT="0",
            MPLBACKEND="Agg",
        )
        return environment


def _pack(path: Path) -> None:
    """The harness as one file, which the user's interpreter finds on its path. Raises `OSError`."""
    with zipfile.ZipFile(path, "w") as archive:
        for source in sorted(_SOURCES.rglob("*.py")):
            name = source.relative_to(_SOURCES).as_posix()
            archive.write(source, name if name == _TOP_LEVEL else f"{PACKAGE}/{name}")
