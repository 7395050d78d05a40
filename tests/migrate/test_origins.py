"""Where an optimizer comes from: expressions that choose one, makers, functions that hand it back."""

from __future__ import annotations

from pathlib import Path

import pytest
from exactness import check_off, check_scaled
from programs import HEAD, before_and_after, left_alone, migrated, trains_as_before
from shorthand import before, written_out

from amp_migrate.api import Options, Outcome, migrate_paths, migrate_source

BODY = " for x, y in data:\n     STEPS\n"

ORIGINS = {
    "one of a dict that is written out": f"""\
 opt = {{
     "adam": torch.optim.Adam(model.parameters()),
     "sgd": torch.optim.SGD(model.parameters(), lr=0.1),
 }}[kind]
+scaler = BORN
{BODY}""",
    "by the name of a module that was imported": f"""\
 import torch.optim as opt
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
{BODY}""",
    "a class that is chosen in branches": f"""\
 make_opt = None
 if kind == "sgd":
     make_opt = torch.optim.SGD
 else:
     make_opt = getattr(torch.optim, "Adam")
 opt = make_opt(model.parameters(), lr=0.1)
+scaler = BORN
{BODY}""",
    "under the name of its class": f"""\
 def make_opt(params, name):
     made = getattr(torch.optim, name)
     if name == "Adam":
         made = made(params, lr=0.1)
     else:
         made = made(params, lr=0.1, momentum=0.9)
     return made
 opt = make_opt(model.parameters(), "SGD")
+scaler = BORN
{BODY}""",
    "a class of one's own of a class that is chosen": """\
 def make_opt(params, name):
     if name == "sgd":
         base = torch.optim.SGD
     else:
         base = torch.optim.Adam
     class Scheduled(base):
         def attach(self):
             self.scheduler = torch.optim.lr_scheduler.StepLR(self, 2)
         def schedule(self):
             self.scheduler.step()
     made = Scheduled(params, lr=0.1)
     made.attach()
     return made
 opt = make_opt(model.parameters(), "sgd")
+scaler = BORN
 for x, y in data:
     STEPS
     opt.schedule()
""",
    "a maker that chooses a class": f"""\
 def maker(name, **kwargs):
     found = None
     if hasattr(torch.optim, name):
         found = getattr(torch.optim, name)
     if found is None:
         raise NotImplementedError(name)
     return found(**kwargs)
 opt = maker("SGD", params=model.parameters(), lr=0.1)
+scaler = BORN
{BODY}""",
    "handed back by functions that bind it anew": f"""\
-def read(path, net, opt):
+def read(path, net, opt, scaler):
     state = torch.load(path)
     net.load_state_dict(state["net"])
     opt.load_state_dict(state["opt"])
+    if scaler.is_enabled() and state.get("scaler"):
+        scaler.load_state_dict(state["scaler"])
     return net, opt, state["step"]
-def resume(net, opt=None):
-    net, opt, step = read("last.pt", net, opt)
+def resume(net, opt=None, *, scaler):
+    net, opt, step = read("last.pt", net, opt, scaler=scaler)
     return net, opt, step
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 if kind == "resume":
-    model, opt, step = resume(model, opt)
+    model, opt, step = resume(model, opt, scaler=scaler)
{BODY}""",
    "handed to a scheduler that is chosen by its name": f"""\
 from torch.optim import lr_scheduler
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 scheduler = getattr(lr_scheduler, "StepLR")(opt, 2)
{BODY}     scheduler.step()
""",
    "fed by a generator that multiplies matrices": """\
 def rotated():
     turn = torch.eye(8, device=device)
     for x, y in data:
         yield torch.einsum("bi,ij->bj", x, turn), y
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 for x, y in rotated():
     STEPS
""",
    "handed back where more results are asked for": f"""\
-def read(net, opt, averaged=False, best=False):
+def read(net, opt, averaged=False, best=False, *, scaler):
     state = torch.load("last.pt")
     net.load_state_dict(state["net"])
     if averaged:
         return net
     opt.load_state_dict(state["opt"])
+    if scaler.is_enabled() and state.get("scaler"):
+        scaler.load_state_dict(state["scaler"])
     if best:
         return net, opt, state["step"], state["best"]
     return net, opt, state["step"]
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 if kind == "resume":
-    model, opt, step, best = read(model, opt, best=True)
+    model, opt, step, best = read(model, opt, best=True, scaler=scaler)
{BODY}""",
    "a class that is a parameter's default": """\
 from typing import Type
 class Agent:
     def __init__(self, net, make_opt: Type[torch.optim.Optimizer] = torch.optim.SGD):
         self.net = net
         self.opt = make_opt(self.net.parameters(), lr=0.1)
+        self.scaler = BORN
     def learn(self, x, y):
         STEPS net=self.net opt=self.opt scaler=self.scaler
 agent = Agent(model)
 for x, y in data:
     agent.learn(x, y)
""",
    "a class that some calls give, wrapped up": f"""\
 from functools import partial
 def maker(net, of=None):
     of = of or torch.optim.Adam
     return of(net.parameters())
 opt = maker(model, partial(torch.optim.SGD, lr=0.1, momentum=0.9))
+scaler = BORN
{BODY} other = maker(make())
""",
    "a lambda in the configuration": f"""\
 class Config:
     def __init__(self):
         self.opt_fn = None
 config = Config()
 config.opt_fn = lambda params: torch.optim.SGD(params, lr=0.1)
 opt = config.opt_fn(model.parameters())
+scaler = BORN
{BODY}""",
    "a class that a function returns": f"""\
 KNOWN = {{"adam": torch.optim.Adam}}
 def pick(name):
     if name is None:
         return torch.optim.SGD
     return KNOWN[name]
 cls = pick(None)
 opt = cls(model.parameters(), lr=0.1)
+scaler = BORN
{BODY}""",
    "a class that is registered": f"""\
 KNOWN = {{"adam": torch.optim.Adam}}
 def register(name, cls):
     KNOWN[name] = cls
 register("sgd", torch.optim.SGD)
 opt = KNOWN[kind](model.parameters(), lr=0.1)
+scaler = BORN
{BODY}""",
    "an attribute, where others step theirs by a name that begins otherwise": """\
 class Many:
     def step(self, n):
         getattr(self, f"opt{n}").step()
 class Trainer:
     def __init__(self, net):
         self.optim = torch.optim.SGD(net.parameters(), lr=0.1)
+        self.scaler = BORN
     def train(self):
         for x, y in data:
             STEPS opt=self.optim scaler=self.scaler
     def log(self, n):
         getattr(self, f"logger_{n}").step()
 Trainer(model).train()
""",
    "made where others step theirs by a name put together": """\
 class Many:
     def __init__(self, nets):
         for n, net in enumerate(nets):
             setattr(self, f"opt{n}", optimizer_of(net))
     def step(self, n):
         getattr(self, f"opt{n}").step()
 def optimizer_of(net):
     return torch.optim.SGD(net.parameters(), lr=0.1)
 def train():
     opt = optimizer_of(model)
+    scaler = BORN
     for x, y in data:
         STEPS
 train()
""",
    "a class that only another call gives": f"""\
 def maker(net, of=torch.optim.SGD):
     return of(net.parameters(), lr=0.1)
 opt = maker(model)
+scaler = BORN
 other = maker(make(), lambda params, lr: list(params))
{BODY}""",
    "unpacked out of a tuple in a tuple": f"""\
 def build():
     net = make().to(device)
     opt = torch.optim.SGD(net.parameters(), lr=0.1)
     return (net, opt), torch.optim.lr_scheduler.StepLR(opt, 2)
 (model, opt), scheduler = build()
+scaler = BORN
{BODY}     scheduler.step()
""",
    "unpacked out of a tuple in a tuple in a tuple": f"""\
 def build():
     net = make().to(device)
     opt = torch.optim.SGD(net.parameters(), lr=0.1)
     return (net, ("sgd", opt)), 3
 (model, (name, opt)), epochs = build()
+scaler = BORN
{BODY}""",
    "handed out by a method of who holds it": """\
 class Agent:
     def __init__(self, net):
         self.net = net
         self.opt = torch.optim.SGD(net.parameters(), lr=0.1)
+        self.scaler = BORN
     def optimizer(self):
         return self.opt
     def learn(self, x, y):
         opt = self.optimizer()
         STEPS net=self.net scaler=self.scaler
 agent = Agent(model)
 for x, y in data:
     agent.learn(x, y)
""",
    "a property that is computed once": """\
 from functools import cached_property
 class Agent:
     def __init__(self, net):
         self.net = net
+        self.scaler = BORN
     @cached_property
     def opt(self):
         return torch.optim.SGD(self.net.parameters(), lr=0.1)
     def learn(self, x, y):
         STEPS net=self.net opt=self.opt scaler=self.scaler
 agent = Agent(model)
 for x, y in data:
     agent.learn(x, y)
""",
    "a property that makes it when it is asked for first": """\
 class Agent:
     def __init__(self, net):
         self._opt = None
+        self.scaler = BORN
         self.net = net
     @property
     def opt(self):
         if self._opt is None:
             self._opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
         return self._opt
     def learn(self, x, y):
         STEPS net=self.net opt=self.opt scaler=self.scaler
 agent = Agent(model)
 for x, y in data:
     agent.learn(x, y)
""",
    "a function that a decorator registers": f"""\
 MAKERS = {{}}
 def register(name):
     def enter(made):
         MAKERS[name] = made
         return made
     return enter
 @register("sgd")
 def sgd(net):
     return torch.optim.SGD(net.parameters(), lr=0.1)
 @register("adam")
 def adam(net):
     return torch.optim.Adam(net.parameters())
 opt = MAKERS[kind](model)
+scaler = BORN
{BODY}""",
    "a function out of a table": f"""\
 def sgd(net):
     return torch.optim.SGD(net.parameters(), lr=0.1)
 def adam(net):
     return torch.optim.Adam(net.parameters())
 opt = {{"sgd": sgd, "adam": adam}}[kind](model)
+scaler = BORN
{BODY}""",
    "given to a class out of a table": """\
 class Base:
-    def __init__(self, net, opt):
+    def __init__(self, net, opt, scaler):
         self.net, self.opt = net, opt
+        self.scaler = scaler
     def update(self, x, y):
         STEPS net=self.net opt=self.opt scaler=self.scaler
 class First(Base):
-    def __init__(self, net, opt):
-        super().__init__(net, opt)
+    def __init__(self, net, opt, scaler):
+        super().__init__(net, opt, scaler=scaler)
 class Other(Base):
-    def __init__(self, net, made):
-        super().__init__(net, opt=made)
+    def __init__(self, net, made, scaler):
+        super().__init__(net, opt=made, scaler=scaler)
 TRAINERS = {"sgd": First, "other": Other}
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 print(sorted(TRAINERS), kind in TRAINERS)
 Trainer = TRAINERS[kind]
-trainer = Trainer(model, opt)
+trainer = Trainer(model, opt, scaler=scaler)
 for x, y in data:
     trainer.update(x, y)
""",
    "given to functions out of a table, one of which has no use for it": """\
-def plain(net, opt, x, y):
+def plain(net, opt, x, y, scaler):
     STEPS net=net
-def skip(net, opt, x, y):
+def skip(net, opt, x, y, scaler):
     pass
 STEPS_BY_NAME = {"sgd": plain, "none": skip}
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 for x, y in data:
-    STEPS_BY_NAME[kind](model, opt, x, y)
+    STEPS_BY_NAME[kind](model, opt, x, y, scaler=scaler)
""",
    "made as a base class makes it": """\
 class Base:
     def __init__(self, net):
         self.net = net
         self.opt = self.make_optimizer()
+        self.scaler = BORN
     def make_optimizer(self):
         return torch.optim.SGD(self.net.parameters(), lr=0.1)
 class Trainer(Base):
     def make_optimizer(self):
         return super().make_optimizer()
     def update(self, x, y):
         STEPS net=self.net opt=self.opt scaler=self.scaler
 trainer = Trainer(model)
 for x, y in data:
     trainer.update(x, y)
""",
    "given to a method, or to what overrides it": """\
 class Trainer:
-    def one(self, opt, x, y):
+    def one(self, opt, x, y, scaler):
         STEPS
     def fit(self):
         opt = torch.optim.SGD(model.parameters(), lr=0.1)
+        scaler = BORN
         for x, y in data:
-            self.one(opt, x, y)
+            self.one(opt, x, y, scaler=scaler)
 class Other(Trainer):
-    def one(self, opt, x, y):
-        super().one(opt, x, y)
+    def one(self, opt, x, y, scaler):
+        super().one(opt, x, y, scaler=scaler)
 Trainer().fit()
 Other().fit()
""",
    "with LARC around it, perhaps": f"""\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 if kind == "large":
     from apex.parallel.LARC import LARC
     opt = LARC(optimizer=opt, clip=False)
{BODY}""",
    "a property": """\
 class Agent:
     def __init__(self, net):
         self.net = net
         self._opt = torch.optim.SGD(net.parameters(), lr=0.1)
+        self.scaler = BORN
     @property
     def opt(self):
         "What it is trained by."
         return self._opt
     def learn(self, x, y):
         STEPS net=self.net opt=self.opt scaler=self.scaler
 agent = Agent(model)
 for x, y in data:
     agent.learn(x, y)
""",
}


@pytest.mark.parametrize("name", ORIGINS)
def test_is_followed(name: str) -> None:
    diff = f' kind = "sgd"\n{written_out(ORIGINS[name])}'
    source, expected = before_and_after(diff)
    assert migrated(source) == expected
    trains_as_before(diff)


TABLE = """\
def plain(net, opt, x, y):
    STEPS net=net
def skip(net, opt, x, y):
    pass
KNOWN = {"sgd": plain, "none": skip}
opt = torch.optim.SGD(model.parameters(), lr=0.1)
"""
UNKNOWN = {
    "something is put into": 'KNOWN["own"] = build',
    "is handed on": "extend(KNOWN)",
    "has another name": "table = KNOWN",
    "gives what is not only called": 'register(KNOWN["sgd"])',
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_table_that(name: str) -> None:
    run = "for x, y in data:\n    KNOWN[kind](model, opt, x, y)\n"
    source = before(f"{TABLE}{UNKNOWN[name]}\n{run}")
    assert left_alone(source) in ("AMP010", "AMP015")


REFUSED = {
    "a property that makes one anew whenever it is asked for": (
        """\
class Agent:
    def __init__(self, net):
        self.net = net
    @property
    def opt(self):
        return torch.optim.SGD(self.net.parameters(), lr=0.1)
agent = Agent(model)
opt = agent.opt
""",
        "AMP010",
    ),
    "a function that a decorator registers, and replaces": (
        """\
MAKERS = {}
def register(made):
    def other(net):
        return build(net)
    MAKERS["sgd"] = other
    return made
@register
def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.1)
opt = MAKERS["sgd"](model)
""",
        "AMP010",
    ),
    "a function out of a table that holds another": (
        """\
def sgd(net):
    return torch.optim.SGD(net.parameters(), lr=0.1)
opt = {"sgd": sgd, "own": build}[kind](model)
""",
        "AMP010",
    ),
    "what LARC is around, under another name": (
        """\
from apex.parallel.LARC import LARC
inner = torch.optim.SGD(model.parameters(), lr=0.1)
opt = LARC(inner)
""",
        "AMP014",
    ),
    "an attribute that may be stepped by a name that begins like its own": (
        """\
class Trainer:
    def __init__(self, net):
        self.optim = torch.optim.SGD(net.parameters(), lr=0.1)
    def step(self, n):
        getattr(self, f"opt{n}").step()
trainer = Trainer(model)
opt = trainer.optim
""",
        "AMP010",
    ),
    "a dict with an optimizer that nothing is known of": (
        """\
opt = {"sgd": torch.optim.SGD(model.parameters(), lr=0.1), "own": build(model)}[kind]
""",
        "AMP010",
    ),
    "a class that need not be an optimizer's": (
        """\
make_opt = torch.optim.SGD if kind else build
opt = make_opt(model.parameters(), lr=0.1)
""",
        "AMP010",
    ),
    "a property that hands out one or the other": (
        """\
class Agent:
    def __init__(self, net):
        self._one = torch.optim.SGD(net.parameters(), lr=0.1)
        self._other = torch.optim.SGD(net.parameters(), lr=0.2)
    @property
    def opt(self):
        if kind:
            return self._other
        return self._one
agent = Agent(model)
opt = agent.opt
""",
        "AMP010",
    ),
    "a function that keeps what it made first": (
        """\
_made = None
def maker(net):
    global _made
    if _made is None:
        _made = torch.optim.SGD(net.parameters(), lr=0.1)
    return _made
opt = maker(model)
""",
        "AMP010",
    ),
    "one that is made unless it is given": (
        """\
def maker(net, opt=None):
    return opt or torch.optim.SGD(net.parameters(), lr=0.1)
first = torch.optim.SGD(model.parameters(), lr=0.1)
opt = maker(model, first)
""",
        "AMP010",
    ),
    "a class whose step needs a closure, which only the default is": (
        """\
def maker(net, of=torch.optim.LBFGS):
    return of(net.parameters(), lr=0.1)
opt = maker(model)
other = maker(model, torch.optim.SGD)
""",
        "AMP013",
    ),
    "a class that options give that steps in its own way": (
        """\
from apart import Lookahead
options = {"of": Lookahead}
def maker(net, of=torch.optim.SGD):
    return of(net.parameters(), lr=0.1)
opt = maker(model, **options)
""",
        "AMP014",
    ),
    "a class that is registered beside what steps in its own way": (
        """\
from apart import Lookahead
KNOWN = {"sgd": torch.optim.SGD}
KNOWN["slow"] = Lookahead
opt = KNOWN[kind](model.parameters(), lr=0.1)
""",
        "AMP014",
    ),
    "a class that a function returns, or another": (
        """\
def pick(name):
    if name is None:
        return torch.optim.SGD
    return build
cls = pick(None)
opt = cls(model.parameters(), lr=0.1)
""",
        "AMP010",
    ),
    "a class out of a table that others fill": (
        """\
KNOWN = {"sgd": torch.optim.SGD}
KNOWN.update(torch.load("known.pt"))
opt = KNOWN[kind](model.parameters(), lr=0.1)
""",
        "AMP010",
    ),
    "a partial that holds other parameters": (
        """\
from functools import partial
other = make().to(device)
make_opt = partial(torch.optim.SGD, other.parameters(), lr=0.1)
opt = make_opt(model.parameters())
""",
        "AMP010",
    ),
    "handed to what is chosen by its name": (
        """\
opt = torch.optim.SGD(model.parameters(), lr=0.1)
helper = getattr(helpers, kind)(opt)
""",
        "AMP010",
    ),
    "handed back or replaced": (
        """\
def read(net, opt):
    if kind:
        opt = build(net)
    return net, opt
opt = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt = read(model, opt)
""",
        "AMP010",
    ),
    "one that was saved whole": (
        """\
if kind:
    state = torch.load("last.pt")
    model, opt = state["model"], state["opt"]
else:
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
torch.save({"model": model, "opt": opt}, "last.pt")
""",
        "AMP040",
    ),
    "one that was saved whole, beside its model": (
        """\
opt = torch.optim.SGD(model.parameters(), lr=0.1)
if kind:
    model, opt = torch.load("last.pt")
torch.save([model, opt], "last.pt")
""",
        "AMP040",
    ),
    "the other of two that are handed in": (
        """\
def read(net, opt, other):
    net, opt = read_one(net, other)
    return net, opt
def read_one(net, opt):
    opt.load_state_dict(torch.load("last.pt"))
    return net, opt
opt = torch.optim.SGD(model.parameters(), lr=0.1)
other = torch.optim.SGD(model.parameters(), lr=0.1)
model, opt = read(model, opt, other)
""",
        "AMP012",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(name: str) -> None:
    source, code = REFUSED[name]
    loop = before("for x, y in data:\n    STEPS\n")
    assert left_alone(f"kind = None\n{source}{loop}") == code


ALL_VARIABLES = {
    "into its attributes": "self.__dict__.update(locals())",
    "into its attributes, by vars": "vars(self).update(locals())",
    "one after the other": (
        "for name, value in list(locals().items()):\n             setattr(self, name, value)"
    ),
    "by a helper": "keep(locals())",
    "by a helper and their names": "keep_named(locals())",
}
KEEPS_ALL = """\
 def keep(values):
     me = values.pop("self")
     me.__dict__.update(values)
 def keep_named(values, prefix=""):
     me = values["self"]
     for name in [name for name in values if name != "self"]:
         if not hasattr(me, name):
             setattr(me, prefix + name, values[name])
 class Agent:
     def __init__(self, net, lr=0.1, make_opt=torch.optim.SGD, options=None):
         if options is None:
             options = {}
         KEPT
     def start(self):
         self.opt = self.make_opt(self.net.parameters(), lr=self.lr, **self.options)
+        self.scaler = BORN
     def fit(self):
         for x, y in data:
             STEPS net=self.net opt=self.opt scaler=self.scaler
 agent = Agent(model, **{"lr": 0.2})
 agent.start()
 agent.fit()
"""


@pytest.mark.parametrize("name", ALL_VARIABLES)
def test_all_variables_become_attributes(name: str) -> None:
    diff = written_out(KEEPS_ALL.replace("KEPT", ALL_VARIABLES[name]))
    source, expected = before_and_after(diff)
    assert migrated(source) == expected
    trains_as_before(diff)


@pytest.mark.parametrize("kept", ["self.all = locals()", "print(locals())", "pass"])
def test_variables_that_become_no_attributes(kept: str) -> None:
    source, _ = before_and_after(written_out(KEEPS_ALL.replace("KEPT", kept)))
    assert left_alone(source) == "AMP010"


@pytest.mark.parametrize(
    ("taken", "code"),
    [
        ("show(**locals())", "AMP035"),
        ("print(len(vars()))", "AMP035"),
        ('print(len(locals()), "x" in dir())', "AMP035"),
        ("print([n for n in dir() if n])", "AMP035"),
        ('print(locals()["x"], "x" in vars())', None),
        ("print(sorted(vars(opt)))", None),
    ],
)
def test_no_other_variable_where_all_are_taken(taken: str, code: str | None) -> None:
    text = """\
def show(**variables):
    print(len(variables))
def fit():
    print(len(locals()))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in data:
        STEPS
        TAKEN
fit()
"""
    source = before(text.replace("TAKEN", taken))
    if code is not None:
        assert left_alone(source) == code
    else:
        assert "scaler.step(opt)" in migrated(source)


HIDDEN = {
    "opt is a property or a method of Agent, which is not followed": """\
class Agent:
    def __init__(self):
        self._opt = torch.optim.SGD(model.parameters(), lr=0.1)
    @property
    def opt(self):
        print("asked")
        return self._opt
agent = Agent()
""",
    "opt is a field of Agent, which is filled in a way that is not followed": """\
from collections import namedtuple
class Agent(namedtuple("Agent", ["net"])):
    opt: torch.optim.Optimizer
agent = Agent(model)
""",
}


@pytest.mark.parametrize("reason", HIDDEN)
def test_the_reason_says_where_it_leaves_sight(reason: str) -> None:
    loop = before("for x, y in data:\n    STEPS opt=agent.opt\n")
    (found,) = migrate_source(HEAD + HIDDEN[reason] + loop).diagnostics
    assert (found.code, found.message) == ("AMP010", reason)


def test_no_optimizer_steps_on_several_arguments() -> None:
    """`other.optimizer`, which is not followed, is something else: a closure is all that one is given."""
    source = before("""\
class Agent:
    def __init__(self):
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def improve(other, x, y):
    other.optimizer.step(ARGUMENTS)
agent = Agent()
for x, y in data:
    STEPS opt=agent.optimizer
""")
    assert left_alone(source.replace("ARGUMENTS", "")) == "AMP010"
    assert "scaler.step(agent.optimizer)" in migrated(
        source.replace("ARGUMENTS", "x, y")
    )


def test_each_that_a_condition_chooses_counts() -> None:
    """A clip that holds the parameters of one of the two optimizers is no clip of the other's."""
    source = before("""\
other = make().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1) if kind else torch.optim.SGD(other.parameters(), lr=0.1)
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y) + criterion(other(x), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
""")
    assert left_alone(f"kind = None\n{source}") == "AMP030"


TRAINER = """\
from dataclasses import dataclass

import torch


@dataclass
class Outputs:
    scores: torch.Tensor
    loss: torch.Tensor


class Trainer:
    def __init__(self, model, optimizer):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        self.optimizer = optimizer
        self.criterion = torch.nn.CrossEntropyLoss()

    def train(self, data):
        for x, y in data:
            outputs = self.compute(x.to(self.device), y.to(self.device))
            self.backward(outputs.loss)
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.update()

    def compute(self, x, y):
        scores = self.model(x)
        return Outputs(scores, self.criterion(scores, y))

    def backward(self, loss):
        loss.backward()

    def update(self):
        self.optimizer.step()
        self.optimizer.zero_grad()
"""
SCRIPT = f"""\
{HEAD}
from trainer import Trainer

model.bias = model[0].bias


def main():
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    Trainer(model, optimizer).train(data)


if __name__ == "__main__":
    main()
"""
FEATURES = """\
from trainer import Trainer


class Features(Trainer):
    def __init__(self, model):
        self.model = model
"""


def test_scripts_that_share_a_trainer_run_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one script trains is never in the optimizer of the other."""
    monkeypatch.chdir(tmp_path)
    Path("trainer.py").write_text(TRAINER)
    for name in ("first.py", "second.py"):
        Path(name).write_text(SCRIPT)
    Path("features.py").write_text(FEATURES)
    outputs = {
        Path(changed.result.path).name: changed.result.output
        for changed in migrate_paths(["."]).changed
    }
    assert sorted(outputs) == ["first.py", "second.py", "trainer.py"]
    assert outputs["first.py"] == outputs["second.py"]
    assert "Trainer(model, optimizer, scaler=scaler)" in outputs["first.py"]
    assert "self.scaler.step(self.optimizer)" in outputs["trainer.py"]


def test_a_script_that_runs_another_may_train_with_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights that one script ties count for the optimizers of all that run with it."""
    monkeypatch.chdir(tmp_path)
    Path("trainer.py").write_text(TRAINER)
    Path("first.py").write_text(SCRIPT)
    Path("second.py").write_text(
        SCRIPT.replace("import torch\n", "import torch\nimport first\n", 1)
    )
    (loop,) = [loop for result in migrate_paths(["."]).results for loop in result.loops]
    assert loop.outcome is not Outcome.MIGRATED
    assert loop.diagnostic is not None and loop.diagnostic.code == "AMP012"


def test_a_loss_that_is_chosen_by_its_name() -> None:
    """The reason says what it may be."""
    source = HEAD + before("""\
criterion = getattr(nn, kind)()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    STEPS
""")
    (found,) = migrate_source(source, path="train.py").diagnostics
    assert found.code == "AMP020"
    assert "chosen by its name" in found.message


TIMED = """\
def timed(net):
    for x, y in data:
        criterion(net(x), y).backward()
def epoch(opt):
    for x, y in data:
        STEPS
opt = torch.optim.SGD(model.parameters(), lr=0.1)
timed(model)
for _ in range(2):
    epoch(opt)
"""


def test_a_backward_that_is_only_timed_stays() -> None:
    """The gradients that it leaves are dropped before the first step."""
    source = HEAD + before(TIMED)
    result = migrate_source(source, path="train.py")
    outcomes = [loop.outcome for loop in result.loops]
    assert outcomes == [Outcome.LEFT_ALONE, Outcome.MIGRATED]
    assert "criterion(net(x), y).backward()" in result.output
    assert [found.code for found in result.diagnostics] == ["AMP011"]


def test_a_backward_that_adds_to_a_step_does_not_stay() -> None:
    """Without zero_grad() before its own backward(), the step takes what the other one left."""
    source = HEAD + before(TIMED).replace("        opt.zero_grad()\n", "").replace(
        "        opt.step()\n", "        opt.step()\n        opt.zero_grad()\n"
    )
    result = migrate_source(source, path="train.py")
    assert [loop.outcome for loop in result.loops] == [Outcome.MIGRATED] * 2
    assert result.output.count("scaler.scale(") == 2


@pytest.mark.parametrize("call", ["train(make())", "r = train(opts=make())"])
def test_optimizers_that_are_made_where_they_are_given(call: str) -> None:
    source = f"""\
other = make_net().to(device)
def make():
    one = torch.optim.SGD(model.parameters(), lr=0.1)
    two = torch.optim.SGD(other.parameters(), lr=0.1)
    return (one, two)
def train(opts):
    for x, y in data:
        for opt in opts:
            opt.zero_grad()
        loss = criterion(model(x) + other(x), y)
        loss.backward()
        for opt in opts:
            opt.step()
{call}
"""
    head = HEAD.replace("def make():", "def make_net():").replace(
        "= make()", "= make_net()"
    )
    assert left_alone(source, head) == "AMP012"


OWN = """\
import torch
class Plain(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.data.add_(p.grad.data, alpha=-group["lr"])
"""


@pytest.mark.parametrize(
    ("more", "changed"), [("", 1), ("def build(params, lr):\n    return params\n", 0)]
)
def test_a_class_out_of_a_file_of_optimizers(
    more: str, changed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN + more)
    made = "opt = getattr(own if kind else torch.optim, kind or 'SGD')"
    source = f"{HEAD}import own\nkind = 'Plain'\n{made}(model.parameters(), lr=0.1)\n"
    Path("train.py").write_text(source + before_and_after(written_out(BODY))[0])
    assert len(migrate_paths(["."]).changed) == changed


@pytest.mark.parametrize(
    ("package", "changed"),
    [
        ("from torch.optim import *\nfrom .own import *\n", 1),
        ("from .own import *\n", 1),
        ("from .own import *\nfrom elsewhere import *\n", 0),
        (
            "from .own import *\nfrom . import own\ndef build(params, lr):\n    pass\n",
            0,
        ),
    ],
)
def test_a_class_out_of_a_package_of_optimizers(
    package: str, changed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lib/optimizers").mkdir(parents=True)
    Path("lib/__init__.py").touch()
    Path("lib/optimizers/__init__.py").write_text(package)
    Path("lib/optimizers/own.py").write_text(OWN)
    made = "opt = getattr(lib.optimizers, KINDS.get('kind', 'Plain'))"
    source = f"{HEAD}import lib\nimport lib.optimizers\nKINDS = {{}}\n"
    source += f"{made}(model.parameters(), lr=0.1)\n"
    Path("train.py").write_text(source + before_and_after(written_out(BODY))[0])
    assert len(migrate_paths(["."]).changed) == changed


@pytest.mark.parametrize("imports", ("", "import runner\n"))
def test_what_another_script_steps(imports: str, tmp_path: Path) -> None:
    body = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n" + before(
        "for x, y in data:\n    STEPS\n"
    )
    (tmp_path / "train.py").write_text(HEAD + imports + body)
    runner = "def run(trainer, batch):\n    trainer.optimizer.step(batch)\n"
    (tmp_path / "runner.py").write_text(runner)
    (loop,) = [loop for one in migrate_paths([tmp_path]).results for loop in one.loops]
    assert loop.outcome is (Outcome.LEFT_ALONE if imports else Outcome.MIGRATED)


@pytest.mark.parametrize(
    "opt", ("build(model)", "torch.optim.SGD(model.parameters(), lr=0.1)")
)
def test_an_old_torch_is_the_reason_whatever_the_optimizer(opt: str) -> None:
    source = HEAD + before(f"opt = {opt}\nfor x, y in data:\n    STEPS\n")
    result = migrate_source(
        source, path="train.py", options=Options(torch_too_old="torch==1.2")
    )
    assert [found.code for found in result.diagnostics] == ["AMP009"]


def changes_with_amp_off(body: str) -> list[str]:
    return check_off(HEAD + body, HEAD + migrated(body))


_CHOSEN = """\
import argparse
class Trainer:
    def __init__(self, opt):
        self.opt = opt
        self.model = make().to(device)
    def run(self):
        optimizer = self.opt.optimizer(self.model.parameters(), lr=self.opt.lr)
        for x, y in data:
            optimizer.zero_grad()
            loss = criterion(self.model(x), y)
            loss.backward()
            optimizer.step()
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--optimizer", default="adam", type=str)
    parser.add_argument("--lr", default=0.01, type=float)
    opt = parser.parse_args()
    table = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}
    opt.optimizer = table[opt.optimizer]
    Trainer(opt).run()
main()
"""


def test_an_option_that_becomes_the_class_that_it_names() -> None:
    assert changes_with_amp_off(_CHOSEN) == []


@pytest.mark.parametrize(
    ("old", "new"),
    (
        ("torch.optim.SGD}", "torch.optim.LBFGS}"),
        ("torch.optim.SGD}", "build}"),
        ("    opt.optimizer = table[opt.optimizer]\n", ""),
        ("opt = parser.parse_args()", "opt = parser.parse()"),
    ),
)
def test_an_option_that_becomes_no_class_of_an_optimizer(old: str, new: str) -> None:
    assert left_alone(_CHOSEN.replace(old, new)) in ("AMP010", "AMP013")


@pytest.mark.parametrize("option", ("opt.lr", "sys.argv[0]"))
def test_an_option_has_no_part_that_makes_an_optimizer(option: str) -> None:
    found = f"""\
    found = {{"algo": {{"made": torch.optim.SGD}}}}
    for key in ("run", "seed"):
        found[key] = {option}
    opt.optimizer = found["algo"]["made"]
"""
    source = _CHOSEN.replace("    opt.optimizer = table[opt.optimizer]\n", found)
    assert changes_with_amp_off("import sys\n" + source) == []


_COPIED = """\
import copy
from dataclasses import dataclass
from typing import Any
@dataclass
class Model:
    optimizer_fn: Any = torch.optim.SGD
    rate: float = 0.1
    def __post_init__(self):
        self.optimizer_fn = copy.deepcopy(self.optimizer_fn)
    def fit(self):
        self.network = make().to(device)
        self.optimizer = self.optimizer_fn(self.network.parameters(), lr=self.rate)
        for x, y in data:
            self.optimizer.zero_grad()
            loss = criterion(self.network(x), y)
            loss.backward()
            self.optimizer.step()
Model().fit()
"""


def test_a_copy_of_a_class_is_that_class() -> None:
    assert changes_with_amp_off(_COPIED) == []


@pytest.mark.parametrize(
    ("old", "new"),
    (
        ("= torch.optim.SGD\n", "= torch.optim.LBFGS\n"),
        ("Model().fit()", "Model(optimizer_fn=build).fit()"),
        ("Model().fit()", "Model(build).fit()"),
        ("deepcopy(self.optimizer_fn)", "deepcopy(make)"),
    ),
)
def test_a_copy_of_what_makes_no_optimizer(old: str, new: str) -> None:
    build = "def build(params, lr):\n    return Own(params)\n"
    assert left_alone(build + _COPIED.replace(old, new)) in ("AMP010", "AMP013")


AROUND = """\
class Lookahead(torch.optim.Optimizer):
    def __init__(self, inner, k=2):
        super().__init__(inner.param_groups, {})
        self.inner = inner
        self.param_groups = inner.param_groups
        self.k, self.turn = k, 0
    def step(self, closure=None):
        loss = self.inner.step(closure)
        self.turn += 1
        for group in self.param_groups:
            for p in group["params"] if self.turn % self.k == 0 else ():
                slow = self.state[p].setdefault("slow", p.detach().clone())
                slow.add_(p.detach() - slow, alpha=0.5)
                p.data.copy_(slow)
        return loss
def make_optimizer(kind):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    if kind == "slow":
        opt = Lookahead(opt)
    return opt
opt = make_optimizer("slow")
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    opt.step()
print(loss.item())
"""


def test_an_optimizer_around_another_with_its_groups() -> None:
    source = HEAD + AROUND
    output = HEAD + migrated(AROUND)
    assert "scaler.unscale_(opt)" in output
    assert check_off(source, output) == []
    assert check_scaled(source, output) == []


@pytest.mark.parametrize(
    ("mine", "other"),
    (
        ("= inner.param_groups", "= [dict(inner.param_groups[0])]"),
        ("loss = self.inner.step(closure)", "loss = closure(); self.inner.step()"),
        ("self.turn += 1", "self.again(); self.turn += 1"),
    ),
)
def test_an_optimizer_that_does_more_than_the_one_in_it(mine: str, other: str) -> None:
    assert left_alone(AROUND.replace(mine, other)) == "AMP014"


_SPREAD = """\
import json
class Model:
    def __init__(self, rate=0.1, optimizer_fn=torch.optim.SGD):
        \"\"\"optimizer_fn: the class.\"\"\"
        self.optimizer_fn = optimizer_fn
        self.network = make().to(device)
        self.optimizer = self.optimizer_fn(self.network.parameters(), lr=rate)
    def fit(self):
        for x, y in data:
            self.optimizer.zero_grad()
            loss = criterion(self.network(x), y)
            loss.backward()
            self.optimizer.step()
MORE = {}
for one in json.loads('[{"rate": 0.2}, {}]'):
    Model(**one, **MORE).fit()
"""


@pytest.mark.parametrize(
    "more",
    (
        "{}",
        "dict(optimizer_fn=torch.optim.Adam)",
        '{"optimizer_fn": torch.optim.Adam}',
        "{}; Model(0.1, torch.optim.Adam).fit()",
    ),
)
def test_options_among_which_the_class_may_be(more: str) -> None:
    assert changes_with_amp_off(_SPREAD.replace("= {}", f"= {more}")) == []


@pytest.mark.parametrize(
    "more",
    (
        "dict(optimizer_fn=torch.optim.LBFGS)",
        '{"optimizer_fn": build}',
        '{"": 1}; MORE["optimizer_fn"] = build',
        'path("model.optimizer_fn", build)',
        "{}; Model(*[0.1, build]).fit()",
        "{}; Model.optimizer_fn = build",
    ),
)
def test_options_that_make_no_optimizer(more: str) -> None:
    build = "def build(params, lr):\n    return Own(params)\n"
    source = build + _SPREAD.replace("= {}", f"= {more}")
    assert left_alone(source) in ("AMP010", "AMP013")
