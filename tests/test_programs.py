"""Which files make up a program, and which of them are looked into."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amp_migrate.program import programs
from amp_migrate.program.programs import FileBytes, Programs, key, programs_of
from amp_migrate.sources.discovery import Filters

LOOP = "for x in y:\n    loss.backward()\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(*names: str) -> Programs:
    given = {key(name): FileBytes(name, Path(name).read_bytes()) for name in names}
    return programs_of(given, Filters(str(Path.cwd())))


def members(*names: str) -> list[list[str]]:
    root = Path.cwd()
    return [
        [Path(file).relative_to(root).as_posix() for file in one.texts]
        for one in found(*names).found
    ]


def write(**texts: str) -> None:
    for name, text in texts.items():
        path = Path(f"{name}.py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_imports_connect_in_both_directions() -> None:
    write(
        **{
            "main": "import step\n",
            "step": "from pkg.deep import f\n" + LOOP,
            "pkg/__init__": "",
            "pkg/deep": "from . import more\n",
            "pkg/more": "import torch.nn\n",
            "apart": LOOP,
        }
    )
    whole = ["main.py", "pkg/deep.py", "pkg/more.py", "step.py"]
    (program,) = members("step.py")
    assert [file for file in program if file != "pkg/__init__.py"] == whole
    assert members("main.py") == []
    assert len(members("step.py", "apart.py", "main.py")) == 2


def test_only_files_of_a_program_are_looked_into(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write(train="import used\n" + LOOP, used="", unused="x = 'ä'\n")
    cell = {"cell_type": "code", "source": ["import unused\n", "train()"]}
    Path("a.ipynb").write_text(json.dumps({"cells": [cell]}))
    opened: list[str] = []
    really = programs.open_document

    def opening(path: str, data: bytes) -> object:
        opened.append(Path(path).name)
        return really(path, data)

    monkeypatch.setattr(programs, "open_document", opening)
    assert members("train.py") == [["train.py", "used.py"]]
    assert sorted(opened) == ["train.py", "used.py"]


@pytest.mark.parametrize("whole", [True, False])
def test_what_cannot_be_read_can_still_be_seen(whole: bool) -> None:
    write(train="def fit(): pass\n" + LOOP)
    cell = {"cell_type": "code", "source": ["from train import fit\n", "fit('ä')"]}
    text = json.dumps({"cells": [cell]}, indent=1)
    Path("a.ipynb").write_text(text if whole else text[:-2])
    Path("latin.py").write_bytes(b"import train\r\ntrain.other('\xe9')\r\n")
    (program,) = found("train.py").found
    assert [Path(file).name for file in program.texts] == ["train.py"]
    assert sorted(Path(file).name for file in program.unread) == ["a.ipynb", "latin.py"]
    assert Path(program.mentions("fit", "train.py") or "").name == "a.ipynb"
    assert Path(program.mentions("other", "train.py") or "").name == "latin.py"
    assert program.mentions("fi", "train.py") is None


def test_what_is_named_and_cannot_be_read_is_an_error_where_it_trains() -> None:
    write(a=LOOP, b="\0" + LOOP, c="\0", d="import b\n" + LOOP)
    several = found("a.py", "b.py", "c.py", "d.py")
    assert len(several.found) == 2
    assert [str(error) for error in several.errors.values()] == [
        "b.py: contains a null byte"
    ]
    assert [Path(one).name for one in several.found[1].unread] == ["b.py"]


def test_without_a_project_a_text_stands_alone() -> None:
    write(other="")
    alone = programs_of({"a.py": "import other\n" + LOOP, "b.py": "x\n"}, None)
    assert [list(one.texts) for one in alone.found] == [["a.py"]]
