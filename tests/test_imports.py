"""Data goes one way through the package, and so do its imports."""

from __future__ import annotations

import ast
import graphlib
from pathlib import Path

import amp_migrate

HARNESS = "amp_migrate.validate.harness."
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
