"""Exceptions that somebody handles in the middle of a step: the scaler must not stay there."""

from __future__ import annotations

import pytest
from programs import HEAD, before_and_after, left_alone, migrated, trains_as_before
from shorthand import written_out

from amp_migrate.api import migrate_source

FAILS = """\
 class Fails(torch.optim.SGD):
     calls = 0
     def step(self, closure=None):
         self.calls += 1
         if self.calls in (2, 4):
             raise RuntimeError("out of memory")
         return super().step(closure)
 opt = Fails(model.parameters(), lr=0.1)
+scaler = BORN
"""
STEP = """\
+{indent}scaler.unscale_(opt)
+{indent}try:
+{indent}    scaler.step(opt)
+{indent}finally:
+{indent}    scaler.update()
"""
HANDLED = {
    "in the same block": FAILS
    + """\
 for x, y in data:
     try:
         opt.zero_grad()
-        loss = criterion(model(x), y)
-        loss.backward()
-        opt.step()
+        AUTOCAST
+            loss = criterion(model(x), y)
+        scaler.scale(loss).backward()
"""
    + STEP.format(indent="        ")
    + """\
     except RuntimeError as e:
         if "out of memory" in str(e):
             opt.zero_grad()
             continue
         raise
""",
    "in a caller, around a clip and a way out": FAILS
    + """\
 def train(x, y):
     opt.zero_grad()
-    loss = criterion(model(x), y)
-    loss.backward()
+    AUTOCAST
+        loss = criterion(model(x), y)
+    scaler.scale(loss).backward()
+    scaler.unscale_(opt)
-    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
-    if not torch.isfinite(norm):
-        return
-    opt.step()
+    try:
+        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
+        if not torch.isfinite(norm):
+            return
+        scaler.step(opt)
+    finally:
+        scaler.update()
 for x, y in data:
     try:
         train(x, y)
     except RuntimeError:
         print("skipped")
""",
    "suppressed": "import contextlib\n".replace("import", " import", 1)
    + FAILS
    + """\
 for x, y in data:
     opt.zero_grad()
-    loss = criterion(model(x), y)
+    AUTOCAST
+        loss = criterion(model(x), y)
     with contextlib.suppress(RuntimeError):
-        loss.backward()
-        opt.step()
+        scaler.scale(loss).backward()
"""
    + STEP.format(indent="        "),
}


@pytest.mark.parametrize("name", HANDLED)
def test_the_scaler_is_updated_however_the_step_ends(name: str) -> None:
    diff = written_out(HANDLED[name])
    before, after = before_and_after(diff)
    assert migrated(before) == after
    trains_as_before(diff)


GUARDS = """\
import contextlib
import functools
@contextlib.contextmanager
def guard():
    try:
        yield
    except RuntimeError:
        print("skipped")
@contextlib.contextmanager
def timed():
    try:
        yield
    finally:
        print("done")
def safe(function):
    @functools.wraps(function)
    def call(*given):
        try:
            return function(*given)
        except RuntimeError:
            return None
    return call
def logged(function):
    @functools.wraps(function)
    def call(*given):
        print("called")
        return function(*given)
    return call
class Guard:
    def __enter__(self):
        return self
    def __exit__(self, *given):
        return given[0] is RuntimeError
"""
WITH = """\
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    with {}:
        loss.backward()
        opt.step()
"""
DECORATED = """\
@{}
def train(x, y):
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    opt.step()
for x, y in data:
    train(x, y)
"""
OUT_OF_SIGHT = {
    "a function's with": (WITH.format("guard()"), True),
    "a class's with": (WITH.format("Guard()"), True),
    "a decorator": (DECORATED.format("safe"), True),
    "a with that lets them pass": (WITH.format("timed()"), False),
    "a decorator that lets them pass": (DECORATED.format("logged"), False),
}


@pytest.mark.parametrize("name", OUT_OF_SIGHT)
def test_a_handler_that_stands_elsewhere(name: str) -> None:
    body, handles = OUT_OF_SIGHT[name]
    before = GUARDS + before_and_after(FAILS)[0] + body
    after = migrated(before)
    assert (after.count("finally:") > before.count("finally:")) == handles
    if handles:
        removed = "".join(f"-{line}" for line in before.splitlines(keepends=True))
        added = "".join(f"+{line}" for line in after.splitlines(keepends=True))
        trains_as_before(removed + added)


OPT = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
PLAIN = {
    "a handler that gives up": """\
for x, y in data:
    try:
        opt.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        opt.step()
    except RuntimeError as e:
        print(e)
        raise
""",
    "a handler around the forward only": """\
for x, y in data:
    opt.zero_grad()
    try:
        loss = criterion(model(x), y)
        loss.backward()
    except RuntimeError:
        opt.zero_grad()
        continue
    opt.step()
""",
    "a handler around all of training": """\
try:
    for x, y in data:
        opt.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        opt.step()
except KeyboardInterrupt:
    print("stopped")
""",
}


@pytest.mark.parametrize("name", PLAIN)
def test_nothing_is_added_where_no_step_follows(name: str) -> None:
    assert "finally" not in migrated(OPT + PLAIN[name])


DROPPED = (
    "for p in model.parameters():\n    if p.grad is not None:\n        del p.grad",
    "for p in model.parameters():\n    p.grad = None",
    "for group in opt.param_groups:\n    for p in group['params']:\n        del p.grad",
    "opt.zero_grad()",
)


@pytest.mark.parametrize("dropped", DROPPED)
def test_gradients_that_a_handler_drops(dropped: str) -> None:
    before = OPT + """\
for n, (x, y) in enumerate(data):
    try:
        loss = criterion(model(x), y)
        loss.backward()
        if n in (1, 4):
            raise RuntimeError("out of memory")
    except RuntimeError as e:
        if "out of memory" in str(e):
            DROPPED
            continue
        raise
    if n % 2:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
""".replace("DROPPED", dropped.replace("\n", "\n            "))
    removed = "".join(f"-{line}" for line in before.splitlines(keepends=True))
    added = "".join(f"+{line}" for line in migrated(before).splitlines(keepends=True))
    trains_as_before(removed + added)


def test_gradients_that_a_handler_reads() -> None:
    body = """\
for x, y in data:
    opt.zero_grad()
    try:
        loss = criterion(model(x), y)
        loss.backward()
    except RuntimeError:
        for p in model.parameters():
            if p.grad is not None and p.grad.norm() > 1:
                del p.grad
        continue
    opt.step()
"""
    assert left_alone(OPT + body) == "AMP030"


def test_gradients_that_stay() -> None:
    body = """\
for x, y in data:
    try:
        loss = criterion(model(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
    except RuntimeError:
        continue
"""
    assert left_alone(OPT + body) == "AMP034"


def test_what_a_handler_leaves_behind_is_no_reason_where_there_is_another() -> None:
    body = """\
for x, y in data:
    try:
        opt.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        opt.step()
        opt.step()
    except RuntimeError:
        continue
"""
    (said,) = migrate_source(HEAD + OPT + body, path="train.py").diagnostics
    assert said.code == "AMP031"
    assert "a second step on the gradients" in said.message


def test_a_step_on_the_variable_of_its_own_loop_is_not_unscaled_before_it() -> None:
    body = """\
opt = torch.optim.SGD(model.parameters(), lr=0.1)


def update():
    for one in (opt,):
        one.step()


for x, y in data:
    try:
        opt.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        update()
    except KeyboardInterrupt:
        pass
"""
    assert left_alone(body) == "AMP034"
