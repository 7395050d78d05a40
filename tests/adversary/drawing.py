"""A whole program: a model, data, an optimizer in its home, and a loop in some context."""

from __future__ import annotations

import re
from dataclasses import dataclass

from adversary.data import HEAD, LOADERS
from adversary.forwards import Model
from adversary.homes import BACKWARDS, HOMES, STEPS, ZEROS
from adversary.training import AFTER, BETWEEN, LEAVING, LOSSES
from adversary.writing import Dice, Entry, Owner, Pieces, indent, numbered

_Known = dict[str, tuple[str, list[str], list[str]]]
"""By function: its own parameters, what it needs of the script, and what it binds anew there."""

_OPTIMIZERS = ("SGD", "SGD", "Adam", "AdamW", "RMSprop", "NAdam")


@dataclass(frozen=True)
class Program:
    seed: int
    text: str
    pieces: tuple[str, ...]
    """The names of what it is made of."""


def drawn(seed: int) -> Program:
    """The program that belongs to a seed."""
    return _Drawing(seed).program()


class _Drawing:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = Dice(seed)
        self.pieces = Pieces(self.dice)
        self.script = Owner("~")
        self.style = self.dice.pick("script", "script", "main", "class", "class")
        self.functions: list[list[str]] = []
        """Helpers of the training: methods of the class, or functions."""

    def program(self) -> Program:
        dice, pieces = self.dice, self.pieces
        model = Model(dice, pieces, "Net", dice.pick(0, 1, 1, 1, 2))
        make_data, self.targets, self.over, self.begin = dice.choice(LOADERS)
        home = HOMES[self._chosen(HOMES, "variable", 0.5)]
        self.pieces.used.append(home.name)
        loop = self._loop()
        setup = [*make_data, "~model = Net().to(device)"]
        first = [line for line in self.script.lines if not _asks(line)]
        later = [line for line in self.script.lines if _asks(line)]
        optimizer = dice.choice(_OPTIMIZERS)
        made = list(home.body[:-1])
        reference = home.body[-1]
        if home.top:
            pieces.top += [*home.top, "", ""]
        last = list(pieces.last)
        call = f"torch.optim.{optimizer}(PARAMS, lr=0.05)"
        trained = "~model.parameters()"
        if self.script.trained:
            trained = f"[*~model.parameters(), {', '.join(self.script.trained)}]"

        def filled(lines: list[str]) -> list[str]:
            found = []
            for line in lines:
                line = line.replace("MAKE", call)
                line = line.replace("CLASSNAME", optimizer)
                line = re.sub(r"\bCLASS\b", f"torch.optim.{optimizer}", line)
                if home.name == "wrapper":
                    # Torch's schedulers take no other than torch's optimizers.
                    line = re.sub(r"(lr_scheduler\.\w+\(OPT)\b", r"\1.optimizer", line)
                line = re.sub(r"\bOPT\b", lambda _: reference, line)
                line = re.sub(r"\bPARAMS\b", trained, line)
                found.append(re.sub(r"\bMODEL\b", "~model", line))
            return found

        setup = filled([*setup, *first, *made, *later])
        top = filled(pieces.top)
        text = [
            *[line.replace("SEED", str(self.seed % 1000)) for line in HEAD],
            "",
            *top,
            *model.text(),
            *self._told(
                setup, filled(loop), filled(last), [filled(f) for f in self.functions]
            ),
        ]
        return Program(self.seed, "\n".join(text) + "\n", tuple(pieces.used))

    def _chosen(self, entries: dict[str, Entry], usual: str, chance: float) -> str:
        return usual if self.dice.maybe(chance) else self.dice.choice(sorted(entries))

    def _one(self, entries: dict[str, Entry], chance: float) -> list[str]:
        if not self.dice.maybe(chance):
            return []
        name = self.dice.choice(sorted(entries))
        return self.pieces.place(entries[name], self.script)

    def _form(self, forms: tuple[tuple[str, ...], ...]) -> list[str]:
        """One of some forms; the usual ones stand first, more than once."""
        number = self.pieces.fresh()
        form = forms[0] if self.dice.maybe(0.6) else self.dice.choice(forms)
        return [numbered(line, number) for line in form]

    # -- the loop --------------------------------------------------------------------------------

    def _loop(self) -> list[str]:
        dice = self.dice
        forward = self._form(
            (
                *[("out = MODEL(x)",)] * 6,
                ("out = MODEL.forward(x)",),
                ("?net = MODEL", "out = ?net(x)"),
                ("out = [MODEL(x)][0]",),
                ("out = torch.cat([MODEL(x), MODEL(x)])[:6]",),
                ("out = (MODEL(x) + MODEL(x * 0.9)) / 2",),
                (
                    "?outs = []",
                    "for _ in range(2):",
                    "    ?outs.append(MODEL(x))",
                    "out = ?outs[0] + ?outs[-1]",
                ),
                ("out = MODEL(x).float()",),
                ('?result = {"out": MODEL(x), "x": x}', 'out = ?result["out"]'),
                ("out = functools.partial(MODEL)(x)",),
                ("out = nn.Sequential(MODEL, nn.Identity())(x)",),
            )
        )
        loss = self._one(LOSSES, 1.0)
        if dice.maybe(0.2):
            extra = [
                re.sub(r"\bloss\b", "extra", line) for line in self._one(LOSSES, 1.0)
            ]
            loss += [
                *extra,
                dice.pick(
                    "loss = loss + 0.1 * extra",
                    "loss += 0.1 * extra",
                    "loss = torch.stack([loss, extra]).sum()",
                ),
            ]
        before = self._one(LEAVING, 0.25)
        backward = self._form(BACKWARDS)
        between = self._one(BETWEEN, 0.4) + self._one(BETWEEN, 0.1)
        step = self._form(STEPS)
        after = self._one(AFTER, 0.4) + self._one(LEAVING, 0.35)
        if any(line == "del out" for line in before):
            after = [] if _mentions(after, "out") else after
        zero = self._form(ZEROS)
        uses_continue = any("continue" in line for line in [*between, *backward])
        computed = [*forward, *loss, *before]
        if dice.maybe(0.3):
            computed = self._helper(
                "compute", computed, ["x", "y", "b", "c"], ["loss", "out"]
            )
            if any("del out" in line for line in before):
                computed, before = [*forward, *loss], []
        updated = [*between, *step]
        kind = dice.pick("plain", "plain", "late", "accumulated", "accumulated")
        if not uses_continue and dice.maybe(0.25):
            if dice.maybe(0.5):
                updated = self._helper("update", updated, ["loss"], [])
            else:
                backward, updated = [], self._helper(
                    "update", [*backward, *updated], ["loss"], []
                )
        if kind == "plain":
            body = [*zero, *computed, *backward, *updated, *after]
        elif kind == "late":
            body = [*computed, *backward, *updated, *zero, *after]
        elif backward and not uses_continue:
            stop = dice.pick(
                "(i + 1) % 2 == 0",
                "i % 2 == 1",
                "(i + 1) % 2 == 0 or i + 1 == len(LOADER)",
            )
            stop = stop.replace("LOADER", self.over)
            body = [
                *computed,
                *backward,
                f"if {stop}:",
                *indent([*updated, *zero]),
                *after,
            ]
        else:
            body = [*zero, *computed, *backward, *updated, *after]
        body = [*self.begin, *body]
        if not uses_continue and dice.maybe(0.15):
            own = self._helper(
                "train_batch", body, [*re.findall(r"\w+", self.targets), "i"], []
            )
            body = own
        return self._around(body)

    def _around(self, body: list[str]) -> list[str]:
        dice = self.dice
        target = f"({self.targets})" if "," in self.targets else self.targets
        inner = dice.pick(
            [f"for i, {target} in enumerate({self.over}):", *indent(body)],
            [f"for i, {target} in enumerate({self.over}):", *indent(body)],
            [
                "i = -1",
                f"for {self.targets} in {self.over}:",
                "    i += 1",
                *indent(body),
            ],
            [
                f"batches = iter({self.over})",
                f"for i in range(len({self.over})):",
                f"    {self.targets} = next(batches)",
                *indent(body),
            ],
        )
        if dice.maybe(0.2):
            inner = ["MODEL.train()", *inner]
        how = dice.pick("for", "for", "while", "once", "function", "try")
        if how == "function":
            inner = self._helper("train_epoch", inner, ["epoch"], [])
        if how == "while":
            return ["epoch = 0", "while epoch < 2:", *indent([*inner, "epoch += 1"])]
        if how == "once":
            return ["epoch = 0", *inner]
        if how == "try":
            inner = ["try:", *indent(inner), "except KeyboardInterrupt:", "    pass"]
        return ["for epoch in range(2):", *indent(inner)]

    # -- the context -----------------------------------------------------------------------------

    def _helper(
        self, name: str, lines: list[str], given: list[str], back: list[str]
    ) -> list[str]:
        """Put lines into a function, and call it."""
        given = [one for one in given if _mentions(lines, one)]
        if any(re.match(r"\s*del out", line) for line in lines):
            back = [one for one in back if one != "out"]
        back = [one for one in back if _mentions(lines, one)]
        lines = [re.sub(r"^(\s*)continue$", r"\1return", line) for line in lines]
        form = self.dice.pick("tuple", "tuple", "dictionary", "attributes")
        if not back:
            result, call = [], f"@{name}({', '.join(given)})"
        elif form == "dictionary":
            pairs = ", ".join(f'"{one}": {one}' for one in back)
            result = [f"return {{{pairs}}}"]
            call = f"got = @{name}({', '.join(given)})"
        elif form == "attributes":
            pairs = ", ".join(f"{one}={one}" for one in back)
            result = [f"return types.SimpleNamespace({pairs})"]
            call = f"got = @{name}({', '.join(given)})"
        else:
            result = [f"return {', '.join(back)}"]
            call = f"{', '.join(back)} = @{name}({', '.join(given)})"
        after = []
        if back and form == "dictionary":
            after = [f'{one} = got["{one}"]' for one in back]
        elif back and form == "attributes":
            after = [f"{one} = got.{one}" for one in back]
        self.functions.append([f"@{name}", ", ".join(given), *lines, *result])
        return [call, *after]

    def _told(
        self,
        setup: list[str],
        loop: list[str],
        last: list[str],
        functions: list[list[str]],
    ) -> list[str]:
        """The training itself: a script, a function or a class."""
        if self.style == "class":
            return self._as_class(setup, loop, last, functions)
        parameters = {}
        text = []
        how = self.dice.pick("given", "given", "global")
        if self.style == "main":
            how = self.dice.pick("given", "nested")
        for function in functions:
            name, given, lines = function[0][1:], function[1], function[2:]
            roots = self._roots(lines, parameters)
            stored = [root for root in roots if _stores(lines, root)]
            if how == "given":
                # What a function binds anew would be lost: it is a global, or all stay where they are.
                if stored and self.style == "main":
                    how = "nested"
                else:
                    roots = [root for root in roots if root not in stored]
            parameters[name] = (given, roots, stored)
        for function in functions:
            name, lines = function[0][1:], function[2:]
            given, roots, stored = parameters[name]
            names = ", ".join(
                [n for n in given.split(", ") if n] + (roots if how == "given" else [])
            )
            word = "nonlocal" if how == "nested" else "global"
            text += [f"def {name}({names}):"]
            if stored:
                text += [f"    {word} {', '.join(stored)}"]
            text += [*indent(self._calls(lines, parameters, how)), "", ""]
        loop = self._calls(loop, parameters, how)
        if self.style == "script":
            return [_bare(line) for line in [*text, *setup, "", *loop, *last]]
        if how == "nested":
            body = [*setup, "", *text, *loop, *last]
            text = []
        else:
            body = [*setup, "", *loop, *last]
        ended = [
            "def main():",
            *indent(body),
            "",
            "",
            'if __name__ == "__main__":',
            "    main()",
        ]
        return [_bare(line) for line in [*text, *ended]]

    def _roots(self, lines: list[str], known: _Known) -> list[str]:
        text = "\n".join(lines)
        roots = set(re.findall(r"~([a-zA-Z_]\w*)", text))
        for called in re.findall(r"@(\w+)\(", text):
            if called in known:
                roots.update(known[called][1])
        return sorted(roots)

    def _calls(self, lines: list[str], parameters: _Known, how: str) -> list[str]:

        def call(match: re.Match[str]) -> str:
            given, roots, _ = parameters[match[1]]
            passed = [n for n in given.split(", ") if n]
            if how == "given":
                passed += [f"~{root}" for root in roots]
            return f"{match[1]}({', '.join(passed)})"

        return [re.sub(r"@(\w+)\((.*)\)$", call, line) for line in lines]

    def _as_class(
        self,
        setup: list[str],
        loop: list[str],
        last: list[str],
        functions: list[list[str]],
    ) -> list[str]:
        text = ["class Trainer:", "    def __init__(self):", *indent(setup, 2), ""]
        if self.dice.maybe(0.2):
            # The setup in a method of its own.
            text = [
                "class Trainer:",
                "    def __init__(self, seed=0):",
                "        self.seed = seed",
                "        self.build()",
                "",
                "    def build(self):",
                *indent(setup, 2),
                "",
            ]
        for function in functions:
            given = f"self, {function[1]}" if function[1] else "self"
            text += [
                f"    def {function[0][1:]}({given}):",
                *indent(function[2:], 2),
                "",
            ]
        text += ["    def fit(self):", *indent([*loop, *last], 2), "", ""]
        call = self.dice.pick(
            ["Trainer().fit()"],
            ["trainer = Trainer()", "trainer.fit()"],
            [
                "def main():",
                "    trainer = Trainer()",
                "    trainer.fit()",
                "",
                "",
                "main()",
            ],
        )
        lines = [*text, *call]
        lines = [re.sub(r"\(~(\w+) := (.*)\)$", r"~\1 = \2", line) for line in lines]
        return [
            re.sub(r"@(\w+)\(", r"self.\1(", re.sub(r"~(?=[a-zA-Z_])", "self.", line))
            for line in lines
        ]


def _asks(line: str) -> bool:
    return re.search(r"\b(OPT|MODEL)\b", line) is not None


def _bare(line: str) -> str:
    return re.sub(r"~(?=[a-zA-Z_])", "", line)


def _mentions(lines: list[str], name: str) -> bool:
    return any(re.search(rf"(?<![\w.~?]){name}\b", line) for line in lines)


def _stores(lines: list[str], root: str) -> bool:
    return any(re.match(rf"\s*~{root}(, ~\w+)* [-+*/]?= ", line) for line in lines)
