"""Misuse of AMP beside the protocol, and that right code is left in peace."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from lint_support import lint, lint_files

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tests" / "validate"))

from broken import BROKEN, Broken  # noqa: E402
from correct import CORRECT  # noqa: E402

from amp_migrate.catalogue.rules import lint_rule  # noqa: E402

MIGRATED = sorted((ROOT / "fixtures").rglob("*migrated*.py"))
MIGRATED += sorted(ROOT.glob("fixtures/**/migrated/**/*.py"))

UNSEEN = frozenset(
    (
        "partly scaled sum",  # two losses added, one of them scaled
        "written over in part",  # gradients by index
        "plain backward",  # a condition that is not read decides
        "update without a step",  # which turn has no step is data
        "scaler per epoch",  # under a condition
        "one forward of two outside",
        "checkpoint without scaler in a dict",  # its state is loaded all the same
    )
)
"""What only a run shows."""
OPTIONAL = ("AMP221",)
"""Off unless it is asked for: validation in float32 is right."""


@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: one.name)
def test_broken_scripts(broken: Broken) -> None:
    found = lint(broken.text(), select=("AMP",), ignore=OPTIONAL)
    names = {lint_rule(one.code).name for one in found}
    if broken.name in UNSEEN:
        assert broken.rule not in names
    else:
        assert broken.rule in names
        assert names <= {broken.rule, *broken.others, "step-in-autocast"}


@pytest.mark.parametrize("name", CORRECT)
def test_correct_scripts(name: str) -> None:
    found = lint(CORRECT[name], select=("AMP",), ignore=("AMP210", *OPTIONAL))
    assert found == ()


@pytest.mark.parametrize("path", MIGRATED, ids=lambda path: path.parent.name)
def test_what_we_write_is_right(path: Path) -> None:
    text = path.read_text(encoding="utf-8", errors="replace")
    assert lint(text, select=("AMP",), ignore=OPTIONAL) == ()


REGION = """\
import torch
from torch import nn
from torch.nn import functional as F
{head}
def compute(x, y, mask):
    with torch.autocast("cuda", dtype=torch.{dtype}):
        {body}
compute(torch.randn(2, 4), torch.randn(2, 4), None)
"""


def region(body: str, dtype: str = "float16", head: str = "") -> set[str]:
    text = REGION.format(body=body, dtype=dtype, head=head)
    return {found.code for found in lint(text, select=("AMP",))}


def test_masks() -> None:
    fill = "(x @ y.t() / 2.0).masked_fill(mask, {})"
    assert region(fill.format("-1e9")) == {"AMP205"}
    assert region(fill.format("float('-1e9')")) == {"AMP205"}
    assert region(fill.format("torch.finfo(torch.float32).min")) == {"AMP205"}
    assert region(fill.format("float('-inf')")) == set()
    assert region(fill.format("-1e4")) == set()
    assert region(fill.format("-1e9"), dtype="bfloat16") == set()
    assert region("(x @ y.t()).softmax(-1).masked_fill(mask, -1e9)") == set()
    assert region("(x @ y.t()).float().masked_fill(mask, -1e9)") == set()
    assert region("x.masked_fill(mask, -1e9)") == set()


def test_epsilons() -> None:
    assert region("torch.log(torch.sigmoid(x @ y.t()) + 1e-8)") == {"AMP206"}
    assert region("torch.log(torch.sigmoid(x @ y.t()) + 1e-6)") == set()
    assert region("torch.log(torch.softmax(x @ y.t(), -1) + 1e-8)") == set()


def test_bce() -> None:
    loss = "F.binary_cross_entropy(x.sigmoid(), y)"
    assert region(loss) == {"AMP204"}
    assert region(loss, dtype="bfloat16") == {"AMP204"}
    island = 'with torch.autocast("cuda", enabled=False): ' + loss
    assert region(island) == set()
    assert region("F.binary_cross_entropy_with_logits(x, y)") == set()


INSTANCE = """\
import torch
from contextlib import nullcontext
def train(model, data, amp):
    ctx = torch.autocast("cuda", dtype=torch.float16) if amp else nullcontext()
    for x in data:
        with ctx:
            model(x)
        with ctx:
            {}model(x)
"""


def test_an_instance_may_be_used_in_turn() -> None:
    assert lint(INSTANCE.format(""), select=("AMP",)) == ()
    nested = INSTANCE.format("with ctx: ")
    assert {one.code for one in lint(nested, select=("AMP",))} == {"AMP203"}


def test_dtype_of_a_table_tells_nothing_about_the_scaler() -> None:
    text = """\
        import torch
        dtype = "bfloat16"
        table = {"bfloat16": torch.bfloat16, "float16": torch.float16}
        scaler = torch.amp.GradScaler("cuda", enabled=(dtype == "float16"))
        with torch.autocast("cuda", dtype=table[dtype]):
            pass
        """
    assert lint(text, select=("AMP",)) == ()


def test_older_names_in_branches_for_an_older_torch() -> None:
    text = """\
        import torch
        if hasattr(torch.amp, "GradScaler"):
            scaler = torch.amp.GradScaler("cuda")
        else:
            scaler = torch.cuda.amp.GradScaler()
        """
    assert lint(text, select=("AMP210",)) == ()


def test_a_checkpoint_that_another_file_saves(tmp_path: Path) -> None:
    texts = {
        "main.py": """\
            import torch
            from keep import save
            model = torch.nn.Linear(4, 4)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scaler = torch.amp.GradScaler("cuda")
            for x in [torch.randn(2, 4)]:
                with torch.autocast("cuda", dtype=torch.float16):
                    loss = model(x).pow(2).mean()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            save(model, optimizer, "last.pt")
            """,
        "keep.py": """\
            import torch
            def save(model, optimizer, path):
                torch.save({"model": model.state_dict(), "opt": optimizer.state_dict()}, path)
            """,
    }
    found = lint_files(tmp_path, texts, select=("AMP",))
    assert [one.code for one in found["keep.py"]] == ["AMP122"]
    assert found["main.py"] == ()


def test_a_partial_that_is_made_of_itself() -> None:
    text = """\
        from functools import partial
        import torch
        def build(layer=torch.nn.LayerNorm):
            for _ in range(2):
                layer = partial(layer, eps=1e-6)
            return layer(8)
        def optimizer_of(net, make=torch.optim.SGD):
            for _ in range(2):
                make = partial(make, lr=0.1)
            return make(net.parameters())
        scaler = torch.amp.GradScaler("cuda")
        net = build()
        learner = optimizer_of(net)
        for x in torch.randn(4, 8):
            with torch.autocast("cuda"):
                loss = net(x).sum()
            scaler.scale(loss).backward()
            scaler.step(learner)
        """
    assert [one.code for one in lint(text, select=("AMP",))] == ["AMP108"]
