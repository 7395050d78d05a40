"""A baseline: what is known is not told again, wherever it moves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lint_cli_support import CLIP, OLD, codes, findings, lint, write

from amp_migrate.cli.exits import Lint

FILE = "baseline.json"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def accept(*arguments: str) -> None:
    result = lint(*arguments, "--baseline", FILE, "--write-baseline")
    assert (result.stdout, result.exit_code) == ("", Lint.CLEAN)


def new(*arguments: str) -> list[str]:
    return codes(*arguments, "--baseline", FILE)


def entries() -> list[tuple[str, str]]:
    data = json.loads(Path(FILE).read_text())
    return [(one["path"], one["code"]) for one in data["findings"]]


def test_only_new_findings_are_told_and_fail() -> None:
    write(a=CLIP)
    accept()
    result = lint("--baseline", FILE)
    assert result.stdout == "nothing found in 1 file; 1 in the baseline\n"
    assert result.exit_code == Lint.CLEAN
    write(b=CLIP)
    assert new() == ["b.py:12 AMP101"]
    assert lint("--baseline", FILE).exit_code == Lint.FOUND


def test_lines_may_move() -> None:
    write(a=CLIP)
    accept()
    moved = CLIP.replace("model = ", "\n# The model\n\nmodel = ")
    write(
        a=moved.replace(
            "clip_grad_norm_(model.parameters(), 1.0)",
            "clip_grad_norm_(\n        model.parameters(), 1.0\n    )",
        )
    )
    assert [one["line"] for one in findings()] == [15]
    # The line that is judged is another now, so this is another finding.
    write(a=moved)
    assert new() == []


def test_of_findings_that_say_the_same_the_number_counts() -> None:
    step = "    optimizer.zero_grad(set_to_none=False)\n"
    select = ("--select", "TCU304")
    write(a=OLD.replace(step, step * 2))
    accept(*select)
    assert entries() == [("a.py", "TCU304")] * 2
    assert new(*select) == []
    write(a=OLD.replace(step, step * 3))
    assert new(*select) == ["a.py:8 TCU304"]


def test_what_is_found_no_more_is_counted_and_goes_with_the_next_writing() -> None:
    write(a=CLIP, b=CLIP)
    accept()
    write(a="import torch\n")
    assert "1 entry of the baseline no longer found" in lint("--baseline", FILE).stdout
    # Nobody looked at it, or for it.
    assert "no more" not in lint("b.py", "--baseline", FILE).stdout
    assert "no more" not in lint("--select", "TCU", "--baseline", FILE).stdout
    accept("b.py")
    assert entries() == [("a.py", "AMP101"), ("b.py", "AMP101")]
    accept()
    assert entries() == [("b.py", "AMP101")]
    Path("b.py").unlink()
    accept("a.py")
    assert entries() == []


def test_the_folder_that_one_stands_in_does_not_matter(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("src").mkdir()
    write(**{"src/a": CLIP})
    Path("pyproject.toml").write_text(f'[tool.amp-migrate.lint]\nbaseline = "{FILE}"\n')
    result = lint("--write-baseline")
    assert result.exit_code == Lint.CLEAN
    monkeypatch.chdir("src")
    assert codes() == codes("a.py") == []
    assert codes("--baseline", "../baseline.json") == []


def test_a_finding_has_one_fingerprint_in_all_formats() -> None:
    write(a=CLIP)
    [one] = findings()
    log = json.loads(lint("--output-format", "sarif").stdout)
    [result] = log["runs"][0]["results"]
    assert list(result["partialFingerprints"].values()) == [one["fingerprint"]]
    [issue] = json.loads(lint("--output-format", "gitlab").stdout)
    assert issue["fingerprint"] == one["fingerprint"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read: No such file or directory; --write-baseline makes one"),
        ("{", "not a baseline: "),
        ("[]", "not a baseline of version 1"),
        ('{"version": 2, "findings": []}', "not a baseline of version 1"),
        ('{"version": 1, "findings": [{}]}', "its findings are not in order"),
    ],
)
def test_a_file_that_is_none(text: str | None, words: str) -> None:
    if text is not None:
        Path(FILE).write_text(text)
    result = lint("--baseline", FILE)
    assert result.exit_code == Lint.ERROR
    assert result.stderr.startswith(f"error: {FILE}: ")
    assert words in result.stderr
