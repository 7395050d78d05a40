"""Every project of `fixtures/projects/`: what becomes of it. `test_projects_training.py` runs them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import black
import pytest
from projects_support import PROJECTS, Project, contents, every_project, settled
from trees import copy

from amp_migrate.api import migrate_paths


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "settled_name" in metafunc.fixturenames:
        update = metafunc.config.getoption("--update-golden")
        metafunc.parametrize("settled_name", settled(update))


def black_clean(source: bytes) -> bool:
    try:
        text = source.decode().replace("\r\n", "\n")
        return black.format_str(text, mode=black.Mode()) == text
    except UnicodeDecodeError:
        return False


def migrate(folder: Path) -> list[tuple[str, str]]:
    """Rewrite a project in place; what is said about it, as (file, code)."""
    report = migrate_paths([folder], write=True)
    assert report.errors == ()
    return sorted(
        (Path(result.path).resolve().relative_to(folder).as_posix(), found.code)
        for result in report.results
        for found in result.diagnostics
    )


def test_there_are_enough() -> None:
    assert len(PROJECTS) >= 25
    sources = {
        path: data
        for name in PROJECTS
        for path, data in contents(Project(name).plain).items()
        if path.endswith(".py") and data
    }
    clean = sum(map(black_clean, sources.values()))
    assert clean >= 15, "both kinds of formatting have to be there"
    assert len(sources) - clean >= 15
    notebooks = [n for n in PROJECTS if any(Project(n).plain.rglob("*.ipynb"))]
    assert len(notebooks) >= 3


@every_project
def test_what_is_said_about_it_is_understood(name: str) -> None:
    project = Project(name)
    assert project.about.keys() <= {"entry", "args", "more", "left", "reported"}
    there = contents(project.plain).keys()
    assert {entry for entry, *_ in project.commands} <= there
    assert {path for path, _ in project.left} <= there


def test_golden(
    settled_name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    project = Project(settled_name)
    here = (tmp_path / settled_name).resolve()
    copy(project.plain, here)
    assert migrate(here) == project.left
    changed = contents(here) != contents(project.plain)
    if request.config.getoption("--update-golden"):
        shutil.rmtree(project.migrated, ignore_errors=True)
        if changed:
            copy(here, project.migrated)
    assert changed or project.left
    assert contents(here) == contents(project.golden)


def test_a_second_run_changes_nothing(settled_name: str, tmp_path: Path) -> None:
    project = Project(settled_name)
    here = (tmp_path / settled_name).resolve()
    copy(project.golden, here)
    migrate(here)
    assert contents(here) == contents(project.golden)


def test_formatting_stays(settled_name: str) -> None:
    project = Project(settled_name)
    before, after = contents(project.plain), contents(project.golden)
    assert before.keys() == after.keys()
    for path in before:
        if path.endswith(".py"):
            assert not black_clean(before[path]) or black_clean(after[path])
            endings = before[path].count(b"\r\n") == before[path].count(b"\n")
            assert endings == (after[path].count(b"\r\n") == after[path].count(b"\n"))
        elif not path.endswith(".ipynb"):
            assert before[path] == after[path]


def test_of_notebooks_only_sources_change(settled_name: str) -> None:
    project = Project(settled_name)
    before, after = contents(project.plain), contents(project.golden)
    for path in before:
        if path.endswith(".ipynb"):
            assert without_sources(before[path]) == without_sources(after[path])


def without_sources(data: bytes) -> str:
    notebook = json.loads(data)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            del cell["source"]
    return json.dumps(notebook)
