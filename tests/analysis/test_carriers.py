"""What is told of all names at once rules out nothing that a search from one of them finds."""

from __future__ import annotations

import textwrap

import pytest

from amp_migrate.analysis.objects.optimizers import Optimizers, Slot
from amp_migrate.program import ir
from amp_migrate.program.bindings import parts_of
from amp_migrate.program.imports import ImportScan
from amp_migrate.program.layout import Layout
from amp_migrate.program.link import Program
from amp_migrate.program.reader import read_module
from tests.fixtures_support import FIXTURES

PROJECTS = FIXTURES / "projects"
NAMES = (
    """base_trainer_template getattr_optim_args mixin_makes_optimizer optimizers_by_name
    scheduled_optim_wrapper setup_in_another_file solver_build_table train_state_dataclass
    two_entries_one_engine wrapper_makes_optimizer""".split()
)

MAKERS = """
import functools
import types
import torch
from torch import nn, optim
from torch.optim import *
from torch.optim import Adam as Usual, SGD

class Own(SGD):
    pass

TABLE = {"adam": Usual, "own": Own}

def any_of(name, params):
    return TABLE[name](params)

def from_class(cls, params, **options):
    return cls(params, **options)

def of_library(name, params):
    return getattr(optim, name)(params)

def same(value):
    return value

class Held:
    kept = SGD([torch.zeros(1)], lr=0.1)

    def __init__(self, optimizer=None, *others, **named):
        self.others = others
        self.named = named
        self._given = optimizer

    @property
    def optimizer(self):
        return self._given
"""
USES = """
from makers import *
import makers as m

net = nn.Linear(2, 2)
plain = Usual(net.parameters())
tabled = any_of("adam", net.parameters())
given = from_class(ASGD, net.parameters(), lr=0.1)
module = from_class(nn.Linear, 2)
looked = of_library("Adam", net.parameters())
partial = functools.partial(SGD, lr=0.1)
made = partial(net.parameters())
short = (lambda params: SGD(params, lr=0.1))(net.parameters())
listed = [SGD(net.parameters(), lr=0.1) for _ in range(2)]
first, *rest = listed
second = [one for one in listed][1]
table = {}
other = table
table["own"] = Own(net.parameters(), lr=0.1)
out = other["own"]
filled = []
filled.append(same(plain))
last = filled.pop()
space = types.SimpleNamespace(stepper=plain)
through = space.stepper
held = Held(plain, given, more=looked)
behind = held.optimizer
beside = held.others[0]
named = held.named["more"]
fixed = m.Held.kept
nothing = same(net)
size = same(3)
if (bound := same(plain)) is not None:
    chosen = bound if size else None

def train(net, optimizer=SGD([torch.zeros(1)], lr=0.1)):
    inner = optimizer

    def step():
        used = inner
        return used
    return step

for each in listed:
    turned = each
"""


def program_of(texts: dict[str, str]) -> Program:
    modules = [read_module(text, f"/p/{name}") for name, text in texts.items()]
    return Program(modules, Layout({m.path: ImportScan() for m in modules}, "/p"))


def slots_of(optimizers: Optimizers) -> set[Slot]:
    """All that are mentioned."""
    found = {
        optimizers.slot(part, function.qualname)
        for function in optimizers.program.functions.values()
        for stmt in ir.statements(function.body)
        for part in parts_of(stmt)
    }
    return {slot for slot in found if slot is not None}


def held(texts: dict[str, str]) -> tuple[set[str], set[str]]:
    """The names of what holds an optimizer by a search, and of what is ruled out at once."""
    optimizers = Optimizers(program_of(texts))
    carriers = optimizers.carriers
    found, ruled_out = set(), set()
    for slot in slots_of(optimizers):
        if optimizers.trace(slot).births:
            found.add(slot.shown)
            assert carriers.may_hold(slot.kind, slot.owner, slot.name), slot
        elif not carriers.may_hold(slot.kind, slot.owner, slot.name):
            ruled_out.add(slot.shown)
    return found, ruled_out


def test_no_way_of_holding_one_is_ruled_out() -> None:
    texts = {"makers.py": textwrap.dedent(MAKERS), "uses.py": textwrap.dedent(USES)}
    found, ruled_out = held(texts)
    assert {"plain", "tabled", "looked", "made", "behind"} <= found
    # The same functions give other things to those who ask them for these.
    assert {"nothing", "module", "size", "net"} <= ruled_out


@pytest.mark.parametrize("name", NAMES)
def test_projects(name: str) -> None:
    folder = PROJECTS / name / "plain"
    texts = {
        str(file.relative_to(folder)): file.read_text() for file in folder.rglob("*.py")
    }
    found, ruled_out = held(texts)
    assert found
    assert ruled_out
