"""Notebooks, from the command line to their bytes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import black
import pytest
from click.testing import CliRunner, Result

from amp_migrate.cli.exits import ExitCode
from amp_migrate.cli.main import main
from amp_migrate.edit import apply
from amp_migrate.edit.edits import FilePlan
from amp_migrate.sources import discovery, document

pytest.importorskip("nbformat")

IMPORTS = "%matplotlib inline\nimport torch\nfrom torch import nn"
MODEL = """\
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 2).to(device)
criterion = nn.CrossEntropyLoss()"""
OPTIMIZER = "!nvidia-smi\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
STEPS = """\
    inputs = torch.randn(8, 4, device=device)
    targets = torch.zeros(8, dtype=torch.long, device=device)
    optimizer.zero_grad()
    loss = criterion(model(inputs), targets)
    loss.backward()
    optimizer.step()"""
LOOP = f"%%time\nfor step in range(3):\n{STEPS}"
CELLS = (IMPORTS, MODEL, OPTIMIZER, LOOP)
SCALER = 'scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")'
LOOP_DONE = """\
%%time
for step in range(3):
    inputs = torch.randn(8, 4, device=device)
    targets = torch.zeros(8, dtype=torch.long, device=device)
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
        loss = criterion(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()"""
ENGINE = "import torch\n\n\ndef train(model, criterion, optimizer, device):\n" + STEPS


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def amp(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(main, list(arguments), input=stdin)


def spelled(*sources: str, output: str = "") -> str:
    made: list[dict[str, Any]] = [
        {"cell_type": "markdown", "metadata": {}, "source": ["# Title"]}
    ]
    for source in sources:
        made.append(
            {
                "cell_type": "code",
                "execution_count": None,
                "metadata": {},
                "outputs": [],
                "source": source.splitlines(keepends=True),
            }
        )
    if output:
        stream = {"name": "stdout", "output_type": "stream", "text": [output]}
        made[-1]["outputs"] = [stream]
    book = {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    return json.dumps(book, indent=1) + "\n"


def notebook(name: str, *sources: str, output: str = "") -> None:
    Path(name).write_text(spelled(*sources, output=output))


def cells(name: str) -> list[str]:
    found = json.loads(Path(name).read_text())["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


def test_model_and_loop_in_different_cells() -> None:
    notebook("a.ipynb", *CELLS)
    result = amp("--write")
    assert result.exit_code == ExitCode.OK
    assert cells("a.ipynb") == [IMPORTS, MODEL, f"{OPTIMIZER}\n{SCALER}", LOOP_DONE]
    assert amp("--check").exit_code == ExitCode.OK


def test_a_diff_names_cells_and_applies() -> None:
    notebook("a.ipynb", *CELLS)
    diff = amp().stdout
    headings = [line.split("@@ ")[-1] for line in diff.splitlines() if "@@" in line]
    assert headings == ["cell 4", "cell 5"]
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "apply"], input=diff.encode(), check=True)
    assert cells("a.ipynb")[3] == LOOP_DONE


def test_standard_input() -> None:
    notebook("done.ipynb", *CELLS)
    amp("--write")
    named = ("-", "--stdin-filename", "a.ipynb")
    result = amp(*named, stdin=spelled(*CELLS))
    assert result.stdout == Path("done.ipynb").read_text()
    assert result.exit_code == ExitCode.OK
    nothing = spelled("x = 1")
    assert amp(*named, stdin=nothing).stdout == nothing


def test_a_notebook_and_the_file_it_calls_change_together() -> None:
    Path("engine.py").write_text(ENGINE)
    notebook(
        "a.ipynb",
        IMPORTS + "\nfrom engine import train",
        MODEL,
        OPTIMIZER,
        "train(model, criterion, optimizer, device);",
    )
    alone = amp("engine.py", "--check")
    assert "AMP017" in alone.stderr and "a.ipynb" in alone.stderr
    assert alone.exit_code == ExitCode.OK
    assert "AMP017" not in amp("a.ipynb", "engine.py").stderr
    result = amp("--write")
    assert result.stderr.startswith("rewrote a.ipynb\nrewrote engine.py\n")
    assert cells("a.ipynb")[2:] == [
        f"{OPTIMIZER}\n{SCALER}",
        "train(model, criterion, optimizer, device, scaler=scaler);",
    ]
    assert "optimizer, device, scaler):" in Path("engine.py").read_text()


def test_a_program_of_a_notebook_is_written_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    test = Path("engine.py")
    test.write_text(ENGINE)
    call = "train(model, criterion, optimizer, device)"
    head = IMPORTS + "\nfrom engine import train"
    notebook("a.ipynb", head, MODEL, OPTIMIZER, call)
    replace = Path.replace

    def refusing(self: Path, target: Path) -> Path:
        if target.name == "engine.py" and self.suffix == ".new":
            raise PermissionError(13, "Permission denied")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", refusing)
    assert amp("--write").exit_code == ExitCode.ERROR
    assert cells("a.ipynb") == [head, MODEL, OPTIMIZER, call]
    assert test.read_text() == ENGINE


def test_places_are_in_cells() -> None:
    notebook("a.ipynb", *CELLS, "optimizer.step(lambda: 0)  # x")
    notebook("b.ipynb", *CELLS[:3], f"    {LOOP}\n{STEPS}".replace("\n", "\n    "))
    stderr = amp("a.ipynb").stderr
    place, *blocker = stderr.splitlines()[:2]
    assert place.startswith("a.ipynb:cell 5:7:5 AMP")
    assert blocker == ["  blocked by a.ipynb:cell 6:1: optimizer.step(lambda: 0)  # x"]


def test_a_notebook_that_is_left_alone_keeps_its_bytes() -> None:
    data = spelled(*CELLS, "optimizer.step()").replace(": [\n", ":  [\r\n")
    Path("a.ipynb").write_bytes(data.encode())
    result = amp("--write")
    assert "left alone" in result.stderr
    assert Path("a.ipynb").read_bytes() == data.encode()


def test_cells_that_were_formatted_stay_so_and_others_are_not_touched() -> None:
    messy = OPTIMIZER.replace("lr=0.1", "lr = 0.1")
    more = "targets.to(device, non_blocking=True, copy=False)"
    long = LOOP.replace("(model(inputs), targets)", f"(model(inputs), {more})")
    notebook("a.ipynb", IMPORTS, MODEL, messy, long)
    amp("--write")
    _, _, third, fourth = cells("a.ipynb")
    assert third == f"{messy}\n{SCALER}"
    mode = black.Mode(is_ipynb=True)
    for cell in (long, fourth):
        code = cell.partition("\n")[2] + "\n"
        assert black.format_str(code, mode=mode) == code
    assert "loss = criterion(\n" in fourth
    assert fourth.startswith("%%time\n")


def test_outputs_do_not_count_towards_the_size(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(document, "SIZE_LIMIT", 4096)
    notebook("a.ipynb", *CELLS, output="x" * 10_000)
    assert amp("--check").exit_code == ExitCode.WOULD_CHANGE
    notebook("a.ipynb", *CELLS, "# " + "x" * 10_000)
    result = amp("--check")
    assert "a.ipynb: too large: 0.0 MB of code" in result.stderr
    assert result.exit_code == ExitCode.ERROR


def test_without_nbformat_directories_are_read_without_their_notebooks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discovery, "readable", lambda: False)
    notebook("a.ipynb", *CELLS)
    result = amp()
    assert result.exit_code == ExitCode.OK
    assert result.stderr.splitlines()[0] == (
        'skipped 1 notebook: to read them, pip install "amp-migrate[notebook]"'
    )
    named = amp("a.ipynb")
    assert named.exit_code == ExitCode.ERROR
    assert named.stderr.startswith("error: a.ipynb: notebooks need nbformat: pip ")


def test_what_is_no_notebook_is_an_error_where_it_seems_to_train() -> None:
    Path("a.ipynb").write_text('{"cells": ["loss.backward()"]}')
    Path("b.ipynb").write_text("{}")
    result = amp("--check")
    assert result.exit_code == ExitCode.ERROR
    errors = [line for line in result.stderr.splitlines() if line.startswith("error")]
    assert errors == ["error: a.ipynb: JSON, but not a notebook"]


def test_a_lost_mark_leaves_the_notebook_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def losing(text: str, plan: FilePlan, line_length: int) -> str:
        return text.replace('"amp-migrate: cell 4"\n', "")

    monkeypatch.setattr(apply, "apply_plan", losing)
    notebook("a.ipynb", *CELLS)
    result = amp("--write")
    assert "AMP090" in result.stderr and "marks between cells" in result.stderr
    assert result.exit_code == ExitCode.ERROR
    assert cells("a.ipynb") == list(CELLS)
