"""Which calls of functions out of sight are given parameters: what one question finds is kept for others."""

from __future__ import annotations

import itertools

from amp_migrate.analysis.paths.gradients import is_helper
from amp_migrate.program.link import Program
from amp_migrate.program.reader import read_module

SOURCE = """
import torch
from outside import clip
model = torch.nn.Linear(2, 2)
p0 = filter(bool, model.parameters())
p1 = filter(bool, p0)
p2 = filter(bool, p1)
p3 = filter(bool, p2)
p4 = filter(bool, p3)
p5 = filter(bool, p4)
other = filter(bool, [p2, 1.0])
rewards = filter(bool, [0.5, 1.0])
clip(p0)
clip(p1)
clip(p2)
clip(p3)
clip(p4)
clip(p5)
clip(other)
clip(rewards)
"""


def answers(order: tuple[int, ...]) -> dict[int, bool]:
    """By its place among the calls of ``clip``, whether each is a helper, asked in that order."""
    program = Program([read_module(SOURCE, "train.py")])
    calls = [(call, function) for function, _, call in program.calls_named("clip")]
    return {number: is_helper(program, *calls[number]) for number in order}


def test_the_order_of_questions_makes_no_difference() -> None:
    alone = {number: answers((number,))[number] for number in range(8)}
    assert alone[0] and alone[2] and alone[6]
    assert not alone[5] and not alone[7]
    for order in itertools.permutations((0, 2, 4, 5, 6, 7)):
        assert answers(order) == {number: alone[number] for number in order}
