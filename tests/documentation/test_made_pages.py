"""The pages of the documentation that are made from the program are those of this program."""

from __future__ import annotations

from pathlib import Path

from amp_migrate.cli.pages import pages

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
AGAIN = "run: python -m amp_migrate.cli.pages docs"


def test_the_pages_are_those_of_this_program() -> None:
    wanted = pages()
    changed = [
        name
        for name, text in wanted.items()
        if not (DOCS / name).exists() or (DOCS / name).read_text("utf-8") != text
    ]
    assert changed == [], AGAIN


def test_no_page_is_left_of_a_rule_that_is_gone() -> None:
    found = {path.relative_to(DOCS).as_posix() for path in (DOCS / "rules").iterdir()}
    assert found <= pages().keys(), AGAIN
