"""Wrong uses of AMP in many styles, each with its right look-alikes: the programs of ``misuse_cases``.

A case begins with ``=== name``, a file of it with ``--- path``; without one it is ``main.py``. A file that
begins with ``# by itself`` imports no torch. A line that is wrong ends in ``#! CODE``, with every code that
is found there; a case without such a line is right. Behind ``~~~`` stands what is otherwise in a right
program: lines of ``this ==> that``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from lint_support import lint_files

HEAD = """\
import contextlib
import torch
from torch import nn
import torch.nn.functional as F
from torch.amp import GradScaler
from torch.nn.utils import clip_grad_norm_

"""
DEPRECATED = "AMP210"


def cases() -> Iterator[tuple[str, dict[str, str]]]:
    for path in sorted(Path(__file__).with_name("misuse_cases").glob("*.txt")):
        for case in re.split(r"(?m)^=== ", path.read_text(encoding="utf-8"))[1:]:
            name, _, text = case.partition("\n")
            wrong, *others = re.split(r"(?m)^~~~\n", text)
            yield f"{path.stem}: {name}", files_of(wrong)
            for other in others:
                yield f"{path.stem}: {name}, right", files_of(mended(wrong, other))


def files_of(text: str) -> dict[str, str]:
    first, *pieces = re.split(r"(?m)^--- (\S+)\n", text)
    files = {"main.py": first} if first.strip() else {}
    files |= dict(zip(pieces[::2], pieces[1::2], strict=True))
    # What imports torch by itself says where it stands in its package.
    own = re.compile(r"import torch|\A# by itself\n|\A\s*\Z")
    return {
        file: said if own.search(said) else HEAD + said for file, said in files.items()
    }


def mended(text: str, changes: str) -> str:
    """A wrong program with some of its text written otherwise; ``\\n`` stands for the end of a line."""
    text = re.sub(r" *#! [A-Z0-9 ]+$", "", text, flags=re.M)
    for change in changes.splitlines():
        old, new = re.split(r" ==> ?", change.replace("\\n", "\n"))
        assert old in text
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize(
    "files", [pytest.param(files, id=name) for name, files in cases()]
)
def test_what_is_wrong_is_found_where_it_is(
    tmp_path: Path, files: dict[str, str]
) -> None:
    wrong = {
        (file, number, code)
        for file, text in files.items()
        for number, line in enumerate(text.splitlines(), 1)
        for said in re.findall(r"#! ([A-Z0-9 ]+)$", line)
        for code in said.split()
    }
    found = {
        (file, one.place.line, one.code)
        for file, findings in lint_files(tmp_path, files, select=("AMP",)).items()
        for one in findings
        if one.code != DEPRECATED
    }
    assert found == wrong
