"""Comments that silence lint, through the API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lint_support import lint, lint_files, told

HEAD = """\
import torch
from torch import nn

"""


def found(body: str, **options: object) -> list[str]:
    """``4 TCU102`` for each finding, of sizes and of comments."""
    options.setdefault("select", ("TCU102", "AMP100"))
    return told(lint(HEAD + body, **options))


LINEAR = "a = nn.Linear(4097, 4096)"
"""TCU102 in line 4."""


def test_without_a_comment() -> None:
    assert found(LINEAR) == ["4 TCU102"]


@pytest.mark.parametrize(
    "comment",
    [
        "# amp: ignore[TCU102]",
        "# amp: ignore[TCU102] the checkpoint has this size",
        "# amp: ignore[TCU]",
        "# amp: ignore[ tcu102 ]",
        "#amp:ignore",
        "# amp: ignore",
        "# AMP: ignore[TCU102]",
        "# type: ignore  # amp: ignore[TCU102]",
        "# noqa",
        "# NOQA: TCU102",
        "# noqa:TCU102",
        "# noqa: E501, TCU102",
        "# noqa: E501 TCU102",
        "# sizes of the paper  # noqa: TCU1",
    ],
)
def test_a_comment_at_the_end_silences(comment: str) -> None:
    assert found(f"{LINEAR}  {comment}") == []


@pytest.mark.parametrize(
    "comment",
    [
        "# amp: ignored",
        "# amp: off",
        "# noqa: E501",
        "# noqa: F401,E501",
        "# amp: ignore-none",
        "# amp: ignore[]",
    ],
)
def test_other_comments_do_not(comment: str) -> None:
    assert found(f"{LINEAR}  {comment}") == ["4 TCU102"]


def test_a_string_is_no_comment() -> None:
    assert found('a = "# amp: ignore", nn.Linear(4097, 4096)') == ["4 TCU102"]


def test_alone_on_the_line_above() -> None:
    assert found(f"# amp: ignore[TCU102] of the paper\n{LINEAR}") == []
    assert found(f"# amp: ignore[TCU102]\n# of the paper\n{LINEAR}") == []
    assert found(f"# amp: ignore[TCU102]\n\n{LINEAR}") == ["4 AMP100", "6 TCU102"]
    # For noqa that is no place, here as elsewhere.
    assert found(f"# noqa: E501\n{LINEAR}") == ["5 TCU102"]


@pytest.mark.parametrize("line", [0, 1, 2, 3])
def test_any_line_of_a_call(line: int) -> None:
    lines = ["a = nn.Linear(", "    4097,", "    4096,", ")"]
    lines[line] += "  # amp: ignore[TCU102]"
    assert found("\n".join(lines)) == []


SEQUENCE = """\
net = nn.Sequential({0}
    nn.Linear(4097, 4096),{1}
    nn.ReLU(),
    nn.Linear(
        4099,{2}
        4096,
    ),
){3}
"""


@pytest.mark.parametrize(
    ("line", "left"),
    [(0, []), (1, ["7 TCU102"]), (2, ["5 TCU102"]), (3, [])],
)
def test_of_several_in_a_statement_the_nearest(line: int, left: list[str]) -> None:
    comments = ["", "", "", ""]
    comments[line] = "  # amp: ignore[TCU102]"
    assert found(SEQUENCE.format(*comments)) == left


def test_alone_inside_a_statement() -> None:
    comments = ["\n    # amp: ignore[TCU102]", "", "", ""]
    assert found(SEQUENCE.format(*comments)) == ["8 TCU102"]


def test_a_block_is_not_part_of_what_is_above_it() -> None:
    body = """\
class Net(nn.Module):  # amp: ignore[TCU102]
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4097, 4096)
"""
    assert found(body) == ["4 AMP100", "7 TCU102"]


def test_a_whole_file() -> None:
    assert found(f"# amp: ignore-file[TCU102]\n{LINEAR}\n{LINEAR}") == []
    assert found(f"{LINEAR}\n# amp: ignore-file") == []
    assert found(f"{LINEAR}\n# amp: ignore-file[TCU101]") == ["4 TCU102"]


# Those that silence nothing


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("# amp: ignore[TCU102]", "`# amp: ignore[TCU102]`: silences nothing here"),
        ("# noqa: E501, TCU102", "`# noqa: TCU102`: silences nothing here"),
        (
            "# amp: ignore-file[TCU102]",
            "`# amp: ignore-file[TCU102]`: silences nothing here",
        ),
        (
            "# amp: ignore[TCU77]",
            "`# amp: ignore[TCU77]`: no rule of lint has such a code",
        ),
    ],
)
def test_a_useless_comment_is_told(comment: str, message: str) -> None:
    [one] = lint(
        f"{HEAD}a = nn.Linear(4096, 4096)  {comment}\n", select=("TCU102", "AMP100")
    )
    assert (one.code, one.place.line, one.message) == ("AMP100", 4, message)


@pytest.mark.parametrize(
    "comment",
    [
        "# noqa",
        "# noqa: E501",
        "# noqa: AMP999",  # perhaps of somebody else
        "# amp: ignore[TCU101]",  # not looked for in this run
        "# amp: ignore[TCU]",
        "# amp: ignore",
        "# amp: ignore[TCU102, AMP100]",
    ],
)
def test_what_is_not_judged(comment: str) -> None:
    assert found(f"a = nn.Linear(4096, 4096)  {comment}") == []


def test_with_all_rules_a_bare_comment_is_judged() -> None:
    body = "a = nn.Linear(4096, 4096)  # amp: ignore"
    assert found(body, select=()) == ["4 AMP100"]
    assert found(body, select=(), ignore=("AMP100",)) == []


def test_one_of_two_codes() -> None:
    text = f"{HEAD}{LINEAR}  # amp: ignore[TCU102, TCU103]\n"
    [one] = lint(text)
    assert one.message == "`# amp: ignore[TCU103]`: silences nothing here"


def test_a_rule_that_is_ignored_for_the_file_is_not_judged(tmp_path: Path) -> None:
    text = f"{HEAD}a = nn.Linear(4096, 4096)  # amp: ignore[TCU102]\n"
    given = {"a.py": text, "b.py": text}
    found = lint_files(tmp_path, given, per_file_ignores=(("b.py", ("TCU102",)),))
    assert {name: told(one) for name, one in found.items()} == {
        "a.py": ["4 AMP100"],
        "b.py": [],
    }


def test_in_a_notebook(tmp_path: Path) -> None:
    pytest.importorskip("nbformat")
    cells = [
        "import torch\nfrom torch import nn",
        f"\n{LINEAR}  # amp: ignore[TCU102]\n{LINEAR}",
        f"{LINEAR}\nb = nn.Linear(8, 8)  # amp: ignore[TCU102]",
    ]
    book = {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {},
        "cells": [
            {
                "cell_type": "code",
                "id": str(number),
                "metadata": {},
                "outputs": [],
                "execution_count": None,
                "source": text,
            }
            for number, text in enumerate(cells)
        ],
    }
    (tmp_path / "a.ipynb").write_text(json.dumps(book))
    [found] = lint_files(tmp_path, {}, select=("TCU102", "AMP100")).values()
    places = [(one.place.path[-6:], one.place.line, one.code) for one in found]
    assert places == [
        ("cell 2", 3, "TCU102"),
        ("cell 3", 1, "TCU102"),
        ("cell 3", 2, "AMP100"),
    ]
