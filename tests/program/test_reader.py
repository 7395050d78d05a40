"""What is read of a file: loops wherever they stand, marks, places, and what is no Python."""

from __future__ import annotations

import pytest
from programs import HEAD
from shorthand import before

from amp_migrate.api import Outcome, Result, SourceError, migrate_source
from amp_migrate.program import ir
from amp_migrate.program.reader import read_module

OPT = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
LOOP = "for x, y in data:\n    STEPS\n"
PLAIN = HEAD + OPT + before(LOOP)


def indented(text: str, by: int = 4) -> str:
    return "".join(f"{' ' * by}{line}\n" for line in text.splitlines())


def outcomes(source: str) -> list[str]:
    return [loop.outcome.value for loop in migrate_source(source).loops]


def only(source: str) -> Result:
    result = migrate_source(source)
    assert len(result.loops) == 1
    return result


BLOCKS = {
    "if": ("if True:\n", ""),
    "else": ("if not data:\n    pass\nelse:\n", ""),
    "elif": ("if not data:\n    pass\nelif data:\n", ""),
    "while": ("while True:\n", "    break\n"),
    "else of a loop": ("for _ in ():\n    pass\nelse:\n", ""),
    "with": ("with open('log'):\n", ""),
    "try": ("try:\n", "finally:\n    pass\n"),
    "else of a try": ("try:\n    pass\nexcept OSError:\n    raise\nelse:\n", ""),
    "finally": ("try:\n    pass\nfinally:\n", ""),
    "handler": ("try:\n    pass\nexcept OSError:\n", ""),
    "match": ("match data:\n  case _:\n", ""),
    "function": ("def main():\n", ""),
    "function in a function": ("def main():\n  def inner():\n", "  inner()\nmain()\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", BLOCKS)
def test_a_loop_in(name: str) -> None:
    start, end = BLOCKS[name]
    assert outcomes(f"{HEAD}{start}{indented(OPT + before(LOOP))}{end}") == ["migrated"]


MARKED = {
    "on the loop": OPT + LOOP.replace(":\n", ":  # amp: off\n", 1),
    "above the loop": OPT + "# amp: off\n" + LOOP,
    "in other letters": OPT + LOOP.replace(":\n", ":  #AMP:OFF because\n", 1),
    "on the function": "def f():  # amp: off\n" + indented(OPT + LOOP),
    "above the function": "# amp: off\ndef f():\n" + indented(OPT + LOOP),
    "on a block around": f"{OPT}if True:  # amp: off\n{indented(LOOP)}",
}


@pytest.mark.parametrize("name", MARKED)
def test_marked_off(name: str) -> None:
    result = only(HEAD + before(MARKED[name]))
    assert result.loops[0].outcome is Outcome.OFF
    assert (result.changed, result.diagnostics) == (False, ())


def test_marked_off_as_a_file() -> None:
    assert outcomes("# amp: off\n" + PLAIN) == ["off"]
    assert outcomes('"""Doc."""\n# amp: off\n' + PLAIN) == ["off"]


NOT_MARKED = {
    "a string": 'print("# amp: off")\n' + OPT + LOOP,
    "another word": OPT + "# amp: offline\n" + LOOP,
    "another loop": OPT + LOOP + "for _ in data:  # amp: off\n    pass\n",
    "another function": OPT + "def f():  # amp: off\n    pass\n" + LOOP,
}


@pytest.mark.parametrize("name", NOT_MARKED)
def test_not_marked_off(name: str) -> None:
    assert outcomes(HEAD + before(NOT_MARKED[name])) == ["migrated"]


def test_one_marked_loop_beside_another_of_its_own() -> None:
    """Each has its optimizer, so one may be left alone while the other is migrated."""
    first = OPT + before(LOOP)
    second = "adam = torch.optim.Adam(model.parameters())\n# amp: off\n"
    source = HEAD + first + second + before("for x, y in data:\n    STEPS opt=adam\n")
    assert sorted(outcomes(source)) == ["migrated", "off"]


def test_the_place_of_a_loop_is_its_backward() -> None:
    (loop,) = only(PLAIN).loops
    line = PLAIN.splitlines().index("    loss.backward()") + 1
    assert (loop.place.line, loop.place.column) == (line, 5)
    assert loop.place.text == "loss.backward()"
    assert loop.function == "<module>"


def test_columns_count_characters_not_bytes() -> None:
    source = f"{HEAD}{OPT}for x, y in data:\n    é = 'éé'; criterion(model(x), y).backward()\n"
    (loop,) = only(source).loops
    assert loop.place.column == 15


def test_the_function_of_a_loop_has_its_full_name() -> None:
    body = (
        "class T:\n    def fit(self):\n"
        + indented(OPT + before(LOOP), 8)
        + "T().fit()\n"
    )
    assert only(HEAD + body).loops[0].function == "T.fit"


NO_LOOPS = {
    "a comment": "# loss.backward()\n",
    "a string": 'print("loss.backward()")\n',
    "an attribute": "print(loss.backward)\n",
    "nothing": "",
}


@pytest.mark.parametrize("name", NO_LOOPS)
def test_no_loop(name: str) -> None:
    result = migrate_source(NO_LOOPS[name])
    assert (result.loops, result.changed) == ((), False)


BROKEN = {
    "a syntax error": ("def f(:\n    loss.backward()\n", 1),
    "an open bracket": ("x = (\nloss.backward()\n", 1),
    "indentation": ("for x in y:\nloss.backward()\n", 2),
    "Python 2": ("loss.backward()\nprint loss\n", 2),
    "a null": ("loss.backward()\n\0", 0),
}


@pytest.mark.parametrize("name", BROKEN)
def test_not_python(name: str) -> None:
    text, line = BROKEN[name]
    with pytest.raises(SourceError) as caught:
        migrate_source(text, path="train.py")
    assert caught.value.path == "train.py"
    assert caught.value.line == line
    assert "\n" not in str(caught.value)


TESTS = ("not (a and b)", "a and (b or not c)", "not a or (b and c <= 1)", "a < b[0]")


@pytest.mark.parametrize("text", TESTS)
def test_a_test_is_written_out_as_it_was(text: str) -> None:
    (stmt,) = read_module(text, "f.py").functions["f.py::<module>"].body
    assert stmt.value is not None
    assert ir.render(stmt.value) == text
