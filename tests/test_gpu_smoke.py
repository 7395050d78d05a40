"""The benchmark for GPUs, as far as it can be tested without one."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from amp_migrate.api import Options, migrate_source

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from gpu_smoke import fixtures, tables  # noqa: E402
from gpu_smoke.cases import CASES, DTYPES, FP32, MODELS, Case  # noqa: E402
from gpu_smoke.measure import Timing  # noqa: E402

HAVE_TORCH = importlib.util.find_spec("torch") is not None
COMMAND = BENCHMARKS / "gpu_smoke.py"

each_model = pytest.mark.parametrize("folder", sorted({case.folder for case in CASES}))


@pytest.mark.parametrize(
    ("name", "options"),
    [("migrated.py", Options()), ("migrated_bf16.py", Options(dtype="bfloat16"))],
    ids=["fp16", "bf16"],
)
@each_model
def test_migrated_models_are_what_the_tool_makes_of_them(
    folder: str, name: str, options: Options, request: pytest.FixtureRequest
) -> None:
    plain = MODELS / folder / "plain.py"
    result = migrate_source(
        plain.read_text(encoding="utf-8"), path=str(plain), options=options
    )
    assert result.changed
    assert [loop.outcome.value for loop in result.loops] == ["migrated"]
    golden = MODELS / folder / name
    if request.config.getoption("--update-golden"):
        golden.write_text(result.output, encoding="utf-8")
    assert golden.read_text(encoding="utf-8") == result.output


def test_every_form_of_every_case_is_there() -> None:
    for case in CASES:
        for form in (FP32, *(form for forms in DTYPES.values() for form in forms)):
            assert case.file(form).is_file()


def test_the_selected_fixtures_are_there() -> None:
    assert set(fixtures.SELECTED) <= set(fixtures.names())


def test_the_command_needs_no_library_to_be_installed() -> None:
    # -S: nothing of site-packages is found. It then says that there is no torch.
    done = subprocess.run(
        [sys.executable, "-I", "-S", COMMAND, "--python", "no-such-python"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: no-such-python: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(not HAVE_TORCH, reason="runs training scripts")
def test_tiny_sizes_run_and_measure_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out.md"
    done = subprocess.run(
        [sys.executable, COMMAND, "--tiny", "--models", "tacotron", "--output", out],
        capture_output=True,
        text=True,
        env={"PATH": "", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr + done.stdout
    text = out.read_text(encoding="utf-8")
    assert text == done.stdout
    assert "Nothing was measured" in text
    assert "6 of 6 forms of the models ran." in text
    assert "| proven | proven | proven | proven | proven |" in text
    assert "[ms]" not in text


@pytest.mark.skipif(not HAVE_TORCH, reason="asks torch for a GPU")
def test_without_a_gpu_it_measures_nothing() -> None:
    done = subprocess.run(
        [sys.executable, COMMAND],
        capture_output=True,
        text=True,
        env={"PATH": "", "CUDA_VISIBLE_DEVICES": ""},
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert "no CUDA device" in done.stderr


# --- the tables ---

CASE = Case("a model", "resnet50", (), (), "1.84")


def row(ours: Timing, by_hand: Timing) -> tables.Row:
    plain = Timing(20.0, 19.0, 21.0, 60, 2**30)
    return tables.Row(
        CASE, False, "fp16", {FP32: plain, "migrated": ours, "by_hand": by_hand}
    )


def test_a_row_tells_speedup_memory_and_the_ratio_to_a_migration_by_hand() -> None:
    slow = row(Timing(10.0, 9.5, 10.5, 60, 2**29), Timing(9.0, 8.0, 9.5, 60, 2**29))
    [_, _, line] = tables.models([slow])
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells == [
        "a model",
        "off",
        "fp16",
        "20.00 (19.00 to 21.00)",
        "10.00 (9.50 to 10.50)",
        "9.00 (8.00 to 9.50)",
        "2.000",
        "0.900",
        "1024",
        "512",
        "0.50",
        "1.84",
    ]
    assert "1 of 1 miss it" in tables.aim([slow])


def test_a_form_that_failed_has_no_figure() -> None:
    failed = row(Timing(error="out of memory"), Timing(9.0, 8.0, 9.5, 60, 2**29))
    [_, _, line] = tables.models([failed])
    assert [cell.strip() for cell in line.strip("|").split("|")][4:8:2] == ["", ""]
    assert list(tables.errors([failed])) == ["- a model, migrated: out of memory"]
    assert tables.aim([failed]) == "Nothing was measured."
