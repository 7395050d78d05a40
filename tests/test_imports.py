"""Data goes one way through the package, and so do its imports."""

from __future__ import annotations

import ast
import collections
import graphlib
import itertools
import re
from pathlib import Path

import amp_migrate

HARNESS = "amp_migrate.validate.harness."
ROOMS = """cli server report validate run modernize migrate lint edit analysis program sources catalogue
core""".split()
PACKAGE = Path(amp_migrate.__file__).parent


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports_of(module: str) -> set[str]:
    """The package's modules that a module imports, wherever in its text it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(FILES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            # Only the harness, which goes by another name where it runs, says where it is like that.
            assert not node.level or module.startswith(HARNESS)
            origin = node.module
            if node.level:
                above = module.split(".")[: -node.level]
                origin = ".".join([*above, *filter(None, [origin])])
            assert origin is not None
            for alias in node.names:
                inner = f"{origin}.{alias.name}"
                found.add(inner if inner in FILES else origin)
    return found & FILES.keys() - {module}


def test_no_module_imports_what_imports_it_not_even_in_a_function() -> None:
    graph = {module: imports_of(module) for module in FILES}
    list(graphlib.TopologicalSorter(graph).static_order())


def folder(module: str) -> str:
    """The package that a module stands in; a package stands in itself."""
    path = FILES[module]
    return module if path.name == "__init__.py" else module.rpartition(".")[0]


def room(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def test_a_room_imports_only_rooms_below_it() -> None:
    inside = {room(folder(module)) for module in FILES} - {""}
    assert inside == set(ROOMS)
    upwards = {
        (module, imported)
        for module in FILES
        for imported in imports_of(module)
        if room(module) in ROOMS and room(imported) not in ("", room(module))
        if room(imported) not in ROOMS
        or ROOMS.index(room(imported)) < ROOMS.index(room(module))
    }
    assert not upwards


def test_the_drawing_of_the_rooms_is_that_of_their_imports() -> None:
    """docs/architecture.md leaves out what follows from other arrows."""
    imported: dict[str, set[str]] = {name: set() for name in ROOMS}
    for module in FILES:
        if room(module) in ROOMS:
            found = {room(one) for one in imports_of(module)} & set(ROOMS)
            imported[room(module)] |= found - {room(module)}
    below: dict[str, set[str]] = {}
    for name in reversed(ROOMS):
        inner = [below[one] for one in imported[name]]
        below[name] = imported[name].union(*inner)
    arrows = {
        (name, one)
        for name in ROOMS
        for one in imported[name]
        if not any(one in below[other] for other in imported[name])
    }
    text = (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    (drawing,) = re.findall(
        r"^```mermaid\ngraph TD\n(.*?)^```", text, flags=re.M | re.S
    )
    drawn = [line.split(" --> ") for line in drawing.split("\n    ")]
    assert {
        (first.strip(), second.strip())
        for line in drawn
        for first, second in itertools.pairwise(line)
    } == arrows


def test_folders_import_one_way() -> None:
    graph: dict[str, set[str]] = {}
    for module in FILES:
        # The harness is a program of its own, of which only the modules are in order.
        if room(module) in ROOMS and not module.startswith(HARNESS):
            found = {folder(imported) for imported in imports_of(module)}
            graph.setdefault(folder(module), set()).update(found - {folder(module)})
    list(graphlib.TopologicalSorter(graph).static_order())


def test_a_folder_is_taken_in_at_a_glance() -> None:
    sizes = collections.Counter(folder(module) for module in FILES)
    assert not {name: count for name, count in sizes.items() if count > 21}
