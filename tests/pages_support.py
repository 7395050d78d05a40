"""The pages that people read: what stands in their fences, and how it is tried."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import click

from amp_migrate.api import migrate_paths
from amp_migrate.cli.main import main

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    # Those of the rules are made of examples that are tried where the rules are.
    *sorted(path for path in DOCS.rglob("*.md") if path.parent.name != "rules"),
]
NAMES = [path.relative_to(ROOT).as_posix() for path in PAGES]

_FENCE = re.compile(
    r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$', flags=re.MULTILINE | re.DOTALL
)
_PROMPT = "$ "
_OUTPUT = doctest.OutputChecker()


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: str
    line: int
    language: str
    title: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def is_session(self) -> bool:
        """Whether it shows commands with what they print."""
        return self.language == "console" and self.text.startswith(_PROMPT)

    @property
    def commands(self) -> list[tuple[str, str]]:
        """The commands of a session, each with its output."""
        parts = re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]
        return [
            (head, rest) for head, _, rest in (one.partition("\n") for one in parts)
        ]

    @property
    def lines(self) -> list[str]:
        """The commands of a list, without their comments."""
        return [re.sub(r"\s+# .*", "", line) for line in self.text.splitlines()]


@dataclass(frozen=True)
class Page:
    """One page."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def blocks(self) -> list[Block]:
        return [
            Block(
                self.name,
                self.text.count("\n", 0, found.start()) + 1,
                found[1],
                found[2] or "",
                found[3],
            )
            for found in _FENCE.finditer(self.text)
        ]

    @cached_property
    def prose(self) -> str:
        """What stands outside of the blocks."""
        return _FENCE.sub("", self.text)

    def show(self, block: Block, printed: list[str]) -> None:
        """Write what the commands of a session print today, where that is not what is shown."""
        parts = [
            f"$ {command}\n{wanted if same_output(wanted, got) else got}"
            for (command, wanted), got in zip(block.commands, printed, strict=True)
        ]
        text = self.path.read_text(encoding="utf-8")
        self.path.write_text(
            text.replace(
                f"```console\n{block.text}```", f"```console\n{''.join(parts)}```"
            ),
            encoding="utf-8",
        )

    @property
    def trains(self) -> bool:
        """Whether something on it runs a training, with torch."""
        return any(
            re.search(r"amp-migrate validate|--probe", command)
            for block in self.blocks
            if block.is_session
            for command, _ in block.commands
        )


def parse(line: str) -> None:
    """Have the program's own parser read a command line. Raises `click.ClickException`."""
    words = shlex.split(re.split(r" (?:\||<|>|&&) ", line)[0])[1:]
    context = click.Context(main, info_name="amp-migrate")
    name = words[0] if words and words[0] in main.list_commands(context) else None
    command = main.get_command(context, name or "migrate")
    assert command is not None
    command.make_context(name or "migrate", words[1:] if name else words, context)


def hunks(diff: str) -> Iterator[tuple[str, str]]:
    """What each hunk has before and after."""
    for hunk in re.split(r"^@@.*\n", diff, flags=re.MULTILINE):
        lines = [line or " " for line in hunk.splitlines()]
        if lines:
            before, after = (
                "".join(f"{line[1:]}\n" for line in lines if line[0] in f" {sign}")
                for sign in "-+"
            )
            yield before, after


class Sandbox:
    """A folder in which the commands of a page are run."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        tools = folder / "tools"
        tools.mkdir()
        for name, words in {"amp-migrate": "-m amp_migrate", "python": ""}.items():
            tool = tools / name
            tool.write_text(
                f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n'
            )
            tool.chmod(0o755)
        self.environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith(
                ("GIT_", "PYTHON", "VIRTUAL_ENV", "COLUMNS", "FORCE_COLOR")
            )
        } | {
            "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
        }
        self.code = 0

    def write(self, name: str, text: str) -> None:
        """A file."""
        path = self.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def run(self, command: str) -> str:
        """What a command prints; ``$?`` in it is the exit code of the one before."""
        done = subprocess.run(
            ["bash", "-c", f"(exit {self.code}); {command}"],
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        self.code = done.returncode
        return done.stdout

    def migrated(self, plain: Path) -> Path:
        """A script, or a folder, copied and rewritten."""
        source = plain if plain.is_dir() else plain.parent
        target = self.work / "rewritten"
        files = [plain] if plain.is_file() else sorted(plain.rglob("*"))
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                self.write(
                    f"rewritten/{file.relative_to(source).as_posix()}",
                    file.read_text(encoding="utf-8"),
                )
        migrate_paths([target], write=True)
        return target


def same_output(wanted: str, got: str) -> bool:
    """Whether a command printed what is shown; dots stand for what differs from run to run."""
    return _OUTPUT.check_output(wanted, got, doctest.ELLIPSIS)
