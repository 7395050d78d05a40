"""How a rewrite is laid out: what moves keeps its shape, what is new takes the file's."""

from __future__ import annotations

import pytest
from programs import HEAD, before_and_after, migrated, trains_as_before

from amp_migrate.api import migrate_source

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


SINGLE = HEAD.replace('"', "'") + "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
LOOP = """\
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    opt.step()
"""
BORN = "scaler = torch.amp.GradScaler({0}cuda{0}, enabled=device.type == {0}cuda{0})\n"


@pytest.mark.parametrize(
    "words, quote",
    [
        ("", "'"),
        ("print('a', \"b\")\n", "'"),
        ('print("a", "b", "c", "d")\n', '"'),
        # Neither a docstring nor a string with quotes in it is a matter of taste.
        ('"""Trains."""\nprint("it\'s", "it\'s", "it\'s", "it\'s")\n', "'"),
    ],
)
def test_new_strings_take_the_quotes_that_the_file_prefers(
    words: str, quote: str
) -> None:
    output = migrated(words + LOOP, head=SINGLE)
    born = BORN.format(quote)
    assert born in migrate_source(SINGLE + words + LOOP, path="train.py").output
    assert f"autocast({quote}cuda{quote}, " in output


def test_a_new_key_takes_the_quotes_of_its_siblings_or_of_the_file() -> None:
    saved = """\
state = {0}
state['optimizer'] = opt.state_dict()
torch.save(state, 'last.pt')
found = torch.load('last.pt')
opt.load_state_dict(found['optimizer'])
"""
    output = migrated(LOOP + saved.format("{}"), head=SINGLE)
    assert "state['scaler'] = scaler.state_dict()" in output
    assert "found.get('scaler')" in output
    assert '"' not in output


def setting_up(declared: str) -> str:
    return (
        "opt = None\n"
        "def setup():\n"
        f"    {declared}  # ours\n"
        "    opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "setup()\n"
    )


def test_a_global_joins_those_that_are_declared_with_the_optimizer() -> None:
    output = migrated(setting_up("global data, opt") + LOOP)
    assert "    global data, opt, scaler  # ours\n    opt = " in output


def test_a_global_that_would_make_a_line_too_long_has_a_line_of_its_own() -> None:
    declared = f"global {'long' * 17}, opt"
    output = migrated(setting_up(declared) + LOOP)
    assert f"    {declared}  # ours\n    global scaler\n    opt = " in output


SIGNATURES = {
    "one a line": """\
 def run(
     opt,  # whose step
-    times,  # how often
+    times,  # how often
+    scaler,
 ):
""",
    "no last comma": """\
 def run(
     opt,
-    times
+    times,
+    scaler
 ):
""",
    "no last comma, a comment": """\
 def run(
     opt,
-    times  # how often
+    times,  # how often
+    scaler
     # that is all
 ):
""",
    "a default": """\
 def run(
     opt,
     times=1,  # how often
+    *,
+    scaler,
 ):
""",
    "a default, no last comma": """\
 def run(
     opt,
-    times=1
+    times=1,
+    *,
+    scaler
 ):
""",
    "a default, all in one line": """\
 def run(
-    opt, times=1
+    opt, times=1, *, scaler
 ):
""",
    "below the bracket": """\
 def run(opt,
-        times=1):
+        times=1,
+        *,
+        scaler):
""",
    "keyword arguments behind": """\
 def run(
     opt,
     times=1,
+    *,
+    scaler,
     **more  # and more
 ):
""",
    "any arguments": """\
 def run(
     opt,
-    *times  # how often
+    *times,  # how often
+    scaler
 ):
""",
    "keywords only": """\
 def run(
     opt,
     *,
     times=1,  # how often
+    scaler,
     # that is all
 ):
""",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_parameter_joins_a_signature_of_several_lines(name: str) -> None:
    before, after = before_and_after(SIGNATURES[name])
    made = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    loop = "".join(f"    {line}\n" for line in LOOP.splitlines())
    output = migrated(f"{made}{before}{loop}run(opt)\n")
    assert output.partition("def ")[2].partition("    for x")[0] == after[4:]
    assert output.endswith("\nrun(opt, scaler=scaler)\n")


CALLS = {
    "no last comma": """\
 run(
-    opt  # whose step
+    opt,  # whose step
+    scaler=scaler
 )
""",
    "a comment": """\
 run(
     opt,  # whose step
+    scaler=scaler,
 )
""",
    "below the bracket": """\
 run(opt,
-    2  # how often
+    2,  # how often
+    scaler=scaler
     )
""",
}


@pytest.mark.parametrize("name", CALLS)
def test_an_argument_joins_a_call_of_several_lines(name: str) -> None:
    before, after = before_and_after(CALLS[name])
    made = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    loop = "".join(f"    {line}\n" for line in LOOP.splitlines())
    output = migrated(f"{made}def run(opt, times=1):\n{loop}{before}")
    assert output.endswith(f"\n{after}")


STATES = {
    "the last entry": """\
 state = {
     "epoch": 1,  # the last one
     "opt": opt.state_dict(),  # its state
+    "scaler": scaler.state_dict(),
 }
""",
    "the last entry without a comma": """\
 state = {
     "epoch": 1,
-    "opt": opt.state_dict()  # its state
+    "opt": opt.state_dict(),  # its state
+    "scaler": scaler.state_dict()
     # that is all
 }
""",
    "the only entry": """\
-state = {"opt": opt.state_dict()  # its state
+state = {"opt": opt.state_dict(),  # its state
+         "scaler": scaler.state_dict()
          }
""",
    "an entry in between": """\
 state = {
     "opt": opt.state_dict(),  # its state
+    "scaler": scaler.state_dict(),
     # counted from 1
     "epoch": 1,  # the last one
 }
""",
    "arguments of dict": """\
 state = dict(
     epoch=1,
-    opt=opt.state_dict()  # its state
+    opt=opt.state_dict(),  # its state
+    scaler=scaler.state_dict()
 )
""",
}


@pytest.mark.parametrize("name", STATES)
def test_a_comment_stays_with_its_entry(name: str) -> None:
    before, after = before_and_after(STATES[name])
    made = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    assert migrated(f"{made}{LOOP}{before}").endswith(f"\n{after}")
