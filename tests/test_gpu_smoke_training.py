"""The models of the benchmark for GPUs train the same in all their forms."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from exactness import MOVING_SCALES, check_mixed, check_off, check_scaled
from trees import Tree

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

from gpu_smoke.cases import CASES, Case

MODELS = {case.folder: case for case in CASES}

each_model = pytest.mark.parametrize("case", MODELS.values(), ids=MODELS)


def form(case: Case, name: str) -> Tree:
    arguments = (*case.tiny, "--steps", "4", "--log-every", "1")
    return Tree(case.file(name).parent, ((f"{name}.py", *arguments),))


@pytest.mark.parametrize(
    "name", ["migrated", "migrated_bf16", "by_hand", "by_hand_bf16"]
)
@each_model
def test_off_means_off(case: Case, name: str) -> None:
    assert check_off(form(case, "plain"), form(case, name)) == []


@pytest.mark.parametrize("name", ["migrated", "by_hand"])
@each_model
def test_scaled_is_exact(case: Case, name: str) -> None:
    found = check_scaled(form(case, "plain"), form(case, name), MOVING_SCALES[0])
    assert found == []


# Attention with dropout takes another way on the CPU than on CUDA: one that computes in fp32.
@pytest.mark.parametrize("folder", sorted(MODELS.keys() - {"bert_base"}))
def test_mixed_precision_trains(folder: str) -> None:
    case = MODELS[folder]
    assert check_mixed(form(case, "plain"), form(case, "migrated")) == []
