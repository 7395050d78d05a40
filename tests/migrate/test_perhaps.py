"""An optimizer that is there only under a condition: its scaler is there in any case."""

from __future__ import annotations

import pytest
from programs import HEAD, before_and_after, migrated, trains_as_before
from shorthand import written_out

SGD = "torch.optim.SGD(model.parameters(), lr=0.1)"
USED = """\
 for x, y in data:
-    loss = criterion(model(x), y)
+    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
+        loss = criterion(model(x), y)
     if opt is not None:
         opt.zero_grad()
-        loss.backward()
-        opt.step()
+        scaler.scale(loss).backward()
+        scaler.step(opt)
+        scaler.update()
"""

PERHAPS = {
    "none at first": f"""\
 opt = None
 if len(data) > 3:
     opt = {SGD}
+scaler = BORN
{USED}""",
    "or none": f"""\
 if len(data) > 3:
     opt = {SGD}
 else:
     opt = None
+scaler = BORN
{USED}""",
    "not at all": f"""\
 trains = len(data) > 3
 if trains:
     opt = {SGD}
+scaler = BORN
{USED.replace("opt is not None", "trains")}""",
    "or none where it fails": f"""\
 opt = None
 try:
     assert len(data) > 3
     opt = {SGD}
 except AssertionError:
     pass
+scaler = BORN
{USED}""",
    "and what trains leaves early without": f"""\
 opt = None
 if len(data) > 3:
     opt = {SGD}
+scaler = BORN
 for x, y in data:
-    loss = criterion(model(x), y)
+    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
+        loss = criterion(model(x), y)
     if opt is None:
         continue
     opt.zero_grad()
-    loss.backward()
-    opt.step()
+    scaler.scale(loss).backward()
+    scaler.step(opt)
+    scaler.update()
""",
    "and is asked for by the same test": f"""\
 trains = len(data) > 3
 if trains:
     opt = {SGD}
+    scaler = BORN
 if trains:
     for x, y in data:
         STEPS
""",
    "handed to a function": f"""\
-def run(opt):
+def run(opt, scaler):
     for x, y in data:
-        loss = criterion(model(x), y)
+        with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
+            loss = criterion(model(x), y)
         if opt is not None:
             opt.zero_grad()
-            loss.backward()
-            opt.step()
+            scaler.scale(loss).backward()
+            scaler.step(opt)
+            scaler.update()
 opt = None
 if len(data) > 3:
     opt = {SGD}
-run(opt)
+scaler = BORN
+run(opt, scaler=scaler)
""",
    "an attribute that another method sets": f"""\
 class Trainer:
     def __init__(self):
         self.opt = None
+        self.scaler = torch.amp.GradScaler("cuda", enabled=False)
     def setup(self):
         self.opt = {SGD}
+        self.scaler = BORN
     def run(self):
         for x, y in data:
-            loss = criterion(model(x), y)
+            with torch.autocast(
+                "cuda", dtype=torch.float16, enabled=self.scaler.is_enabled()
+            ):
+                loss = criterion(model(x), y)
             if self.opt is not None:
                 self.opt.zero_grad()
-                loss.backward()
-                self.opt.step()
+                self.scaler.scale(loss).backward()
+                self.scaler.step(self.opt)
+                self.scaler.update()
 trainer = Trainer()
 if len(data) > 3:
     trainer.setup()
 trainer.run()
""",
    "an attribute of one of two kinds of object": f"""\
 class Trainer:
     def __init__(self, trains):
+        self.scaler = torch.amp.GradScaler("cuda", enabled=False)
         self.trains = trains
         if trains:
             self.opt = {SGD}
+            self.scaler = BORN
     def go(self, x, y):
-        loss = criterion(model(x), y)
+        with torch.autocast(
+            "cuda", dtype=torch.float16, enabled=self.scaler.is_enabled()
+        ):
+            loss = criterion(model(x), y)
         if self.trains:
             self.opt.zero_grad()
-            loss.backward()
-            self.opt.step()
+            self.scaler.scale(loss).backward()
+            self.scaler.step(self.opt)
+            self.scaler.update()
 trainer = Trainer(len(data) > 3)
 for x, y in data:
     trainer.go(x, y)
""",
    "beside one that is always there": f"""\
 class Trainer:
     def __init__(self, tunes):
         self.tunes = tunes
         if tunes:
             self.rate = nn.Parameter(torch.ones(1, device=device))
             self.tune = torch.optim.SGD([self.rate], lr=0.1)
+            self.tune_scaler = torch.amp.GradScaler(
+                "cuda", enabled=device.type == "cuda"
+            )
         self.opt = {SGD}
+        self.scaler = BORN
     def go(self, x, y):
-        loss = criterion(model(x), y)
+        with torch.autocast(
+            "cuda", dtype=torch.float16, enabled=self.scaler.is_enabled()
+        ):
+            loss = criterion(model(x), y)
         if self.tunes:
             rated = (self.rate * loss.detach()).sum()
             self.tune.zero_grad()
-            rated.backward()
-            self.tune.step()
+            self.tune_scaler.scale(rated).backward()
+            self.tune_scaler.step(self.tune)
+            self.tune_scaler.update()
         self.opt.zero_grad()
-        loss.backward()
-        self.opt.step()
+        self.scaler.scale(loss).backward()
+        self.scaler.step(self.opt)
+        self.scaler.update()
 trainer = Trainer(len(data) > 3)
 for x, y in data:
     trainer.go(x, y)
""",
}


@pytest.mark.parametrize("name", PERHAPS)
def test_program(name: str) -> None:
    diff = written_out(PERHAPS[name])
    source, expected = before_and_after(diff)
    assert migrated(source) == expected
    trains_as_before(diff)
    without = HEAD + expected.replace("> 3", "> 99")
    exec(compile(without, "train.py", "exec"), {})
