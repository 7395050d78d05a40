"""Diffs, judged by the programs that have to take them."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from amp_migrate.report.diff import name_in_patch, unified_diff
from amp_migrate.sources.text import Document

NAMES = [
    "a.py",
    "with space.py",
    'quo"te.py',
    "tab\there.py",
    "é☃.py",
    "back\\slash.py",
    "d/e f/a.py",
]

CHANGES = {
    "one line": (b"a\nb\nc\n", b"a\nB\nc\n"),
    "first and last": (b"a\nb\nc\n", b"A\nb\nC\n"),
    "insertion at the start": (b"a\n", b"new\na\n"),
    "insertion at the end": (b"a\n", b"a\nnew\n"),
    "newline at the end gained": (b"a\nb", b"a\nb\n"),
    "newline at the end lost": (b"a\nb\n", b"a\nb"),
    "never a newline at the end": (b"a\nb\nc", b"A\nb\nc"),
    "last line without newline changes": (b"a\nb", b"a\nB"),
    "crlf": (b"a\r\nb\r\nc\r\n", b"a\r\nB\r\nnew\r\nc\r\n"),
    "cr": (b"a\rb\rc\r", b"a\rB\rc\r"),
    "mixed": (b"a\r\nb\nc\rd\n", b"a\r\nB\nc\rd\r\n"),
    "not utf-8": (b"\xe9\na\n\xff\n", b"\xe9\nA\n\xff\n"),
    "form feed": (b"a\n\x0cb\nc\n", b"a\n\x0cB\nc\n"),
    "looks like a header": (b"a\n-- a/x\nb\n", b"a\n++ b/x\nb\n"),
    "two hunks": (b"a\n" + b"x\n" * 7 + b"b\n", b"A\n" + b"x\n" * 7 + b"B\n"),
    "hunks that touch": (b"a\n" + b"x\n" * 6 + b"b\n", b"A\n" + b"x\n" * 6 + b"B\n"),
    "from nothing": (b"", b"a\n"),
    "to nothing": (b"a\n", b""),
}


def apply(program: list[str], patch: bytes, cwd: Path) -> None:
    done = subprocess.run(program, input=patch, cwd=cwd, capture_output=True)
    assert done.returncode == 0, done.stderr + done.stdout + patch


@pytest.mark.parametrize("program", [["git", "apply"], ["patch", "-p1", "--binary"]])
@pytest.mark.parametrize("name", NAMES)
def test_names_are_understood(tmp_path: Path, name: str, program: list[str]) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"a\nb\n")
    apply(program, unified_diff(name, b"a\nb\n", b"a\nc\n"), tmp_path)
    assert path.read_bytes() == b"a\nc\n"


@pytest.mark.parametrize("program", [["git", "apply"], ["patch", "-p1", "--binary"]])
@pytest.mark.parametrize("before, after", CHANGES.values(), ids=CHANGES.keys())
def test_bytes_arrive(
    tmp_path: Path, before: bytes, after: bytes, program: list[str]
) -> None:
    path = tmp_path / "a.py"
    path.write_bytes(before)
    apply(program, unified_diff("a.py", before, after), tmp_path)
    # patch removes a file that becomes empty.
    assert (path.read_bytes() if path.exists() else b"") == after


def test_random_changes_arrive(tmp_path: Path) -> None:
    choice = random.Random(0)
    patch = b""
    expected = {}
    for number in range(40):
        lines = [
            choice.choice([b"", b"a", b"b", b"c\r"])
            for _ in range(choice.randint(1, 60))
        ]
        changed = list(lines)
        for _ in range(choice.randint(1, 6)):
            at = choice.randrange(len(changed) + 1)
            changed[at : at + choice.randint(0, 2)] = [b"new"] * choice.randint(0, 3)
        before, after = b"\n".join(lines), b"\n".join(changed)
        (tmp_path / f"{number}.py").write_bytes(before)
        patch += unified_diff(f"{number}.py", before, after)
        expected[f"{number}.py"] = after
    apply(["git", "apply"], patch, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == expected


def test_nothing_changed_is_no_diff() -> None:
    assert unified_diff("a.py", b"a\n", b"a\n") == b""


def test_the_form_is_that_of_git() -> None:
    before = b"".join(b"%d\n" % number for number in range(1, 21))
    after = before.replace(b"10\n", b"ten\n10.5\n")
    assert unified_diff("a.py", before, after).decode() == (
        "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -7,7 +7,8 @@\n"
        " 7\n 8\n 9\n-10\n+ten\n+10.5\n 11\n 12\n 13\n"
    )


def test_a_hunk_names_the_function_that_it_is_in() -> None:
    body = "".join(f"        a{number} = {number}\n" for number in range(20))
    fields = "".join(f"    f{number}: int\n" for number in range(9))
    text = f"import os\n\nclass Net(Base):\n{fields}    @cached\n    def run(\n        self,\n"
    text += f"    ):\n{body}\n"
    text += "async def main():\n    pass\n"

    def headings(*changes: tuple[str, str]) -> list[str]:
        after = text
        for old, new in changes:
            after = after.replace(old, new)
        document = Document.decode("a.py", text.encode())
        diff = unified_diff("a.py", text.encode(), after.encode(), document.heading)
        lines = [line for line in diff.decode().split("\n") if line.startswith("@@")]
        return [line.rpartition("@@")[2] for line in lines]

    assert headings(("import os", "import sys")) == [""]
    assert headings(("a9 =", "b9 =")) == [" def run("]
    # The class, where the function stands in the hunk.
    assert headings(("    @cached", "    @cache")) == [" class Net(Base):"]
    assert headings(
        ("import os", "import sys"), ("a19 = 19\n", "a19 = 19\n        b = 1\n")
    ) == [
        "",
        " def run(",
    ]
    # Only what is above it is named.
    assert headings(("    pass", "    return")) == [""]


def test_a_long_heading_is_cut() -> None:
    names = ", ".join(f"argument_{number}" for number in range(20))
    body = "".join(f"    a{number} = {number}\n" for number in range(9))
    text = f"def run({names}):\n{body}"
    document = Document.decode("a.py", text.encode())
    after = text.replace("a8 = 8", "a8 = 9").encode()
    diff = unified_diff("a.py", document.data, after, document.heading).decode()
    (line,) = (line for line in diff.split("\n") if line.startswith("@@"))
    heading = line.rpartition("@@ ")[2]
    assert heading.startswith("def run(argument_0, ") and len(heading) == 80


def test_names_are_relative_to_where_the_patch_is_applied(tmp_path: Path) -> None:
    for repository in ("one", "two"):
        (tmp_path / repository / "sub").mkdir(parents=True)
        (tmp_path / repository / ".git").mkdir()
    one = tmp_path / "one"
    assert name_in_patch("a.py", str(one)) == "a.py"
    assert name_in_patch("a.py", str(one / "sub")) == "sub/a.py"
    assert name_in_patch("../a.py", str(one / "sub")) == "a.py"
    assert name_in_patch("../two/sub/a.py", str(one)) == "sub/a.py"
    assert name_in_patch("one/sub/a.py", str(tmp_path)) == "one/sub/a.py"


def test_names_do_not_lead_through_links(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real" / "a.py").symlink_to("b.py")
    (tmp_path / "real" / "b.py").touch()
    assert name_in_patch("link/a.py", str(tmp_path)) == "real/b.py"
