"""Which file an import means: what a layout says, beside what Python did."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from amp_migrate.program.imports import scan_imports
from amp_migrate.program.layout import Ambiguous, Layout, Located
from amp_migrate.program.programs import groups_of, key
from amp_migrate.sources.discovery import Filters

INSTALLED = (
    "torch/__init__.py",
    "torch/nn/__init__.py",
    "numpy/__init__.py",
    "wonder/__init__.py",
)
"""What lies in the site-packages of these tests."""

# Each file imports the modules that are listed for it. The commands are run in the root.
RUN: dict[str, tuple[dict[str, str], list[str]]] = {
    "a folder named like an installed package, inside a package": (
        {
            "lib/__init__.py": "",
            "lib/agents/__init__.py": "",
            "lib/agents/base.py": "torch torch.nn",
            "lib/agents/torch/__init__.py": "",
            "lib/agents/torch/dqn.py": "torch torch.nn numpy lib.agents.base",
            "lib/agents/torch/plain.py": "torch",
            "train.py": "torch lib.agents.torch.dqn lib.agents.torch.plain",
        },
        ["train.py"],
    ),
    "a folder named like another package, inside a package": (
        {
            "lib/__init__.py": "",
            "lib/agents/__init__.py": "",
            "lib/agents/base.py": "wonder",
            "lib/agents/run.py": "torch # __main__",
            "lib/agents/torch/__init__.py": "",
            "lib/agents/wonder/__init__.py": "",
            "lib/agents/wonder/dqn.py": "wonder ..base",
            "tests/check.py": "lib.agents.wonder.dqn lib.agents.run",
        },
        [".=tests/check.py", "-m lib.agents.run"],
    ),
    "a package named like an installed one, seen from inside": (
        {"examples/torch/__init__.py": "", "examples/torch/plain.py": "torch"},
        ["examples/torch/plain.py"],
    ),
    "a folder named like an installed package that is no package": (
        {
            "torch/extra.py": "",
            "numpy/train.py": "torch numpy helpers",
            "numpy/helpers.py": "numpy",
        },
        ["numpy/train.py"],
    ),
    "a package in a package of the same name, from the root": (
        {
            "utils/__init__.py": "",
            "utils/utils.py": "",
            "utils/train.py": "utils.utils",
            "main.py": "utils.train",
        },
        ["main.py"],
    ),
    "a script of a package, by module name": (
        {
            "utils/__init__.py": "",
            "utils/utils.py": "config",
            "utils/train.py": "utils.utils",
            "config.py": "",
        },
        ["-m utils.train"],
    ),
    "a script in a package's folder means what lies beside it": (
        {
            "tools/__init__.py": "",
            "tools/helpers.py": "more",
            "tools/more.py": "",
            "tools/train.py": "helpers",
        },
        ["tools/train.py"],
    ),
    "a module of a package does not": (
        {
            "tools/__init__.py": "",
            "tools/helpers.py": "",
            "tools/train.py": "helpers",
            "helpers.py": "",
            "main.py": "tools.train",
        },
        ["main.py"],
    ),
    "nor where it can be started by itself": (
        {
            "tools/__init__.py": "",
            "tools/helpers.py": "",
            "tools/train.py": "helpers # __main__",
            "helpers.py": "",
            "main.py": "tools.train",
        },
        ["main.py"],
    ),
    "two programs with the same names": (
        {
            "a/train.py": "models.net utils",
            "a/models/net.py": "utils",
            "a/utils.py": "",
            "b/train.py": "models.net utils",
            "b/models/net.py": "utils",
            "b/utils.py": "",
        },
        ["a/train.py", "b/train.py"],
    ),
    "a module beside the importer that the script does not see": (
        {
            "train.py": "models.net utils",
            "models/net.py": "utils",
            "models/utils.py": "",
            "utils.py": "",
        },
        ["train.py"],
    ),
    "a package before a module of its name, and that before a plain folder": (
        {
            "train.py": "data net.deep",
            "data.py": "",
            "data/__init__.py": "",
            "net/deep.py": "",
        },
        ["train.py"],
    ),
    "a package above before a plain folder beside": (
        {
            "run/train.py": "net.deep",
            "run/net/other.py": "",
            "net/__init__.py": "",
            "net/deep.py": "",
        },
        ["-m run.train"],
    ),
    "relative and circular imports": (
        {
            "main.py": "pkg.a",
            "pkg/__init__.py": "",
            "pkg/a.py": ".b pkg.sub.c",
            "pkg/b.py": ".a",
            "pkg/sub/__init__.py": "",
            "pkg/sub/c.py": "..b pkg.a",
        },
        ["main.py"],
    ),
    "tests beside a package in src": (
        {
            "src/lib/__init__.py": ".core",
            "src/lib/core.py": "lib.deep",
            "src/lib/deep.py": "numpy",
            "tests/check.py": "lib.core support",
            "tests/support.py": "",
        },
        ["src=tests/check.py"],
    ),
    "a module of the standard library's name in a package": (
        {
            "lib/__init__.py": "",
            "lib/queue.py": "",
            "lib/train.py": "queue lib.queue",
            "main.py": "lib.train",
        },
        ["main.py"],
    ),
    "a folder inside the importer's package, where some file edits the path": (
        {
            "lib/__init__.py": "",
            "lib/core.py": "wonder # sys.path",
            "lib/agents/__init__.py": "",
            "lib/agents/wonder/__init__.py": "",
            "main.py": "lib.core",
        },
        ["main.py"],
    ),
    "a package that a script elsewhere puts on its own path": (
        {
            "python/wonder/__init__.py": ".core",
            "python/wonder/core.py": "",
            "docs/conf.py": "# sys.path",
            "examples/main.py": "wonder",
        },
        ["examples/main.py"],
    ),
    "a script named test": (
        {"train.py": "test", "test.py": "model", "model.py": ""},
        ["train.py"],
    ),
}


def write(root: Path, name: str, modules: str) -> None:
    lines = ["f = __file__"]
    names, _, comment = modules.partition("#")
    for module in names.split():
        lines += [f"from {module} import __file__ as got"]
        lines += [f"print(__file__, {module!r}, got, sep='|')"]
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + f"\n#{comment}\n")


def layout(root: Path) -> Layout:
    files = sorted(root.rglob("*.py"))
    return Layout(
        {f.as_posix(): scan_imports(f.read_text()) for f in files}, root.as_posix()
    )


@pytest.mark.parametrize("name", RUN)
def test_what_python_imports(name: str, tmp_path: Path) -> None:
    files, commands = RUN[name]
    root, site = tmp_path / "project", tmp_path / "site"
    for one in INSTALLED:
        write(site, one, "")
    for one, modules in files.items():
        write(root, one, modules)
    project = layout(root)
    seen = 0
    for command in commands:
        source, _, arguments = command.rpartition("=")
        path = os.pathsep.join(
            str(p) for p in (*([root / source] if source else []), site)
        )
        done = subprocess.run(
            [sys.executable, "-S", *arguments.split()],
            cwd=root,
            env={"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
            text=True,
            capture_output=True,
            check=True,
        )
        for line in done.stdout.splitlines():
            importer, module, got = (part for part in line.split("|"))
            seen += 1
            found = project.locate(str(root / importer), f"{module}.__file__")
            assert not isinstance(found, Ambiguous), (line, found)
            real = root / got
            expected = str(real) if real.is_relative_to(root) else None
            assert (found and found.file) == expected, line
            assert found is None or found.rest == ("__file__",), line
    assert seen


UNCLEAR = {
    "two scripts that mean different files by it": (
        {
            "shared/core.py": "utils",
            "main.py": "shared.core",
            "shared/run.py": "core",
            "utils.py": "",
            "shared/utils.py": "",
        },
        "shared/core.py",
        {"utils.py", "shared/utils.py"},
    ),
    "what is inserted comes first": (
        {
            "run/train.py": "utils # sys.path.insert(0, '..')",
            "run/utils.py": "",
            "utils.py": "",
        },
        "run/train.py",
        {"run/utils.py", "utils.py"},
    ),
}


@pytest.mark.parametrize("name", UNCLEAR)
def test_several_files_answer(name: str, tmp_path: Path) -> None:
    files, importer, expected = UNCLEAR[name]
    for one, modules in files.items():
        write(tmp_path, one, modules)
    found = layout(tmp_path).locate((tmp_path / importer).as_posix(), "utils.f")
    assert isinstance(found, Ambiguous)
    assert {Path(f).relative_to(tmp_path).as_posix() for f in found.files} == expected


# -- what a text imports ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ('"""\nimport a\n"""\nimport b\n', {"b"}),
        ("TEXT = r'''\nfrom a import b\n'''\nimport c\n", {"c"}),
        ('# """\nimport a\n# """\n', {"a"}),
        ("x = \"'''\"\nimport a\ny = \"'''\"\n", {"a"}),
        ('x = """a\\"""\nimport a\n"""\nimport b\n', {"b"}),
        ("load = \"import_module('a')\"\nimport_module('b')\n", {"b"}),
        # What cannot be told apart counts as imported.
        ('"""\nimport a\n"""\nimport b\n"""\nimport c\n', {"a", "b", "c"}),
    ],
)
def test_a_program_in_a_string_imports_nothing(text: str, targets: set[str]) -> None:
    assert scan_imports(text).targets == targets


def test_a_string_connects_no_programs(tmp_path: Path) -> None:
    """In a project that edits ``sys.path``, a name means any file that ends like it."""
    (tmp_path / "pyproject.toml").touch()
    for name in ("conftest.py", "tests/test_it.py", "examples/one/engine.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "conftest.py").write_text("import sys\nsys.path.append('x')\n")
    script = "import torch\nloss.backward()\noptimizer.step()\n"
    (tmp_path / "examples/one/engine.py").write_text(script)
    for text, programs in (
        ('X = """\nimport engine\n"""\n', 2),
        ("import engine\n", 1),
    ):
        (tmp_path / "tests/test_it.py").write_text(script + text)
        found = groups_of(
            {key(str(p)): p.read_text() for p in tmp_path.rglob("*.py")},
            Filters(str(tmp_path)),
        )
        assert len(found) == programs


@pytest.mark.parametrize("root", ["C:/p", "C:/", "//server/share/p"])
def test_paths_of_windows(root: str) -> None:
    base = root.rstrip("/")
    texts = {
        "train.py": "import lib.net\n",
        "lib/__init__.py": "",
        "lib/net.py": "from . import head\n",
    }
    scans = {f"{base}/{name}": scan_imports(text) for name, text in texts.items()}
    layout = Layout(scans, root)
    assert layout.locate(f"{base}/train.py", "lib.net") == Located(
        f"{base}/lib/net.py", ()
    )
    assert layout.locate(f"{base}/lib/net.py", ".head") == Located(
        f"{base}/lib/__init__.py", ("head",)
    )
    assert layout.locate(f"{base}/train.py", "elsewhere") is None
