"""Where ``unscale_`` and ``update`` go: once for each step, whatever way leads there."""

from __future__ import annotations

import pytest
from exactness import MOVING_SCALES, check_off, check_scaled
from programs import HEAD, before_and_after, migrated
from shorthand import written_out

CLIP = "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
HEAD_OF_LOOP = """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 for i, (x, y) in enumerate(data):
     opt.zero_grad()
-    loss = criterion(model(x), y)
-    loss.backward()
+    AUTOCAST
+        loss = criterion(model(x), y)
+    scaler.scale(loss).backward()
"""
STEP = """\
-    opt.step()
+    scaler.step(opt)
+    scaler.update()
"""

# What becomes of the lines behind backward().
ONE_STEP_A_TURN = {
    "nothing to unscale": STEP,
    "step under a test": """\
     if loss.item() < 5:
-        opt.step()
+        scaler.step(opt)
+        scaler.update()
""",
    "clip": f"+    scaler.unscale_(opt)\n     {CLIP}\n" + STEP,
    "two clips": f"""\
+    scaler.unscale_(opt)
     nn.utils.clip_grad_value_(model.parameters(), 0.5)
     {CLIP}
"""
    + STEP,
    "clip under a test": f"""\
+    scaler.unscale_(opt)
     if i > 2:
         {CLIP}
"""
    + STEP,
    "clips on both ways": f"""\
+    scaler.unscale_(opt)
     if i > 2:
         {CLIP}
     else:
         nn.utils.clip_grad_value_(model.parameters(), 0.5)
"""
    + STEP,
    "clip, then a step under a test of the norm": f"""\
+    scaler.unscale_(opt)
     norm = {CLIP}
     if norm < 0.9:
-        opt.step()
+        scaler.step(opt)
+    scaler.update()
""",
    "step in else": f"""\
+    scaler.unscale_(opt)
     norm = {CLIP}
     if i == 2:
         print("skipped", norm)
     else:
-        opt.step()
+        scaler.step(opt)
+    scaler.update()
""",
    "continue after a clip": f"""\
+    scaler.unscale_(opt)
     norm = {CLIP}
     if not torch.isfinite(norm) or i == 1:
+        scaler.update()
         continue
"""
    + STEP,
    "break after a clip": f"""\
+    scaler.unscale_(opt)
     {CLIP}
     if i == 3:
+        scaler.update()
         break
"""
    + STEP,
    "continue before a clip": f"""\
     if i == 1:
         continue
+    scaler.unscale_(opt)
     {CLIP}
"""
    + STEP,
    "clip in one branch with its step": f"""\
     if i % 2:
+        scaler.unscale_(opt)
         {CLIP}
-        opt.step()
+        scaler.step(opt)
+        scaler.update()
     else:
-        opt.step()
+        scaler.step(opt)
+        scaler.update()
""",
    "an alias that is bound behind the clip": f"""\
+    scaler.unscale_(opt)
     {CLIP}
     used = opt
-    used.step()
+    scaler.step(used)
+    scaler.update()
""",
    "the variable of a loop": f"""\
+    scaler.unscale_(opt)
     {CLIP}
     for used in (opt,):
-        used.step()
+        scaler.step(used)
+    scaler.update()
""",
    "the variable of a comprehension": f"""\
+    scaler.unscale_(opt)
     {CLIP}
-    [used.step() for used in [opt]]
+    [scaler.step(used) for used in [opt]]
+    scaler.update()
""",
    "match": f"""\
     match i % 2:
         case 0:
+            scaler.unscale_(opt)
             {CLIP}
-            opt.step()
+            scaler.step(opt)
+            scaler.update()
         case _:
-            opt.step()
+            scaler.step(opt)
+            scaler.update()
""",
    "loop over parameters": """\
+    scaler.unscale_(opt)
     for p in model.parameters():
         if p.grad is not None:
             p.grad.clamp_(-0.1, 0.1)
"""
    + STEP,
    "gradient by another name": """\
+    scaler.unscale_(opt)
     for group in opt.param_groups:
         for p in group["params"]:
             d = p.grad
             d += 0.01 * p.detach()
"""
    + STEP,
    "walrus in a test": """\
+    scaler.unscale_(opt)
     if any((g := p.grad) is not None and g.max() > 9 for p in model.parameters()):
+        scaler.update()
         continue
"""
    + STEP,
    "read after the step": STEP + "     print(model[0].weight.grad.norm().item())\n",
    "gradients dropped before the step": """\
     opt.zero_grad()
-    opt.step()
+    if any(p.grad is not None for group in opt.param_groups for p in group["params"]):
+        scaler.step(opt)
+        scaler.update()
""",
}


@pytest.mark.parametrize("name", ONE_STEP_A_TURN)
def test_behind_backward(name: str) -> None:
    source, expected = before_and_after(
        written_out(HEAD_OF_LOOP + ONE_STEP_A_TURN[name])
    )
    assert migrated(source) == expected


CLIPPERS = {
    "another name": "limit = nn.utils.clip_grad_norm_",
    "a partial": "import functools\nlimit = functools.partial(nn.utils.clip_grad_norm_)",
    "getattr": 'limit = getattr(nn.utils, "clip_grad_norm_")',
    "a table": 'limit = {"norm": nn.utils.clip_grad_norm_}["norm"]',
    "a function": "def limit(ps, most):\n    for p in ps:\n        p.grad.clamp_(-most, most)",
    "an import": "from torch.nn.utils import clip_grad_norm_ as limit",
    "somebody else's module": "from helpers import clip_gradient as limit",
}


@pytest.mark.parametrize("name", CLIPPERS)
def test_clip_by(name: str) -> None:
    diff = f"+    scaler.unscale_(opt)\n     limit(model.parameters(), 1.0)\n{STEP}"
    source, expected = before_and_after(written_out(HEAD_OF_LOOP + diff))
    made = CLIPPERS[name] + "\n"
    assert migrated(made + source) == made + expected


WHOLE = {
    "accumulation": f"""\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 for i, (x, y) in enumerate(data):
-    loss = criterion(model(x), y) / 2
-    loss.backward()
+    AUTOCAST
+        loss = criterion(model(x), y) / 2
+    scaler.scale(loss).backward()
     if i % 2 != 1:
         continue
+    scaler.unscale_(opt)
     {CLIP}
-    opt.step()
+    scaler.step(opt)
+    scaler.update()
     opt.zero_grad()
""",
    "a leftover step": """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 for epoch in range(2):
     for i, (x, y) in enumerate(data[:5]):
-        loss = criterion(model(x), y) / 2
-        loss.backward()
+        AUTOCAST
+            loss = criterion(model(x), y) / 2
+        scaler.scale(loss).backward()
         if i % 2:
-            opt.step()
+            scaler.step(opt)
+            scaler.update()
             opt.zero_grad()
-    opt.step()
+    if any(p.grad is not None for group in opt.param_groups for p in group["params"]):
+        scaler.step(opt)
+        scaler.update()
     opt.zero_grad()
""",
    "a step in finally": """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 for i, (x, y) in enumerate(data):
     opt.zero_grad()
-    loss = criterion(model(x), y)
+    AUTOCAST
+        loss = criterion(model(x), y)
     try:
-        loss.backward()
+        scaler.scale(loss).backward()
         if i == 2:
             continue
     finally:
-        opt.step()
+        scaler.step(opt)
+        scaler.update()
""",
    "early returns": f"""\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 def one(i, x, y):
     opt.zero_grad()
-    loss = criterion(model(x), y)
-    loss.backward()
+    AUTOCAST
+        loss = criterion(model(x), y)
+    scaler.scale(loss).backward()
     if i == 1:
         return
+    scaler.unscale_(opt)
     {CLIP}
     if i == 2:
+        scaler.update()
         return
-    opt.step()
+    scaler.step(opt)
+    scaler.update()
 for i, (x, y) in enumerate(data):
     one(i, x, y)
""",
    "two losses of one step": """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 for x, y in data:
     opt.zero_grad()
-    out = model(x)
-    a, b = criterion(out, y), out.pow(2).mean()
-    a.backward(retain_graph=True)
-    b.backward()
-    opt.step()
+    AUTOCAST
+        out = model(x)
+        a, b = criterion(out, y), out.pow(2).mean()
+    scaler.scale(a).backward(retain_graph=True)
+    scaler.scale(b).backward()
+    scaler.step(opt)
+    scaler.update()
""",
    "a helper that steps under its own test": f"""\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 def update(i):
     if i % 2:
+        scaler.unscale_(opt)
         {CLIP}
-        opt.step()
+        scaler.step(opt)
+        scaler.update()
         opt.zero_grad()
 for i, (x, y) in enumerate(data):
-    loss = criterion(model(x), y)
-    loss.backward()
+    AUTOCAST
+        loss = criterion(model(x), y)
+    scaler.scale(loss).backward()
     update(i)
""",
    "a property that reads gradients": """\
 class T:
     def __init__(self):
         self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
+        self.scaler = BORN
     @property
     def norm(self):
         return sum(p.grad.norm() for p in model.parameters())
     def one(self, x, y):
         self.opt.zero_grad()
-        loss = criterion(model(x), y)
-        loss.backward()
+        AUTOCAST scaler=self.scaler
+            loss = criterion(model(x), y)
+        self.scaler.scale(loss).backward()
+        self.scaler.unscale_(self.opt)
         print(self.norm)
-        self.opt.step()
+        self.scaler.step(self.opt)
+        self.scaler.update()
 t = T()
 for x, y in data:
     t.one(x, y)
""",
    "an override that reads gradients": """\
 class T:
     def __init__(self):
         self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
+        self.scaler = BORN
     def after(self):
         pass
     def one(self, x, y):
         self.opt.zero_grad()
-        loss = criterion(model(x), y)
-        loss.backward()
+        AUTOCAST scaler=self.scaler
+            loss = criterion(model(x), y)
+        self.scaler.scale(loss).backward()
+        self.scaler.unscale_(self.opt)
         self.after()
-        self.opt.step()
+        self.scaler.step(self.opt)
+        self.scaler.update()
 class U(T):
     def after(self):
         nn.utils.clip_grad_norm_(model.parameters(), 0.1)
 for t in (T(), U()):
     for x, y in data:
         t.one(x, y)
""",
}


@pytest.mark.parametrize("name", WHOLE)
def test_program(name: str) -> None:
    source, expected = before_and_after(written_out(WHOLE[name]))
    assert migrated(source) == expected


# Those where a misplaced update() would be seen only by running.
RUN = [
    HEAD_OF_LOOP + ONE_STEP_A_TURN["continue after a clip"],
    HEAD_OF_LOOP + ONE_STEP_A_TURN["clip, then a step under a test of the norm"],
    HEAD_OF_LOOP + ONE_STEP_A_TURN["break after a clip"],
    WHOLE["a leftover step"],
    WHOLE["early returns"],
]


@pytest.mark.parametrize("diff", RUN, ids=range(len(RUN)))
def test_infinite_gradients_cost_one_step(diff: str) -> None:
    pytest.importorskip("torch")
    from exactness import check_injected, check_scaled

    source, expected = (HEAD + text for text in before_and_after(written_out(diff)))
    assert check_scaled(source, expected) == []
    assert check_injected(source, expected) == []


@pytest.mark.parametrize(
    "default, test", [("None", "clip is not None"), ("0", "clip"), ("False", "clip")]
)
@pytest.mark.parametrize(
    "step",
    [
        "        opt.step()\n",
        "            opt.step()\n        else:\n            opt.step()\n",
    ],
    ids=["then a step", "with its step"],
)
def test_clipping_that_nobody_asks_for_yet_is_prepared_for(
    default: str, test: str, step: str
) -> None:
    """Who gives a number later is to clip what is unscaled."""
    source = HEAD + (
        f"def fit(clip={default}):\n"
        "    opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "    for x, y in data:\n"
        "        opt.zero_grad()\n"
        "        loss = criterion(model(x), y)\n"
        "        loss.backward()\n"
        f"        if {test}:\n"
        "            nn.utils.clip_grad_norm_(model.parameters(), clip)\n"
        f"{step}"
        "        print(loss.item())\n"
        "fit(CLIP)\n"
    )
    output = migrated(source.replace("CLIP", ""))
    assert output.replace("fit()", "fit(0.1)") == migrated(
        source.replace("CLIP", "0.1")
    )
    assert "scaler.unscale_(opt)" in output
    for given in ("", "0.1"):
        text, rewritten = source.replace("CLIP", given), output.replace(
            "fit()", f"fit({given})"
        )
        assert check_scaled(text, rewritten, MOVING_SCALES[1]) == []


FIRST = """\
class Algorithm:
    def setup(self, warm):
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
        self.scheduler = None
        if warm:
            self.scheduler = torch.optim.lr_scheduler.StepLR(self.opt, 2)
            self.opt.zero_grad()
            self.opt.step()
    def fit(self, x, y):
        self.opt.zero_grad()
        criterion(model(x), y).backward()
        self.opt.step()
        if self.scheduler is not None:
            self.scheduler.step()
CALLS
"""
CALLS = "algorithm = Algorithm()\nalgorithm.setup(True)\nfor x, y in data:\n    algorithm.fit(x, y)"


@pytest.mark.parametrize("calls", (CALLS, ""))
def test_a_step_for_the_schedulers_sake_stays(calls: str) -> None:
    source = FIRST.replace("CALLS", calls)
    output = migrated(source)
    assert "            self.opt.zero_grad()\n            self.opt.step()\n" in output
    assert output.count("self.scaler.step(self.opt)") == 1
    assert check_off(HEAD + source, HEAD + output) == []
    assert check_scaled(HEAD + source, HEAD + output) == []


def test_a_step_for_the_schedulers_sake_behind_a_backward() -> None:
    back = "self.opt.zero_grad()\n            model(data[0][0]).sum().backward()"
    output = migrated(
        FIRST.replace("CALLS", CALLS).replace("self.opt.zero_grad()", back, 1)
    )
    assert output.count("self.scaler.step(self.opt)") == 2
