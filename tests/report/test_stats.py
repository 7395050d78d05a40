"""`amp-migrate stats`: loops are counted, in text, JSON and a page alike."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from amp_migrate.catalogue.rules import refusal
from amp_migrate.cli.exits import Counted
from amp_migrate.cli.main import main

PLAIN = refusal("AMP013").counter_example
CLOSURE = refusal("AMP013").example
TEXT = """\
project  loops  under AMP  can be migrated  left alone  switched off
one          2          1                1           0             0
<two>        2          0                0           1             1
in all       4          1                1           1             1

what blocks 1 loop:
  1  AMP013  with a step closure
             take an optimizer that needs no closure, or call the closure yourself
"""


@pytest.fixture(autouse=True)
def projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    off = PLAIN.replace("loss.backward()", "loss.backward()  # amp: off")
    files = {"one/a.py": PLAIN, "one/b.py": PLAIN, "<two>/a.py": CLOSURE}
    for name, text in {**files, "<two>/b.py": off}.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(text)
    run("migrate", "one/b.py", "--write")


def run(*words: str) -> Result:
    return CliRunner().invoke(main, [*words, "--no-cache"], prog_name="amp-migrate")


def test_a_row_for_each_project_and_what_blocks_the_rest() -> None:
    result = run("stats", "one", "<two>")
    assert (result.stdout, result.exit_code) == (TEXT, Counted.OK)


def test_the_same_as_json() -> None:
    data = json.loads(run("stats", "one", "<two>", "--output-format", "json").stdout)
    assert [one["path"] for one in data["projects"]] == ["one", "<two>"]
    total = {"files": 4, "files_not_read": 0, "loops": 4, "under_amp": 1}
    total |= {"can_be_migrated": 1, "left_alone": 1, "switched_off": 1}
    assert {**data["total"], "reasons": 0} == {**total, "reasons": 0}
    (reason,) = data["total"]["reasons"]
    assert (reason["code"], reason["count"]) == ("AMP013", 1)
    assert data["projects"][0]["reasons"] == []


def test_the_same_as_a_page_that_needs_nothing_else() -> None:
    assert run("stats", "one", "<two>", "--report", "amp.html").exit_code == 0
    text = Path("amp.html").read_text()
    found: list[tuple[str, dict[str, str | None]]] = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, given: found.append((tag, dict(given)))  # type: ignore[method-assign]
    parser.feed(text)
    tags = [tag for tag, _ in found]
    assert tags.count("figure") == 3 and "two" not in tags
    assert not {"script", "link", "img"} & {*tags}
    assert not any({"src", "href"} & given.keys() for _, given in found)
    for words in ("4 training loops", "25 % under AMP", "&lt;two&gt;", "AMP013"):
        assert words in text
    ticks = re.findall(r"<text [^>]*\btick\b[^>]*>([^<]*)</text>", text)
    assert set(ticks) == {"0", "1"}, "there is no half of a loop"


def test_what_cannot_be_read_is_told_and_the_rest_counted() -> None:
    Path("one/c.py").write_text("def (\nloss.backward()\n")
    result = run("stats", "one")
    assert result.exit_code == Counted.ERROR
    assert "error: one/c.py:1: " in result.stderr
    assert "not counted: 1 file that could not be read\n" in result.stdout
    assert result.stdout.splitlines()[1].split() == ["one", "2", "1", "1", "0", "0"]


def test_usage() -> None:
    assert run("stats", "-").exit_code == Counted.ERROR
    assert run("stats", "one", "--report", "one/a.py").exit_code == Counted.ERROR
