"""Steps with a closure: called before the step where that is the same, left alone where it is not."""

from __future__ import annotations

import pytest
from programs import HEAD, before_and_after, left_alone, migrated, trains_as_before
from shorthand import written_out

from amp_migrate.api import Options, lint_source, migrate_source
from amp_migrate.edit.verify import difference

CLOSURE = """\
    def closure():
        opt.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        return loss

"""
MIGRATED = """\
     def closure():
         opt.zero_grad()
-        loss = criterion(model(x), y)
-        loss.backward()
+        AUTOCAST
+            loss = criterion(model(x), y)
+        scaler.scale(loss).backward()
         return loss

"""
BORN = """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
"""

CALLED_FIRST = {
    "no result": BORN
    + " for x, y in data:\n"
    + MIGRATED
    + """\
-    opt.step(closure)
+    closure()
+    scaler.step(opt)
+    scaler.update()
""",
    "a result that is read": BORN
    + " total = 0.0\n for x, y in data:\n"
    + MIGRATED
    + """\
-    total += float(opt.step(closure=closure).detach())  # of all batches
+    total += float(closure().detach())  # of all batches
+    scaler.step(opt)
+    scaler.update()
 print(total)
""",
    "in one branch": BORN
    + " for i, (x, y) in enumerate(data):\n"
    + MIGRATED
    + """\
     if i % 2:
-        last = opt.step(
-            closure  # once
-        )
+        last = closure(  # once
+        )
+        scaler.step(opt)
+        scaler.update()
     else:
-        closure(); opt.step()
+        closure()
+        scaler.step(opt)
+        scaler.update()
""",
    "bound variables": BORN
    + """\
 def train():
     seen, best = 0, None
     for x, y in data:
         features = model[0](x)
         def closure(y=y):
             nonlocal seen, best
             opt.zero_grad()
-            loss = criterion(model[2](model[1](model[0](x))), y)
-            loss.backward()
+            AUTOCAST
+                loss = criterion(model[2](model[1](model[0](x))), y)
+            scaler.scale(loss).backward()
             seen, best = seen + 1, loss
             return loss, len(y)
-        loss, count = opt.step(closure)
+        loss, count = closure()
+        scaler.step(opt)
+        scaler.update()
         print(seen, best.item(), loss.item(), count, features.shape)
 train()
""",
    "a part of the forward outside": BORN
    + """\
 for x, y in data:
-    hidden = model[0](x)
+    AUTOCAST
+        hidden = model[0](x)
     def closure():
         opt.zero_grad()
-        loss = criterion(model[2](model[1](hidden)), y)
-        loss.backward()
+        AUTOCAST
+            loss = criterion(model[2](model[1](hidden)), y)
+        scaler.scale(loss).backward()
         return loss
-    opt.step(closure)
+    closure()
+    scaler.step(opt)
+    scaler.update()
""",
    "a function of the module": """\
-def closure():
+def closure(scaler):
     model.zero_grad()
-    loss = criterion(model(x), y)
-    loss.backward()
+    AUTOCAST
+        loss = criterion(model(x), y)
+    scaler.scale(loss).backward()
     return loss
 def train():
     global x, y
     opt = torch.optim.Adam(model.parameters())
+    scaler = BORN
     for x, y in data:
-        opt.step(closure)
+        closure(scaler=scaler)
+        scaler.step(opt)
+        scaler.update()
 train()
""",
    "a factory, and a guard": """\
 def build(params):
     if len(data) > 2:
         return torch.optim.SGD(params, lr=0.1)
     chosen = torch.optim.Adam(params)
     return chosen
 opt = build(model.parameters())
+scaler = BORN
 for i, (x, y) in enumerate(data):
     opt.zero_grad()
     def closure():
         if i != 3:
-            loss = criterion(model(x), y)
-            loss.backward()
+            AUTOCAST
+                loss = criterion(model(x), y)
+            scaler.scale(loss).backward()
-    opt.step(closure)
+    closure()
+    if any(p.grad is not None for group in opt.param_groups for p in group["params"]):
+        scaler.step(opt)
+        scaler.update()
""",
}


@pytest.mark.parametrize("name", CALLED_FIRST)
def test_called_first(name: str) -> None:
    diff = written_out(CALLED_FIRST[name])
    before, after = before_and_after(diff)
    assert migrated(before) == after
    trains_as_before(diff)


def test_bfloat16_needs_no_scaler_and_keeps_the_closure() -> None:
    body = (
        f"opt = torch.optim.SGD(model.parameters())\nfor x, y in data:\n{CLOSURE}"
        "    opt.step(closure)\n"
    )
    found = migrated(body, Options(dtype="bfloat16"))
    assert "    opt.step(closure)\n" in found
    assert "dtype=torch.bfloat16" in found


SGD = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
LOOP = f"for x, y in data:\n{CLOSURE}"
LEFT_ALONE = {
    "L-BFGS": "opt = torch.optim.LBFGS(model.parameters())\n" + LOOP,
    "L-BFGS, perhaps": (
        f"if len(data) > 3:\n    {SGD}else:\n"
        "    opt = torch.optim.LBFGS(model.parameters())\n" + LOOP
    ),
    "any optimizer": 'opt = getattr(torch.optim, "SGD")(model.parameters())\n' + LOOP,
    "an optimizer of one's own": (
        "class Twice(torch.optim.SGD):\n"
        "    def step(self, closure):\n"
        "        closure()\n"
        "        return super().step(closure)\n"
        "opt = Twice(model.parameters(), lr=0.1)\n" + LOOP
    ),
    "somebody's optimizer": "import lion\nopt = lion.Lion(model.parameters())\n" + LOOP,
    "a hook": SGD + "opt.register_step_pre_hook(print)\n" + LOOP,
    "gradients off before": SGD + "torch.set_grad_enabled(False)\n" + LOOP,
    "a closure that steps": (
        SGD
        + "sched = torch.optim.lr_scheduler.StepLR(opt, 2)\n"
        + LOOP.replace("        return", "        sched.step()\n        return")
    ),
    "a closure that is wrapped": SGD
    + "import functools\n"
    + LOOP.replace("    def", "    @functools.cache\n    def"),
    "a closure that is replaced": SGD + LOOP + "    closure = id(closure) or closure\n",
}
STEPS = {
    "a result in a larger expression": "    print(opt.step(closure), model[0].weight)\n",
    "a result bound to something": "    data[0][0][0] = opt.step(closure)\n",
    "gradients off around": "    with torch.no_grad():\n        opt.step(closure)\n",
    "a lambda": "    opt.step(lambda: closure())\n",
    "parameters": "    opt.step(closure, 1)\n",
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_left_alone(name: str) -> None:
    assert left_alone(LEFT_ALONE[name] + "    opt.step(closure)\n") == "AMP013"


@pytest.mark.parametrize("name", STEPS)
def test_steps_left_alone(name: str) -> None:
    assert left_alone(SGD + LOOP + STEPS[name]) == "AMP013"


NEAR = """\
 class Near(torch.optim.Optimizer):
     def __init__(self, params):
         super().__init__(params, {})

     @torch.no_grad()
     def step(self, near, rate=0.1):
         for group in self.param_groups:
             for p, other in zip(group["params"], near):
                 p.add_(p.grad + other.to(p.device) - p, alpha=-rate)


 near = [p.detach().clone() for p in model.parameters()]
 opt = Near(model.parameters())
+scaler = BORN
 for x, y in data:
     opt.zero_grad()
-    loss = criterion(model(x), y)
-    loss.backward()
+    AUTOCAST
+        loss = criterion(model(x), y)
+    scaler.scale(loss).backward()
"""
GIVEN = {
    "two": (
        "-    opt.step(near, 0.1)  # slowly\n+    scaler.step(opt, near, 0.1)  # slowly\n"
    ),
    "one": "-    opt.step(near)\n+    scaler.step(opt, near)\n",
    "by name": (
        "-    opt.step(near, rate=0.01 * len(near))\n"
        "+    scaler.step(opt, near, rate=0.01 * len(near))\n"
    ),
}


@pytest.mark.parametrize("name", GIVEN)
def test_a_step_that_is_given_what_is_no_closure(name: str) -> None:
    diff = written_out(f"{NEAR}{GIVEN[name]}+    scaler.update()\n")
    before, after = before_and_after(diff)
    assert migrated(before) == after
    trains_as_before(diff)
    assert all(one.code != "AMP117" for one in lint_source(HEAD + after).findings)


PLAIN = before_and_after(written_out(NEAR))[0].rstrip()
MAY_BE_A_CLOSURE = {
    "called": ("p.add_(p.grad", "near()\n                p.add_(p.grad"),
    "given on": ("p.add_(p.grad", "print_all(near)\n                p.add_(p.grad"),
    "under another name": ("for group", "other = near\n        for group"),
    "by a decorator": (
        "@torch.no_grad()",
        "@(lambda step: lambda self, of, *more: step(self, of(), *more))",
    ),
    "losses": ("p.add_(p.grad", "other.backward()\n                p.add_(p.grad"),
    "of any number": ("rate=0.1", "*rate"),
}


@pytest.mark.parametrize("name", MAY_BE_A_CLOSURE)
def test_a_step_whose_arguments_may_be_closures(name: str) -> None:
    text = "def print_all(of):\n    of()\n" + PLAIN.replace(*MAY_BE_A_CLOSURE[name])
    assert left_alone(f"{text}\n    opt.step(near, 0.1)\n") == "AMP013"


@pytest.mark.parametrize("given", ["make, 0.1", "*[near, 0.1]", "closure=near"])
def test_a_step_that_is_given_what_may_be_a_closure(given: str) -> None:
    assert left_alone(f"{PLAIN}\n    opt.step({given})\n") == "AMP013"


def test_a_step_that_no_optimizer_of_torch_takes() -> None:
    first = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\nopt = Near("
    found = migrated(
        PLAIN.replace("opt = Near(", first) + "\n    opt.step(near, 0.1)\n"
    )
    assert "    scaler.step(opt, near, 0.1)\n" in found


def test_what_such_a_step_gives_back_is_none_where_it_is_skipped() -> None:
    assert left_alone(f"{PLAIN}\n    near = opt.step(near, 0.1)\n") == "AMP016"


def test_such_a_step_is_given_gradients() -> None:
    body = f"{PLAIN}\n    opt.step([p.grad for p in model.parameters()])\n"
    assert "    scaler.unscale_(opt)\n    scaler.step(opt, [p.grad" in migrated(body)


def test_gradients_off_in_a_caller() -> None:
    inner = "".join(f"    {line}\n" for line in LOOP.splitlines())
    body = f"{SGD}def train():\n{inner}        opt.step(closure)\nwith torch.no_grad():\n    train()\n"
    (found,) = migrate_source(HEAD + body).diagnostics
    assert found.code == "AMP013"
    assert "gradients are off" in found.message


def test_the_check_knows_the_form_and_no_more() -> None:
    scaler = 'scaler = torch.amp.GradScaler("cuda", enabled=False)\n'
    before = "loss = opt.step(closure)\n"
    step = "scaler.step(opt)\nscaler.update()\n"
    assert difference(before, f"{scaler}loss = closure()\n{step}") is None
    for wrong in (
        f"{scaler}closure()\n{step}",
        f"{scaler}loss = other()\n{step}",
        f"{scaler}{step}loss = closure()\n",
        f"{scaler}loss = opt.step(closure)\n{step}",
        f"{scaler}loss = closure()\nclosure()\n{step}",
        f"{scaler}loss = closure()\nopt.step()\n",
    ):
        assert difference(before, wrong) is not None


PARTIAL = {
    "in the call": "opt.step(functools.partial(closure, x, y))",
    "by a name": "bound = partial(closure, x, y)\n    opt.step(bound)",
    "by keyword": "opt.step(closure=partial(closure, x, y=y))",
}


@pytest.mark.parametrize("name", PARTIAL)
def test_a_closure_with_its_arguments_bound(name: str) -> None:
    body = (
        "import functools\nfrom functools import partial\n"
        f"{SGD}def closure(x, y):\n    opt.zero_grad()\n"
        "    loss = criterion(model(x), y)\n    loss.backward()\n    return loss\n"
        f"for x, y in data:\n    {PARTIAL[name]}\n"
    )
    (found,) = migrate_source(HEAD + body).diagnostics
    assert found.code == "AMP013"
    assert found.message == "closure() is part of the closure of step()"


def test_an_optimizer_that_goes_backward_itself_is_given_no_closure() -> None:
    source = """\
class Balance(torch.optim.Optimizer):
    def step(self, losses):
        for loss in losses:
            loss.backward(retain_graph=True)
        for p in self.param_groups[0]["params"]:
            p.grad = p.grad / len(losses)
balance = Balance(model.parameters(), {})
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    losses = [criterion(model(x), y), criterion(model(x * 2), y)]
    opt.zero_grad()
    if len(data) > 9:
        balance.step(losses)
    else:
        sum(losses).backward()
    opt.step()
"""
    _, loop = migrate_source(HEAD + source).loops
    assert loop.diagnostic is not None and loop.diagnostic.code == "AMP014"
    assert loop.diagnostic.message == (
        "Balance steps in its own way, which a scaler would not see"
    )
