"""The scaler goes where the optimizer goes: parameters, arguments, attributes, births, names."""

from __future__ import annotations

from pathlib import Path

import pytest
from exactness import MOVING_SCALES, check_off, check_scaled
from half_support import check_runs
from programs import HEAD, before_and_after, left_alone, migrated, trains_as_before
from shorthand import before, written_out

from amp_migrate.api import Options, migrate_paths, migrate_source

OPT = " opt = torch.optim.SGD(model.parameters(), lr=0.1)\n+scaler = BORN\n"
BODY = "     for x, y in data:\n         STEPS\n"

TRAIN = "def train(opt):\n    for x, y in data:\n        STEPS\n"
BIRTH = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"

# A signature and its call: the scaler comes last, wherever that is.
SIGNATURES = {
    "positional": ("opt", "opt, scaler", "opt", "opt, scaler=scaler"),
    "a default before": (
        "opt, n=1",
        "opt, n=1, *, scaler",
        "opt, 2",
        "opt, 2, scaler=scaler",
    ),
    "keyword-only": (
        "*, opt, n=1",
        "*, opt, n=1, scaler",
        "opt=opt",
        "opt=opt, scaler=scaler",
    ),
    "positional-only": ("opt, /", "opt, /, scaler", "opt", "opt, scaler=scaler"),
    "star": ("opt, *rest", "opt, *rest, scaler", "opt, 1", "opt, 1, scaler=scaler"),
    "two stars": (
        "opt, **rest",
        "opt, scaler, **rest",
        "opt, a=1",
        "opt, a=1, scaler=scaler",
    ),
    "keywords in a dict": (
        "opt, n=1",
        "opt, n=1, *, scaler",
        "opt, **dict(n=2)",
        "opt, **dict(n=2), scaler=scaler",
    ),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signature(name: str) -> None:
    old, new, given, passed = SIGNATURES[name]
    diff = f"""\
-def train({old}):
+def train({new}):
{BODY}{OPT}-train({given})
+train({passed})
"""
    source, expected = before_and_after(written_out(diff))
    assert migrated(source) == expected


WRAPPER = """\
 class Warm:
-    def __init__(self, inner, steps):
+    def __init__(self, inner, steps, scaler):
         self.inner = inner
+        self.scaler = scaler
         self.steps = steps
     def zero_grad(self):
         self.inner.zero_grad()
     def step_and_update(self):
         for group in self.inner.param_groups:
             group["lr"] = 0.1 / self.steps
-        self.inner.step()
+        self.scaler.step(self.inner)
+        self.scaler.update()
"""
WARM = """\
-warm = Warm(torch.optim.SGD(model.parameters(), lr=0.1), 4)
+warm = Warm(torch.optim.SGD(model.parameters(), lr=0.1), 4, scaler=BORN)
"""
PROGRAMS = {
    "a wrapper that is handed an optimizer, and to a function": f"""\
{WRAPPER} def train(warm):
     for x, y in data:
         warm.zero_grad()
-        loss = criterion(model(x), y)
-        loss.backward()
+        AUTOCAST scaler=warm.scaler
+            loss = criterion(model(x), y)
+        warm.scaler.scale(loss).backward()
         warm.step_and_update()
{WARM} train(warm)
""",
    "a wrapper that another object holds": f"""\
{WRAPPER}{WARM} class Trainer:
     def __init__(self, warm):
         self.warm = warm
     def train(self, x, y):
         self.warm.zero_grad()
-        loss = criterion(model(x), y)
-        loss.backward()
+        AUTOCAST scaler=self.warm.scaler
+            loss = criterion(model(x), y)
+        self.warm.scaler.scale(loss).backward()
         self.warm.step_and_update()
 trainer = Trainer(warm)
 for x, y in data:
     trainer.train(x, y)
""",
    "through three functions": f"""\
-def step(opt, x, y):
+def step(opt, x, y, scaler):
     STEPS
-def epoch(opt):
+def epoch(opt, scaler):
     for x, y in data:
-        step(opt, x, y)
+        step(opt, x, y, scaler=scaler)
{OPT}-epoch(opt)
-epoch(opt=opt)
+epoch(opt, scaler=scaler)
+epoch(opt=opt, scaler=scaler)
""",
    "not through a function that sees it": f"""\
{OPT} def train():
{BODY} train()
""",
    "a closure": f"""\
-def make_step(opt):
+def make_step(opt, scaler):
     def step(x, y):
         STEPS
     return step
{OPT}-step = make_step(opt)
+step = make_step(opt, scaler=scaler)
 for x, y in data:
     step(x, y)
""",
    "a function that may go without an optimizer": f"""\
-def run(x, y, opt=None):
-    loss = criterion(model(x), y)
+def run(x, y, opt=None, scaler=None):
+    if scaler is None:
+        scaler = torch.amp.GradScaler("cuda", enabled=False)
+    AUTOCAST
+        loss = criterion(model(x), y)
     if opt is not None:
         opt.zero_grad()
-        loss.backward()
-        opt.step()
+        scaler.scale(loss).backward()
+        scaler.step(opt)
+        scaler.update()
{OPT} for x, y in data:
-    run(x, y, opt)
+    run(x, y, opt, scaler=scaler)
     run(x, y)
""",
    "an attribute": """\
 class T:
     def __init__(self):
         self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
+        self.scaler = BORN
     def one(self, x, y):
         STEPS opt=self.opt scaler=self.scaler
 t = T()
 for x, y in data:
     t.one(x, y)
""",
    "an attribute that is passed in": f"""\
 class T:
-    def __init__(self, opt):
+    def __init__(self, opt, scaler):
         self.opt = opt
+        self.scaler = scaler
     def one(self, x, y):
         STEPS opt=self.opt scaler=self.scaler
 class U(T):
-    def __init__(self, opt, name):
-        super().__init__(opt)
+    def __init__(self, opt, name, scaler):
+        super().__init__(opt, scaler=scaler)
         self.name = name
{OPT} for x, y in data:
-    T(opt).one(x, y)
-    U(opt, "u").one(x, y)
+    T(opt, scaler=scaler).one(x, y)
+    U(opt, "u", scaler=scaler).one(x, y)
""",
    "an attribute that is set from outside": """\
 class T:
     def __init__(self):
         self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
+        self.scaler = BORN
     def one(self, x, y):
         STEPS opt=self.opt scaler=self.scaler
 t = T()
 t.opt = torch.optim.Adam(model.parameters())
+t.scaler = BORN
 for x, y in data:
     t.one(x, y)
""",
    "a step from outside": """\
 class T:
     def __init__(self):
         self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
+        self.scaler = BORN
     def back(self, x, y):
         self.opt.zero_grad()
-        loss = criterion(model(x), y)
-        loss.backward()
+        AUTOCAST scaler=self.scaler
+            loss = criterion(model(x), y)
+        self.scaler.scale(loss).backward()
 t = T()
 for x, y in data:
     t.back(x, y)
-    t.opt.step()
+    t.scaler.step(t.opt)
+    t.scaler.update()
""",
    "static and class methods": f"""\
 class T:
     @staticmethod
-    def one(opt, x, y):
+    def one(opt, x, y, scaler):
         STEPS
     @classmethod
-    def two(cls, opt, x, y):
+    def two(cls, opt, x, y, scaler):
         STEPS
{OPT} for x, y in data:
-    T.one(opt, x, y)
-    T().two(opt, x, y)
+    T.one(opt, x, y, scaler=scaler)
+    T().two(opt, x, y, scaler=scaler)
""",
    "an unbound method": f"""\
 class T:
-    def one(self, opt, x, y):
+    def one(self, opt, x, y, scaler):
         STEPS
{OPT} for x, y in data:
-    T.one(T(), opt, x, y)
+    T.one(T(), opt, x, y, scaler=scaler)
""",
    "two callers, each with its own": f"""\
-def step(opt, x, y):
+def step(opt, x, y, scaler):
     STEPS
 def main():
     opt = torch.optim.Adam(model.parameters())
+    scaler = BORN
     for x, y in data:
-        step(opt, x, y)
+        step(opt, x, y, scaler=scaler)
{OPT} for x, y in data:
-    step(opt, x, y)
+    step(opt, x, y, scaler=scaler)
 main()
""",
    "in a tuple": """\
-def train(pair, x, y):
+def train(pair, x, y, scaler):
     net, opt = pair
     STEPS net=net
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 pair = (model, opt)
 for x, y in data:
-    train(pair, x, y)
+    train(pair, x, y, scaler=scaler)
""",
    "in a dict that is spread over the parameters": """\
-def train(x, y, net, opt):
+def train(x, y, net, opt, scaler):
     STEPS net=net
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 parts = {"net": model, "opt": opt}
 for x, y in data:
-    train(x, y, **parts)
+    train(x, y, **parts, scaler=scaler)
""",
    "among the options": """\
-def train(x, y, **options):
+def train(x, y, scaler, **options):
     net, opt = options["net"], options["opt"]
     STEPS net=net
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 for x, y in data:
-    train(x, y, net=model, opt=opt)
+    train(x, y, net=model, opt=opt, scaler=scaler)
""",
    "among the rest of the arguments": """\
-def train(x, y, *parts):
+def train(x, y, *parts, scaler):
     net, opt = parts
     STEPS net=net
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 for x, y in data:
-    train(x, y, model, opt)
+    train(x, y, model, opt, scaler=scaler)
""",
    "made in the argument list of the call": """\
-def train(net, opt, data):
+def train(net, opt, data, scaler):
     for x, y in data:
         STEPS net=net
-train(model, torch.optim.Adam(model.parameters()), data)
+train(model, torch.optim.Adam(model.parameters()), data, scaler=BORN)
 for lr in (0.1, 0.2):
-    train(model, opt=torch.optim.SGD(model.parameters(), lr=lr), data=data)
+    train(model, opt=torch.optim.SGD(model.parameters(), lr=lr), data=data, scaler=BORN)
""",
    "two that are made in one call": """\
 other = make().to(device)
 class Pair:
-    def __init__(self, opt_a, opt_b):
+    def __init__(self, opt_a, opt_b, scaler_a, scaler_b):
         self.opt_a = opt_a
+        self.scaler_a = scaler_a
         self.opt_b = opt_b
+        self.scaler_b = scaler_b
     def train(self, x, y):
         STEPS net=model opt=self.opt_a scaler=self.scaler_a
         STEPS net=other opt=self.opt_b scaler=self.scaler_b
 pair = Pair(
     torch.optim.Adam(model.parameters()),
     torch.optim.SGD(other.parameters(), lr=0.1),
+    scaler_a=BORN,
+    scaler_b=BORN,
 )
 for x, y in data:
     pair.train(x, y)
""",
    "two side by side take turns": """\
-def step(net, opt, x, y):
+def step(net, opt, x, y, scaler):
     STEPS net=net
 other = make().to(device)
 first = torch.optim.SGD(model.parameters(), lr=0.1)
+first_scaler = BORN
 second = torch.optim.Adam(other.parameters())
+second_scaler = BORN
 for x, y in data:
-    step(model, first, x, y)
-    step(other, second, x, y)
+    step(model, first, x, y, scaler=first_scaler)
+    step(other, second, x, y, scaler=second_scaler)
""",
    "names from those of the optimizers": """\
 other = make().to(device)
 opt_a = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler_a = BORN
 opt_b = torch.optim.Adam(other.parameters())
+scaler_b = BORN
-def step(net, opt, x, y):
+def step(net, opt, x, y, scaler):
     STEPS net=net
 for x, y in data:
-    step(model, opt_a, x, y)
-    step(other, opt_b, x, y)
+    step(model, opt_a, x, y, scaler=scaler_a)
+    step(other, opt_b, x, y, scaler=scaler_b)
""",
    "one a fold": """\
 for fold in range(2):
     net = make().to(device)
     opt = torch.optim.SGD(net.parameters(), lr=0.1)
+    scaler = BORN
     for x, y in data:
         STEPS net=net
""",
    "a global": f"""\
 opt = None
 def setup():
-    global opt
+    global opt, scaler
     opt = torch.optim.SGD(model.parameters(), lr=0.1)
+    scaler = BORN
 def train():
{BODY} setup()
 train()
""",
    "one of two functions, chosen before they are called": f"""\
-def train(opt):
+def train(opt, scaler):
{BODY}-def look(opt):
+def look(opt, scaler):
     print(opt)
 def main():
     opt = torch.optim.SGD(model.parameters(), lr=0.1)
+    scaler = BORN
     run = train if len(data) > 1 else look
-    run(opt)
+    run(opt, scaler=scaler)
 main()
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    source, expected = before_and_after(written_out(PROGRAMS[name]))
    assert migrated(source) == expected


@pytest.mark.parametrize(
    "name", ["two side by side take turns", "an attribute that is set from outside"]
)
def test_the_scaler_of_its_own_optimizer(name: str) -> None:
    """At one scale the wrong scaler goes unseen; here the scales differ and move."""
    trains_as_before(written_out(PROGRAMS[name]))


NAMES = {
    "scaler = 3\n": "grad_scaler",
    "scaler = grad_scaler = 3\n": "amp_scaler",
    "scaler = grad_scaler = amp_scaler = loss_scaler = 3\n": "scaler2",
    "def scaler():\n    pass\n": "grad_scaler",
    "def f():\n    scaler = 4\n    return scaler\n": "grad_scaler",
    "from sklearn import scaler\n": "grad_scaler",
    'globals()["scaler"] = 3\n': "grad_scaler",
    'setattr(model, "scaler", 3)\n': "grad_scaler",
    "model.scaler = 3\n": "grad_scaler",
}


@pytest.mark.parametrize("taken", NAMES)
def test_a_name_that_is_free(taken: str) -> None:
    source, expected = before_and_after(written_out(OPT + " def train():\n" + BODY))
    new = expected.replace("scaler", NAMES[taken])
    output = migrated(f"{taken}{source}train()\n")
    assert "".join(output.split()) == "".join(f"{taken}{new}train()\n".split())


def test_bfloat16_carries_a_bool() -> None:
    options = Options(dtype="bfloat16")
    output = migrated(before(f"{TRAIN}{BIRTH}train(opt)\n"), options)
    assert "def train(opt, use_amp):" in output
    assert (
        'with torch.autocast("cuda", dtype=torch.bfloat16, enabled=use_amp):' in output
    )
    assert 'use_amp = device.type == "cuda"\ntrain(opt, use_amp=use_amp)\n' in output
    assert "        loss.backward()\n        opt.step()\n" in output
    assert "scale" not in output


WARM_BEFORE = before_and_after(WRAPPER)[0].replace("step_and_update", "step")
WARM_STEPS = """\
loss = criterion(model(x), y)
warm.zero_grad()
loss.backward()
"""

CHOSEN = (
    f"{TRAIN}def main(given=None):\n"
    f"    {BIRTH}    run = train if given is None else train\n    run(opt)\nmain()\n"
)

STUCK = {
    "a wrapper, or a plain optimizer": (
        f"{WARM_BEFORE}def train(warm, x, y):\n    {WARM_STEPS.replace(chr(10), chr(10) + 4 * ' ')}"
        "warm.step()\n"
        "train(Warm(torch.optim.SGD(model.parameters(), lr=0.1), 4), *data[0])\n"
        "sgd = torch.optim.SGD(model.parameters(), lr=0.1)\ntrain(sgd, *data[0])\n",
        "AMP014",
    ),
    "a wrapper that saves all its attributes": (
        f"{WARM_BEFORE}    def state_dict(self):\n"
        "        return {k: v for k, v in self.__dict__.items() if k != 'inner'}\n"
        "warm = Warm(torch.optim.SGD(model.parameters(), lr=0.1), 4)\n"
        f"for x, y in data:\n    {WARM_STEPS.replace(chr(10), chr(10) + 4 * ' ')}warm.step()\n"
        "    torch.save(warm.state_dict(), 'warm.pt')\n",
        "AMP040",
    ),
    "a trainer that is saved with all its attributes": (
        "class T:\n    def __init__(self):\n"
        f"        self.{BIRTH}"
        "    def one(self, x, y):\n"
        "        STEPS opt=self.opt\n"
        "t = T()\nfor x, y in data:\n    t.one(x, y)\ntorch.save(vars(t), 't.pt')\n",
        "AMP040",
    ),
    "a wrapper that is made behind backward()": (
        f"{WARM_BEFORE}for x, y in data:\n    loss = criterion(model(x), y)\n    loss.backward()\n"
        "    warm = Warm(torch.optim.SGD(model.parameters(), lr=0.1), 4)\n    warm.step()\n"
        "    warm.zero_grad()\n",
        "AMP031",
    ),
    "one scaler for what is made in two calls": (
        "other = make().to(device)\n"
        "class Opt:\n    def __init__(self, opt):\n        self.opt = opt\n"
        "class Other:\n    def __init__(self, opt):\n        self.opt = opt\n"
        "a = Opt(torch.optim.Adam(model.parameters()))\n"
        "b = Other(torch.optim.Adam(other.parameters()))\n"
        "for x, y in data:\n    a.opt.zero_grad()\n    b.opt.zero_grad()\n"
        "    loss = criterion(model(x), y) + criterion(other(x), y)\n    loss.backward()\n"
        "    a.opt.step()\n    b.opt.step()\n",
        "AMP012",
    ),
    "a decorator": (f"import functools\n@functools.cache\n{TRAIN}{BIRTH}train(opt)\n", "AMP015"),
    "a starred call": (f"{TRAIN}{BIRTH}train(*[opt])\n", "AMP012"),
    "all arguments in a dict": (f"{TRAIN}{BIRTH}train(**dict(opt=opt))\n", "AMP010"),
    "a function that is kept": (f"{TRAIN}{BIRTH}train.run = train\ntrain(opt)\n", "AMP015"),
    "a function whose code is given to it": (
        f"{TRAIN}{BIRTH}train.__code__ = make.__code__\ntrain(opt)\n",
        "AMP015",
    ),
    "a function that may be one out of sight": (
        CHOSEN.replace("else train", "else given"),
        "AMP015",
    ),
    "a function that is returned under another name": (
        CHOSEN.replace("    run(opt)\n", "    run(opt)\n    return run\n"),
        "AMP015",
    ),
    "a lookup by name": (
        f'{TRAIN}{BIRTH}train(opt)\nglobals()["train"]\n',
        "AMP015",
    ),
    "a default that is another optimizer": (
        "one = torch.optim.Adam(model.parameters())\n"
        f"{TRAIN.replace('(opt)', '(opt=one)')}{BIRTH}train(opt)\ntrain()\n",
        "AMP015",
    ),
    "__slots__": (
        "class T:\n"
        '    __slots__ = ("opt",)\n'
        "    def __init__(self):\n"
        f"        self.{BIRTH}"
        "    def one(self, x, y):\n"
        "        STEPS opt=self.opt\n"
        "for x, y in data:\n    T().one(x, y)\n",
        "AMP035",
    ),
    "an override that is called without an optimizer": (
        "class T:\n"
        "    def one(self, opt, x, y):\n"
        "        STEPS\n"
        "    def fit(self):\n"
        f"        {BIRTH}"
        "        for x, y in data:\n"
        "            self.one(opt, x, y)\n"
        "class U(T):\n"
        "    def one(self, opt, x, y):\n"
        "        print(x)\n"
        "T().fit()\nU().fit()\nU().one(None, 1, 2)\n",
        "AMP015",
    ),
    "two optimizers in one step": (
        "other = make().to(device)\n"
        f"{BIRTH}adam = torch.optim.Adam(other.parameters())\n"
        "for x, y in data:\n    STEPS\n    adam.step()\n",
        "AMP031",
    ),
    "two optimizers of one loop, one in a helper": (
        "other = make().to(device)\n"
        f"{BIRTH}adam = torch.optim.Adam(other.parameters())\n"
        "def more():\n    adam.step()\n"
        "for x, y in data:\n    STEPS\n    more()\n",
        "AMP031",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STUCK)
def test_no_way_for_the_scaler(name: str) -> None:
    text, code = STUCK[name]
    assert left_alone(before(text)) == code


def test_an_optimizer_that_one_call_makes_and_another_is_given() -> None:
    result = migrated(
        before(
            "def train(opt):\n    for x, y in data:\n        STEPS\n"
            "train(torch.optim.Adam(model.parameters()))\n"
            "opt = torch.optim.SGD(model.parameters(), 0.1)\ntrain(opt)\n"
        )
    )
    assert "train(torch.optim.Adam(model.parameters()), scaler=torch.amp." in result
    assert "train(opt, scaler=scaler)" in result


def test_a_function_that_has_attributes() -> None:
    text = f"{TRAIN}{BIRTH}train.seen = 3\ntrain(opt)\n"
    assert "train(opt, scaler=scaler)" in migrated(before(text))


TABLES = {
    "of the module": "TABLE = {'sgd': torch.optim.SGD, 'adam': torch.optim.Adam}\n"
    "opt = TABLE['sgd'](model.parameters(), lr=0.1)\n",
    "of an instance": "class Config:\n"
    "    def __init__(self):\n"
    "        self.table = {'sgd': torch.optim.SGD, 'adam': torch.optim.Adam}\n"
    "    def make(self, name):\n"
    "        return self.table[name](model.parameters(), lr=0.1)\n"
    "opt = Config().make('sgd')\n",
    "by its name": "kind = getattr(torch.optim, 'SGD')\n"
    "opt = kind(model.parameters(), lr=0.1)\n",
    "by its name, of what is passed": "def pick(module, name, *args, **kwargs):\n"
    "    return getattr(module, name)(*args, **kwargs)\n"
    "opt = pick(torch.optim, 'SGD', model.parameters(), lr=0.1)\n",
}


@pytest.mark.parametrize("name", TABLES)
def test_a_class_out_of_a_table(name: str) -> None:
    loop = "for x, y in data:\n    opt.zero_grad()\n    criterion(model(x), y).backward()\n    opt.step()\n"
    assert "scaler.step(opt)" in migrated(TABLES[name] + loop)


def test_a_table_that_holds_something_else() -> None:
    table = "TABLE = {'sgd': torch.optim.SGD, 'other': make}\n"
    loop = "for x, y in data:\n    opt.zero_grad()\n    criterion(model(x), y).backward()\n    opt.step()\n"
    text = f"{table}opt = TABLE[KEY](model.parameters(), lr=0.1)\n{loop}"
    either = text.replace("KEY", "'other' if len(data) > 9 else 'sgd'")
    assert left_alone(either) == "AMP010"
    assert "scaler.step(opt)" in migrated(text.replace("KEY", "'sgd'"))


def test_an_optimizer_class_of_ones_own() -> None:
    text = """\
class Plain(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1):
        super().__init__(params, dict(lr=lr))
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.data.add_(p.grad, alpha=-group["lr"])
opt = Plain(model.parameters())
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    opt.step()
"""
    after = migrated(text)
    assert "    scaler.step(opt)\n    scaler.update()\n" in after
    pytest.importorskip("torch")
    from exactness import check_injected, check_off, check_scaled

    for check in (check_off, check_scaled, check_injected):
        assert check(HEAD + text, HEAD + after) == []


def test_a_factory_with_a_cache() -> None:
    text = """\
from functools import lru_cache
@lru_cache
def make_opt():
    return torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    opt = make_opt()
    opt.zero_grad()
    criterion(model(x), y).backward()
    opt.step()
"""
    assert left_alone(text) == "AMP010"


def test_an_optimizer_that_a_call_hands_back() -> None:
    source = """\
def resume(path, model, opt):
    saved = torch.load(path)
    opt.load_state_dict(saved["opt"])
    return saved["epoch"], opt
opt = torch.optim.SGD(model.parameters(), lr=0.1)
first = 0
if False:
    first, opt = resume("last.pt", model, opt)
for x, y in data:
    opt.zero_grad()
    criterion(model(x), y).backward()
    opt.step()
"""
    output = migrated(source)
    assert "def resume(path, model, opt, scaler):\n" in output
    assert '    first, opt = resume("last.pt", model, opt, scaler=scaler)\n' in output
    assert output.count("GradScaler(") == 1


def test_a_function_that_another_file_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its new parameter would break the other file, which is not given to be written."""
    monkeypatch.chdir(tmp_path)
    other = f"import torch\nfrom train import model, train\nmodel.cuda()\n{BIRTH}train(opt)\n"
    source = HEAD + before(f"{TRAIN}{BIRTH}train(opt)\n")
    Path("other.py").write_text(other)
    Path("train.py").write_text(source)
    (found,) = migrate_source(source, path="train.py", root=tmp_path).diagnostics
    assert found.code == "AMP017"
    assert "other.py" in found.message
    assert migrate_source(source, path="train.py").changed
    outputs = [changed.result.output for changed in migrate_paths(["."]).changed]
    assert ["train(opt, scaler=scaler)" in output for output in outputs] == [True] * 2


def test_arguments_in_a_list_leave_the_default() -> None:
    train = TRAIN.replace("(opt)", "(*n, opt=None)")
    text = train.replace("    for", "    if opt is None:\n        return\n    for", 1)
    output = migrated(before(f"{text}{BIRTH}train(*[1])\ntrain(opt=opt)\n"))
    assert "train(*[1])\ntrain(opt=opt, scaler=scaler)\n" in output


_HANDED_OUT = """\
import sys
class Base:
    def __init__(self, model, data, opt=None):
        self.model, self.data, self.opt = model, data, opt
class Plain(Base):
    def train(self):
        for x, y in self.data:
            STEPS net=self.model opt=self.opt
class Other(Base):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.kept = []
    def train(self):
        for x, y in self.data:
            STEPS net=self.model opt=self.opt
def chosen(kind):
    if kind == "plain":
        return list, Plain
    return list, Other
def main():
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    kept, kind = chosen(sys.argv[-1])
    evaluator = kind(model, data)
    trainer = kind(model, kept(data), opt)
    trainer.train()
    print(len(evaluator.data))
main()
"""


def test_a_class_that_a_function_hands_out_beside_another() -> None:
    source = before(_HANDED_OUT)
    result = migrated(source)
    assert "trainer = kind(model, kept(data), opt, scaler=scaler)" in result
    assert "evaluator = kind(model, data)\n" in result
    alone = source.replace("list, ", "").replace("kept, kind", "kept = list\n    kind")
    assert "trainer = kind(model, kept(data), opt, scaler=scaler)" in migrated(alone)
    assert check_off(HEAD + source, HEAD + result) == []
    assert check_scaled(HEAD + source, HEAD + result, MOVING_SCALES[1]) == []


_GOES_ON = {
    "is kept": ("trainer.train()\n", "trainer.train()\n    trainer.kind = kind\n"),
    "is handed on": ("trainer = kind(", "map(kind, [model])\n    trainer = kind("),
    "is unpacked elsewhere": ("main()\n", "main()\nsys.kinds = chosen('plain')\n"),
    "comes out of a function that is": ("main()\n", "sys.chosen = chosen\nmain()\n"),
    "is found by a decorator": ("def chosen", "@sys.keep\ndef chosen"),
}  # fmt: skip


@pytest.mark.parametrize("name", _GOES_ON)
def test_a_class_that_goes_on_from_where_it_is_handed_out(name: str) -> None:
    old, new = _GOES_ON[name]
    at = _HANDED_OUT.rindex(old)
    text = _HANDED_OUT[:at] + new + _HANDED_OUT[at + len(old) :]
    assert left_alone(before(text)) == "AMP015"
    alone = (
        before(text)
        .replace("list, ", "")
        .replace("kept, kind", "kept = list\n    kind")
    )
    assert left_alone(alone) == "AMP015"


_TRAINER = """\
import sys
class Trainer:
    def __init__(self, model, opt):
        self.model, self.opt = model, opt
    def train(self):
        for x, y in data:
            STEPS net=self.model opt=self.opt
opt = torch.optim.SGD(model.parameters(), lr=0.1)
"""
# By which a class comes to where nobody in sight makes its objects.
_GIVEN_AWAY = {
    "an attribute out of sight": "sys.kind = Trainer\n",
    "two attributes": "sys.one = sys.two = Trainer\n",
    "an entry out of sight": "sys.modules['kind'] = Trainer\n",
    "a name of the file": "globals()['kind'] = Trainer\n",
    "another name": "kind = Trainer\nsys.keep(kind)\n",
    "a global variable": "def name():\n    global kind\n    kind = Trainer\nname()\nsys.keep(kind)\n",
    "an attribute of a parameter": "def register(holder):\n    holder.kind = Trainer\nregister(sys)\n",
    "a default": "def go(kind=Trainer):\n    sys.keep(kind)\ngo()\n",
    "a method's default": "class App:\n    def go(self, kind=Trainer):\n        sys.keep(kind)\nApp().go()\n",
    "a class out of sight": "class App(sys.Base):\n    kind = Trainer\n",
    "objects of a class out of sight": """\
class App(sys.Base):
    def __init__(self):
        self.kind = Trainer
App()
""",
    "an attribute that is read": "class App:\n    kind = Trainer\nsys.keep(App.kind)\n",
}
_ONLY_CALLED = {
    "another name": "def go():\n    kind = Trainer\n    kind(model, opt).train()\ngo()\n",
    "its own attribute": """\
class App:
    def __init__(self):
        self.kind = Trainer
    def go(self):
        self.kind(model, opt).train()
App().go()
""",
    "an object's attribute": """\
class App:
    pass
app = App()
app.kind = Trainer
app.kind(model, opt).train()
""",
}


@pytest.mark.parametrize("name", _GIVEN_AWAY)
def test_a_class_that_is_given_away(name: str) -> None:
    end = "Trainer(model, opt).train()\n"
    assert left_alone(before(f"{_TRAINER}{_GIVEN_AWAY[name]}{end}")) == "AMP015"


@pytest.mark.parametrize("name", _ONLY_CALLED)
def test_a_class_that_is_only_called(name: str) -> None:
    output = migrated(before(_TRAINER + _ONLY_CALLED[name]))
    assert "kind(model, opt, scaler=scaler).train()" in output


@pytest.mark.parametrize("kept", ("train", "staticmethod(train)", "[train]"))
def test_a_function_that_a_class_out_of_sight_has(kept: str) -> None:
    assert left_alone(before(f"""\
import sys
def train(opt):
    for x, y in data:
        STEPS
class App(sys.Base):
    run = {kept}
train(torch.optim.SGD(model.parameters(), lr=0.1))
""")) == "AMP015"


MAKES_ITS_OWN = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = make()

    def forward(self, x):
        return self.body(x)

    def make_optimizer(self):
        self.optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        return self.optimizer


class Trainer:
    def __init__(self, net):
        self.net = net
        self.optimizer = self.net.make_optimizer()

    def step(self, x, y):
        self.optimizer.zero_grad()
        loss = criterion(self.net(x), y)
        loss.backward()
        self.optimizer.step()
        return loss


def scaled(torch, by):
    return torch * by


trainer = Trainer(Net().to(device))
for x, y in data:
    print(scaled(trainer.step(x, y).item(), 2))
"""


def test_an_optimizer_that_a_model_makes_keeps_and_hands_out() -> None:
    output = migrated(MAKES_ITS_OWN)
    assert "        self.scaler = self.net.scaler\n" in output
    assert output.count("torch.amp.GradScaler(") == 1
    check_runs(HEAD + MAKES_ITS_OWN, HEAD + output)
    # What it returns is another one, for all that is seen.
    other = MAKES_ITS_OWN.replace("return self.optimizer", "return self.other()")
    assert left_alone(other) == "AMP010"
    not_always = MAKES_ITS_OWN.replace(
        "        self.optimizer = torch",
        "        if not self.training:\n            return\n        self.optimizer = torch",
    )
    assert left_alone(not_always) == "AMP010"


def test_a_name_of_torch_that_means_something_else_elsewhere() -> None:
    inside = MAKES_ITS_OWN.replace(
        "def step(self, x, y)", "def step(self, x, y, torch=None)"
    )
    assert left_alone(inside) == "AMP035"


ENTERED = """\
class State:
    def register(self, **kwargs):
        for key, value in kwargs.items():
            setattr(self, key, value)
class Base:
    def __enter__(self):
        return self
    def __exit__(self, *error):
        pass
class Engine(Base):
    def __init__(self):
        self.state, self.opt = State(), None
    def register(self, **kwargs):
        self.state.register(**kwargs)
    def take(self, opt):
        self.opt = opt
    def clip(self):
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    def keep(self):
        return {"opt": self.opt.state_dict()}
OTHER
with Engine() as engine:
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    engine.take(opt)
    for x, y in data:
        opt.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        engine.clip()
        opt.step()
        print(loss.item())
    torch.save(engine.keep(), "last.pt")
"""
OF_ANOTHER = {
    "one that steps": ("AMP031", "    def clip(self):\n        self.opt.step()\n"),
    "one whose method alone is called": (
        "AMP010",
        "    def take(self, opt):\n        self.opt = opt\n        opt.step()\n",
    ),
    "what it enters is not in sight": (
        "AMP010",
        "    def __enter__(self):\n        return self.inner\n",
    ),
}


def test_what_a_with_statement_enters_is_followed() -> None:
    body = ENTERED.replace("OTHER\n", "")
    output = migrated(body)
    assert "engine.take(opt, scaler=scaler)" in output and "unscale_" in output
    assert '{"opt": self.opt.state_dict(), "scaler": self.scaler' in output
    assert check_off(HEAD + body, HEAD + output) == []
    assert check_scaled(HEAD + body, HEAD + output, MOVING_SCALES[1]) == []
    registered = body.replace("engine.take(opt)", "engine.register(opt=opt)")
    assert (
        left_alone(registered.replace("self.opt.st", "self.state.opt.st")) == "AMP040"
    )


@pytest.mark.parametrize("name", OF_ANOTHER)
def test_what_a_with_statement_enters_may_be_of_a_subclass(name: str) -> None:
    code, method = OF_ANOTHER[name]
    body = ENTERED.replace("OTHER\n", f"class Other(Engine):\n{method}")
    assert left_alone(body.replace("with Engine()", "with Other()")) == code
