"""The written text: comments, layout, quotes and line ends stay; only lines that must change do."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import black
import pytest
from programs import before_and_after, left_alone, migrated
from shorthand import before, written_out

from amp_migrate.api import Options, migrate_source

HEAD = """\
import torch
from net import criterion, data, model
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = model.to(device)
"""
BIRTH = """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
"""

CASES = {
    "comments stay at their statements": """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)  # birth
+scaler = BORN
 # between
 for x, y in data:
     # clear
     opt.zero_grad()
     # forward

-    loss = criterion(model(x), y)  # ce
+    AUTOCAST
+        loss = criterion(model(x), y)  # ce
     # back
-    loss.backward()  # b
+    scaler.scale(loss).backward()  # b

     # step
-    opt.step()  # go
+    scaler.step(opt)  # go
+    scaler.update()
     # end of the loop
 # end
""",
    "comments inside a region": f"""\
{BIRTH} for x, y in data:
     opt.zero_grad()
     # the forward
-    out = model(x)
-    # 1
-    if out is not None:
-        # 2
-        loss = criterion(out, y)
-        # 3
+    AUTOCAST
+        out = model(x)
+        # 1
+        if out is not None:
+            # 2
+            loss = criterion(out, y)
+            # 3
     # 4
     BACK
""",
    "comments inside what is hoisted": f"""\
{BIRTH} for x, y in data:
     opt.zero_grad()
-    (
-        # why
-        criterion(model(x), y)  # ce
-        + model(x).mean()  # l2
-    ).backward()
-    opt.step()
+    AUTOCAST
+        loss = (
+            # why
+            criterion(model(x), y)  # ce
+            + model(x).mean()  # l2
+        )
+    scaler.scale(loss).backward()
+    scaler.step(opt)
+    scaler.update()
""",
    "semicolons": """\
-opt = torch.optim.SGD(model.parameters(), lr=0.1); print("a")
+opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
+print("a")
 for x, y in data:
-    opt.zero_grad(); loss = criterion(model(x), y); loss.backward(); opt.step(); print("b")
+    opt.zero_grad()
+    AUTOCAST
+        loss = criterion(model(x), y)
+    scaler.scale(loss).backward()
+    scaler.step(opt)
+    scaler.update()
+    print("b")
""",
    "semicolons elsewhere stay": f"""\
 a = 1; b = 2
{BIRTH} for x, y in data:
     print(a); print(b)
     STEPS
""",
    "a loop on one line": f"""\
{BIRTH}-for x, y in data: opt.zero_grad(); criterion(model(x), y).backward(); opt.step()  # all
+for x, y in data:
+    opt.zero_grad()
+    AUTOCAST
+        loss = criterion(model(x), y)
+    scaler.scale(loss).backward()
+    scaler.step(opt)  # all
+    scaler.update()
""",
    "branches on one line": f"""\
{BIRTH} for x, y in data:
     opt.zero_grad()
-    if len(x): loss = criterion(model(x), y)  # some
-    else: loss = model(x).sum()
-    if len(x) > 9: loss.backward()
-    else: loss.backward(); print("few")
-    opt.step()
+    AUTOCAST
+        if len(x): loss = criterion(model(x), y)  # some
+        else: loss = model(x).sum()
+    if len(x) > 9:
+        scaler.scale(loss).backward()
+    else:
+        scaler.scale(loss).backward()
+        print("few")
+    scaler.step(opt)
+    scaler.update()
""",
    "strings keep their inner indentation": f"""\
{BIRTH} for x, y in data:
     opt.zero_grad()
-    out = model(x)
-    print('''a
-  {{out}}
-b''')
-    loss = criterion(out, y)
+    AUTOCAST
+        out = model(x)
+        print('''a
+  {{out}}
+b''')
+        loss = criterion(out, y)
     BACK
""",
    "calls over several lines": f"""\
-def train(
-    net,
-    opt,
-):
+def train(
+    net,
+    opt,
+    scaler,
+):
     for x, y in data:
         opt.zero_grad()
-        loss = criterion(
-            net(x),
-            y,  # wanted
-        )
+        AUTOCAST
+            loss = criterion(
+                net(x),
+                y,  # wanted
+            )
         BACK
{BIRTH}-train(
-    model,
-    opt,  # steps
-)
+train(
+    model,
+    opt,  # steps
+    scaler=scaler,
+)
""",
    "two spaces": f"""\
{BIRTH} for x, y in data:
   opt.zero_grad()
   if len(x):
-    loss = criterion(model(x), y)
+    AUTOCAST
+      loss = criterion(model(x), y)
   BACK
""",
    "a birth in an elif": """\
 if data:
     opt = torch.optim.SGD(model.parameters(), lr=0.1)
 elif model:
     opt = torch.optim.Adam(model.parameters())  # adam
 else:
     # plain
     opt = torch.optim.SGD(model.parameters(), lr=0.2)
+scaler = BORN
 for x, y in data:
     STEPS
""",
    "a docstring stays first": f"""\
-def step(x, y, opt=None):
+def step(x, y, opt=None, scaler=None):
     '''Doc.'''
+    if scaler is None:
+        scaler = torch.amp.GradScaler("cuda", enabled=False)
     STEPS
{BIRTH} for x, y in data:
-    step(x, y, opt)
+    step(x, y, opt, scaler=scaler)
     step(x, y) if not data else None
""",
    "single quotes": f"""\
{BIRTH} for x, y in data:
     STEPS
-torch.save({{'opt': opt.state_dict()}}, 'c.pt')
+torch.save({{'opt': opt.state_dict(), 'scaler': scaler.state_dict()}}, 'c.pt')
""",
    "entries on lines of their own": f"""\
{BIRTH} for x, y in data:
     STEPS
 torch.save(
     {{
         # the optimizer
-        "opt": opt.state_dict(),
+        "opt": opt.state_dict(),
+        "scaler": scaler.state_dict(),
     }},
     "c.pt",
 )
""",
}


@pytest.mark.parametrize("name", CASES)
def test_written(name: str) -> None:
    source, expected = before_and_after(written_out(CASES[name]))
    assert migrated(source, head=HEAD) == expected


PLAIN = HEAD + before(
    "opt = torch.optim.SGD(model.parameters(), lr=0.1)\nfor x, y in data:\n    STEPS\n"
)


def test_islands_that_follow_each_other_are_one() -> None:
    diff = """\
 bce = torch.nn.BCELoss()
 def fuse(a, b, y):
-    first = bce(a, y)
-    # the other
-    other = bce(b, y)
+    with torch.autocast("cuda", enabled=False):
+        first = bce(a, y.float())
+        # the other
+        other = bce(b, y.float())
     print(y.shape)
     y = y * 0.9
-    last = bce(a, y)
+    with torch.autocast("cuda", enabled=False):
+        last = bce(a, y.float())
     return first + other + last
 class Net(torch.nn.Module):
     def __init__(self):
         super().__init__()
         self.layer = torch.nn.Linear(8, 3)
     def forward(self, x):
         h = self.layer(x)
-        return torch.sigmoid(h), torch.sigmoid(h)
+        return torch.sigmoid(h.float()), torch.sigmoid(h.float())
 net = Net().to(device)
 opt = torch.optim.SGD(net.parameters(), lr=0.1)
+scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")
 for x, y in data:
     opt.zero_grad()
-    a, b = net(x)
-    loss = fuse(a, b, data.target(y))
-    loss.backward()
-    opt.step()
+    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
+        a, b = net(x)
+        loss = fuse(a, b, data.target(y))
+    scaler.scale(loss).backward()
+    scaler.step(opt)
+    scaler.update()
"""
    old, new = before_and_after(diff)
    assert migrated(old, head=HEAD) == new


def test_tabs() -> None:
    output = migrate_source(PLAIN.replace("    ", "\t")).output
    inside = [line for line in output.splitlines() if "criterion(model" in line]
    assert inside == ["\t\tloss = criterion(model(x), y)"]


def test_no_newline_at_the_end() -> None:
    output = migrate_source(PLAIN.rstrip("\n")).output
    assert output == migrate_source(PLAIN).output.rstrip("\n")


def test_torch_is_imported_where_it_is_missing() -> None:
    text = '''\
    """Doc."""

    from __future__ import annotations

    # the optimizers
    from torch.optim import SGD
    from net import criterion, data, model

    model = model.cuda()
    opt = SGD(model.parameters(), lr=0.1)
    '''
    source = dedent(text) + before("for x, y in data:\n    STEPS\n")
    output = migrate_source(source).output
    lines = output.splitlines()
    assert lines[:8] == [
        *source.splitlines()[:4],
        "import torch",
        "",
        "# the optimizers",
        "from torch.optim import SGD",
    ]


def test_torch_by_the_files_own_name() -> None:
    source = PLAIN.replace("import torch\n", "import torch as th\n").replace(
        "torch.", "th."
    )
    output = migrate_source(source).output
    assert 'scaler = th.amp.GradScaler("cuda"' in output
    assert 'with th.autocast("cuda", dtype=th.float16' in output
    assert "torch." not in output


CLEAN = '''\
"""Clean for black."""

import torch
from net import criterion, data, model

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = model.to(device)


def train(first_of_all_of_them, the_second_of_them, the_third_of_them, optimizer):
    for x, y in data:
        for part in x.split(2):
            optimizer.zero_grad()
            loss = criterion(model(part), y)
            loss.backward()
            optimizer.step()


optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train("a long argument", "and another one", "and one more", optimizer)
'''


def test_what_was_clean_for_black_stays_clean() -> None:
    output = migrate_source(CLEAN).output
    assert output != CLEAN
    assert black.format_str(output, mode=black.Mode()) == output


ONCE_UNCLEAN = {
    "quotes": "print('a')",
    "a comment": "#a comment",
    "a comment too near": "print(1) # near",
    "no space behind a comma": "print(1,2)",
    "a space before a comma": "print(1 ,2)",
    "an assignment": "x=1",
    "an operator": "print(1 <2)",
    "a sum": "print(len('')+1)".replace("'", '"'),
    "a call": "print (1)",
    "inside of brackets": "print( 1)",
    "before the end of brackets": "print([1 ])",
    "a semicolon": "print(1); print(2)",
    "the end of a line": "print(1) ",
    "a blank line": " ",
    "blank lines": "print(1)\n\n\n\nprint(2)",
    "indentation": "if device:\n  print(1)",
    "a tab": "if device:\n\tprint(1)",
    "a long line": f"print({', '.join(['device'] * 12)})",
    "a long list": f"devices = [{', '.join(['device'] * 12)}]",
    "a long head": f"def show(self, {', '.join(f'number{n}=0' for n in range(8))}):\n    print(1)",
    "a long import": f"from torch.nn import {', '.join(f'Linear as Linear{n}' for n in range(5))}",
}
ONCE_CLEAN = {
    "quotes in quotes": """print('say "no"', "it's", f"{len('a')}{{")""",
    "a comment": "#!a\n#: b\n##\n#\nprint(1)  # far",
    "defaults": "print(lambda x=1, *y: x)",
    "keywords": "print(*(1, 2), sep=(1,)[0])\nprint(not (1), -1, 2**-1)",
    "slices": "print([1, 2, 3][1:-1], [1][len([1]) - 1 :])",
    "lines": "print(\n    1,  # one\n    2,\n)",
    "a text": 'a = """\n \'a\' \t\n\n\n\nb=1 \n"""',
    "switched off": "# fmt: off\nx='a'\n# fmt: on",
    "a setting": 'print(f"{device!r:>{10}}", end="")',
    "long lines": f"""text = "{'a, (b), [' * 12}"
# print({'c, ' * 30})
print(
    "{'d, ' * 30}",
)
""".rstrip(),
}


@pytest.mark.parametrize("name", ONCE_UNCLEAN)
def test_what_was_not_clean_for_black_is_not_formatted(name: str) -> None:
    source = f"{CLEAN}{ONCE_UNCLEAN[name]}\nprint(2)\n"
    assert black.format_str(source, mode=black.Mode()) != source
    output = migrate_source(source).output
    assert output != source
    assert output.endswith(f"{ONCE_UNCLEAN[name]}\nprint(2)\n")


@pytest.mark.parametrize("name", ONCE_CLEAN)
def test_whatever_black_leaves_is_clean(name: str) -> None:
    source = f"{CLEAN}{ONCE_CLEAN[name]}\n"
    assert black.format_str(source, mode=black.Mode()) == source
    output = migrate_source(source).output
    assert output != source
    assert black.format_str(output, mode=black.Mode()) == output


def test_blacks_own_line_length_counts(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.black]\nline-length = 120\n")
    output = migrate_source(CLEAN, path=str(tmp_path / "train.py")).output
    assert "dtype=torch.float16, enabled=scaler.is_enabled()):\n" in output
    assert migrate_source(CLEAN).output != output


HOOKS = {
    "in a list": 'args: ["--line-length=120"]',
    "by a word of its own": "args: [--line-length, '120']",
    "short": "args: [-l, 120]",
    "one a line": "args:\n          - --line-length=120  # wide\n          - --exclude=x",
    "beside other keys": "language_version: python3\n        args: [-l 120]\n        files: src",
}


@pytest.mark.parametrize("name", HOOKS)
def test_the_line_length_of_a_hook_counts(name: str, tmp_path: Path) -> None:
    (tmp_path / ".pre-commit-config.yaml").write_text(
        "repos:\n  - repo: https://example.org/isort\n    hooks:\n      - id: isort\n"
        "        args: [--line-length=60]\n  - repo: https://example.org/black\n    hooks:\n"
        f"      - id: black\n        {HOOKS[name]}\n"
        "  - repo: local\n    hooks:\n      - id: other\n        args: [-l, 60]\n"
    )
    output = migrate_source(CLEAN, path=str(tmp_path / "train.py")).output
    assert "dtype=torch.float16, enabled=scaler.is_enabled()):\n" in output
    assert migrate_source(CLEAN).output != output


def test_what_was_not_clean_is_not_formatted() -> None:
    source = CLEAN.replace(
        "train(first_of_all_of_them,", "train( first_of_all_of_them,"
    )
    output = migrate_source(source).output
    assert (
        "def train( first_of_all_of_them, the_second_of_them, the_third_of_them, optimizer, scaler):"
        in output
    )


VERSIONS = {
    (2, 1): "scaler = torch.cuda.amp.GradScaler(enabled=",
    (2, 3): 'scaler = torch.amp.GradScaler("cuda", enabled=',
}


@pytest.mark.parametrize("version", VERSIONS)
def test_the_scaler_of_a_torch_version(version: tuple[int, int]) -> None:
    output = migrate_source(PLAIN, options=Options(torch_version=version)).output
    assert VERSIONS[version] in output


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_a_second_run_changes_nothing(name: str, dtype: str) -> None:
    options = Options(dtype=dtype)
    source, _ = before_and_after(written_out(CASES[name]))
    output = migrate_source(HEAD + source, options=options).output
    assert output != HEAD + source
    assert migrate_source(output, options=options).output == output


def test_a_program_is_migrated_wholly_or_not_at_all() -> None:
    body = before(
        "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x, y in data:\n    STEPS\n"
        "for x, y in data:\n    STEPS\n    opt.step()\n"
    )
    assert left_alone(body, head=HEAD) == "AMP031"
