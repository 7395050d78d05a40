"""What is not known is unknown, and what cannot be computed is not: odd input, and changes out of sight."""

from __future__ import annotations

import pytest
from sizes_support import all_of, only, sites, told

ODD = {
    "a power": "nn.Linear(10**10**10, 1)",
    "powers of powers": "x = 10\nfor i in range(50): x = x**x\nnn.Linear(x, 1)",
    "a shift": "nn.Linear(1 << 10**9, 1)",
    "a long text": "nn.Linear(len('a' * 10**9), 1)",
    "a wide format": "nn.Linear(len('%999999999d' % 5), 1)",
    "a wide f-string": "nn.Linear(len(f'{5:>99999999}'), 1)",
    "a long list": "nn.Linear(len([0] * 10**9), 1)",
    "a long range": "for i in range(10**30): a = i\nnn.Linear(a, 1)",
    "the length of a range": "nn.Linear(len(range(10**30)), 1)",
    "the sum of a range": "nn.Linear(sum(range(10**12)), 1)",
    "an endless loop": "x = 1\nwhile True:\n    x += 1\nnn.Linear(x, 1)",
    "recursion": "def f(n): return f(n + 1)\nnn.Linear(f(0), 1)",
    "recursion of two": "def f(n): return g(n)\ndef g(n): return f(n)\nnn.Linear(f(0), 1)",
    "division by zero": "nn.Linear(1 // 0, 1)",
    "no number": "nn.Linear(int(float('nan')), 1)",
    "names in a circle": "a = b\nb = a\nnn.Linear(a, 1)",
    "a property in a circle": (
        "class C:\n    @property\n    def a(self): return self.a\nnn.Linear(C().a, 1)"
    ),
    "a deleted name": "x = 1\ndel x\nnn.Linear(x, 1)",
    "a long number": "nn.Linear(int('9' * 5000), 1)",
    "a generator": "def f():\n    yield 1\nfor x in f(): nn.Linear(x, 1)",
    "a list that holds itself": "a = []\na.append(a)\nfor x in a[0][0]: pass\nnn.Linear(a[0][3], 1)",
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_input_is_unknown(odd: str) -> None:
    assert only(ODD[odd]) == ["in=? out=1"]


def test_what_takes_too_long_ends_and_spares_the_rest() -> None:
    found = all_of("""
        def f(n): return 1 if n < 1 else f(n - 1) + f(n - 2)
        x = f(30)
        big = [NUMBERS]
        nn.Linear(3, 4)
        nn.Linear(x, 5)
        """.replace("NUMBERS", ", ".join(map(str, range(50_000)))))
    assert found == [["in=3 out=4"], ["in=? out=5"]]


def test_classes_that_are_their_own_bases() -> None:
    assert only("class A(B): pass\nclass B(A): pass\nA()\nnn.Linear(1, 2)") == [
        "in=1 out=2"
    ]


def test_deep_expressions() -> None:
    assert only(f"nn.Linear({' + '.join(['1'] * 900)}, 2)") == ["in=900 out=2"]


def test_names_that_are_not_what_they_seem() -> None:
    assert only("int = lambda x: 7\nnn.Linear(int(3), 4)") == ["in=7 out=4"]
    assert not sites("nn.Linear(3, 4)\nnn = 5")
    assert not sites("import torch\ntorch.nn.Linear = print\nnn.Linear(3, 4)")


def test_star_imports() -> None:
    assert only(
        "from torch.nn import *\nfrom sizes import *\nLinear(A, 4)", sizes="A = 3"
    ) == ["in=3 out=4"]


def test_a_global_that_a_function_changes_is_not_known_elsewhere() -> None:
    assert only("""
        width = 1
        def widen():
            global width
            width = 2
        def make():
            return nn.Linear(width, 3)
        """) == ["in=? out=3"]


def test_an_attribute_that_is_set_by_an_unknown_name_spoils_all() -> None:
    assert only("""
        import argparse, yaml
        parser = argparse.ArgumentParser()
        parser.add_argument("--dim", default=8)
        args = parser.parse_args()
        for key, value in yaml.safe_load(open("x")).items():
            setattr(args, key, value)
        nn.Linear(args.dim, 3)
        """) == ["in=? out=3"]


def test_a_loop_of_unknown_length_keeps_only_divisors() -> None:
    assert only("""
        n, m = 64, 1
        for x in data:
            n *= 2
            m += 1
        nn.Linear(n, m)
        """) == ["in=?64 out=?"]


def test_a_float_factor_proves_nothing() -> None:
    assert only("""
        class Net(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.fc = nn.Linear(int(64 * width), 2)
        """) == ["in=? out=2"]


def test_a_handler_may_run_from_the_middle_of_a_try() -> None:
    assert only("""
        try:
            x = 1
            f()
            x = 2
        except ValueError:
            pass
        nn.Linear(x, 1)
        """) == ["in=2 out=1", "in=1 out=1"]


def test_ways_out_of_a_loop_are_joined() -> None:
    assert only("""
        n = 8
        for i in range(2):
            if unknown():
                break
            n *= 2
        nn.Linear(n, 1)
        """) == ["in=16 out=1", "in=8 out=1", "in=32 out=1"]


def test_a_set_has_a_size_but_no_order() -> None:
    assert all_of("""
        words = list(set("a b a".split()))
        numbers = list({3, 4})
        nn.Embedding(len({w: i for i, w in enumerate(words)}), 2)
        nn.Linear(numbers[0], 2)
        """) == [["vocab=2 embed=2"], ["in=? out=2"]]


def test_a_walk_through_the_children_of_a_module_is_no_way_without_end() -> None:
    found = all_of("""
        def each(fill, module, name=""):
            for child_name, child in module.named_children():
                each(fill, child, f"{name}.{child_name}" if name else child_name)
            for child in module.children():
                each(fill, child, name)
            fill(module, name)

        def fill(module, name):
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Linear(64, 64)
                each(fill, self)
                self.head = nn.Linear(64, 1001)

        net = Net()
    """)
    assert found == [["in=64 out=64"], ["in=64 out=1001"]]


def test_many_functions_share_the_steps_of_a_program() -> None:
    """None of them, however long it goes on without a layer, takes what the last one needs."""
    text = "def f0(n):\n    return n\n"
    for depth in range(1, 14):
        text += f"def f{depth}(n):\n    return f{depth - 1}(n) + f{depth - 1}(-n)\n"
    for number in range(150):
        text += f"def make_{number}():\n    return nn.Linear(f13({number}), 64)\n"
    text += "def last():\n    return nn.Linear(12, 64)\n"
    assert told(sites(text)[-1]) == ["in=12 out=64"]
