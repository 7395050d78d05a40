"""What Python itself does between a number and a layer: where that is not followed, nothing is claimed."""

from __future__ import annotations

import pytest
from sizes_support import all_of, only, sites

from amp_migrate.core.findings import Confidence

SEMANTICS = {
    "a property that is set is what its setter makes of it": (
        """
        class M(nn.Module):
            def __init__(self, h):
                super().__init__()
                self.h = h
                self.l = nn.Linear(self.h, 8)

            @property
            def h(self):
                return self._h + 1

            @h.setter
            def h(self, value):
                self._h = value * 2

        M(7)
        """,
        ["in=? out=8"],
    ),
    "the else of a loop that is left has not run": (
        """
        d = 7
        while True:
            d += 13
            if d > 100:
                break
        else:
            d = 0
        nn.Linear(d, 8)
        """,
        ["in=? out=8"],
    ),
    "the else of a loop over unknown things may have run": (
        """
        h = 8
        for k in open("f"):
            if k == "x":
                break
        else:
            h = 16
        nn.Linear(h, 8)
        """,
        ["in=16 out=8", "in=8 out=8"],
    ),
    "a descriptor of the class decides": (
        """
        class D:
            def __get__(self, of, kind):
                return 77

            def __set__(self, of, value):
                pass

        class C:
            h = D()

        c = C()
        c.h = 5
        nn.Linear(c.h, C.h)
        """,
        ["in=? out=?"],
    ),
    "the keywords of a dict are entries, not attributes": (
        """
        class C(dict):
            def __getattr__(self, key):
                return self[key] + 1

        nn.Linear(C(h=5).h, 8)
        """,
        ["in=? out=8"],
    ),
    "a base makes something of its subclasses": (
        """
        class B:
            size = 3

            def __init_subclass__(cls, k=1):
                cls.size = k * 10

        class C(B, k=4):
            pass

        nn.Linear(C.size, B.size)
        """,
        ["in=?10 out=3"],
    ),
    "a decorator changes a class": (
        """
        def changed(cls):
            cls.h = 99
            return cls

        @changed
        class C:
            h = 5

        nn.Linear(C.h, C().h)
        """,
        ["in=99 out=99"],
    ),
    "a decorator puts another class in the place": (
        """
        def wrapped(cls):
            class Wrapped(cls):
                def __init__(self, *given):
                    super().__init__(*[one + 1 for one in given])

            return Wrapped

        @wrapped
        class M(nn.Module):
            def __init__(self, h):
                super().__init__()
                self.l = nn.Linear(h, 8)

        M(5)
        """,
        ["in=6 out=8"],
    ),
    "what is deleted and comes back is the last": (
        """
        d = {"a": 1, "b": 2, "c": 3}
        del d["a"]
        d["a"] = 9
        nn.Linear(list(d.values())[-1], list(d.values())[0])
        """,
        ["in=9 out=2"],
    ),
    "an exception that is suppressed": (
        """
        from contextlib import suppress

        h = 8
        with suppress(KeyError):
            read()
            h = 16
        nn.Linear(h, 8)
        """,
        ["in=16 out=8", "in=8 out=8"],
    ),
    "a class variable is no field": (
        """
        from dataclasses import KW_ONLY, dataclass
        from typing import ClassVar

        @dataclass
        class C:
            a: int
            shared: ClassVar[int] = 99
            b: int = 5
            _: KW_ONLY
            c: int = 6

        made = C(1, 2)
        nn.Linear(made.b, made.shared)
        """,
        ["in=2 out=99"],
    ),
    "a property that is computed once": (
        """
        from functools import cached_property

        class C:
            made = 0

            @cached_property
            def width(self):
                C.made += 1
                return C.made

        c = C()
        nn.Linear(c.width + c.width, c.made)
        """,
        ["in=2 out=1"],
    ),
    "what vars gives is the object": (
        """
        class C:
            def __init__(self):
                self.a = 4

        c = C()
        vars(c).update(a=8)
        nn.Linear(c.a, 1)
        """,
        ["in=8 out=1"],
    ),
    "a base's constructor by its name": (
        """
        class Mine(nn.Linear):
            def __init__(self, width, **more):
                nn.Linear.__init__(self, width, width + 1, **more)

        Mine(7)
        """,
        ["in=7 out=8"],
    ),
    "a metaclass makes the object": (
        """
        class Meta(type):
            def __call__(cls, *given):
                return super().__call__(*[one + 1 for one in given])

        class M(nn.Module, metaclass=Meta):
            def __init__(self, h):
                super().__init__()
                self.l = nn.Linear(h, 8)

        M(5)
        """,
        ["in=? out=8"],
    ),
}


@pytest.mark.parametrize("name", SEMANTICS)
def test_semantics(name: str) -> None:
    text, expected = SEMANTICS[name]
    assert sorted(only(text)) == sorted(expected)


def test_a_class_that_a_decorator_notes_is_what_it_was() -> None:
    text = """
    known = {}

    def register(name):
        def note(cls):
            known[name] = cls
            return cls
        return note

    @register("a")
    class M(nn.Module):
        def __init__(self, h):
            super().__init__()
            self.l = nn.Linear(h, 8)

    M(5)
    """
    assert all_of(text) == [["in=5 out=8"]]


def test_a_variable_of_a_file_that_another_sets_is_not_known() -> None:
    text = """
    import config
    import net

    config.width = 300
    net.Net()
    nn.Linear(config.width, config.depth)
    """
    config = "width = 512\ndepth = 7\n"
    net = """
    from torch import nn
    import config

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(config.width, 8)
    """
    assert only(text, config=config, net=net) == ["in=? out=7"]


def test_a_default_that_the_program_sets_says_so() -> None:
    text = """
    from dataclasses import dataclass

    @dataclass
    class GPTConfig:
        vocab: int = 50257
        width: int = 768

    class GPT(nn.Module):
        def __init__(self, config: GPTConfig):
            super().__init__()
            self.head = nn.Linear(config.width, config.vocab)

    def main(config, data):
        config.vocab = data.vocab
        return GPT(config)
    """
    (site,) = sites(text)
    sizes = next(one.sizes for one in site.instances if one.sizes["out"].value)
    vocab = sizes["out"]
    assert [step.text for step in vocab.chain] == [
        "GPTConfig.vocab = 50257 (default; the program also sets vocab)"
    ]
    assert vocab.confidence is Confidence.CANDIDATE
    assert sizes["in"].confidence is Confidence.DEFAULT
