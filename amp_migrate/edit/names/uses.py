"""Facts: what a file imports, what its names are bound to, and where it mentions imports.

Migrating needs to know what statements do to training; modernising needs to know each place where a
name is mentioned, annotations and decorators included. So it has facts of its own: scopes, bindings
and mentions, with positions. Like all facts they are plain data about one file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

TOP = 0
"""The number of a file's outermost scope."""

OLD_NAME = re.compile(r"torch\.(cuda|cpu)\.amp(?=\.|$)")
"""How the dotted name of an older interface begins."""

Position = tuple[int, int]
"""(line from 1, column in characters from 0)."""


@dataclass(frozen=True, slots=True)
class Binding:
    """One place that gives a name a value in its scope."""

    kind: str
    """``import``, ``from``, ``alias`` (``name = a.b.c``) or ``other``."""
    at: Position
    target: str = ""
    """The dotted name that an import binds; relative ones keep their dots."""
    parts: tuple[str, ...] = ()
    """What an alias stands for, as it is written."""
    module: str = ""
    """What ``import a.b.c`` names, where the variable is only ``a``."""
    tries: tuple[tuple[int, str], ...] = ()
    """The ``try`` statements around it, from outside: (number, field)."""


@dataclass(frozen=True, slots=True)
class Argument:
    """``star`` is ``""``, ``"*"`` or ``"**"``; ``value`` a dotted name, or the code of a constant."""

    keyword: str | None
    star: str
    value: str


@dataclass(frozen=True, slots=True)
class Mention:
    """A dotted name, ``a.b.c``, where it is read."""

    parts: tuple[str, ...]
    scope: int
    at: Position
    role: str
    """``call``, ``decorator`` (not called), ``type`` (an annotation), ``tested`` (what isinstance is
    asked for), ``alias`` (the whole value of ``name = ...``), ``compared``, ``base`` (of a class),
    ``text`` (in an f-string), or ``value``."""
    arguments: tuple[Argument, ...] = ()
    """Of a call."""
    aliases: tuple[str, ...] = ()
    """The names that an alias binds, in the same scope."""
    off: bool = False
    """Under a mark ``# amp: off``."""
    shim: bool = False
    """For an older torch: the other branch of a test for the version uses torch.amp."""


@dataclass(frozen=True, slots=True)
class Scope:
    parent: int | None
    is_class: bool
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    outer: dict[str, int | None] = field(default_factory=dict)
    """Names declared ``global`` (`TOP`) or ``nonlocal`` (None)."""


@dataclass(frozen=True, slots=True)
class Uses:
    """The facts of one file."""

    path: str
    scopes: tuple[Scope, ...]
    mentions: tuple[Mention, ...]
    stars: tuple[tuple[str, Position], ...]
    """``from module import *``."""
    strings: tuple[tuple[str, Position], ...]
    """String constants that are an older interface's dotted name."""
    tails: tuple[tuple[tuple[str, ...], Position], ...]
    """The attributes of what is no name: ``get().amp.autocast``."""
    sound: frozenset[int]
    """The ``try`` statements whose body only imports from torch and sets constants."""
    exported: frozenset[str]
    """The names in ``__all__``."""
    off: bool
    """The whole file is marked ``# amp: off``."""
    patches: tuple[tuple[str, ...], ...]
    """What attributes are set on from outside: ``a.b`` for ``a.b.c = ...`` or ``setattr(a.b, ...)``."""
    autocast_dtypes: frozenset[str]
    """What ``autocast(dtype=...)`` calls are given, as far as it is a dotted name; else ``?``."""

    def owner(self, name: str, scope: int) -> int | None:
        """The scope in which a name lives that is mentioned in another."""
        current: int | None = scope
        while current is not None:
            found = self.scopes[current]
            if name in found.outer and current != TOP:
                if found.outer[name] == TOP:
                    current = TOP
                    continue
            elif name in found.bindings and (current == scope or not found.is_class):
                return current
            current = found.parent
        return None
