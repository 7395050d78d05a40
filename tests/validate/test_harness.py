"""The harness can be run by whatever Python and torch a user has."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import amp_migrate.validate.harness
from amp_migrate.validate.harness.where import Where

FILES = sorted(Path(amp_migrate.validate.harness.__file__).parent.rglob("*.py"))


def test_its_syntax_is_that_of_the_oldest_python() -> None:
    assert len(FILES) > 20
    for file in FILES:
        ast.parse(file.read_text(encoding="utf-8"), feature_version=(3, 8))


def test_it_needs_the_standard_library_and_torch() -> None:
    allowed = {*sys.stdlib_module_names, "torch", "numpy", "_amp_smoke"}
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for name in names:
                assert name.partition(".")[0] in allowed, (file.name, name)


def test_what_another_interpreter_installed_is_not_the_users(tmp_path: Path) -> None:
    script = str(tmp_path / "train.py")
    library = str(tmp_path / "env" / "site-packages" / "net.py")
    assert Where().is_users(script) and not Where().is_users(library)
    assert Where([library]).is_users(library)
