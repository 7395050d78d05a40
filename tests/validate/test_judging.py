"""What a verdict must not claim: that something holds which was not looked at, or fails which does not."""

from __future__ import annotations

import json
import subprocess
import textwrap
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from validated import PLAIN

from amp_migrate.cli.main import main

BY_HAND = (
    PLAIN.replace("for step", 'scaler = torch.amp.GradScaler("cuda")\nfor step')
    .replace(
        "    loss = nn",
        '    with torch.autocast("cuda", dtype=torch.float16):\n        loss = nn',
    )
    .replace("loss.backward()", "scaler.scale(loss).backward()")
    .replace("optimizer.step()", "scaler.step(optimizer)\n    scaler.update()")
)


@pytest.fixture
def verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes files, and gives exit code and verdict; ``before``: what git has of them."""
    monkeypatch.chdir(tmp_path)

    def write(files: dict[str, str]) -> None:
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(textwrap.dedent(text), encoding="utf-8")

    def git(*words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(
            ["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True
        )

    def run(
        files: dict[str, str],
        *words: str,
        before: dict[str, str] | None = None,
    ) -> tuple[int, dict[str, Any]]:
        if before is not None:
            write(before)
            git("init", "-q")
            git("add", ".")
            git("commit", "-qm", "before")
            words = ("--against", "HEAD", *words)
        write(files)
        options = ["--threads", "1", "--device", "cpu", "--json", "train.py"]
        found = CliRunner().invoke(main, ["validate", *options, *words])
        (only,) = json.loads(found.stdout)["scripts"]
        return found.exit_code, dict(only)

    return run


def _level(found: dict[str, Any], name: str) -> dict[str, Any]:
    (level,) = (one for one in found["levels"] if one["level"] == name)
    return dict(level)


def test_scaled_losses_may_be_combined(verdict: Any) -> None:
    twice = "(scaler.scale(loss) / 2 + scaler.scale(loss) / 2).backward()"
    after = BY_HAND.replace("scaler.scale(loss).backward()", twice)
    before = PLAIN.replace("loss.backward()", "(loss / 2 + loss / 2).backward()")
    code, found = verdict({"train.py": after}, before={"train.py": before})
    assert code == 0, found["reason"]


def test_seeds_may_be_given_by_name(verdict: Any) -> None:
    pytest.importorskip("numpy")
    text = PLAIN.replace(
        "torch.manual_seed(0)",
        "torch.manual_seed(seed=0)\nimport random\nimport numpy as np\nrandom.seed(a=1)\n"
        "np.random.seed(seed=2)\nrng = np.random.default_rng(seed=3)",
    )
    code, found = verdict({"train.py": text})
    assert (code, found["outcome"]) == (0, "proven")


def test_a_script_that_only_evaluates_is_not_proven(verdict: Any) -> None:
    text = """\
        import torch

        device = "cuda" if torch.cuda.is_available() else "cpu"
        model = torch.nn.Linear(8, 1).to(device)
        with torch.autocast("cuda", dtype=torch.float16):
            model(torch.randn(4, 8, device=device))
    """
    code, found = verdict({"train.py": text}, "--monitor-only")
    assert (code, found["outcome"]) == (2, "not judged")
    assert "no optimizer step" in found["reason"]


def test_a_level_claims_no_injection_that_was_not_made(verdict: Any) -> None:
    text = PLAIN.replace(
        "    optimizer.step()\n",
        "    norm = sum(p.grad.norm() for p in model.parameters())\n"
        "    assert torch.isfinite(norm)\n    optimizer.step()\n",
    )
    by_hand = BY_HAND.replace(
        "    scaler.step(optimizer)\n",
        "    scaler.unscale_(optimizer)\n"
        "    norm = sum(p.grad.norm() for p in model.parameters())\n"
        "    assert torch.isfinite(norm)\n    scaler.step(optimizer)\n",
    )
    _, found = verdict({"train.py": by_hand}, before={"train.py": text})
    level = _level(found, "L1 scaled")
    assert level["outcome"] == "proven"
    assert "1 injected inf" not in level["summary"]
    assert "AssertionError" in " ".join(level["details"])


def test_where_autocast_stays_off_mixed_precision_is_not_judged(verdict: Any) -> None:
    code, found = verdict(
        {"train.py": PLAIN.replace('device("cuda" if', 'device("cuda" if 0 and')},
        "--dtype",
        "bfloat16",
    )
    assert code == 2
    assert _level(found, "L2 mixed")["outcome"] == "not judged"


def test_a_change_that_is_none_of_amp_is_not_disproved(verdict: Any) -> None:
    changed = PLAIN.replace("for step in", "steps = 6\nfor step in")
    code, found = verdict({"train.py": changed}, before={"train.py": PLAIN})
    assert code == 2
    assert _level(found, "L0 off")["outcome"] == "proven"


def test_a_model_without_matrix_products_has_none_in_half(verdict: Any) -> None:
    text = PLAIN.replace(
        "nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))",
        "nn.Sequential(nn.LayerNorm(8), nn.Unflatten(1, (1, 8)), nn.AdaptiveAvgPool1d(3), nn.Flatten())",
    )
    by_hand = BY_HAND.replace(
        "nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))",
        "nn.Sequential(nn.LayerNorm(8), nn.Unflatten(1, (1, 8)), nn.AdaptiveAvgPool1d(3), nn.Flatten())",
    )
    code, found = verdict({"train.py": by_hand}, before={"train.py": text})
    assert (code, found["outcome"]) == (0, "proven"), found["reason"]


def test_losses_that_are_scaled_together(verdict: Any) -> None:
    text = PLAIN.replace(
        "    loss.backward()\n", "    torch.autograd.backward([loss, loss * 2])\n"
    )
    by_hand = BY_HAND.replace(
        "    scaler.scale(loss).backward()\n",
        "    torch.autograd.backward(scaler.scale([loss, loss * 2]))\n",
    )
    code, found = verdict({"train.py": by_hand}, before={"train.py": text})
    assert (code, found["outcome"]) == (0, "proven"), found["reason"]


def test_files_that_the_script_does_not_load_may_differ(verdict: Any) -> None:
    code, found = verdict(
        {"train.py": BY_HAND, "other.py": "x = 2\n", "broken.py": "x = (\n"},
        before={"train.py": PLAIN, "other.py": "x = 1\n", "broken.py": "x = 3\n"},
    )
    assert (code, found["outcome"]) == (0, "proven"), found["reason"]


def test_a_scaler_in_a_file_that_did_not_change_is_a_scaler(verdict: Any) -> None:
    helper = 'import torch\n\n\ndef made():\n    return torch.amp.GradScaler("cuda")\n'
    by_hand = BY_HAND.replace('torch.amp.GradScaler("cuda")', "helper.made()").replace(
        "import torch\n", "import helper\nimport torch\n"
    )
    wrong = by_hand.replace("    scaler.update()\n", "").replace("range(6)", "range(5)")
    plain = PLAIN.replace("range(6)", "range(5)")
    code, found = verdict(
        {"train.py": wrong}, before={"train.py": plain, "helper.py": helper}
    )
    assert code == 1
    assert _level(found, "L1 scaled")["outcome"] == "disproved"


AVERAGED = """\
import copy
average = copy.deepcopy(model)
"""
AVERAGE = """\
    with torch.no_grad():
        for old, new in zip(average.parameters(), model.parameters()):
            old.mul_(0.9).add_(new, alpha=0.1)
"""


def test_what_no_optimizer_trains_is_compared_at_the_end(verdict: Any) -> None:
    def averaged(text: str, average: str) -> str:
        text = text.replace("optimizer = ", AVERAGED + "optimizer = ")
        return text.replace("print(", average + "print(")

    code, found = verdict(
        {"train.py": averaged(BY_HAND, AVERAGE.replace("0.9", "0.8"))},
        before={"train.py": averaged(PLAIN, AVERAGE)},
    )
    assert code == 1
    assert _level(found, "L0 off")["outcome"] == "disproved"


def test_the_time_that_a_script_prints_is_no_difference(verdict: Any) -> None:
    text = PLAIN.replace(
        "import torch\n", "import time\nimport torch\nbegun = time.time()\n"
    )
    # The rewritten run is the slower one, as it is with a scaler on the CPU.
    text += "took = time.time() - begun\nprint('long' if took > 1 else 'short')\n"
    by_hand = BY_HAND.replace(
        "import torch\n", "import time\nimport torch\nbegun = time.time()\n"
    )
    by_hand += "time.sleep(1.2)\ntook = time.time() - begun\nprint('long' if took > 1 else 'short')\n"
    code, found = verdict({"train.py": by_hand}, before={"train.py": text})
    assert (code, found["outcome"]) == (0, "proven"), found["reason"]


def test_an_error_that_the_end_of_a_run_causes_is_none(verdict: Any) -> None:
    def wrapped(text: str) -> str:
        head, loop = text.split("for step", 1)
        body = "".join(f"    {line}\n" for line in f"for step{loop}".splitlines())
        failing = "except BaseException as error:\n    raise RuntimeError('failed') from error\n"
        return f"{head}try:\n{body}{failing}"

    code, found = verdict(
        {"train.py": wrapped(BY_HAND)},
        "--steps",
        "4",
        before={"train.py": wrapped(PLAIN)},
    )
    assert (code, found["outcome"]) == (0, "proven"), found["reason"]


def test_what_the_original_would_meet_later_is_no_fault_of_the_rewrite(
    verdict: Any,
) -> None:
    # At the default scale some steps are skipped, and the script comes to its end.
    plain = PLAIN.replace(
        "cross_entropy(model(x), y)", "cross_entropy(model(x), y) * 100"
    )
    plain = plain.replace("range(6)", "range(9)").replace("lr=0.1", "lr=1e-6")
    plain += 'open("no/such/folder", "w")\n'
    code, found = verdict({"train.py": plain}, "--steps", "8")
    assert code == 2
    assert found["outcome"] == "not judged"
    assert "so does the original where it runs for longer" in found["reason"]
