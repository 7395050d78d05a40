"""What a program calls: text in and text out, paths in and a report out."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
from programs import HEAD
from shorthand import before

from amp_migrate.api import Options, Outcome, SourceError, migrate_paths, migrate_source
from amp_migrate.run.config import ConfigError

OPT = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
SCRIPT = HEAD + OPT + before("for x, y in data:\n    STEPS\n")
STEPS_TWICE = SCRIPT + "    opt.step()\n"


def line_of(text: str) -> int:
    return STEPS_TWICE[: STEPS_TWICE.rindex(text)].count("\n") + 1


def test_a_result_of_a_script_that_migrates() -> None:
    result = migrate_source(SCRIPT, path="some/train.py")
    assert (result.path, result.source, result.changed) == (
        "some/train.py",
        SCRIPT,
        True,
    )
    (loop,) = result.loops
    assert (loop.outcome, loop.diagnostic) == (Outcome.MIGRATED, None)
    assert result.diagnostics == ()
    assert any("opt" in line for line in result.plan)


def test_a_result_of_a_script_that_is_left_alone() -> None:
    result = migrate_source(STEPS_TWICE, path="some/train.py")
    assert (result.output, result.changed) == (STEPS_TWICE, False)
    (loop,) = result.loops
    (found,) = result.diagnostics
    assert (loop.outcome, loop.diagnostic) == (Outcome.LEFT_ALONE, found)
    assert found.place == loop.place
    assert (found.place.path, found.place.line) == (
        "some/train.py",
        line_of("loss.backward"),
    )
    assert found.blocker is not None
    assert (found.blocker.line, found.blocker.text) == (
        line_of("opt.step"),
        "opt.step()",
    )
    assert found.by_hand
    assert not found.message.startswith(found.code)


def test_a_migrated_loop_is_under_amp_already() -> None:
    (loop,) = migrate_source(migrate_source(SCRIPT).output).loops
    assert loop.outcome is Outcome.ALREADY


def test_diagnostics_come_in_the_order_of_the_source() -> None:
    def loop(n: int) -> str:
        head = f"opt{n} = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        twice = f"for x, y in data:\n    STEPS opt=opt{n}\n    opt{n}.step()\n"
        return head + twice

    source = HEAD + before("".join(map(loop, range(3))))
    lines = [found.place.line for found in migrate_source(source).diagnostics]
    assert len(lines) == 3
    assert lines == sorted(lines)


def test_a_dtype_that_is_none() -> None:
    with pytest.raises(ValueError, match="float16, bfloat16"):
        Options(dtype="float32")


def test_what_is_no_python() -> None:
    with pytest.raises(SourceError, match=r"^train\.py:1: "):
        migrate_source("loss.backward(\n", path="train.py")


def test_other_files_are_read_under_a_root_only(tmp_path: Path) -> None:
    text = "import torch.nn as nn\nclass Soft(nn.BCELoss):\n    pass\n"
    (tmp_path / "losses.py").write_text(text)
    source = "from losses import Soft\n" + SCRIPT.replace("nn.CrossEntropyLoss", "Soft")
    path = str(tmp_path / "train.py")
    assert migrate_source(source, path=path).changed
    (found,) = migrate_source(source, path=path, root=tmp_path).diagnostics
    assert found.code == "AMP020"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in {"a.py": SCRIPT, "b.py": STEPS_TWICE, "c.py": "x = 1\n"}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_paths_are_read_and_not_written(project: Path) -> None:
    report = migrate_paths(["."])
    assert [migration.result.path for migration in report.changed] == ["a.py"]
    assert [result.path for result in report.results] == ["a.py", "b.py"]
    assert (report.files, report.errors) == (3, ())
    assert (project / "a.py").read_text() == SCRIPT


def test_paths_are_written_on_demand(project: Path) -> None:
    migrate_paths(["."], write=True)
    assert (project / "a.py").read_text() == migrate_source(SCRIPT).output
    assert (project / "b.py").read_text() == STEPS_TWICE


def test_the_configuration_counts_unless_options_are_given(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.amp-migrate]\ndtype = "bfloat16"\n')
    # Where nothing is scaled, two steps on one backward are no matter.
    configured, _ = migrate_paths(["."]).changed
    (given,) = migrate_paths(["."], options=Options()).changed
    assert "bfloat16" in configured.result.output
    assert given.result.output == migrate_source(SCRIPT).output


def test_a_configuration_that_is_not_valid(project: Path) -> None:
    (project / "pyproject.toml").write_text('[tool.amp-migrate]\ndtype = "half"\n')
    with pytest.raises(ConfigError, match="dtype"):
        migrate_paths(["."])


def test_several_processes_come_to_the_same(project: Path) -> None:
    for n in range(8):
        (project / f"more{n}.py").write_text(SCRIPT)
    assert migrate_paths(["."], jobs=2).results == migrate_paths(["."]).results


def test_one_large_program_comes_to_the_same_on_two_cores(project: Path) -> None:
    (project / "nets.py").write_text("import torch\n\nnet = torch.nn.Linear(8, 8)\n")
    for n in range(24):
        text = SCRIPT if n % 7 else STEPS_TWICE
        (project / f"more{n}.py").write_text(f"import nets\n{text}")
    one, two = migrate_paths(["."]), migrate_paths(["."], jobs=2)
    assert two.results == one.results
    assert len(one.changed) == 1 + 20
    assert len({migration.program for migration in one.migrations}) == 3


def test_a_file_that_cannot_be_read_is_an_error_of_its_own(project: Path) -> None:
    (project / "broken.py").write_text("loss.backward(\n")
    report = migrate_paths(["."])
    assert [error.path for error in report.errors] == ["broken.py"]
    assert len(report.changed) == 1


def test_results_are_kept_where_a_folder_is_named(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = migrate_paths(["."], cache="kept")
    assert list(Path("kept").rglob("*.entry"))

    def again(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr("amp_migrate.migrate.program.migrate_program", again)
    kept = migrate_paths(["."], cache=project / "kept")
    assert kept.changed and kept == first
    assert migrate_paths(["."]).failures


def test_importing_the_api_imports_neither_torch_nor_libcst() -> None:
    """Programs import it to ask; only what migrates pays for the rest."""
    code = "import sys, amp_migrate.api; print({'torch', 'libcst', 'black'} & sys.modules.keys())"
    paths = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "set()\n"


def test_the_collector_of_garbage_is_left_as_it_was(tmp_path: Path) -> None:
    for number in range(24):
        other = "" if number == 0 else f"import part_{number - 1}\n"
        (tmp_path / f"part_{number}.py").write_text(other + "import torch\n")
    before = gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()
    migrate_paths([tmp_path])
    assert (gc.isenabled(), gc.get_threshold(), gc.get_freeze_count()) == before
