"""The model of a program: a module whose forward is drawn, and the ways in which its values go round."""

from __future__ import annotations

import re

from adversary.operations import HAZARDS, OPERATIONS, PLAIN, STORES, TYPES
from adversary.writing import Dice, Owner, Pieces, indent, numbered

_ROUTES = (
    ["?kept = [h, x]", "h = ?kept[0]"],
    ['?features = {"h": h, "x": x}', 'h = ?features["h"]'],
    ['?features = dict(h=h)', '?features["g"] = ?features.pop("h")', 'h = ?features["g"]'],
    ["h, ?other = h, x"],
    ["?other, h = x, h", "h = h + ?other * 0"],
    ["(?alias := h)", "h = ?alias"],
    ["h = h * 1.0", "?alias = h", "?alias += x * 0.1"],
    ["h = h * 1.0", "?alias = h.view(-1)", "?alias.mul_(0.9)", "h = ?alias.view(6, 8)"],
    ["*?rest, h = x, h"],
    ["?kept = []", "?kept.append(h)", "?kept.extend([x])", "h = ?kept.pop(0)"],
    ["h = (lambda value: value * 0.9)(h)"],
    ["h = h if h.sum() is not None else x"],
    ["for ?name, ?value in ((\"x\", x), (\"h\", h)):", "    h = ?value"],
    ["h = next(?v for ?v in [h])"],
    ["try:", "    h = h * 1.0", "finally:", "    pass"],
    ["?got = collections.namedtuple(\"Got\", \"first second\")(h, x)", "h = ?got.first"],
    ["?got = types.SimpleNamespace()", "?got.value = h", "h = ?got.value"],
    ["h = functools.reduce(lambda a, b: a + b * 0.1, [h, x])"],
    ["h, _ = map(lambda v: v * 0.9, (h, x))"],
    ["h = [h, x][int(x.shape[0] == 0)]"],
    ["?parts = list(h.chunk(2, dim=1))", "?parts[1] = ?parts[1] * 0.9", "h = torch.cat(?parts, 1)"],
    ["h = torch.stack([?row for ?row in h])"],
    ["h = getattr(h, \"clone\")()"],
    ["if h.requires_grad:", "    h = h * 0.9"],
    ["while True:", "    h = h * 0.9", "    break"],
    ["with torch.enable_grad():", "    h = h * 0.9"],
    ["h = x if h is None else h"],
    ["match h.dim():", "    case 2:", "        h = h * 0.9", "    case _:", "        h = x"],
)  # fmt: skip
_CALLED = (
    # What stands behind a function ``part_?``, and how it is called.
    ([], ["h = part_?(self, h, x)"]),
    (['TABLE_? = {"part": part_?}'], ['h = TABLE_?["part"](self, h, x)']),
    (["LIST_? = []", "LIST_?.append(part_?)"], ["for part in LIST_?:", "    h = part(self, h, x)"]),
    (["bound_? = functools.partial(part_?, x=None)"], ["h = bound_?(self, h)"]),
    (
        ["def run_?(net, h, x, part=part_?):", "    return part(net, h, x)"],
        ["h = run_?(self, h, x)"],
    ),
    (
        ["def run_?(net, h, x, parts=(part_?,)):", "    return parts[0](net, h, x)"],
        ["h = run_?(self, h, x)"],
    ),
    (
        ["class Holder_?:", '    parts = {"part": part_?}'],
        ['h = Holder_?().parts["part"](self, h, x)'],
    ),
    (
        ["KNOWN_? = {}", "def known_?(function):", "    KNOWN_?[function.__name__] = function",
         "    return function", "known_?(part_?)"],
        ['h = KNOWN_?["part_?"](self, h, x)'],
    ),
)  # fmt: skip


class Model:
    """The lines of a class, and how its objects are made and called."""

    def __init__(self, dice: Dice, pieces: Pieces, name: str, hazards: int) -> None:
        self.dice = dice
        self.pieces = pieces
        self.owner = Owner()
        self.methods: list[str] = []
        self.name = name
        body = ["h = x"]
        kinds = [PLAIN] + [dice.pick(HAZARDS, STORES, TYPES) for _ in range(hazards)]
        if dice.maybe(0.5):
            kinds.append(PLAIN)
        dice.shuffle(kinds)
        for kind in kinds:
            body += self._wrapped(
                pieces.place(kind[dice.choice(sorted(kind))], self.owner)
            )
            if dice.maybe(0.3):
                body += self._routed()
        self.body = body

    def _routed(self) -> list[str]:
        number = self.pieces.fresh()
        return [numbered(line, number) for line in self.dice.choice(_ROUTES)]

    def _wrapped(self, lines: list[str]) -> list[str]:
        """Some lines, perhaps in a function of their own."""
        number = self.pieces.fresh()
        how = self.dice.pick(
            *["inline"] * 5, "method", "function", "nested", "condition", "loop",
            "static", "property", "no_change", "module",
        )  # fmt: skip
        if how == "method":
            self.methods += [
                f"def part_{number}(self, h, x):",
                *indent([*lines, "return h"]),
                f"also_{number} = part_{number}",
                "",
            ]
            called = "also" if number % 2 else "part"
            return [f"h = self.{called}_{number}(h, x)"]
        if how == "static":
            # It gets its owner as a plain argument.
            self.methods += [
                "@staticmethod",
                f"def part_{number}(self, h, *, x):",
                *indent([*lines, "return {'value': h}"]),
                "",
            ]
            return [f"h = self.part_{number}(self, h, x=x)['value']"]
        if how == "property":
            self.methods += [
                "@property",
                f"def part_{number}(self):",
                "    def run(h, x):",
                *indent([*lines, "return h, x"], 2),
                "    return run",
                "",
            ]
            return [f"h, x = self.part_{number}(h, x)"]
        if how == "function":
            # No die is cast for it: it computes the same.
            behind, calls = _CALLED[(number + len(lines[0])) % len(_CALLED)]
            if any(re.search(r"\bx\b", line) for line in lines) and "bound_?" in str(
                calls
            ):
                behind, calls = _CALLED[0]
            self.pieces.top += [
                f"def part_{number}(self, h, x):",
                *indent([*lines, "return h"]),
                "",
                "",
                *(line.replace("?", str(number)) for line in behind),
                "",
                "",
            ]
            return [line.replace("?", str(number)) for line in calls]
        if how == "module":
            inner = Owner()
            entry = self.dice.choice(sorted(OPERATIONS))
            own = self.pieces.place(OPERATIONS[entry], inner)
            self.pieces.top += [
                f"class Part{number}(nn.Module):",
                "    def __init__(self):",
                "        super().__init__()",
                *indent(inner.lines, 2),
                "",
                "    def forward(self, h, x):",
                *indent([*own, "return h"], 2),
                "",
                "",
            ]
            self.owner.lines.append(f"self.inner_{number} = Part{number}()")
            return [*lines, f"h = self.inner_{number}(h, x)"]
        if how == "nested":
            return [
                f"def part_{number}(h):",
                *indent([*lines, "return h"]),
                f"h = part_{number}(h)",
            ]
        if how == "condition":
            return ["if self.training or x.dim() == 2:", *indent(lines)]
        if how == "loop":
            return [f"for _ in range({self.dice.pick(1, 2)}):", *indent(lines)]
        return lines

    def text(self) -> list[str]:
        dice = self.dice
        last = dice.pick(
            ["return h"],
            ["return h"],
            ["return self.last(h)"],
            ["self.seen = h.detach()", "return self.last(h)"],
            ["out = self.last(h)", "return out"],
        )
        if any("self.last" in line for line in last):
            self.owner.lines.append("self.last = nn.Linear(8, 8)")
        return [
            f"class {self.name}(nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            *indent(self.owner.lines, 2),
            "",
            *indent(self.methods),
            "    def forward(self, x):",
            *indent([*self.body, *last], 2),
            "",
            "",
        ]
