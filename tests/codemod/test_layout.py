"""How a rewrite is laid out: what moves keeps its shape, what is new takes the file's."""

from __future__ import annotations

from programs import before_and_after, migrated, trains_as_before

CONTINUED = """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")
 for x, y in data:
     opt.zero_grad()
-    out = model(x) \\
-          + model(2 * x)
-    text = 'a \\
-    b' \\
-           'c'
-    if out.size(0) > 1 and \\
-            out.size(1) > 1:
-        out = out * \\
-            2
-    loss = criterion(out,
-                     y)
-    loss.backward()
-    opt.step()
+    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
+        out = model(x) \\
+              + model(2 * x)
+        text = 'a \\
+    b' \\
+               'c'
+        if out.size(0) > 1 and \\
+                out.size(1) > 1:
+            out = out * \\
+                2
+        loss = criterion(out,
+                         y)
+    scaler.scale(loss).backward()
+    scaler.step(opt)
+    scaler.update()
"""


def test_continued_lines_move_with_their_statement() -> None:
    before, after = before_and_after(CONTINUED)
    assert migrated(before) == after
    trains_as_before(CONTINUED)
