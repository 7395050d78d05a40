"""Subclasses that inherit an optimizer, and each train with it in their own way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from exactness import MOVING_SCALES, check_off, check_scaled
from programs import HEAD, before_and_after, left_alone, migrated, trains_as_before
from shorthand import written_out

from amp_migrate.api import Result, migrate_paths, migrate_source

BASE = """\
 import sys
 class Base:
     def __init__(self):
         self.net = make().to(device)
         self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
+        self.scaler = BORN
     def update(self, x, y):
         STEPS net=self.net opt=self.opt scaler=self.scaler
"""
OTHER = """\
 class Other(Base):
     def update(self, x, y):
         STEPS net=self.net opt=self.opt scaler=self.scaler
"""
RUN = """\
 kinds = {"base": Base, "other": Other}
 one = kinds[sys.argv[1] if len(sys.argv) > 1 else "other"]()
 for x, y in data:
     one.update(x, y)
"""
LEFT = """\
 class Left(Base):
     def update(self, x, y):
         loss = criterion(self.net(x), y)
         self.opt.zero_grad()
         loss.backward(create_graph=True)
         self.opt.step()
"""
RUN_LEFT = RUN.replace('"other": Other', '"other": Other, "left": Left')


def test_both() -> None:
    diff = written_out(BASE + OTHER + RUN)
    source, expected = before_and_after(diff)
    assert migrate_source(HEAD + source, path="train.py").output == HEAD + expected
    trains_as_before(diff)


def test_one_that_is_left_alone_is_no_reason_for_the_others() -> None:
    source, expected = before_and_after(written_out(BASE + OTHER + LEFT + RUN_LEFT))
    result = migrate_source(HEAD + source, path="train.py")
    assert result.output == HEAD + expected
    assert [found.code for found in result.diagnostics] == ["AMP023"]


# What makes the objects of both classes one, or lets a method run on the others.
TIED = {
    "the method of the base runs too": LEFT.replace(
        "         loss = criterion",
        "         super().update(x, y)\n         loss = criterion",
    ),
    "by the name of the class": LEFT.replace(
        "         loss = criterion",
        "         Base.update(self, x, y)\n         loss = criterion",
    ),
    "a net from elsewhere": LEFT,
    "it is called with any object": LEFT + " step = Base.update\n",
}


@pytest.mark.parametrize("name", TIED)
def test_objects_that_are_not_shown_to_be_apart(name: str) -> None:
    base = BASE
    run = RUN_LEFT.replace(', "other": Other', "")
    if name == "a net from elsewhere":
        base = base.replace("__init__(self)", "__init__(self, net)")
        base = base.replace("make().to(device)", "net")
        run = run.replace("()\n for", "(model)\n for")
        run += " Base(model).update(x, y)\n"
    source, _ = before_and_after(written_out(base + TIED[name] + run))
    result = migrate_source(HEAD + source, path="train.py")
    assert not result.changed
    assert result.diagnostics


def test_what_steps_for_both_belongs_to_both() -> None:
    source, _ = before_and_after(written_out("""\
 import sys
 class Base:
     def __init__(self):
         self.net = make().to(device)
         self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
     def end(self):
         nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
         self.opt.step()
     def update(self, x, y):
         self.opt.zero_grad()
         criterion(self.net(x), y).backward()
         self.end()
 class Left(Base):
     def update(self, x, y):
         self.opt.zero_grad()
         criterion(self.net(x), y).backward(create_graph=True)
         self.end()
""" + RUN.replace("other", "left").replace("Other", "Left")))
    assert left_alone(source) == "AMP031 AMP023"
    apart = source.replace(
        "True)\n        self.end()", "True)\n        self.opt.step()"
    )
    result = migrate_source(HEAD + apart, path="train.py")
    assert [found.code for found in result.diagnostics] == ["AMP023"]
    assert "self.scaler.step(self.opt)" in result.output


def test_an_optimizer_that_a_method_makes_anew() -> None:
    anew = """\
 class Other(Base):
     turns = 0
     def update(self, x, y):
         self.turns += 1
-        loss = criterion(self.net(x), y)
+        AUTOCAST scaler=self.scaler
+            loss = criterion(self.net(x), y)
         if self.turns == 3:
             self.opt = torch.optim.SGD(self.net.parameters(), lr=0.01)
         self.opt.zero_grad()
-        loss.backward()
-        self.opt.step()
+        self.scaler.scale(loss).backward()
+        self.scaler.step(self.opt)
+        self.scaler.update()
"""
    diff = written_out(BASE + anew + RUN)
    source, expected = before_and_after(diff)
    assert migrate_source(HEAD + source, path="train.py").output == HEAD + expected
    trains_as_before(diff)


ALONE = before_and_after(written_out(BASE + LEFT))[0]
EITHER = """\
kinds = {"base": Base, "left": Left}
one = kinds[sys.argv[1] if len(sys.argv) > 1 else "left"]()
for x, y in data:
    one.update(x, y)
"""
BOTH = """\
one, two = Base(), Left(MORE)
for x, y in data:
    one.update(x, y)
    two.update(x, y)
"""


@pytest.mark.parametrize("run", (EITHER, BOTH.replace("MORE", "")))
def test_the_base_alone(run: str) -> None:
    result = migrate_source(HEAD + ALONE + run, path="train.py")
    assert "scaler.step(self.opt)" in result.output.split("class Left")[0]
    assert "scaler" not in result.output.split("class Left")[1]


def _begins(*lines: str, source: str = ALONE) -> str:
    """The class that is left alone, its update with lines at its start."""
    base, left = source.split("class Left")
    head = "    def update(self, x, y):\n"
    added = "".join(f"        {line}\n" for line in lines)
    return f"{base}class Left{left.replace(head, head + added)}"


def _made(*lines: str) -> str:
    """The same with a constructor."""
    head = "class Left(Base):\n"
    added = "".join(f"        {line}\n" for line in lines)
    return ALONE.replace(head, f"{head}    def __init__(self, other):\n{added}")


AGAIN = EITHER.replace("one.update", "one.again")
GIVEN = BOTH.replace("one, two = Base(), Left(MORE)", "one = Base()\ntwo = Left(one)")
LATER = "Left()\ntwo."
HOLDS = _made("super().__init__()", "self.other = other")
# A method of one class on an object of the other, or what one object has in another.
TANGLED = {
    "another name": (
        ALONE.replace(
            "class Left(Base):\n", "class Left(Base):\n    again = Base.update\n"
        ),
        AGAIN,
    ),
    "a name from outside": (f"{ALONE}Left.again = Base.update\n", AGAIN),
    "setattr": (f"{ALONE}setattr(Left, 'again', Base.update)\n", AGAIN),
    "getattr": (ALONE, f"{EITHER}getattr(Base, 'update')(one, x, y)\n"),
    "getattr of super()": (_begins("getattr(super(), 'update')(x, y)"), EITHER),
    "super() with its class": (_begins("super(Left, self).update(x, y)"), EITHER),
    "super() in a variable": (_begins("up = super()", "up.update(x, y)"), EITHER),
    "__mro__": (_begins("type(self).__mro__[1].update(self, x, y)"), EITHER),
    "__base__": (_begins("self.__class__.__base__.update(self, x, y)"), EITHER),
    "its class changes": (ALONE, f"one = Left()\none.__class__ = Base\n{EITHER}"),
    "its net is given": (ALONE, BOTH.replace("Left(MORE)", f"{LATER}net = one.net")),
    "its optimizer is given": (
        ALONE,
        BOTH.replace("Left(MORE)", f"{LATER}opt = one.opt"),
    ),
    "all attributes are given": (
        ALONE,
        BOTH.replace("Left(MORE)", f"{LATER}__dict__.update(one.__dict__)"),
    ),
    "vars()": (_made("vars(self).update(vars(other))"), GIVEN),
    "it takes all": (_made("self.net, self.opt = other.net, other.opt"), GIVEN),
    "it steps the other": (_begins("self.other.opt.step()", source=HOLDS), GIVEN),
    "it clears the other": (_begins("self.other.net.zero_grad()", source=HOLDS), GIVEN),
}


@pytest.mark.parametrize("name", TANGLED)
def test_objects_that_may_be_tangled(name: str) -> None:
    source = HEAD + "".join(TANGLED[name])
    assert not migrate_source(source, path="train.py").changed


ALGORITHMS = """\
 import torch
 import torch.nn.functional as F
 class First:
     def __init__(self, net):
         self.net = net
         self.parts = [net]
-    def update(self, x, y, opt):
+    def update(self, x, y, opt, scaler):
         opt.zero_grad()
-        loss = F.cross_entropy(self.net(x), y)
-        loss.backward()
-        opt.step()
+        AUTOCAST
+            loss = F.cross_entropy(self.net(x), y)
+        scaler.scale(loss).backward()
+        scaler.step(opt)
+        scaler.update()
 class Left(First):
-    def update(self, x, y, opt):
+    def update(self, x, y, opt, scaler):
         loss = F.cross_entropy(self.net(x), y)
         opt.zero_grad()
         loss.backward(create_graph=True)
         opt.step()
 class Twice(First):
-    def update(self, x, y, opt):
+    def update(self, x, y, opt, scaler):
         loss = F.cross_entropy(self.net(x), y)
         opt.zero_grad()
         loss.backward(create_graph=True)
         opt.step()
 def class_of(name):
     if name not in globals():
         raise ValueError(name)
     return globals()[name]
"""
TRAINING = """\
 import sys
 import algorithms
 def optimizer_of(algorithm):
     return torch.optim.SGD(algorithm.parts[0].parameters(), lr=0.1)
 cls = algorithms.class_of(sys.argv[1] if len(sys.argv) > 1 else "Left")
 algorithm = cls(model)
 opt = optimizer_of(algorithm)
+scaler = BORN
 for x, y in data:
-    algorithm.update(x, y, opt)
+    algorithm.update(x, y, opt, scaler=scaler)
"""


def _by_name(folder: Path, algorithms: str, training: str) -> list[Result]:
    (folder / "algorithms.py").write_text(algorithms)
    (folder / "train.py").write_text(training)
    return sorted(migrate_paths([folder]).results, key=lambda one: one.path)


def test_one_object_of_a_class_that_is_looked_up(tmp_path: Path) -> None:
    left = ALGORITHMS.partition(" class Twice")
    kept = left[0] + " def class_of" + left[2].partition(" def class_of")[2]
    before, after = before_and_after(written_out(kept))
    source, expected = before_and_after(written_out(TRAINING))
    found = _by_name(tmp_path, before, HEAD + source)
    assert [one.output for one in found] == [after, HEAD + expected]
    assert [d.code for one in found for d in one.diagnostics] == ["AMP023"]


@pytest.mark.parametrize(
    "more",
    (
        "algorithm = cls(model)\n other = cls(model)\n",
        "for _ in range(2):\n     algorithm = cls(model)\n",
    ),
)
def test_objects_of_one_class_that_is_looked_up(more: str, tmp_path: Path) -> None:
    training = TRAINING.replace("algorithm = cls(model)\n", more)
    before, after = before_and_after(written_out(ALGORITHMS))
    source, expected = before_and_after(written_out(training))
    found = _by_name(tmp_path, before, HEAD + source)
    assert [one.output for one in found] == [after, HEAD + expected]


EACH_APART = """\
 import sys
 class Base:
     def __init__(self):
         self.net = self.build().to(device)
     def build(self):
         return make()
     def optimizer(self):
         return torch.optim.SGD(self.net.parameters(), lr=0.1)
 class First(Base):
     def train(self):
         opt = self.optimizer()
+        scaler = BORN
         for x, y in data:
             CLIPPED net=self.net
 class Second(Base):
     def train(self):
         opt = self.optimizer()
+        scaler = BORN
         for x, y in data:
             CLIPPED net=self.net
 if len(sys.argv) > 1 and sys.argv[1] == "first":
     Kind = First
 else:
     Kind = Second
 for i in range(2):
     one = Kind()
     one.train()
"""


def test_each_class_trains_in_its_own_way_again_and_again() -> None:
    clipped = """\
             opt.zero_grad()
-            loss = criterion(self.net(x), y)
-            loss.backward()
-            torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
-            opt.step()
+            AUTOCAST
+                loss = criterion(self.net(x), y)
+            scaler.scale(loss).backward()
+            scaler.unscale_(opt)
+            torch.nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
+            scaler.step(opt)
+            scaler.update()
"""
    diff = written_out(
        EACH_APART.replace("             CLIPPED net=self.net\n", clipped)
    )
    source, expected = before_and_after(diff)
    assert migrate_source(HEAD + source, path="train.py").output == HEAD + expected
    trains_as_before(diff)
    # Where objects of both train, one after the other, each has an optimizer of its own: also for one net.
    both = diff.replace("Kind()", "(First if i else Second)()")
    for one in (both, both.replace("        return make()", "        return model")):
        source, expected = before_and_after(one)
        assert migrate_source(HEAD + source, path="train.py").output == HEAD + expected
        trains_as_before(one)


SQUARES = """\
 class Third(Base):
     def train(self):
         self.fit(torch.optim.SGD(self.net.parameters(), lr=0.1))
         self.squares()
     def fit(self, opt):
         for x, y in data:
             STEPS net=self.net
     def squares(self):
         opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
         for x, y in data:
             opt.zero_grad()
             criterion(self.net(x), y).backward()
             for p in self.net.parameters():
                 if p.grad is not None:
                     self.total += p.grad.pow(2).sum()
     total = 0.0
"""


def test_gradients_of_one_class_are_none_of_another() -> None:
    classes = EACH_APART.partition(" if len(sys.argv)")[0] + SQUARES
    text = classes.replace("CLIPPED", "STEPS") + """\
 kinds = {"first": First, "second": Second, "third": Third}
 one = kinds[sys.argv[1] if len(sys.argv) > 1 else "third"]()
 for _ in range(2):
     one.train()
"""
    source, _ = before_and_after(written_out(text))
    result = migrate_source(HEAD + source, path="train.py")
    assert [found.code for found in result.diagnostics] == ["AMP011"]
    assert result.output.count("scaler.step(opt)") == 3
    check_off(HEAD + source, result.output)
    check_scaled(HEAD + source, result.output)


MORE_OBJECTS = {
    "another object": "other = algorithms.class_of('Twice')(model)\n",
    "an object each time": "",
    "a class that is chosen again": "cls = algorithms.class_of('Twice')\nother = cls(model)\n",
    "a class that is kept": "kinds = [cls]\n",
    "a class by its name": "twin = algorithms.Left(model)\n",
    "a method of another class": "algorithms.First.update(algorithm, *data[0], opt)\n",
    "a class that is a default": "def another(kind=algorithms.Left):\n    return kind(model)\n",
    "a file that is looked into": "print(vars(algorithms)[sys.argv[1]](model))\n",
    "a parameter more": "",
    "a helper that both call": "",
}


@pytest.mark.parametrize("name", MORE_OBJECTS)
def test_more_than_one_object(name: str, tmp_path: Path) -> None:
    algorithms, _ = before_and_after(written_out(ALGORITHMS))
    training, _ = before_and_after(written_out(TRAINING))
    training = training.replace("opt = opt", MORE_OBJECTS[name] + "opt = opt")
    ends = "loss.backward(create_graph=True)\n"
    if name == "an object each time":
        training = training.replace(
            "algorithm = cls(model)\n",
            "for name in sys.argv:\n    cls = algorithms.class_of(name)\n    algorithm = cls(model)\n",
        )
    elif name == "a parameter more":
        algorithms = algorithms.replace(ends, f"{ends}        print(locals())\n", 1)
    elif name == "a helper that both call":
        algorithms = algorithms.replace("opt.step()", "finish(opt)")
        algorithms += "def finish(opt):\n    opt.step()\n"
    for one in _by_name(tmp_path, algorithms, HEAD + training):
        assert not one.changed


CHOSEN = """\
 import sys
 class First:
     def __init__(self):
         self.net = make().to(device)
-    def train_loop(self, opt):
+    def train_loop(self, opt, scaler):
         for x, y in data:
             STEPS net=self.net
 class Inner:
     def __init__(self):
         self.net = make().to(device)
-    def train_loop(self, opt):
+    def train_loop(self, opt, scaler):
         for x, y in data:
             opt.zero_grad()
             loss = criterion(self.net(x), y)
             grads = torch.autograd.grad(loss, list(self.net.parameters()), create_graph=True)
             loss = loss + criterion(self.net(x + sum(g.mean() for g in grads)), y)
             loss.backward()
             opt.step()
 def train(one):
     opt = torch.optim.SGD(one.net.parameters(), lr=0.1)
+    scaler = BORN
     for _ in range(2):
-        one.train_loop(opt)
+        one.train_loop(opt, scaler=scaler)
"""
ARMS = """\
 if len(sys.argv) > 1 and sys.argv[1] == "inner":
     one = Inner()
 elif len(sys.argv) > 2:
     one = First()
 else:
     one = First()
 train(one)
"""


def test_classes_of_which_a_run_chooses_one() -> None:
    diff = written_out(CHOSEN + ARMS)
    source, expected = before_and_after(diff)
    result = migrate_source(HEAD + source, path="train.py")
    assert result.output == HEAD + expected
    assert [found.code for found in result.diagnostics] == ["AMP023"]
    trains_as_before(diff)


SEVERAL = {
    "one behind the other": "train(First())\ntrain(Inner())\n",
    "one or both": """\
if len(sys.argv) > 1:
    one = First()
    train(one)
if len(sys.argv) < 3:
    two = Inner()
    two.net = model
    train(two)
""",
    "each time anew": """\
for kind in sys.argv:
    if kind == "inner":
        one = Inner()
    else:
        one = First()
    train(one)
""",
    "by a function that is called twice": """\
def chosen(kind):
    if kind == "inner":
        return Inner()
    return First()
train(chosen("inner"))
train(chosen("first"))
""",
}


@pytest.mark.parametrize("name", SEVERAL)
def test_classes_of_which_a_run_may_choose_several(name: str) -> None:
    source, _ = before_and_after(written_out(CHOSEN))
    result = migrate_source(HEAD + source + SEVERAL[name], path="train.py")
    assert not result.changed


def test_another_script_chooses_too(tmp_path: Path) -> None:
    classes, trains = written_out(CHOSEN).split(" def train(")
    for name, names in (("train", "First, Inner"), ("measure", "Inner")):
        head = f" from classes import {names}\n"
        after = "print(len(list(Inner().net.parameters())))\n"
        text = f" def train({trains}{ARMS}" if name == "train" else f" {after}"
        texts = before_and_after(head + text)
        (tmp_path / f"{name}.py").write_text(HEAD + texts[0])
    (tmp_path / "classes.py").write_text(HEAD + before_and_after(classes)[0])
    found = {Path(one.path).stem: one for one in migrate_paths([tmp_path]).results}
    assert found["classes"].output == HEAD + before_and_after(classes)[1]
    assert "one.train_loop(opt, scaler=scaler)" in found["train"].output


ACTOR = """\
class Base:
    def __init__(self):
        self.net = nn.Linear(8, 8).to(device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
class Actor(Base):
    def update(self, critic, x):
        loss = -critic.value(self.net(x)).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
class Critic(Base):
    def value(self, x):
        return self.net(x).pow(2)
    def learn(self, x):
        loss = F.mse_loss(self.net(x), x)
        self.opt.zero_grad()
        loss.backward(create_graph=True)
        self.opt.step()
actor, critic = Actor(), Critic()
for x, y in data:
    critic.learn(x)
    actor.update(critic, x)
"""
CLEARED_LATER = ACTOR.replace(
    "        self.opt.zero_grad()\n        loss.backward(create_graph=True)\n        self.opt.step()\n",
    "        loss.backward(create_graph=True)\n        self.opt.step()\n        self.opt.zero_grad()\n",
)


def test_gradients_that_flow_through_an_object_that_is_left_alone() -> None:
    result = migrate_source(HEAD + ACTOR, path="train.py")
    assert [found.code for found in result.diagnostics] == ["AMP023"]
    assert "self.scaler.step(self.opt)" in result.output
    # The critic would step on what the actor's scaled loss has left.
    assert not migrate_source(HEAD + CLEARED_LATER, path="train.py").changed
    among = ACTOR.replace(
        "    def learn(self, x):\n", "    def learn(self, actor, x):\n"
    ).replace(
        "        loss.backward(create",
        "        actor.update(self, x)\n        loss.backward(create",
    )
    among = among.replace(
        "critic.learn(x)\n    actor.update(critic, x)", "critic.learn(actor, x)"
    )
    assert not migrate_source(HEAD + among, path="train.py").changed


UNRELATED = """\
 class First:
     def __init__(self, net):
         self.net = net
         self.opt = torch.optim.SGD(net.parameters(), lr=0.1)
+        self.scaler = BORN
     def update(self, x, y):
         STEPS net=self.net opt=self.opt scaler=self.scaler
 class Second:
     def __init__(self, net):
         self.net = net
         self.opt = torch.optim.SGD(net.parameters(), lr=0.1)
     def update(self, x, y):
         self.opt.zero_grad()
         loss = criterion(self.net(x), y)
         loss.backward(create_graph=True)
         self.opt.step()
 turns = [First(model), Second(model)]
 for k in range(6):
     turns[k % 2].update(*data[k])
"""
CLEARS = "        self.opt.zero_grad()\n"
SECOND = """\
        loss = criterion(self.net(x), y)
        loss.backward(create_graph=True)
        self.opt.step()
"""


def test_turns_on_one_net_that_are_called_unseen() -> None:
    diff = written_out(UNRELATED)
    source, expected = before_and_after(diff)
    result = migrate_source(HEAD + source, path="train.py")
    assert result.output == HEAD + expected
    assert [found.code for found in result.diagnostics] == ["AMP023"]
    pytest.importorskip("torch")
    from exactness import check_off, check_scaled

    texts = HEAD + source, HEAD + expected
    assert check_off(*texts) == []
    assert check_scaled(*texts) == ["3 backwards were not scaled"]


@pytest.mark.parametrize("written", (", create_graph=True", ""))
def test_a_step_on_what_another_turn_has_left(written: str) -> None:
    """It clears only behind its step, so that its first one is on scaled gradients of the other."""
    source, _ = before_and_after(written_out(UNRELATED))
    later = source.replace(CLEARS + SECOND, SECOND + CLEARS)
    assert later != source
    later = later.replace("create_graph=True", written[2:])
    assert left_alone(later) == ("AMP012 AMP023" if written else "AMP012")


READ = """\
class Base:
    kept = []
    def __init__(self):
        self.turn = 0
        self.sizes = [1]
        self.net = nn.Linear(8, 3).to(device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
    def update(self, x, y):
        self.turn += 1
        self.opt.zero_grad()
        loss = criterion(self.net(x), y)
        loss.backward()
        self.opt.step()
class Left(Base):
    def update(self, x, y):
        for net in NETS:
            net.zero_grad()
        self.opt.zero_grad()
        loss = criterion(self.net(x), y)
        loss.backward(create_graph=True)
        self.opt.step()
class Run:
    def __init__(self, one):
        self.one = one
    @property
    def its_net(self):
        return self.one.net
    @property
    def its_turn(self):
        return self.one.turn
    def of(self):
        return self.one.net
def count(net, trained=False):
    if trained:
        return sum(p.numel() for p in net.parameters() if p.requires_grad)
    return sum(p.numel() for p in net.parameters())
def same(net):
    return net
def put(net, other):
    other.net = net
def keep(net):
    NETS.append(net)
def named(net):
    found = {}
    found["net"] = net
    return found
def deferred(net):
    return lambda: net
def each(net):
    for part in [net]:
        yield part
def closed(net):
    def get():
        return net
    return get
NETS = []
one, two = Base(), Left()
run = Run(one)
MORE
for x, y in data:
    one.update(x, y)
    two.update(x, y)
"""
LOOKED = {
    "a helper that counts": "print('all: {}'.format(count(one.net)), count(one.net, True))",
    "a comparison": "if one.net is two.net or not one.sizes:\n    print('same')",
    "a number that goes anywhere": "two.sizes.append(one.turn)\nprint([run.its_turn])",
    "a list of numbers": "two.sizes.append(x.size(0) if (x := data[0][0]) is not None else 0)",
}
GOES_ON = {
    "by itself": "two.net = one.net",
    "a helper that returns it": "two.net = same(one.net)",
    "a helper that puts it": "put(one.net, two)",
    "a function that is a method, too": "Left.take = put\ntwo.take(two)\nput(one.net, two)",
    "a global": "keep(one.net)\ntwo.net = NETS[0]",
    "a list": "nets = [one.net]\ntwo.net = nets[0]",
    "a list of what is no list": "two.sizes.append(one.net)\ntwo.net = two.sizes[-1]",
    "a list of the class": "one.kept.append(one.net)\ntwo.net = two.kept[0]",
    "a dict": "two.net = named(one.net)['net']",
    "a default dict": "import collections\nnets = collections.defaultdict(list)\n"
    "nets[one.net]\ntwo.net = next(iter(nets))",
    "a key": "nets = {one.net: 1}\ntwo.net = next(iter(nets))",
    "a lambda": "two.net = deferred(one.net)()",
    "a lambda here": "get = lambda: one.net\ntwo.net = get()",
    "a closure": "two.net = closed(one.net)()",
    "a generator": "two.net = next(each(one.net))",
    "a property": "two.net = run.its_net",
    "a method of another class": "two.net = run.of()",
    "a choice": "two.net = one.net if len(data) else None",
    "an or": "two.net = None or one.net",
    "a walrus": "print(net := one.net)\ntwo.net = net",
    "its parts": "for mine, its in zip(one.net.parameters(), two.net.parameters()):\n"
    "    its.data = mine.data",
    "its parts trained": "more = torch.optim.SGD(list(one.net.parameters()), lr=0.1)\n"
    "two.opt = more",
    "a comprehension": "two.net = [net for net in [one.net]][0]",
    "by its name": "two.net = getattr(one, 'net')",
    "a name by a name": "setattr(two, 'net', getattr(run, 'its_net'))",
    "a number that is none": "one.turn = one.net\ntwo.net = one.turn",
    "a number that is set by its name": "setattr(one, 'turn', one.net)\ntwo.net = one.turn",
    "a lambda for a function": "look = count if len(data) < 2 else lambda net: put(net, two)\n"
    "look(one.net)",
    "another function of the name": "if len(data) > 2:\n    count = lambda net: put(net, two)\n"
    "count(one.net)",
    "a method for a function": "Run.of = lambda self, net: put(net, two)\nrun.of(one.net)",
    "a function that is given": "(lambda look: look(one.net))(lambda net: put(net, two))",
    "an unpacking": "a, b = one.net, 1\ntwo.net = a",
}


def read(more: str) -> str:
    source = READ
    if "put(" not in more:
        source = READ.replace("def put(net, other):\n    other.net = net\n", "")
    return HEAD + source.replace("MORE", more)


@pytest.mark.parametrize("name", LOOKED)
def test_what_is_read_out_of_an_object_and_goes_no_further(name: str) -> None:
    result = migrate_source(read(LOOKED[name]), path="train.py")
    assert [found.code for found in result.diagnostics] == ["AMP023"]
    assert "self.scaler.step(self.opt)" in result.output.split("class Left")[0]


@pytest.mark.parametrize("name", GOES_ON)
@pytest.mark.parametrize("inside", (False, True))
def test_what_is_read_out_of_an_object_and_goes_on(name: str, inside: bool) -> None:
    more = GOES_ON[name]
    # The other one has it in an attribute, or in a list for all.
    kept = re.sub(r"(?m)two\.net = (.*)$", r"NETS.append(\1)", more)
    assert not migrate_source(read(kept), path="train.py").changed
    if inside:
        more = "def tangle(one, two, run):\n    " + more.replace("\n", "\n    ")
        more += "\ntangle(one, two, run)"
    assert not migrate_source(read(more), path="train.py").changed


SERVED = """\
 import argparse, copy, random
 class Client:
     def __init__(self, args):
         self.net = copy.deepcopy(args.net)
         self.times = {"rounds": 0}
         self.kind = None
         self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
+        self.scaler = BORN
     def update(self, x, y):
         STEPS net=self.net opt=self.opt scaler=self.scaler
 class Left(Client):
     def __init__(self, args):
         super().__init__(args)
         self.head = self.net[2]
     def update(self, x, y):
         self.opt.zero_grad()
         loss = criterion(self.net(x), y) + self.net[2].weight.mean()
         loss.backward(create_graph=True)
         self.opt.step()
 class Server:
     def __init__(self, args):
         args.net = make().to(device)
         self.args = args
         self.clients = []
     def add(self, kind):
         self.clients.append(kind(self.args))
     def turn(self, x, y):
         chosen = random.sample(self.clients, 2)
         for one in chosen:
             one.times["rounds"] += 1
             one.update(x, y)
             MORE
 server = Server(argparse.ArgumentParser().parse_known_args()[0])
 server.add(Client)
 server.add(Left)
 for x, y in data:
     server.turn(x, y)
"""


def test_a_copy_of_what_all_are_given() -> None:
    source, expected = before_and_after(written_out(SERVED.replace("MORE", "pass")))
    result = migrate_source(HEAD + source, path="train.py")
    assert result.output == HEAD + expected
    assert [found.code for found in result.diagnostics] == ["AMP023"]


TIES = {
    "no copy": ("copy.deepcopy(args.net)", "args.net"),
    "a shallow one": ("copy.deepcopy(", "copy.copy("),
    "a chosen one's net": ("pass", "one.net = chosen[0].net"),
    "a chosen one's optimizer": ("pass", "one.opt = chosen[0].opt"),
    "by a helper": ("pass", "self.args.of = one; self.args.of.net = self.args.net"),
    "what it trains, by its name": ("pass", "setattr(one, 'net', self.args.net)"),
}
CLIPS = """\
    def clip(self):
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
class Server:
"""


@pytest.mark.parametrize("name", TIES)
def test_no_copy_of_what_all_are_given(name: str) -> None:
    tied = SERVED.replace("MORE", "pass").replace(*TIES[name])
    assert tied != SERVED.replace("MORE", "pass")
    source, _ = before_and_after(written_out(tied))
    if "copy" in name or "shallow" in name:
        # The other one clips gradients that would still have their scale.
        source = source.replace("class Server:\n", CLIPS).replace(
            "(self, x, y)", "(self, x, y, other)", 2
        )
        source = source.replace(
            "loss.backward()\n", "loss.backward()\n        other.clip()\n"
        )
        source = source.replace("one.update(x, y)", "one.update(x, y, chosen[0])")
    assert not migrate_source(HEAD + source, path="train.py").changed


FOUND = {
    "the largest": "max(every, key=id)",
    "a copy of the list": "list(every)[1]",
    "a choice": "__import__('random').choice(every)",
    "out of a namespace": "types.SimpleNamespace(a=every[1]).a",
    "of the type": "type(every[1])()",
    "by a property": "Holder(every).first",
    "by an operator": "Holder(every)[1]",
    "by a method": "every[1].me()",
    "by a generator": "next(each(every))",
    "by a closure": "of(every[1])()",
    "by a lambda": "(lambda: every[1])()",
    "by a name": "globals()['every'][1]",
}
HOLDS = """\
import types
class Base:
    def __init__(self):
        self.net = make().to(device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
    def update(self, x, y):
        self.opt.zero_grad()
        loss = criterion(self.net(x), y)
        loss.backward()
        self.opt.step()
    def me(self):
        return self
class Left(Base):
    def update(self, x, y):
        self.opt.zero_grad()
        loss = criterion(self.net(x), y)
        loss.backward(create_graph=True)
        self.opt.step()
class Holder:
    def __init__(self, its):
        self.its = its
    @property
    def first(self):
        return self.its[1]
    def __getitem__(self, number):
        return self.its[number]
def each(its):
    for one in its:
        yield one
def of(one):
    def get():
        return one
    return get
every = [Base(), Left()]
one = FOUND
one.MORE
for x, y in data:
    every[0].update(x, y)
    every[1].update(x, y)
"""


@pytest.mark.parametrize("name", FOUND)
def test_an_object_that_comes_from_somewhere(name: str) -> None:
    source = HEAD + HOLDS.replace("FOUND", FOUND[name])
    tied = source.replace("MORE", "opt = every[0].opt")
    assert not migrate_source(tied, path="train.py").changed
    if name in ("a copy of the list", "by a method"):
        assert migrate_source(source.replace("MORE", "k = 1"), path="train.py").changed


def test_an_optimizer_of_objects_of_another_class() -> None:
    """Each clips the gradients of its own optimizer: none of another class is meant there."""
    clips = """\
 class Other(Base):
     def update(self, x, y):
         self.opt.zero_grad()
-        loss = criterion(self.net(x), y)
-        loss.backward()
+        AUTOCAST scaler=self.scaler
+            loss = criterion(self.net(x), y)
+        self.scaler.scale(loss).backward()
+        self.scaler.unscale_(self.opt)
         nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
-        self.opt.step()
+        self.scaler.step(self.opt)
+        self.scaler.update()
"""
    own = """\
 class Third(Base):
     def __init__(self):
         super().__init__()
         self.more = make().to(device)
         self.opt = torch.optim.SGD(self.more.parameters(), lr=0.1)
+        self.scaler = BORN
     def update(self, x, y):
         STEPS net=self.more opt=self.opt scaler=self.scaler
"""
    run = RUN.replace('"other": Other', '"other": Other, "third": Third')
    diff = written_out(BASE + clips + own + run)
    source, expected = before_and_after(diff)
    assert migrate_source(HEAD + source, path="train.py").output == HEAD + expected
    trains_as_before(diff)
    for tie in (
        "         Other.update(self, x, y)\n",
        " Fourth = type('Fourth', (Other, Third), {})\n",
    ):
        source, _ = before_and_after(written_out(BASE + clips + own + tie + run))
        assert not migrate_source(HEAD + source, path="train.py").changed


def test_an_optimizer_of_other_parts_than_an_inherited_loss_runs() -> None:
    """It gets no gradients of that loss, where a scaler's step would raise."""
    source = """\
class Base:
    def __init__(self):
        self.net = make().to(device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
    def update(self, x, y):
        self.opt.zero_grad()
        loss = criterion(self.net(x), y)
        loss.backward()
        self.opt.step()
class Tuned(Base):
    def __init__(self):
        super().__init__()
        self.head = make().to(device)
        self.opt = torch.optim.SGD(self.PART.parameters(), lr=0.1)
    def update(self, x, y):
        self.opt.zero_grad()
        loss = criterion(self.head(x), y)
        loss.backward()
        self.opt.step()
        super().update(x, y)
every = Base(), Tuned()
for x, y in data:
    for one in every:
        one.update(x, y)
"""
    apart = source.replace("PART", "head")
    output = migrated(apart)
    base, _, tuned = output.partition("class Tuned")
    assert base.count("if any(") == 1 and "if any(" not in tuned
    assert check_off(HEAD + apart, HEAD + output) == []
    assert check_scaled(HEAD + apart, HEAD + output, MOVING_SCALES[0]) == []
    assert "if any(" not in migrated(source.replace("PART", "net[2]"))


OWN_PARTS = """\
import sys
class Base:
    def prepare(self):
        self.opt = torch.optim.SGD(params_of(self), lr=0.1)
def params_of(one):
    return list(one.parameters())
class One(Base):
    def __init__(self):
        self.body, self.head = make().to(device), nn.Linear(3, 3).to(device)
        self.prepare()
    def parameters(self):
        yield from self.body.parameters()
        yield from self.head.parameters()
    def update(self, x, y):
        self.opt.zero_grad()
        loss = criterion(self.head(self.body(x)), y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters(), 1.0)
        self.opt.step()
"""


def test_a_method_runs_on_objects_of_its_own_class() -> None:
    other = OWN_PARTS[OWN_PARTS.index("class One") :]
    other = other.replace("One", "Other").replace("head", "tail")
    run = """\
if len(sys.argv) > 5:
    one = One()
else:
    one = Other()
for x, y in data:
    one.update(x, y)
"""
    source = OWN_PARTS + other + run
    output = migrated(source)
    assert output.count("scaler.unscale_(self.opt)") == 2
    more = source.replace("_norm_(self.parameters()", "_norm_(model.parameters()")
    assert left_alone(more) == "AMP030"


def test_each_script_goes_into_what_it_imports(tmp_path: Path) -> None:
    """Objects of two classes are run by one function, each by a script of its own."""
    base = OWN_PARTS[: OWN_PARTS.index("class One")].replace("import sys\n", HEAD)
    run = """\
class Runner:
    def __init__(self, one):
        self.one = one
    def train(self, data):
        for x, y in data:
            self.one.update(x, y)
"""
    (tmp_path / "base.py").write_text(base + run)
    one = "from base import *\n" + OWN_PARTS[OWN_PARTS.index("class One") :]
    for name in ("One", "Other"):
        source = one.replace("One", name).replace("head", f"head_of_{name}")
        (tmp_path / f"{name}.py").write_text(source)
        script = f"from base import *\nfrom {name} import {name}\nRunner({name}()).train(data)\n"
        (tmp_path / f"train_{name}.py").write_text(script)
    results = {Path(r.path).name: r for r in migrate_paths([tmp_path]).results}
    assert results["One.py"].changed and results["Other.py"].changed


def test_a_class_that_nothing_here_imports_may_be_run_out_of_sight(
    tmp_path: Path,
) -> None:
    net = """\
class One:
    def __init__(self, net):
        self.net = net
        self.opt = torch.optim.SGD(net.parameters(), lr=0.1)
    def train(self, data):
        for x, y in data:
            self.update(x.to(device), y.to(device))
    def update(self, x, y):
        self.opt.zero_grad()
        loss = criterion(self.net(x), y)
        loss.backward()
        self.opt.step()
"""
    update = net[net.index("    def update") :]
    (tmp_path / "one.py").write_text(f"{HEAD}{net}")
    other = f"from one import *\nclass Other(One):\n{update}"
    (tmp_path / "other.py").write_text(other)
    script = "from one import *\nOne(model).train(data)\n"
    (tmp_path / "train.py").write_text(script)
    results = {Path(r.path).name: r for r in migrate_paths([tmp_path]).results}
    assert results["one.py"].changed and results["other.py"].changed


def test_what_one_class_freezes_is_no_reason_to_guard_the_steps_of_another() -> None:
    freezing = """\
class Other(Base):
    def update(self, x, y):
        for p in self.net.parameters():
            p.requires_grad = self.turns % 2 == 0
        self.turns += 1
        self.opt.zero_grad()
        loss = criterion(self.net(x), y)
        if loss.requires_grad:
            loss.backward()
        self.opt.step()


class Two(Base):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3, 3).to(device)
        self.opt_head = torch.optim.SGD(self.head.parameters(), lr=0.1)
    def update(self, x, y):
        super().update(x, y)
        self.opt_head.zero_grad()
        loss = criterion(self.head(self.net(x).detach()), y)
        loss.backward()
        self.opt_head.step()


"""
    base, _ = before_and_after(written_out(BASE))
    base = base.replace(
        "def __init__(self):\n", "def __init__(self):\n        self.turns = 0\n"
    )
    run, _ = before_and_after(written_out(RUN))
    run = run.replace('"other": Other', '"other": Other, "two": Two')
    found = migrated(base + freezing + run)
    own = found[: found.index("class Other")]
    assert "self.scaler.step(self.opt)" in own and "p.grad is not None" not in own
    assert found.count("p.grad is not None") == 1


def test_what_runs_on_objects_of_another_class_is_not_in_the_way() -> None:
    classes = """\
import sys
class Base:
    def __init__(self):
        self.net = make().to(device)
class Other(Base):
    def __init__(self):
        super().__init__()
        self.own = torch.optim.SGD(self.net.parameters(), lr=0.1)
    def update(self, x, y):
        self.own.zero_grad()
        out = self.net(x)
        loss = criterion(out, y)
        loss.backward()
        self.own.step()
        return out.detach()
    def take(self, given):
        print(given.shape)
class Left(Base):
    def update(self, x, y):
        return torch.eye(3, device=device)
    def take(self, given):
        print(torch.linalg.inv(*[given]))
"""
    run, _ = before_and_after(written_out(RUN))
    run = run.replace('"base": Base', '"left": Left')
    run = run.replace("one.update(x, y)", "one.take(one.update(x, y))")
    assert "self.scaler.step(self.own)" in migrated(classes + run)
    own = "        print(torch.linalg.inv(*[given]))\n"
    assert (
        left_alone((classes + run).replace("        print(given.shape)\n", own))
        == "AMP020"
    )


CLIENT = BASE.replace("import sys", "import argparse").replace("Base", "Client")
RUNS = CLIENT + """\
 class Left(Client):
     def update(self, x, y):
         self.opt.zero_grad()
         loss = criterion(self.net(x), y)
         loss.backward(create_graph=True)
         self.opt.step()
 class Turns:
     def __init__(self, net):
         self.net = net.double()
     def turn(self, x):
         return self.net(x.double()).float()
 class Server:
     def __init__(self):
         self.clients = []
     def add(self, kind):
         for _ in range(2):
             self.clients.append(kind())
     def train(self):
         for x, y in data:
             for one in self.clients:
                 one.update(x, y)
             for one in self.clients:
                 all_of = zip(one.net.parameters(), self.clients[0].net.parameters())
                 for mine, its in all_of:
                     mine.data = its.data.clone()
 class First(Server):
     def __init__(self):
         super().__init__()
         self.add(Client)
 class Second(Server):
     def __init__(self):
         super().__init__()
         self.add(Left)
         self.turns = Turns(make().to(device))
     def train(self):
         super().train()
         for one in self.clients:
             print(self.turns.turn(data[0][0]), one.net.weight.sum())
 def run(args):
     for number in range(2):
         if args.kind == "first":
             server = First()
         elif args.kind == "second":
             server = Second()
         else:
             raise NotImplementedError
         print(number)
         server.train()
 parser = argparse.ArgumentParser()
 parser.add_argument("--kind", default="first")
 args = parser.parse_args()
 run(args)
"""


def test_a_class_that_is_an_argument() -> None:
    source, expected = before_and_after(written_out(RUNS))
    result = migrate_source(HEAD + source, path="train.py")
    assert [found.code for found in result.diagnostics] == ["AMP023"]
    assert result.output == HEAD + expected
    trains_as_before(written_out(RUNS))


# What may make a run have clients of both classes, or let what one of them does run with the other.
MAY_BE_BOTH = {
    "the kind is set again": ("print(number)", "args.kind = 'second'"),
    "by its name": ("print(number)", "setattr(args, ['kind'][0], 'second')"),
    "by vars": ("print(number)", "vars(args)['kind'] = 'second'"),
    "by the parser": ("print(number)", "parser.parse_args(['--kind=second'], args)"),
    "into an object of one's own": (
        "args = parser.parse_args()",
        "own = Options()\nargs = parser.parse_args(namespace=own)\nown.turn()",
    ),
    "a parser of one's own": (
        "args = parser.parse_args()",
        "args = Options().parse_args()\nargs.turn()",
    ),
    "other options": ("print(number)", "args = parser.parse_args(['--kind=second'])"),
    "of one more list": (
        "if args.kind",
        "kind = ['first', 'second'][number]\n        if kind",
    ),
    "a kind that is no text": ('args.kind == "first"', "args.kind"),
    "run again": (
        "run(args)\n",
        "run(args)\nrun(parser.parse_args(['--kind=second']))\n",
    ),
    "run with other options": ("run(args)\n", "run(Options())\n"),
    "no arms of one choice": ('elif args.kind == "second"', 'if args.kind != "none"'),
    "a server of both": (
        "self.add(Client)",
        "self.add(Client)\n        self.add(Left)",
    ),
    "one class in the base": ("self.clients = []", "self.clients = [Left()]"),
    "one more": ("run(args)\n", "other = Left()\nrun(args)\n"),
    "a class that is kept": (
        "for _ in range(2):",
        "KINDS.append(kind)\n        for _ in KINDS:",
    ),
    "a class by a name": ("run(args)\n", "run(args)\nglobals()[args.kind]()\n"),
    "evaluated": ("run(args)\n", "run(args)\neval(args.kind)()\n"),
    "out of a module": (
        "run(args)\n",
        "run(args)\nimport importlib\nfor one in vars(importlib.import_module(args.kind)).values():\n"
        "    one()\n",
    ),
    "out of a module, under another name": (
        "run(args)\n",
        "run(args)\nfrom importlib import import_module as load\n"
        "getattr(load(args.kind), 'Left')()\n",
    ),
    "out of a module's dict": (
        "run(args)\n",
        "run(args)\nimport importlib\nlib = importlib.import_module(args.kind)\n"
        "[one for name, one in lib.__dict__.items() if name == 'Left'][0]()\n",
    ),
    "out of all modules": (
        "run(args)\n",
        "run(args)\nimport sys\nsys.modules['__main__'].Left()\n",
    ),
    "of the class": (
        "class First(Server):\n",
        "class First(Server):\n    @classmethod\n    def of(cls):\n        return Left()\n",
    ),
    "a server in the other": (
        "self.turns = Turns(",
        "self.more = First()\n        self.turns = Turns(",
    ),
    "as its sibling": (
        "self.add(Left)",
        "First.__init__(self)\n        self.add(Left)",
    ),
    "under another name": (
        "print(number)",
        "server.options = args\n        server.options.kind = 'second'",
    ),
    "by a variable": ("print(number)", "chosen = args\n        chosen.kind = 'second'"),
    "several at once": (
        "self.add(Client)",
        "for kind in (Client, Left):\n            self.add(kind)",
    ),
    "a method of it": (
        "class First(Server):\n",
        "class First(Server):\n    @staticmethod\n    def of():\n        return Left()\n",
    ),
    "not called here": ("run(args)\n", "run(args)\nagain = run\n"),
}


@pytest.mark.parametrize("name", MAY_BE_BOTH)
def test_a_class_that_may_be_an_argument_beside_another(name: str) -> None:
    source, _ = before_and_after(written_out(RUNS))
    more = "KINDS = []\nclass Options:\n    kind = 'first'\n    def parse_args(self):\n        return self\n"
    more += "    def turn(self):\n        self.kind = 'second'\n"
    changed = more + source.replace(*MAY_BE_BOTH[name])
    assert changed != more + source
    assert not migrate_source(HEAD + changed, path="train.py").changed


# What takes a run to the code that nothing but the other class names.
NAMED_ELSEWHERE = {
    "in the base": (
        "self.clients = []",
        "self.clients = []\n        self.turns = Turns(make())",
    ),
    "by a subclass": (
        "run(args)\n",
        "class More(Turns):\n    pass\nMore(make())\nrun(args)\n",
    ),
    "by a helper": (
        "run(args)\n",
        "def of(net):\n    return Turns(net)\nof(make())\nrun(args)\n",
    ),
    "by a name": ("run(args)\n", "eval(input())(make())\nrun(args)\n"),
    "a decorator": (
        "class Turns:",
        "def put(kind):\n    return kind\n@put\nclass Turns:",
    ),
    "a default": (
        "run(args)\n",
        "def of(net, kind=Turns):\n    return kind(net)\nof(make())\nrun(args)\n",
    ),
    "a subclass that is told": (
        "class Turns:",
        "class Told:\n    def __init_subclass__(cls):\n        cls(make())\nclass Turns(Told):",
    ),
    "a metaclass": (
        "class Turns:",
        "class Kind(type):\n    pass\nclass Turns(metaclass=Kind):",
    ),
    "a saved module": (
        "class Turns:\n    def __init__(self, net):\n",
        "saved = torch.load('turns.pt')\nprint(saved(data[0][0]))\n"
        "class Turns(nn.Module):\n    def forward(self, x):\n        return self.net.double()(x)\n"
        "    def __init__(self, net):\n        super().__init__()\n",
    ),
}


@pytest.mark.parametrize("name", NAMED_ELSEWHERE)
def test_what_another_class_is_not_alone_to_name(name: str) -> None:
    source, _ = before_and_after(written_out(RUNS))
    changed = source.replace(*NAMED_ELSEWHERE[name])
    assert changed != source
    result = migrate_source(HEAD + changed, path="train.py")
    assert not result.changed
    assert {found.code for found in result.diagnostics} >= {"AMP006"}
