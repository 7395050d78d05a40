"""Control flow: what a place can see, held against runs of the same code."""

from __future__ import annotations

import contextlib
import random
import textwrap

import pytest

from amp_migrate.program import ir
from amp_migrate.program.control_flow import ControlFlow
from amp_migrate.program.reader import read_module


def control(body: str) -> ControlFlow:
    source = f"def f(x, flip):\n{textwrap.indent(textwrap.dedent(body), '    ')}"
    return ControlFlow(read_module(source, "f.py").functions["f.py::f"])


def seen(body: str) -> set[int]:
    """The numbers that ``x`` may have at ``use(x)``; 0 is what it is called with."""
    flow = control(body)
    (use,) = (s for s in flow.statements.values() if _is_use(s))
    found, started = flow.reaching("x", use.path)
    values = {s.value.value for s in found if isinstance(s.value, ir.Const)}
    return values | ({0} if started else set())


def _is_use(stmt: ir.Stmt) -> bool:
    return isinstance(stmt.value, ir.Call) and stmt.value.func == ir.Name("use")


REACHING = {
    "in a row": ("x = 1\nx = 2\nuse(x)", {2}),
    "in a branch": ("if flip():\n    x = 1\nuse(x)", {0, 1}),
    "in both": ("if flip():\n    x = 1\nelse:\n    x = 2\nuse(x)", {1, 2}),
    "left": ("if flip():\n    x = 1\n    return\nuse(x)", {0}),
    "raised": ("if flip():\n    x = 1\n    raise ValueError\nuse(x)", {0}),
    "exited": ("if flip():\n    x = 1\n    sys.exit(1)\nuse(x)", {0}),
    "a loop's turn": ("while flip():\n    use(x)\n    x = 1", {0, 1}),
    "after a loop": ("for i in range(flip()):\n    x = 1\nuse(x)", {0, 1}),
    "a loop's else": (
        "for i in range(3):\n    x = 1\n    if flip():\n        break\nelse:\n    x = 2\nuse(x)",
        {1, 2},
    ),
    "continued": (
        "while flip():\n    x = 1\n    if flip():\n        continue\n    x = 2\nuse(x)",
        {0, 1, 2},
    ),
    "an endless loop": (
        "while True:\n    x = 1\n    if flip():\n        break\nuse(x)",
        {1},
    ),
    "the test of a loop": ("while use(x):\n    x = 1", {0, 1}),
    "tried": (
        "try:\n    x = 1\n    flip()\nexcept ValueError:\n    pass\nuse(x)",
        {0, 1},
    ),
    "a handler": (
        "try:\n    x = 1\n    x = flip()\nexcept ValueError:\n    use(x)",
        {0, 1},
    ),
    "its else": (
        "try:\n    flip()\nexcept ValueError:\n    x = 1\nelse:\n    x = 2\nuse(x)",
        {1, 2},
    ),
    "a handler that leaves": (
        "try:\n    x = 1\nexcept ValueError:\n    return\nuse(x)",
        {1},
    ),
    "finally": ("try:\n    flip()\n    x = 1\nfinally:\n    use(x)", {0, 1}),
    "bound in finally": ("try:\n    x = 1\nfinally:\n    x = 2\nuse(x)", {2}),
    "suppressed": ("with suppress(E):\n    flip()\n    x = 1\nuse(x)", {0, 1}),
    "with": ("with open(p):\n    x = 1\nuse(x)", {1}),
    "added to": ("x = 1\nx += 2\nuse(x)", {1, 2}),
    "run as a script": ("if __name__ == '__main__':\n    x = 1\nuse(x)", {1}),
    "never come to": ("return\nuse(x)", {0}),
}


@pytest.mark.parametrize("name", REACHING)
def test_what_a_place_can_see(name: str) -> None:
    body, values = REACHING[name]
    assert seen(body) == values


def test_dominance() -> None:
    flow = control(
        "a()\nif flip():\n    b()\nelse:\n    c()\nfor i in x:\n    d()\ne()"
    )
    at = {s.value.func.id: s.path for s in flow.statements.values() if s.kind == "expr"}
    pairs = {(one, other) for one in at for other in at if one != other}
    assert {p for p in pairs if flow.dominates(at[p[0]], at[p[1]])} == {
        ("a", other) for other in "bcde"
    }


class _Writer:
    """Writes random functions of assignments to ``x``, uses of it, and control flow."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0

    def block(self, depth: int, looped: bool) -> list[str]:
        size = self.random.randint(1, 4)
        return [line for _ in range(size) for line in self.statement(depth, looped)]

    def statement(self, depth: int, looped: bool) -> list[str]:
        self.count += 1
        simple = ["set", "set", "use", "use", "call"]
        if looped:
            simple += ["break", "continue"]
        nested = ["if", "ifelse", "while", "for", "try", "finally", "return", "raise"]
        match self.random.choice(simple + (nested if depth else [])):
            case "set":
                return [f"x = {self.count}"]
            case "use":
                return [f"use(x, {self.count})"]
            case "call":
                return ["flip()"]
            case "break" | "continue" as jump:
                return ["if flip():", f"    {jump}"]
            case "return" | "raise" as jump:
                what = " ValueError" if jump == "raise" else ""
                return ["if flip():", f"    {jump}{what}"]
            case "if":
                return ["if flip():", *self.inner(depth, looped)]
            case "ifelse":
                inner = self.inner(depth, looped)
                return ["if flip():", *inner, "else:", *self.inner(depth, looped)]
            case "while":
                return ["while flip():", *self.inner(depth, True)]
            case "for":
                inner = self.inner(depth, True)
                return [
                    "for i in times():",
                    *inner,
                    "else:",
                    *self.inner(depth, looped),
                ]
            case "try":
                inner = self.inner(depth, looped)
                return [
                    "try:",
                    *inner,
                    "except ValueError:",
                    *self.inner(depth, looped),
                ]
        inner = self.inner(depth, looped)
        return ["try:", *inner, "finally:", *self.inner(depth, False)]

    def inner(self, depth: int, looped: bool) -> list[str]:
        return [f"    {line}" for line in self.block(depth - 1, looped)]


@pytest.mark.parametrize("seed", range(60))
def test_nothing_is_seen_that_was_not_foretold(seed: int) -> None:
    lines = _Writer(seed).block(3, looped=False)
    body = "\n".join(lines)
    flow = control(body)
    foretold: dict[int, set[int]] = {}
    for stmt in flow.statements.values():
        if _is_use(stmt):
            found, started = flow.reaching("x", stmt.path)
            values = {s.value.value for s in found} | ({0} if started else set())
            foretold[stmt.value.args[1].value.value] = values
    met: dict[int, set[int]] = {place: set() for place in foretold}
    choices = random.Random(seed)

    def flip() -> bool:
        nonlocal left
        left -= 1
        if left < 0:
            raise TimeoutError
        if choices.random() < 0.1:
            raise ValueError
        return choices.random() < 0.5

    space = {
        "flip": flip,
        "times": lambda: range(choices.randint(0, 2)),
        "use": lambda x, place: met[place].add(x),
    }
    exec(f"def f(x):\n{textwrap.indent(body, '    ')}", space)
    for _ in range(300):
        left = 60
        with contextlib.suppress(ValueError, TimeoutError):
            space["f"](0)
    for place, values in met.items():
        assert values <= foretold[place], (place, values - foretold[place])
