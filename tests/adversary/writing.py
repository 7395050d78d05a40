"""How a program is drawn: dice, tables of text, and names that are met only once."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


class Dice(random.Random):
    """All that is decided about a program is decided by these."""

    def maybe(self, chance: float) -> bool:
        return self.random() < chance

    def pick(self, *options: T) -> T:
        return self.choice(options)


@dataclass(frozen=True)
class Entry:
    """A piece of a program, as a table has it."""

    name: str
    owned: tuple[tuple[str, str, str], ...]
    """Layers, parameters and buffers: name, kind (one of ``=:~-``) and what makes it."""
    top: tuple[str, ...]
    """Lines at the top of the file."""
    body: tuple[str, ...]
    last: tuple[str, ...]
    """Lines at the end of the program."""


def table(text: str) -> dict[str, Entry]:
    """Pieces of programs, by name.

    An entry is headed by ``===``; a line with ``+`` makes something that lasts: ``=`` a layer, ``:`` a
    parameter, ``~`` a buffer, ``-`` any other value; one with ``!`` stands at the top of the file, one
    with ``>`` at its end. ``$name`` is what lasts, ``?name`` a name that no other piece has.
    """
    found = {}
    for part in re.split(r"(?m)^=== ", text)[1:]:
        name, _, rest = part.partition("\n")
        owned, top, body, last = [], [], [], []
        for line in rest.rstrip("\n").split("\n"):
            if line.startswith("+ "):
                match = re.fullmatch(r"\+ \$(\w+) ([=:~-]) (.*)", line)
                assert match, line
                owned.append((match[1], match[2], match[3]))
            elif line.startswith("!"):
                top.append(line[2:])
            elif line.startswith("> "):
                last.append(line[2:])
            elif line:
                body.append(line)
        found[name] = Entry(name, tuple(owned), tuple(top), tuple(body), tuple(last))
    return found


@dataclass
class Pieces:
    """What the pieces of one program need besides the place where they stand."""

    dice: Dice
    top: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)
    used: list[str] = field(default_factory=list)
    """The names of the entries, for statistics."""
    _count: int = 0

    def fresh(self) -> int:
        self._count += 1
        return self._count

    def place(self, entry: Entry, owner: Owner) -> list[str]:
        """The lines of an entry, in the hands of an owner."""
        self.used.append(entry.name)
        number = self.fresh()

        def named(line: str) -> str:
            line = numbered(line, number)
            return re.sub(r"\$(\w+)", rf"{owner.prefix}\1_{number}", line)

        for name, kind, made in entry.owned:
            owner.own(f"{name}_{number}", kind, named(made))
        self.top += [named(line) for line in entry.top]
        if entry.top:
            self.top += ["", ""]
        self.last += [named(line) for line in entry.last]
        return [named(line) for line in entry.body]


@dataclass
class Owner:
    """Who has what lasts: a module, or the training script, whose names are marked with ``~``."""

    prefix: str = "self."
    lines: list[str] = field(default_factory=list)
    trained: list[str] = field(default_factory=list)
    """Of the script's own: what a list of all parameters is made of."""

    def own(self, name: str, kind: str, made: str) -> None:
        if self.prefix == "self.":
            self.lines.append(
                {
                    "=": f"self.{name} = {made}",
                    ":": f"self.{name} = nn.Parameter({made})",
                    "~": f'self.register_buffer("{name}", {made})',
                    "-": f"self.{name} = {made}",
                }[kind]
            )
            return
        on = "" if kind == "-" else ".to(device)"
        made = f"nn.Parameter(({made}){on})" if kind == ":" else f"{made}{on}"
        self.lines.append(f"~{name} = {made}")
        if kind == "=":
            self.trained.append(f"*~{name}.parameters()")
        elif kind == ":":
            self.trained.append(f"~{name}")


def indent(lines: list[str], by: int = 1) -> list[str]:
    return ["    " * by + line if line else line for line in lines]


def numbered(line: str, number: int) -> str:
    """A line whose ``?names`` are those of one piece."""
    return re.sub(r"\?(\w+)", rf"\1_{number}", line)
