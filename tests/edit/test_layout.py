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


TWO = """\
def evaluate():
  return 0


"""
FOUR = """\
def evaluate():
    return 0


"""
REGION = """\
 def train(opt):
     for x, y in data:
         opt.zero_grad()
-        loss = criterion(model(x), y)
-        loss.backward()
-        opt.step()
+        with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
+            loss = criterion(model(x), y)
+        scaler.scale(loss).backward()
+        scaler.step(opt)
+        scaler.update()
"""


@pytest.mark.parametrize("first", [TWO, FOUR], ids=["two", "four"])
@pytest.mark.parametrize("step", ["  ", "    ", "\t"], ids=["two", "four", "tab"])
def test_new_blocks_are_indented_as_those_around_them(first: str, step: str) -> None:
    """Whatever the first block of the file has."""
    lines = [
        line[0] + line[1:].replace("    ", step)
        for line in REGION.replace("(opt)", "(opt, scaler)", 0).splitlines(True)
    ]
    before, after = before_and_after("".join(lines))
    before = first + before + "train(torch.optim.SGD(model.parameters(), lr=0.1))\n"
    after = after.replace("def train(opt)", "def train(opt, scaler)")
    assert after in migrated(before).replace("\r", "")


def test_lines_of_whitespace_stay_as_they_are() -> None:
    diff = """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")
 for x, y in data:
     opt.zero_grad()
     _
-    out = model(x)
-    if out is not None:
+    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
+        out = model(x)
+        if out is not None:
     _
       _
-        out = out * 2
+            out = out * 2
          _
_
-        # what it is worth
-    loss = criterion(out, y)
+            # what it is worth
+        loss = criterion(out, y)
     _
-    loss.backward()
-    opt.step()
+    scaler.scale(loss).backward()
+    scaler.step(opt)
+    scaler.update()
   _
"""
    lines = [
        " " + line[:-1].rstrip("_")[1:] + "\n" if line.strip() == "_" else line + "\n"
        for line in diff.split("\n")[:-1]
    ]
    before, after = before_and_after("".join(lines))
    assert migrated(before) == after


ENDS = [
    "",
    "\n\n",
    "    \n",
    "  \n\t\n",
    "\n    \n    # done\n    \n",
    "    # x\n\n",
    " ",
]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_the_end_of_a_file_stays_as_it_is(end: str, newline: str) -> None:
    text = f"{HEAD}opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    text += LOOP.replace("'", '"') + end
    text = text.replace("\n", newline)
    output = migrate_source(text, path="train.py").output
    assert output != text
    assert output.endswith(f"scaler.update(){newline}" + end.replace("\n", newline))


@pytest.mark.parametrize("end", ["\n", "# done\n", "  \n\n"])
def test_a_last_statement_may_go_on_in_a_blank_line(end: str) -> None:
    text = f"{HEAD}opt = torch.optim.SGD(model.parameters(), lr=0.1)\n{LOOP}print(loss) \\\n{end}"
    output = migrate_source(text, path="train.py").output
    assert output != text
    assert output.endswith(f"print(loss) \\\n{end}")


LONE = """\
device = "cuda"
model = nn.Linear(8, 3).to(device)
opt = Adam(model.parameters())
for x, y in data:
    opt.zero_grad()
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    loss.backward()
    opt.step()
"""
IMPORTS = {
    "a comment": "import io\n\n+import torch\n# networks\nfrom torch import nn\n",
    "several comments": "import io\n+import torch\n# of\n# ours\nfrom torch import nn\n",
    "a text": 'import io\n+import torch\n"""Networks."""\nfrom torch import nn\n',
    "a comment on others": "# of others\nimport io\n\n+import torch\nfrom torch import nn\n",
    "the first line": "#!/usr/bin/env python\n+import torch\nfrom torch import nn\n",
    "a docstring": '"""Train."""\n+import torch\nfrom torch import nn\n',
}


@pytest.mark.parametrize("name", IMPORTS)
def test_an_import_goes_before_a_comment_on_what_follows(name: str) -> None:
    after = IMPORTS[name].replace("+", "") + "from torch.optim import Adam\n"
    before = after.replace("import torch\n", "", 1)
    output = migrate_source(before + LONE, path="train.py").output
    assert output.startswith(after)


def test_whitespace_behind_the_last_parameter_stays() -> None:
    text = """\
def train(
    model,_
    opt,_
):
    for x, y in data:
        opt.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        opt.step()
train(model, torch.optim.SGD(model.parameters(), lr=0.1))
""".replace(",_", ", ")
    written = migrated(text)
    assert "    model, \n    opt, \n    scaler,\n):\n" in written
