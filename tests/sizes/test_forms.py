"""Sizes of layers, by the form in which they are written."""

from __future__ import annotations

import pytest

from tests.sizes.support import all_of, only, sites, told

FORMS = {
    "literal": ("nn.Linear(784, 500)", ["in=784 out=500"]),
    "keywords": ("nn.Linear(out_features=5, in_features=7)", ["in=7 out=5"]),
    "module constant": ("N = 12\nnn.Linear(N, 2 * N)", ["in=12 out=24"]),
    "arithmetic": ("nn.Linear(int(96 / 2), 7 // 2 + 2**3 % 5)", ["in=48 out=6"]),
    "unpacked": ("a, (b, c) = 1, (2, 3)\nnn.Linear(b, c)", ["in=2 out=3"]),
    "sum of a list": ("nn.Linear(sum([1, 2]), max(3, 4))", ["in=3 out=4"]),
    "product": (
        "import numpy as np\nnn.Linear(int(np.prod((3, 4))), 1)",
        ["in=12 out=1"],
    ),
    "conditional": ("nn.Linear(3 if 1 > 2 else 4, 1)", ["in=4 out=1"]),
    "dict": (
        "cfg = {'a': 3, **{'b': 4}}\nnn.Linear(cfg['a'], cfg.get('b', 9))",
        ["in=3 out=4"],
    ),
    "dict by name": (
        "cfg = dict(a=3)\nnn.Linear(cfg.get('z', 5), **{'out_features': 6})",
        ["in=5 out=6"],
    ),
    "f-string key": (
        "k = 1\ncfg = {'a1': 3}\nnn.Linear(cfg[f'a{k}'], 1)",
        ["in=3 out=1"],
    ),
    "shape of another": ("a = nn.Linear(3, 4)\n", ["in=3 out=4"]),
    "division by zero": ("nn.Linear(1 // 0, 2)", ["in=? out=2"]),
    "attention": (
        "nn.MultiheadAttention(512, 8)",
        ["embed=512 heads=8 kdim=512 vdim=512"],
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_form_of_writing_sizes_is_understood(form: str) -> None:
    text, expected = FORMS[form]
    assert only(text) == expected


def test_defaults_of_parameters_hold_where_nobody_calls() -> None:
    (site,) = sites("""
        class Net(nn.Module):
            def __init__(self, dim=784, hidden=500):
                super().__init__()
                self.fc = nn.Linear(dim, hidden)
        """)
    assert told(site) == ["in=784 out=500"]
    assert {s.confidence.value for s in site.instances[0].sizes.values()} == {"default"}
    assert not site.complete
    assert site.name == "fc"
    (step,) = site.instances[0].sizes["out"].chain
    assert step.text == "hidden = 500 (default)"


def test_each_caller_makes_an_instance_of_its_own() -> None:
    (site,) = sites("""
        class Block(nn.Module):
            def __init__(self, a, b):
                super().__init__()
                self.fc = nn.Linear(a, b)
        Block(1, 2)
        Block(3, b=4)
        """)
    assert told(site) == ["in=1 out=2", "in=3 out=4"]
    assert site.complete


def test_classes_as_values_and_planes_that_change_are_followed() -> None:
    text = """
        class Basic(nn.Module):
            expansion = 2
            def __init__(self, in_planes, planes):
                super().__init__()
                self.conv = nn.Conv2d(in_planes, planes, 3)
        class ResNet(nn.Module):
            def __init__(self, block, counts):
                super().__init__()
                self.in_planes = 64
                self.a = self._make(block, 64, counts[0])
                self.b = self._make(block, 128, counts[1])
            def _make(self, block, planes, count):
                layers = []
                for _ in range(count):
                    layers.append(block(self.in_planes, planes))
                    self.in_planes = planes * block.expansion
                return nn.Sequential(*layers)
        def resnet():
            return ResNet(Basic, [2, 1])
        """
    assert only(text) == ["in=64 out=64", "in=128 out=64", "in=128 out=128"]


def test_imported_constants_classes_and_options() -> None:
    assert (
        all_of(
            """
        import argparse
        from config import HIDDEN, Config
        from model import make
        parser = argparse.ArgumentParser()
        parser.add_argument("--wide-size", type=int, default=1500)
        args = parser.parse_args()
        nn.Linear(HIDDEN, args.wide_size)
        nn.Linear(Config().dim, Config(dim=7).dim)
        """,
            config="""
        from dataclasses import dataclass
        HIDDEN = 30
        @dataclass
        class Config:
            dim: int = 6
        """,
            model="def make(): pass",
        )
        == [["in=30 out=1500"], ["in=6 out=7"]]
    )


def test_multiples_are_proved_where_the_value_is_unknown() -> None:
    assert only("""
        def make_divisible(v, divisor, min_value=None):
            if min_value is None:
                min_value = divisor
            new = max(min_value, int(v + divisor / 2) // divisor * divisor)
            if new < 0.9 * v:
                new += divisor
            return new
        class Net(nn.Module):
            def __init__(self, k, width):
                super().__init__()
                self.fc = nn.Linear(64 * k, make_divisible(width, 8))
        """) == ["in=?64 out=?8"]
