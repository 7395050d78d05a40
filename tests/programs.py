"""Short training scripts for tests: a common head, and migrations written down as diffs.

A migration is one text whose lines begin with a blank (in both), ``-`` (only before) or ``+`` (only
after), so that a reader sees what becomes of what. Blank lines are in both.
"""

from __future__ import annotations

import pytest

from amp_migrate.api import Options, Outcome, migrate_source

DEFAULTS = Options()

HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = [(torch.randn(4, 8, device=device), torch.tensor([0, 1, 2, 0], device=device)) for _ in range(6)]


def make():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


model = make().to(device)
criterion = nn.CrossEntropyLoss()
"""


def before_and_after(diff: str) -> tuple[str, str]:
    """The two texts that a diff stands for."""
    lines = diff.splitlines(keepends=True)
    before = "".join(line[1:] or line for line in lines if line[0] != "+")
    after = "".join(line[1:] or line for line in lines if line[0] != "-")
    return before, after


def migrated(body: str, options: Options = DEFAULTS, head: str = HEAD) -> str:
    """What becomes of a script all of whose loops are migrated, without its head."""
    result = migrate_source(head + body, path="train.py", options=options)
    found = [(loop.outcome.value, loop.diagnostic) for loop in result.loops]
    assert found and set(found) == {(Outcome.MIGRATED.value, None)}
    assert result.output.startswith(head)
    return result.output[len(head) :]


def left_alone(body: str, head: str = HEAD) -> str:
    """Why a script is left alone, byte for byte: its codes, in order, without repetition."""
    result = migrate_source(head + body, path="train.py")
    assert result.output == head + body
    assert result.loops
    assert not any(loop.outcome is Outcome.MIGRATED for loop in result.loops)
    return " ".join(dict.fromkeys(found.code for found in result.diagnostics))


def trains_as_before(diff: str) -> None:
    """Run both texts: AMP off, with a moving scale, and with one inf among the gradients."""
    pytest.importorskip("torch")
    from exactness import check_injected, check_off, check_scaled

    before, after = before_and_after(diff)
    assert check_off(HEAD + before, HEAD + after) == []
    assert check_scaled(HEAD + before, HEAD + after) == []
    assert check_injected(HEAD + before, HEAD + after) == []
