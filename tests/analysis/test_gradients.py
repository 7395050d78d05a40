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


NOT_THEMSELVES = """
import torch
from outside import clip
class Net(torch.nn.Module):
    pass
model = Net()
table = torch.load("table")
kinds = [Net, torch.nn.Linear]
nets = [Net(), torch.nn.Linear(2, 2)]
clip(model)
clip(nets[0])
clip(table[model])
clip(kinds[0])
clip(kinds[1])
clip([1.0][len(nets)])
"""


def answers(
    order: tuple[int, ...], source: str = SOURCE, name: str = "clip"
) -> dict[int, bool]:
    """By its place among the calls of a name, whether each is a helper, asked in that order."""
    program = Program([read_module(source, "train.py")])
    calls = [(call, function) for function, _, call in program.calls_named(name)]
    return {number: is_helper(program, *calls[number]) for number in order}


def test_the_order_of_questions_makes_no_difference() -> None:
    alone = {number: answers((number,))[number] for number in range(8)}
    assert alone[0] and alone[2] and alone[6]
    assert not alone[5] and not alone[7]
    for order in itertools.permutations((0, 2, 4, 5, 6, 7)):
        assert answers(order) == {number: alone[number] for number in order}


def test_neither_a_class_nor_the_key_of_an_item_is_a_model() -> None:
    found = answers((0, 1, 2, 3, 4, 5), NOT_THEMSELVES)
    assert found == {0: True, 1: True, 2: False, 3: False, 4: False, 5: False}


NORMALIZED = """
import torch
from outside import normalize
model = torch.nn.Linear(2, 2)
params = list(model.parameters())
mixed = [params, 1.0]
normalize(model)
normalize(params)
normalize(mixed)
normalize_grads(mixed)
"""


def test_what_is_normalized_is_data_unless_it_is_parameters_at_sight() -> None:
    found = answers((0, 1, 2), NORMALIZED, "normalize")
    assert found == {0: True, 1: True, 2: False}
    assert answers((0,), NORMALIZED, "normalize_grads") == {0: True}
