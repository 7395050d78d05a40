"""The harness itself: it passes what is right, and each kind of mistake fails at its level."""

from __future__ import annotations

import pytest
from exactness import (
    MOVING_SCALES,
    OFF,
    ORIGINAL,
    check_injected,
    check_mixed,
    check_off,
    check_scaled,
    execute,
)

PLAIN = """\
import torch
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for step in range(9):
    x = torch.randn(12, 6, device=device)
    y = x[:, :3].argmax(1)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    print(step, loss.item())
"""

MIGRATED = """\
import torch
from torch import nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")

for step in range(9):
    x = torch.randn(12, 6, device=device)
    y = x[:, :3].argmax(1)
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
        loss = nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    scaler.step(optimizer)
    scaler.update()
    print(step, loss.item())
"""

TWO_PHASES_PLAIN = """\
import torch
from torch import nn

torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
body, head, top = (layer.to(device) for layer in (nn.Linear(5, 8), nn.Linear(8, 5), nn.Linear(8, 2)))
opt_a = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=1e-2)
opt_b = torch.optim.Adam([*body.parameters(), *top.parameters()], lr=1e-2)

for i in range(8):
    x = torch.randn(10, 5, device=device)
    loss = (head(body(x)) - x).pow(2).mean() / 2
    loss.backward()
    if (i + 1) % 2 == 0:
        opt_a.step()
        opt_a.zero_grad()
for i in range(5):
    x = torch.randn(10, 5, device=device)
    loss = nn.functional.cross_entropy(top(body(x)), (x[:, 0] > 0).long())
    opt_b.zero_grad()
    loss.backward()
    opt_b.step()
print(loss.item())
"""

TWO_PHASES_MIGRATED = """\
import torch
from torch import nn

torch.manual_seed(1)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
body, head, top = (layer.to(device) for layer in (nn.Linear(5, 8), nn.Linear(8, 5), nn.Linear(8, 2)))
opt_a = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=1e-2)
scaler_a = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")
opt_b = torch.optim.Adam([*body.parameters(), *top.parameters()], lr=1e-2)
scaler_b = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")

for i in range(8):
    x = torch.randn(10, 5, device=device)
    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler_a.is_enabled()):
        loss = (head(body(x)) - x).pow(2).mean() / 2
    scaler_a.scale(loss).backward()
    if (i + 1) % 2 == 0:
        scaler_a.step(opt_a)
        scaler_a.update()
        opt_a.zero_grad()
for i in range(5):
    x = torch.randn(10, 5, device=device)
    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler_b.is_enabled()):
        loss = nn.functional.cross_entropy(top(body(x)), (x[:, 0] > 0).long())
    opt_b.zero_grad()
    scaler_b.scale(loss).backward()
    scaler_b.step(opt_b)
    scaler_b.update()
print(loss.item())
"""

PAIRS = [
    pytest.param(PLAIN, MIGRATED, id="clip"),
    pytest.param(TWO_PHASES_PLAIN, TWO_PHASES_MIGRATED, id="two-phases"),
]


@pytest.mark.parametrize(("plain", "migrated"), PAIRS)
def test_a_right_migration_passes_every_level(plain: str, migrated: str) -> None:
    assert check_off(plain, migrated) == []
    for mode in MOVING_SCALES:
        assert check_scaled(plain, migrated, mode) == []
    for step in (0, 3, -1):
        last = execute(plain).steps - 1
        assert check_injected(plain, migrated, last if step == -1 else step) == []
    assert check_mixed(plain, migrated) == []


def broken(migrated: str, old: str, new: str) -> str:
    assert migrated.count(old) == 1, old
    return migrated.replace(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("    scaler.unscale_(optimizer)\n", "", id="clip-without-unscale"),
        pytest.param(
            "    scaler.unscale_(optimizer)\n    nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n",
            "    nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n    scaler.unscale_(optimizer)\n",
            id="unscale-after-clip",
        ),
        pytest.param("    scaler.update()\n", "", id="no-update"),
        pytest.param(
            "scaler.step(optimizer)\n    scaler.update()",
            "optimizer.step()",
            id="no-scaler",
        ),
        pytest.param("scaler.scale(loss).backward()", "loss.backward()", id="no-scale"),
        pytest.param(
            "scaler.scale(loss).backward()",
            "loss = scaler.scale(loss)\n    loss.backward()",
            id="scaled-loss-in-the-log",
        ),
        pytest.param(
            "    scaler.unscale_(optimizer)\n",
            "    scaler.unscale_(optimizer)\n    scaler.unscale_(optimizer)\n",
            id="unscale-twice",
        ),
    ],
)
def test_mistakes_with_the_scaler_show_when_scaled(old: str, new: str) -> None:
    wrong = broken(MIGRATED, old, new)
    assert check_off(PLAIN, wrong) == [], "what only the scaler shows"
    for mode in MOVING_SCALES:
        assert check_scaled(PLAIN, wrong, mode) != []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # Adam hides a constant factor: these change no loss by more than rounding.
        pytest.param(
            "scaler_b.step(opt_b)\n    scaler_b.update()",
            "opt_b.step()",
            id="missed-step",
        ),
        pytest.param(
            "scaler_b.step(opt_b)\n    scaler_b.update()",
            "scaler_a.step(opt_b)\n    scaler_a.update()",
            id="wrong-scaler",
        ),
        pytest.param(
            "        scaler_a.update()\n        opt_a.zero_grad()\n",
            "        opt_a.zero_grad()\n    scaler_a.update()\n",
            id="update-on-every-micro-batch",
        ),
    ],
)
def test_mistakes_that_adam_hides_show_when_scaled(old: str, new: str) -> None:
    wrong = broken(TWO_PHASES_MIGRATED, old, new)
    for mode in MOVING_SCALES:
        assert check_scaled(TWO_PHASES_PLAIN, wrong, mode) != []


def test_a_plain_step_after_unscale_shows_with_an_inf_only() -> None:
    wrong = broken(MIGRATED, "scaler.step(optimizer)", "optimizer.step()")
    assert check_scaled(PLAIN, wrong) == []
    assert check_injected(PLAIN, wrong) != []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param(
            "    optimizer.zero_grad()\n    with torch.autocast(",
            "    with torch.autocast(",
            id="lost-zero-grad",
        ),
        pytest.param(
            "    print(step", "    torch.rand(1)\n    print(step", id="random-stream"
        ),
        pytest.param(
            "        loss = nn.functional",
            "        model(x)\n        loss = nn.functional",
            id="forward-twice",
        ),
        pytest.param("    print(step, loss", "    print(loss", id="output"),
        pytest.param(
            'enabled=device.type == "cuda"', "enabled=True", id="warns-without-cuda"
        ),
        pytest.param("    scaler.step(optimizer)\n", "", id="no-step"),
        pytest.param('"cuda", dtype', "device, dtype", id="raises"),
    ],
)
def test_changes_show_when_off(old: str, new: str) -> None:
    assert check_off(PLAIN, broken(MIGRATED, old, new)) != []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param(
            "        loss = nn.functional.cross_entropy(model(x), y)\n",
            "        pass\n    loss = nn.functional.cross_entropy(model(x), y)\n",
            "no matrix product",
            id="forward-outside",
        ),
        pytest.param(
            "    with torch.autocast(",
            "    out = model[0](x)\n    with torch.autocast(",
            "left in fp32",
            id="part-of-the-forward-outside",
        ),
        pytest.param(
            "cross_entropy(model(x), y)",
            "cross_entropy(model(x) * 1.5, y)",
            "mean loss",
            id="another-loss",
        ),
        pytest.param(
            "(model(x), y)", "(model(x * 6e4), y)", "not finite", id="overflow"
        ),
    ],
)
def test_numbers_and_coverage_show_when_mixed(old: str, new: str, said: str) -> None:
    wrong = broken(MIGRATED, old, new)
    if "out = " in new:
        wrong = broken(wrong, "model(x)", "model[1:](out)")
    assert any(said in found for found in check_mixed(PLAIN, wrong))


# What leaves a region is half, and the second model is outside: exact without autocast.
HALF_LEAVES = """\
probe = nn.Linear(3, 1).to(device)

for"""
USES_HALF = """\
    print(step, probe(out.detach()).mean().item())
"""


def test_half_values_outside_of_a_region_show_when_mixed() -> None:
    plain, wrong = (
        text.replace("cross_entropy(model(x), y)", "cross_entropy(out := model(x), y)")
        .replace("\nfor", f"\n{HALF_LEAVES}", 1)
        .replace("    print(step, loss.item())\n", USES_HALF)
        for text in (PLAIN, MIGRATED)
    )
    assert check_off(plain, wrong) == []
    assert check_scaled(plain, wrong) == []
    (found,) = check_mixed(plain, wrong)
    assert found.startswith("mixed: RuntimeError: mat1 and mat2 must have the same")


@pytest.mark.parametrize(
    ("condition", "missed"),
    [("step < 9", []), ("step < 0", ["14", "16", "17"])],
    ids=["run", "not-run"],
)
def test_a_part_that_is_not_run_shows_when_mixed(
    condition: str, missed: list[str]
) -> None:
    branch = """\
    if CONDITION:
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    optimizer.zero_grad()
"""
    scaled = """\
    if CONDITION:
        with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    optimizer.zero_grad()
"""
    plain, rewritten = (
        text.replace(
            "    optimizer.zero_grad()\n", lines.replace("CONDITION", condition)
        )
        for text, lines in ((PLAIN, branch), (MIGRATED, scaled))
    )
    found = check_mixed(plain, rewritten)
    assert found == [f"script.py:{line} was not run" for line in missed]


def test_cpu_autocast_follows_cuda_when_mixed() -> None:
    banned = "binary_cross_entropy(model(x).sigmoid()[:, 0], y.clamp(max=1).float())"
    plain, wrong = (
        broken(text, "cross_entropy(model(x), y)", banned) for text in (PLAIN, MIGRATED)
    )
    (found,) = check_mixed(plain, wrong)
    assert "unsafe to autocast" in found


def test_a_script_that_was_not_migrated_does_not_pass() -> None:
    assert check_off(PLAIN, PLAIN) == []
    assert check_scaled(PLAIN, PLAIN) == ["9 backwards were not scaled"]
    assert check_mixed(PLAIN, PLAIN) != []


def test_a_script_that_fails_is_no_reference() -> None:
    assert check_off("1 / 0\n", "1 / 0\n") == [
        "original: ZeroDivisionError: division by zero (line 1)",
        "off: ZeroDivisionError: division by zero (line 1)",
    ]
    assert execute("import sys\nsys.exit(3)\n").error.startswith("RuntimeError")
    assert execute("import sys\nsys.exit(0)\n").error == ""


def test_what_a_run_records() -> None:
    run = execute(PLAIN, ORIGINAL)
    assert [event.kind for event in run.events] == ["loss", "step"] * 9
    assert (run.plain_backwards, run.scaled_backwards) == (9, 0)
    assert run.poison_at_step(4) == (4, 0)
    assert len(run.stdout.splitlines()) == 9
    again = execute(MIGRATED, OFF)
    assert again.events == run.events


def test_the_injected_inf_costs_a_step_and_nothing_else() -> None:
    from dataclasses import replace

    control = execute(PLAIN, replace(ORIGINAL, poison=(4, 0), skip_poisoned=True))
    assert (control.steps, len(control.losses)) == (8, 9)
    unguarded = execute(PLAIN, replace(ORIGINAL, poison=(4, 0)))
    assert unguarded.steps == 9
    assert "nan" in unguarded.stdout
