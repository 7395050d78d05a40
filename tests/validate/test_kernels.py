"""Kernel names as they stand in public profiles, and what they say."""

from __future__ import annotations

from pathlib import Path

import pytest

from amp_migrate.validate.kernels import (
    NO_PRODUCT,
    NOT_TENSOR_CORE,
    TENSOR_CORE,
    UNKNOWN,
    classify,
    shares,
)

NAMES = Path(__file__).with_name("kernel_names.txt")


def names_by_class() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in NAMES.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            found[line.strip("[]")] = []
        elif line:
            list(found.values())[-1].append(line)
    return found


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("tensor_core", TENSOR_CORE),
        ("not_tensor_core", NOT_TENSOR_CORE),
        ("unknown", UNKNOWN),
        ("no product", NO_PRODUCT),
    ],
)
def test_names(title: str, kind: str) -> None:
    names = names_by_class()[title]
    assert len(names) > 3
    assert {name: classify(name) for name in names} == dict.fromkeys(names, kind)


def test_shares_are_of_the_time_of_products() -> None:
    found = shares(
        [
            ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_tn", 30.0),
            ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x4_tn", 30.0),
            ("ampere_sgemm_128x64_tn", 30.0),
            ("some_gemm", 4.0),
            ("my_matmul", 6.0),
            ("vectorized_elementwise_kernel", 900.0),
        ]
    )
    assert found is not None
    assert found.gemm_us == 100.0
    assert (found.tensor_core, found.not_tensor_core, found.unknown) == (0.6, 0.3, 0.1)
    assert found.unknown_names == ("my_matmul", "some_gemm")


def test_nothing_was_multiplied() -> None:
    assert shares([("vectorized_elementwise_kernel", 9.0)]) is None
