"""Every script of `fixtures/migrate/` trains after its migration as it did before."""

from __future__ import annotations

import re

import pytest
from exactness import (
    MOVING_SCALES,
    Mode,
    check_injected,
    check_mixed,
    check_off,
    check_scaled,
)
from fixtures_support import each_migration, golden, plain

from amp_migrate.api import Options, migrate_source


@each_migration
def test_off_means_off(name: str) -> None:
    assert check_off(plain(name), golden(name), f"{name}/migrated.py") == []


@pytest.mark.parametrize(
    "mode", MOVING_SCALES, ids=lambda mode: mode.name.replace(" ", "-")
)
@each_migration
def test_scaled_is_exact(name: str, mode: Mode) -> None:
    found = check_scaled(plain(name), golden(name), mode, f"{name}/migrated.py")
    assert found == []


@each_migration
def test_an_inf_costs_one_step(name: str) -> None:
    found = check_injected(plain(name), golden(name), name=f"{name}/migrated.py")
    assert found == []


@each_migration
def test_mixed_precision_trains(name: str) -> None:
    assert check_mixed(plain(name), golden(name), f"{name}/migrated.py") == []


@pytest.mark.parametrize(
    "options",
    [
        Options(dtype="bfloat16"),
        Options(dtype="auto"),
        Options(torch_version=(2, 0)),
        Options(evaluation=True),
    ],
    ids=["bfloat16", "auto", "torch-2.0", "evaluation"],
)
@each_migration
def test_off_means_off_whatever_is_asked_for(name: str, options: Options) -> None:
    result = migrate_source(
        plain(name), path=f"fixtures/migrate/{name}/plain.py", options=options
    )
    # Its threads take over whether autocast is on, but not its dtype: another would not reach them.
    refused = options.dtype != "float16" and "nn.DataParallel(" in plain(name)
    assert result.changed is not refused
    if result.output == golden(name):
        return  # which `test_off_means_off` has run
    found = check_off(plain(name), result.output, f"{name}/rewritten.py")
    # The old spelling announces its deprecation on a new torch: asked for, and no change.
    assert [said for said in found if "FutureWarning" not in said] == []


# Each is a way in which a migration by hand goes wrong, done to the rewritten script by force.
BREAKS = {
    "no unscale_": (r"(?m)^(\s*)[\w.]*scaler\w*\.unscale_\(.*\)$", r"\1pass"),
    "no update": (r"[\w.]*scaler\w*\.update\(\)", "pass"),
    "plain step": (r"[\w.]*scaler\w*\.step\(([\w.\[\]\x22]+)\)", r"\1.step()"),
    "no scale": (r"[\w.]*scaler\w*\.scale\(", "("),
}

GUARDED = {"skip_nonfinite_continue", "skip_nonfinite_else", "clip_body_and_head"}
"""In these the norm is looked at: after `unscale_`, a plain step comes to the same."""


@pytest.mark.parametrize("how", BREAKS)
@each_migration
def test_a_broken_migration_is_seen(name: str, how: str) -> None:
    text = golden(name)
    broken = re.sub(*BREAKS[how], text)
    if broken == text:
        assert how == "no unscale_", "only that is not everywhere"
        pytest.skip("nothing to break")
    found = check_scaled(plain(name), broken, name=f"{name}/broken.py")
    if not found:
        found = check_injected(plain(name), broken, name=f"{name}/broken.py")
    assert found or (how == "plain step" and name in GUARDED)
