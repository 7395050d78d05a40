"""Models that are built to learn their sizes: what is recorded, merged, and said where it fails."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from click.testing import CliRunner

from amp_migrate.api import Options, lint_paths
from amp_migrate.catalogue.layers import layer_table
from amp_migrate.cli.main import main
from amp_migrate.core.findings import Confidence, Finding
from amp_migrate.core.options import LintOptions
from amp_migrate.lint.probe import recorder
from amp_migrate.lint.probe.build import Made, ProbeError, build, build_all

MODEL = """
import json
from pathlib import Path

import torch
from torch import nn

SIZES = json.loads(Path(__file__).with_name("sizes.json").read_text())


class Wide(nn.Linear):
    def __init__(self, width):
        super().__init__(width, 2 * width)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.rates = [rate.item() for rate in torch.linspace(0, 1, 3)]
        self.layers = nn.Sequential(*(
            nn.Linear(SIZES["width"], width)
            for width in (SIZES["width"], SIZES["hidden"])
        ))
        self.convolution = nn.Conv2d(
            128, SIZES["channels"], (3, 5))
        self.encoder = nn.TransformerEncoderLayer(SIZES["hidden"], 4, 2050)
        self.wide = Wide(8)
        self.recurrent = nn.LSTM(24, hidden_size=32)
        self.huge = nn.Linear(200_000, 200_000)


def broken():
    raise ValueError("no\\nsuch thing")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    sizes = '{"width": 1024, "hidden": 1500, "channels": 250}'
    (tmp_path / "sizes.json").write_text(sizes, encoding="utf-8")
    return tmp_path


def made(
    folder: Path, target: str = "model:Model", **limits: float
) -> tuple[Made, ...]:
    return build(target, folder, layer_table(), sys.executable, **limits)  # type: ignore[arg-type]


def line_of(text: str) -> int:
    return 1 + MODEL[: MODEL.index(text)].count("\n")


def findings(folder: Path, **options: object) -> tuple[Finding, ...]:
    probed = build_all(["model:Model"], folder, sys.executable)
    chosen = LintOptions(select=("TCU10", "TCU112"), probed=probed)
    report = lint_paths([folder], options=Options(lint=chosen))
    return report.migrations[0].result.findings


def test_layers_lines_and_sizes(folder: Path) -> None:
    found = [(one.layer, dict(one.sizes), one.frames[0].line) for one in made(folder)]
    assert found == [
        ("Linear", {"in": 1024, "out": 1024}, line_of("nn.Linear(SIZES")),
        ("Linear", {"in": 1024, "out": 1500}, line_of("nn.Linear(SIZES")),
        (
            "Conv2d",
            {"in": 128, "out": 250, "kernel": 15, "groups": 1},
            line_of("nn.Conv2d("),
        ),
        (
            "TransformerEncoderLayer",
            {"embed": 1500, "heads": 4, "feedforward": 2050},
            line_of("nn.TransformerEncoderLayer"),
        ),
        ("Linear", {"in": 8, "out": 16}, line_of("super().__init__(width")),
        ("LSTM", {"in": 24, "hidden": 32, "layers": 1}, line_of("nn.LSTM")),
        ("Linear", {"in": 200_000, "out": 200_000}, line_of("nn.Linear(200_000")),
    ]


def test_a_file_by_its_path(folder: Path) -> None:
    assert len(made(folder, "model.py:Model")) == 7


def test_sizes_are_merged_into_what_was_read(folder: Path) -> None:
    found = {one.place.line: one for one in findings(folder) if one.code != "TCU112"}
    several = found[line_of("nn.Linear(SIZES")]
    assert several.code == "TCU102" and several.severity.value == "info"
    assert "one of several sizes that arrive here: 1024, 1500" in several.message
    convolution = found[line_of("nn.Conv2d(")]
    assert convolution.code == "TCU103" and convolution.severity.value == "warning"
    assert [step.text for step in convolution.chain] == ["probe model:Model"]
    assert convolution.confidence is Confidence.CERTAIN


def test_a_layer_that_reading_could_not_follow(tmp_path: Path) -> None:
    text = """
        from torch import nn

        def make(kind):
            return getattr(nn, kind)(1024, 1500)

        def model():
            return make("Linear")
    """
    (tmp_path / "model.py").write_text(dedent(text), encoding="utf-8")
    probed = build_all(["model:model"], tmp_path, sys.executable)
    chosen = LintOptions(select=("TCU10",), probed=probed)
    report = lint_paths([tmp_path], options=Options(lint=chosen))
    if sys.version_info >= (3, 11):  # which tells the columns of what runs
        (found,) = report.migrations[0].result.findings
        assert found.code == "TCU102" and "Linear(1024, 1500)" in found.message


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (
            "nothing:Model",
            "cannot be imported: ModuleNotFoundError: No module named 'nothing'",
        ),
        ("model:Nothing", "cannot be imported: AttributeError"),
        ("model:broken", "raised ValueError: no such thing (model.py:"),
        ("model:SIZES", "is no function or class"),
        ("model", "must be package.module:factory"),
    ],
)
def test_errors_are_one_line(folder: Path, target: str, said: str) -> None:
    with pytest.raises(ProbeError) as raised:
        made(folder, target)
    assert said in str(raised.value) and "\n" not in str(raised.value)


def test_what_takes_too_long_is_ended(folder: Path) -> None:
    (folder / "slow.py").write_text("import time\ntime.sleep(60)\nmake = 1\n")
    with pytest.raises(ProbeError, match=r"took more than 0\.5 s"):
        made(folder, "slow:make", seconds=0.5)


def test_what_takes_too_much_memory_is_ended(folder: Path) -> None:
    (folder / "slow.py").write_text("import time\ntime.sleep(60)\nmake = 1\n")
    with pytest.raises(ProbeError, match="GiB of memory"):
        made(folder, "slow:make", memory=1)


def test_no_such_interpreter(folder: Path) -> None:
    with pytest.raises(ProbeError, match="nowhere: No such file"):
        build("model:Model", folder, layer_table(), "/nowhere")


def test_what_the_model_prints_is_not_the_answer(folder: Path) -> None:
    (folder / "loud.py").write_text(
        "import sys\nfrom torch import nn\n\n\ndef make():\n    print('{}')\n"
        "    nn.Linear(8, 8)\n    sys.exit(0)\n"
    )
    with pytest.raises(ProbeError, match="raised SystemExit"):
        made(folder, "loud:make")


def test_the_command_says_that_it_runs_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(
        main, ["lint", "model.py", "--probe", "model:Model", "--select", "TCU10"]
    )
    assert "this runs your code" in done.output
    assert "TCU103 warning: Conv2d(128, 250)" in done.output
    assert "probe model:Model" in done.output
    failed = CliRunner().invoke(main, ["lint", "model.py", "--probe", "model:broken"])
    assert failed.exit_code == 2 and "raised ValueError" in failed.output


def test_the_recorder_is_python_3_8() -> None:
    text = Path(recorder.__file__).read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 8))
    assert "amp_migrate" not in text.replace("_amp_migrate_probe", "")
