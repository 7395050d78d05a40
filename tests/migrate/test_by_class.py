"""Subclasses that inherit an optimizer, and each train with it in their own way."""

from __future__ import annotations

import pytest
from programs import HEAD, before_and_after, trains_as_before
from shorthand import written_out

from amp_migrate.api import migrate_source

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
    source, _ = before_and_after(written_out(base + TIED[name] + run))
    result = migrate_source(HEAD + source, path="train.py")
    assert not result.changed
    assert result.diagnostics


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
+            self.scaler = BORN
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
