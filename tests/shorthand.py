"""What nearly every migrated script has in common, in one word each, so that a test shows the rest.

A diff (see `programs`) may hold lines of these words, at any indentation:

- ``STEPS``: forward, backward and step, before and after;
- ``BACK``: backward and step alone;
- ``AUTOCAST``: the head of a region (in an added line);
- ``BORN``: the scaler's construction (inside an added line).

``STEPS net=self.net opt=self.opt scaler=self.scaler`` names what is used; the names on the left are
what is used without that.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from programs import before_and_after

_BACK = """\
-loss.backward()
-{opt}.step()
+{scaler}.scale(loss).backward()
+{scaler}.step({opt})
+{scaler}.update()
"""
_STEPS = """\
 {opt}.zero_grad()
-loss = criterion({net}(x), y)
+AUTOCAST scaler={scaler}
+    loss = criterion({net}(x), y)
""" + _BACK
_NAMES = {"net": "model", "opt": "opt", "scaler": "scaler"}
_WORD = re.compile(r"([-+ ])( *)(STEPS|BACK|AUTOCAST)((?: \w+=[\w.]+)*)\n")
_BORN = 'torch.amp.GradScaler("cuda", enabled=device.type == "cuda")'
_MOST = 88


def written_out(diff: str) -> str:
    """The diff without shorthand."""
    return "".join(_lines(diff))


def before(text: str) -> str:
    """A script, no diff, without shorthand: as it is before any migration."""
    diff = "".join(f" {line}" for line in text.splitlines(keepends=True))
    return before_and_after(written_out(diff))[0]


def _lines(diff: str) -> Iterator[str]:
    for line in diff.splitlines(keepends=True):
        found = _WORD.fullmatch(line)
        if found is None:
            yield line.replace("BORN", _BORN)
            continue
        sign, indent, word, given = found.groups()
        names = _NAMES | dict(pair.split("=") for pair in given.split())
        if word == "AUTOCAST":
            yield from _region(sign + indent, names["scaler"])
            continue
        text = (_STEPS if word == "STEPS" else _BACK).format(**names)
        for inner in text.splitlines(keepends=True):
            yield from _lines(inner[0] + indent + inner[1:])


def _region(indent: str, scaler: str) -> Iterator[str]:
    """As black would write it."""
    given = f'"cuda", dtype=torch.float16, enabled={scaler}.is_enabled()'
    line = f"{indent}with torch.autocast({given}):"
    if len(line) - 1 <= _MOST:
        yield f"{line}\n"
    else:
        yield f"{indent}with torch.autocast(\n"
        yield f"{indent}    {given}\n"
        yield f"{indent}):\n"
