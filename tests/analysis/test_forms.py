"""Sizes of layers, by the form in which they are written."""

from __future__ import annotations

import pytest
from sizes_support import all_of, only, sites, told

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


def test_an_option_that_reaches_a_class_through_a_function_is_followed() -> None:
    (site,) = sites("""
        import argparse
        class Net(nn.Module):
            def __init__(self, opt):
                super().__init__()
                self.hidden = opt.hidden
                self.fc = nn.Linear(self.hidden, 4 * self.hidden)
        def main():
            parser = argparse.ArgumentParser()
            parser.add_argument("-s", "--hidden", type=int, default="1500")
            opt = parser.parse_args()
            return Net(opt)
        if __name__ == "__main__":
            main()
        """)
    assert told(site) == ["in=1500 out=6000"]
    size = site.instances[0].sizes["in"]
    assert size.confidence.value == "default"
    assert [step.text for step in size.chain] == [
        "--hidden (default 1500)",
        "self.hidden = opt.hidden",
    ]


def test_click_hands_its_defaults_to_the_function_below() -> None:
    text = """
        import click
        @click.command()
        @click.option("--hidden", default=300)
        def main(hidden):
            nn.Linear(hidden, 5)
        if __name__ == "__main__":
            main()
        """
    assert only(text) == ["in=300 out=5"]


@pytest.mark.parametrize(
    ("made", "read"),
    [
        ("{'dim': 48}", "c['dim']"),
        ("SimpleNamespace(dim=48)", "c.dim"),
        ("EasyDict({'dim': 48})", "c.dim"),
        ("Settings()", "c.dim"),
        ("Flat()", "c.dim"),
        ("Flat", "c.dim"),
        ("Hf(hidden=48)", "c.hidden"),
        ("Data(dim=48)", "getattr(c, 'dim', 3)"),
        ("dict(dim=48)", "c.get('dim', 3)"),
        ("Tuple(3, dim=48)", "c.dim"),
        ("Tuple(3, 48)", "c[1]"),
    ],
)
def test_configurations_of_every_kind_are_read(made: str, read: str) -> None:
    assert only(f"""
        from collections import namedtuple
        from types import SimpleNamespace
        from dataclasses import dataclass
        from easydict import EasyDict
        from transformers import PretrainedConfig
        Tuple = namedtuple("Tuple", "depth dim")
        @dataclass
        class Data:
            dim: int = 7
        class Flat:
            dim = 48
        class Settings:
            def __init__(self, dim=48):
                self.dim = dim
        class Hf(PretrainedConfig):
            def __init__(self, hidden=7, **kwargs):
                self.hidden = hidden
                super().__init__(**kwargs)
        class Net(nn.Module):
            def __init__(self, c):
                super().__init__()
                self.fc = nn.Linear({read}, 2)
        Net({made})
        """) == ["in=48 out=2"]


def test_make_layers_of_vgg() -> None:
    assert only("""
        cfgs = {"A": [64, "M", 128]}
        def make_layers(cfg):
            layers, channels = [], 3
            for v in cfg:
                if v == "M":
                    layers += [nn.MaxPool2d(2)]
                else:
                    layers += [nn.Conv2d(channels, v, 3), nn.ReLU()]
                    channels = v
            return nn.Sequential(*layers)
        make_layers(cfgs["A"])
        """) == ["in=3 out=64", "in=64 out=128"]


def test_helpers_are_evaluated_as_they_are_written() -> None:
    assert all_of("""
        from functools import partial
        def pair(t):
            return t if isinstance(t, tuple) else (t, t)
        def exists(v):
            return v is not None
        def default(v, d):
            return v if exists(v) else d
        height, width = pair(14)
        nn.Linear(height * width * 3, default(None, 9))
        nn.Linear(3 or 5, default(4, 9))
        wide = partial(nn.Linear, out_features=6)
        wide(5)
        """) == [["in=588 out=9"], ["in=3 out=4"], ["in=5 out=6"]]


def test_sizes_of_made_layers_are_read() -> None:
    assert all_of("""
        from torchvision import models
        body = nn.Sequential(nn.Conv2d(3, 20, 3), nn.Linear(7, 9))
        nn.Linear(body[1].out_features, body[0].out_channels)
        nn.Linear(body[1].weight.shape[1], 5)
        resnet = models.resnet18(pretrained=True)
        resnet.fc = nn.Linear(resnet.fc.in_features, 2)
        """)[2:] == [["in=9 out=20"], ["in=7 out=5"], ["in=512 out=2"]]


def test_loops_over_what_is_known_run_turn_by_turn() -> None:
    assert only("""
        dims = [4, 5, 6]
        nets = [nn.Linear(a, b) for a, b in zip(dims[:-1], dims[1:])]
        """) == ["in=4 out=5", "in=5 out=6"]
    assert only("""
        n = 64
        while n < 200:
            nn.Linear(n, 2 * n)
            n *= 2
        """) == ["in=64 out=128", "in=128 out=256"]


def test_products_with_parameters_and_functional_forms() -> None:
    found = sites("""
        import torch
        import torch.nn.functional as F
        class Net(nn.Module):
            def __init__(self, dim=30):
                super().__init__()
                self.proj = nn.Parameter(0.02 * torch.randn(dim, 7))
                self.weight = nn.Parameter(torch.empty(9, dim))
            def forward(self, x):
                return F.linear(x, self.weight), x @ self.proj
        """)
    assert [(one.layer, told(one)) for one in found] == [
        ("matmul", ["in=30 out=7"]),
        ("functional.linear", ["out=9 in=30"]),
    ]


def test_a_subclass_of_a_layer_is_one() -> None:
    assert all_of("""
        class Wide(nn.Linear):
            pass
        class Half(nn.Conv2d):
            def __init__(self, size):
                super().__init__(size, size // 2, 3)
        Wide(3, 4)
        Half(30)
        """) == [["in=30 out=15"], ["in=3 out=4"]]


def test_sizes_of_one_way_stay_together() -> None:
    assert only("""
        if unknown():
            a, b = 8, 16
        else:
            a, b = 3, 5
        nn.Linear(a, b)
        """) == ["in=8 out=16", "in=3 out=5"]


def test_both_ways_of_a_default_are_looked_at() -> None:
    assert all_of("""
        def make(kind="small"):
            if kind == "small":
                return nn.Linear(1, 2)
            return nn.Linear(3, 4)
        """) == [["in=1 out=2"], ["in=3 out=4"]]


def test_what_an_annotation_means_stands_in_for_a_caller() -> None:
    assert only("""
        from dataclasses import dataclass
        @dataclass
        class Config:
            dim: int = 50257
        class Net(nn.Module):
            def __init__(self, config: Config):
                super().__init__()
                self.fc = nn.Linear(config.dim, 4 * config.dim)
        """) == ["in=50257 out=201028"]


def test_a_number_of_a_table_says_which_entry_it_is() -> None:
    found = sites("""
        CONFIG = {"vocab": 50257, "width": 768}
        size, wide = 999, dict(hidden=1500)

        class Model(nn.Module):
            def __init__(self, config, dims):
                nn.Linear(config["width"], config["vocab"])
                nn.Linear(dims[0], dims[1])

        Model(CONFIG, [784, 500])
        nn.Linear(size, wide["hidden"])
        """)
    steps = [
        [step.text for size in site.instances[0].sizes.values() for step in size.chain]
        for site in found
    ]
    assert steps == [
        ["CONFIG['width'] = 768", "CONFIG['vocab'] = 50257"],
        ["dims[0] = 784", "dims[1] = 500"],
        ["size = 999", "wide['hidden'] = 1500"],
    ]
