"""Whole projects as `exactness` runs them: a folder, and the command lines to type in it."""

from __future__ import annotations

import builtins
import importlib
import json
import os
import shutil
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SOURCES = (".py", ".ipynb")

PYTHON_CELLS = {"%%capture", "%%prun", "%%time", "%%timeit"}
"""Cell magics that run the rest of their cell as Python."""


@dataclass(frozen=True, slots=True)
class Tree:
    """A project. It is run in a copy, so that nothing is left behind in the folder."""

    folder: Path
    commands: tuple[tuple[str, ...], ...]
    """Each a script or notebook, relative to the folder, and its arguments. They run one after the
    other in the same copy: a second one finds the checkpoints of the first."""
    then: Path | None = None
    """Another version of the project, which takes the place of the first after the first command."""
    partly: bool = False
    """Whether some loops are left alone on purpose: their backwards are neither scaled nor fp16."""

    def text(self) -> str:
        """All sources, as one text to search in."""
        return "\n".join(
            (self.folder / path).read_text(encoding="utf-8", errors="replace")
            for path in files(self.folder)
            if path.endswith(SOURCES)
        )

    def sources(self) -> dict[str, str]:
        """The code of all scripts, modules and notebooks, as it is run."""
        found = {}
        for path in files(self.folder):
            if path.endswith(SOURCES):
                text = (self.folder / path).read_text(
                    encoding="utf-8", errors="replace"
                )
                found[path] = notebook_code(text) if path.endswith(".ipynb") else text
        return found

    def run(self, where: Path) -> None:
        """Run all commands, in this process, in a copy in the empty folder ``where``."""
        where = where.resolve()
        copy(self.folder, where)
        search_path, harness = sys.path[:], dict(sys.modules)
        # What takes the place of a file in the same second would be read from its bytecode.
        sys.dont_write_bytecode = True
        try:
            for number, (entry, *arguments) in enumerate(self.commands):
                if number == 1 and self.then is not None:
                    copy(self.then, where)
                script = where / entry
                forget(module_names(where))
                sys.path[:] = [os.fspath(script.parent), *search_path]
                importlib.invalidate_caches()
                os.chdir(script.parent)
                source = script.read_bytes()
                if script.suffix == ".ipynb":
                    source = notebook_code(source.decode()).encode()
                run_main(source, os.fspath(script), [entry, *arguments])
        finally:
            sys.modules.update(harness)


def run_main(source: str | bytes, file: str, arguments: list[str]) -> None:
    """Run a text in this process as a program would be run: as `__main__`."""
    module = types.ModuleType("__main__")
    module.__dict__.update(__file__=file, __builtins__=builtins)
    sys.modules["__main__"] = module
    sys.argv = arguments
    code = compile(source, file, "exec", dont_inherit=True)
    try:
        exec(code, module.__dict__)
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise RuntimeError(
                f"the script stopped with status {stop.code!r}"
            ) from stop


def notebook_code(text: str) -> str:
    """The code cells of a notebook as one script, without what only IPython understands."""
    cells = []
    for cell in json.loads(text)["cells"]:
        if cell["cell_type"] != "code":
            continue
        lines = "".join(cell["source"]).splitlines()
        first = lines[0].split()[0] if lines and lines[0].split() else ""
        if first.startswith("%%"):
            if first not in PYTHON_CELLS:
                continue
            del lines[0]
        for number, line in enumerate(lines):
            bare = line.lstrip()
            if bare.startswith(("%", "!")):
                lines[number] = line[: len(line) - len(bare)] + "pass"
        cells.append("\n".join(lines) + "\n")
    return "\n".join(cells)


def files(folder: Path) -> Iterator[str]:
    """The paths of all files of a project, relative to it, in order."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(folder).as_posix()


def copy(source: Path, target: Path) -> None:
    """Copy a project over what is there."""
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(source, target, ignore=ignore, dirs_exist_ok=True)


def module_names(folder: Path) -> set[str]:
    """The names under which something of a project might be imported."""
    names = {
        part.removesuffix(".py") for path in files(folder) for part in path.split("/")
    }
    return {name for name in names if name.isidentifier()} - set(
        sys.stdlib_module_names
    )


def forget(names: set[str]) -> None:
    """Let modules of these names, and what is in them, be imported anew."""
    for name in list(sys.modules):
        if name.partition(".")[0] in names:
            del sys.modules[name]
