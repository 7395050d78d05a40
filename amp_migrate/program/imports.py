"""What a text may import, read without parsing: enough to tell which files belong together."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

_STATEMENT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<origin>[.\w]+)[ \t]+import[ \t]*(?P<names>\([^)]*\)|(?:\\\n|[^\n])*)"
    r"|import[ \t]+(?P<modules>(?:\\\n|[^\n])*))",
    re.MULTILINE,
)
_BY_NAME = re.compile(
    r"\b(?:import_module|__import__)\(\s*(?:[fF]?([\"'])(?P<said>[\w.]+)(?:(?P<whole>\1)|\{)|(?P<found>[\w(]))"
)
"""The name is ``said``, or begins so where that is not the ``whole``, or is ``found`` at run time."""
_DEFAULT = re.compile(r"\bdefault\s*=\s*([\"'])([A-Za-z_][\w.]*)\1")
_LISTS = re.compile(
    r"\b(?:listdir|scandir|iter_modules|walk_packages)\(\s*\[?\s*(?:([\"'])(?P<said>[\w./]+)\1|(?P<held>\w+))"
)
"""What looks for the modules of a folder: its path is ``said``, or ``held`` by a variable."""
_INSERTS = re.compile(r"\bsys\.path(?:\.insert\(|\[0\]\s*=|\[:0\]|\s*=)")
_COMMENT = re.compile(r"#[^\n]*")
_NAME = re.compile(r"[\w.]+")
_QUOTED = re.compile(
    r'''"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""|'{3}[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'{3}|"""|'{3}'''
    r"""|"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'|\#[^\n]*""",
    re.DOTALL,
)
"""A string, a comment, or what begins a string that has no end."""
_TRIPLE = ('"""', "'''")


@dataclass(frozen=True, slots=True)
class ImportScan:
    """May hold more than the text imports, never less."""

    targets: frozenset[str] = frozenset()
    """Dotted; relative ones keep their dots; ``from a import b`` is ``a.b``, ``import *`` is ``a``. ``a.`` is
    what lies in the folder ``a``, or beside the module ``a``, and does not train."""
    modules: frozenset[str] = frozenset()
    """What of the targets has to be a module or package: ``a`` of ``from a import b``."""
    edits_path: bool = False
    """Whether the text speaks of ``sys.path``."""
    inserts_path: bool = False
    """Whether it puts something before what ``sys.path`` begins with."""
    is_script: bool = False
    """Whether it speaks of ``__main__``: it can be started by itself."""
    trains: bool = False
    """Whether it goes backward."""


def imports_by_name(text: str) -> frozenset[str]:
    """The modules that ``importlib.import_module("a.b")`` may import: where the name comes from elsewhere,
    what is beside any module that a string in the text names, as the default of an option would, and what
    lies in a folder whose files it lists.
    """
    # A search for either word is far cheaper than one for both.
    if "import_module" not in text and "__import__" not in text:
        return frozenset()
    found: set[str] = set()
    for match in _matches(_BY_NAME, text):
        said, whole, at_run_time = match.group("said", "whole", "found")
        if at_run_time:
            found |= {f"{default[2]}." for default in _DEFAULT.finditer(text)}
            found |= {f"{folder}." for folder in _listed(text)}
        elif whole and not said.endswith("."):
            found.add(said)
        else:
            found.add(f"{said.rpartition('.')[0]}.")
    return frozenset(found - {"."})


def _listed(text: str) -> Iterator[str]:
    """The folders whose files a text lists, as packages."""
    for match in _LISTS.finditer(text):
        said, held = match.group("said", "held")
        if held is not None:
            given = re.search(rf"\b{held}\s*=\s*([\"'])([\w./]+)\1", text)
            said = given[2] if given else None
        if said is not None:
            yield said.strip("./").replace("/", ".")


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Where a pattern matches outside of strings, which may hold programs of their own."""
    strings: list[tuple[int, int]] | None = None
    for match in pattern.finditer(text):
        strings = _strings(text) if strings is None else strings
        at = bisect_left(strings, match.span()) - 1
        if at < 0 or match.start() >= strings[at][1]:
            yield match


def _strings(text: str) -> list[tuple[int, int]]:
    """Where strings begin and end; nowhere, if one in triple quotes has no end."""
    found = [m.span() for m in _QUOTED.finditer(text) if text[m.start()] != "#"]
    if any(end - start == 3 and text[start:end] in _TRIPLE for start, end in found):
        return []
    return found


def scan_imports(text: str) -> ImportScan:
    """The imports of a text, at whatever depth."""
    targets: set[str] = set()
    modules_found: set[str] = set()
    for match in _matches(_STATEMENT, text):
        origin, names, modules = match.group("origin", "names", "modules")
        if origin is not None:
            modules_found.add(origin)
        listed = _COMMENT.sub("", names if modules is None else modules)
        for entry in listed.strip().strip("()").replace("\\", " ").split(","):
            found = _NAME.match(entry.strip())
            if modules is not None:
                if found:
                    targets.add(found[0])
                    modules_found.add(found[0])
            elif found:
                dot = "" if origin.endswith(".") else "."
                targets.add(f"{origin}{dot}{found[0]}")
            else:
                targets.add(origin)
    targets |= imports_by_name(text)
    names_path = "sys.path" in text
    return ImportScan(
        frozenset(targets),
        frozenset(modules_found),
        edits_path=names_path or "addsitedir" in text,
        inserts_path=names_path and bool(_INSERTS.search(text)),
        is_script="__main__" in text,
        trains=".backward(" in text,
    )
