"""The edits of fixes, each on a small text: what is written, and what stays around it."""

from __future__ import annotations

from textwrap import dedent

import pytest

from amp_migrate.edit.mismatch import MismatchError
from amp_migrate.lint.fixes import edits
from amp_migrate.lint.fixes.rewrite import rewrite
from amp_migrate.program import ir
from amp_migrate.program.bindings import calls_of
from amp_migrate.program.reader import read_module


def call(text: str, name: str, number: int = 0) -> ir.Call:
    """The call of some function or method in a text."""
    found = [
        one
        for function in read_module(text).functions.values()
        for stmt in ir.statements(function.body)
        for one in calls_of(stmt)
        if (ir.dotted(one.func) or (getattr(one.func, "attr", ""),))[-1] == name
    ]
    return found[number]


def stmt(text: str, line: int, number: int = 0) -> ir.Stmt:
    """A statement that begins on a line."""
    found = [
        one
        for function in read_module(text).functions.values()
        for one in ir.statements(function.body)
        if one.line == line
    ]
    return found[number]


REMOVED = [
    ("f(a, b=1)\n", 1, "f(a)\n"),
    ("f(a, b=1, c=2)\n", 1, "f(a, c=2)\n"),
    ("f(b=1)\n", 0, "f()\n"),
    ("f( b=1 )\n", 0, "f()\n"),
    ("f(a, b=1,)\n", 1, "f(a,)\n"),
    (
        "x = f(\n    a,  # why\n    b=1,\n)  # end\n",
        1,
        "x = f(\n    a,  # why\n)  # end\n",
    ),
    ("x = f(\n    b=1,\n    c=2,\n)\n", 0, "x = f(\n    c=2,\n)\n"),
    ("x = f(\n    a,\n    b=1\n)\n", 1, "x = f(\n    a\n)\n"),
    ("f(a,\n  b=1)\n", 1, "f(a)\n"),
    ("é = f(a); g(f(ü, b=1))\n", 1, "é = f(a); g(f(ü))\n"),
]


@pytest.mark.parametrize(("text", "index", "expected"), REMOVED)
def test_an_argument_is_taken_out(text: str, index: int, expected: str) -> None:
    at = edits.at(call(text, "f", -1))
    assert rewrite(text, [edits.RemoveArgument(at, index)]) == expected


KEYWORDS = [
    ("f(a)\n", "f(a, device='cuda')\n"),
    ("f()\n", "f(device='cuda')\n"),
    ("f(a, device=d)\n", "f(a, device='cuda')\n"),
    (
        "f(\n    a,\n    b,  # last\n)\n",
        "f(\n    a,\n    b,  # last\n    device='cuda',\n)\n",
    ),
    ("f(a, *b)\n", "f(a, *b, device='cuda')\n"),
]


@pytest.mark.parametrize(("text", "expected"), KEYWORDS)
def test_a_keyword_is_given_in_the_quotes_of_the_file(text: str, expected: str) -> None:
    text, expected = "s = 'a'\n" + text, "s = 'a'\n" + expected
    edit = edits.SetKeyword(edits.at(call(text, "f")), "device", '"cuda"')
    assert rewrite(text, [edit]) == expected


def test_calls_that_begin_at_one_place_are_told_apart() -> None:
    text = "x = a.to(b).to(c).to(d)\n"
    at = edits.at(call(text, "to", 1))
    assert rewrite(text, [edits.ReplaceArgument(at, 0, "e")]) == (
        "x = a.to(b).to(e).to(d)\n"
    )
    assert rewrite(text, [edits.DropMethod(at)]) == "x = a.to(b).to(d)\n"


def test_several_edits_of_one_call() -> None:
    text = "x = torch.zeros(3, 4).to(device)\n"
    made = rewrite(
        text,
        [
            edits.SetKeyword(edits.at(call(text, "zeros")), "device", "device"),
            edits.DropMethod(edits.at(call(text, "to"))),
        ],
    )
    assert made == "x = torch.zeros(3, 4, device=device)\n"


INSERTED = [
    ("a()\nb()\n", 2, False, "a()\nnew()\nb()\n"),
    ("a()\nb()  # why\nc()\n", 2, True, "a()\nb()  # why\nnew()\nc()\n"),
    (
        "for x in y:\n    a()\n\n    # why\n    b()\n",
        5,
        False,
        "for x in y:\n    a()\n\n    new()\n    # why\n    b()\n",
    ),
    (
        "if x:\n    if y:\n        a()\n    # end\nb()\n",
        2,
        True,
        "if x:\n    if y:\n        a()\n    new()\n    # end\nb()\n",
    ),
    ("if x: b()\n", 1, None, "if x:\n    new()\n    b()\n"),
    ("a(); b()  # why\n", 1, None, "a()\nnew()\nb()  # why\n"),
]


@pytest.mark.parametrize(("text", "line", "after", "expected"), INSERTED)
def test_a_statement_is_put_beside_another(
    text: str, line: int, after: bool | None, expected: str
) -> None:
    if after is None:
        edit = edits.before(stmt(text, line, -1), "new()")
    else:
        edit = (edits.after if after else edits.before)(stmt(text, line), "new()")
    assert rewrite(text, [edit]) == expected


TAKEN = [
    ("a()\nb()\nc()\n", 2, "a()\nc()\n"),
    ("a()\n# why\nb()  # so\nc()\n", 3, "a()\n# why\n# so\nc()\n"),
    ("for x in y:\n    b()\nc()\n", 2, "for x in y:\n    pass\nc()\n"),
    (
        "for x in y:\n    a()\n    b()  # so\nc()\n",
        3,
        "for x in y:\n    a()\n    # so\nc()\n",
    ),
    ("for x in y: b()\n", 1, "for x in y:\n    pass\n"),
    ("a(); b()\n", 1, "a()\n"),
]


@pytest.mark.parametrize(("text", "line", "expected"), TAKEN)
def test_a_statement_is_taken_out_and_its_comments_stay(
    text: str, line: int, expected: str
) -> None:
    edit = edits.removed(stmt(text, line, -1))
    assert rewrite(text, [edit]) == expected


def test_an_edit_that_finds_nothing_is_a_mistake() -> None:
    with pytest.raises(MismatchError):
        rewrite("a()\n", [edits.RemoveStatement(2, 1)])
    with pytest.raises(MismatchError):
        rewrite(
            dedent("a()\n"), [edits.RemoveArgument(edits.at(call("a()\n", "a")), 0)]
        )
