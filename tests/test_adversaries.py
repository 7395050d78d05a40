"""Programs that try to make the migrator write something wrong: none may succeed.

`python tests/adversaries.py SEED` shows the program that failed, and makes it smaller with ``--shrink``.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

from adversaries import tried
from adversary.drawing import drawn

PROGRAMS = 220
AT_ONCE = 20
"""Programs that one test tries, so that several processes have something to do."""


@pytest.fixture(autouse=True, scope="module")
def frozen() -> Iterator[None]:
    """What there is now is copied by no fork."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.parametrize("first", range(0, PROGRAMS, AT_ONCE))
def test_nothing_wrong_is_written(first: int) -> None:
    found = {}
    for seed in range(first, first + AT_ONCE):
        text = drawn(seed).text
        trial = tried(text, seed)
        if trial.problems:
            found[seed] = trial.problems
            print(f"seed {seed}\n{text}")
    assert found == {}


def test_a_seed_stands_for_one_program() -> None:
    texts = [drawn(seed).text for seed in range(100)]
    assert texts == [drawn(seed).text for seed in range(100)]
    assert len(set(texts)) == 100


def test_many_of_them_are_migrated() -> None:
    """Else nothing would be tried: a third has to be, and a third of all pieces has to be among them."""
    from amp_migrate.api import migrate_source

    programs = [drawn(seed) for seed in range(0, PROGRAMS, 4)]
    migrated = [p for p in programs if migrate_source(p.text, path="train.py").changed]
    assert len(migrated) * 3 >= len(programs)
