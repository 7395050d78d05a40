"""`amp-migrate lint` from what is typed to what comes out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from lint_cli_support import CLIP, OLD, WIDE, codes, findings, lint, write

from amp_migrate.cli.exits import Lint


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("NO_COLOR", "FORCE_COLOR", "GITHUB_WORKSPACE", "CI_PROJECT_DIR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def configure(table: str) -> None:
    Path("pyproject.toml").write_text(f"[tool.amp-migrate.lint]\n{table}\n")


# What is told


def test_text_tells_the_code_the_line_the_chain_and_ends_with_numbers() -> None:
    write(clip=CLIP, old=OLD, wide=WIDE)
    lines = lint().stdout.splitlines()
    assert lines[0].startswith("clip.py:12:5 AMP101 error: ")
    assert lines[1] == "  | torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    assert "  hidden = 1501 (wide.py:4)" in lines
    assert not [line for line in lines if " info: " in line]
    assert lines[-1] == ("1 error, 2 warnings in 3 files; 1 info (--severity info)")


def test_severity_is_what_text_shows() -> None:
    write(clip=CLIP, old=OLD)
    shown = {
        severity: lint("--severity", severity, "--output-format", "concise").stdout
        for severity in ("error", "warning", "info")
    }
    counts = {key: text.count("\n") - 1 for key, text in shown.items()}
    assert counts == {"error": 1, "warning": 2, "info": 3}
    assert all(line[0] != " " for line in shown["info"].splitlines())


def test_nothing_found() -> None:
    write(a="import torch\n", b="print()\n")
    result = lint()
    assert result.stdout == "nothing found in 2 files\n"
    assert result.exit_code == Lint.CLEAN
    assert lint("-q").output == ""


def test_machines_are_told_everything() -> None:
    write(clip=CLIP, old=OLD, wide=WIDE)
    found = findings("--severity", "error")
    assert {one["severity"] for one in found} == {"error", "warning", "info"}
    wide = found[-1]
    assert (wide["code"], wide["path"], wide["line"]) == ("TCU102", "wide.py", 10)
    assert wide["symbol"] == "Net.__init__"
    assert wide["chain"][0]["line"] == 4
    assert wide["chain"][0]["path"] == "wide.py"
    assert wide["fingerprint"] and wide["data"] and wide["column"] > 1


def test_statistics_count() -> None:
    write(clip=CLIP, a=OLD, b=OLD)
    lines = lint("--statistics").stdout.splitlines()
    assert lines[0].split()[:3] == ["2", "TCU201", "info"]
    assert lines[2].split()[:3] == ["1", "AMP101", "error"]
    data = json.loads(lint("--statistics", "--output-format", "json").stdout)
    assert [row["count"] for row in data] == [2, 2, 1]
    assert (
        "text, concise and json"
        in lint("--statistics", "--output-format", "sarif").output
    )


def test_order_does_not_depend_on_processes() -> None:
    for number in range(30):
        write(**{f"m{number:02}": OLD})
    alone = lint("--jobs", "1", "--severity", "info").stdout
    assert lint("--jobs", "2", "--severity", "info").stdout == alone
    assert alone.index("m03.py") < alone.index("m12.py")


def test_colours_by_severity() -> None:
    write(clip=CLIP)
    assert "\x1b[31mclip.py:12:5" in lint("--color", "always").stdout
    assert "\x1b" not in lint().stdout


def test_a_file_gets_what_standard_output_would() -> None:
    write(clip=CLIP)
    shown = lint("--output-format", "json").stdout
    result = lint("--output-format", "json", "--output-file", "out.json")
    assert result.stdout == ""
    assert result.stderr == "1 error in 1 file\n"
    assert Path("out.json").read_text() == shown
    lint("--output-file", "out.txt")
    assert Path("out.txt").read_text().startswith("clip.py:12:5 AMP101")
    assert lint("--output-file", "no/out.txt").exit_code == Lint.ERROR
    given = lint("a.py", "--output-file", "b.py")
    assert given.exit_code == Lint.ERROR and "is a program" in given.stderr


def test_standard_input() -> None:
    result = lint("-", "--stdin-filename", "src/x.py", stdin=CLIP.encode())
    assert result.stdout.startswith("src/x.py:12:5 AMP101")
    assert lint("-", stdin=CLIP.encode()).stdout.startswith("<stdin>:12:5 AMP101")


# Exit codes


@pytest.mark.parametrize(
    ("fail_on", "texts", "code"),
    [
        ("error", {"a": CLIP}, Lint.FOUND),
        ("error", {"a": OLD}, Lint.CLEAN),
        ("warning", {"a": OLD}, Lint.FOUND),
        ("warning", {"a": "import torch\n"}, Lint.CLEAN),
        ("info", {"a": OLD.replace("set_to_none=False", "")}, Lint.FOUND),
        ("never", {"a": CLIP}, Lint.CLEAN),
        ("never", {"a": "import torch\n("}, Lint.ERROR),
    ],
)
def test_fail_on(fail_on: str, texts: dict[str, str], code: Lint) -> None:
    write(**texts)
    assert lint("--fail-on", fail_on).exit_code == code
    configure(f'fail-on = "{fail_on}"')
    assert lint().exit_code == code
    for output_format in ("json", "junit", "github"):
        assert lint("--output-format", output_format).exit_code == code


def test_an_error_wins_and_the_others_go_on() -> None:
    write(clip=CLIP, broken="import torch\n(")
    result = lint()
    assert result.exit_code == Lint.ERROR
    assert "clip.py:12:5 AMP101" in result.stdout
    assert result.stderr.startswith("error: broken.py:2: not valid")
    assert "1 file not analysed" in result.stdout


def test_every_exit_code_is_in_the_help() -> None:
    text = lint("--help").stdout
    for code in Lint:
        assert code.meaning[:40] in " ".join(text.split())


# Which rules


def test_select_ignore_and_extend_select() -> None:
    write(clip=CLIP, old=OLD)
    assert codes("--select", "AMP1") == ["clip.py:12 AMP101"]
    assert codes("--select", "tcu201, AMP101") == [
        "clip.py:12 AMP101",
        "old.py:5 TCU201",
    ]
    assert codes("--ignore", "TCU") == ["clip.py:12 AMP101"]
    assert codes("--ignore", "TCU", "--extend-select", "TCU304") == [
        "clip.py:12 AMP101",
        "old.py:6 TCU304",
    ]
    assert codes("--select", "ALL", "--ignore", "AMP,TCU2,TCU309") == [
        "old.py:6 TCU304"
    ]


def test_the_command_line_wins() -> None:
    write(clip=CLIP, old=OLD)
    configure('select = ["TCU"]\nignore = ["TCU201", "TCU309"]')
    assert codes() == ["old.py:6 TCU304"]
    assert codes("--select", "TCU201") == ["old.py:5 TCU201"]
    assert codes("--extend-select", "TCU201") == ["old.py:5 TCU201", "old.py:6 TCU304"]
    assert codes("--ignore", "TCU3") == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("TCU999", "no lint rule has a code like 'TCU999'"),
        ("AMP111X", "did you mean AMP111?"),
        ("AMP013", "AMP013 is not a rule of lint"),
    ],
)
def test_unknown_codes(value: str, words: str) -> None:
    result = lint("--select", value)
    assert result.exit_code == Lint.ERROR
    assert words in result.stderr
    configure(f'ignore = ["{value}"]')
    result = lint()
    assert result.exit_code == Lint.ERROR
    assert words in result.stderr and len(result.stderr.splitlines()) == 1


def test_per_file_ignores() -> None:
    for name in ("a", "tests/b", "tests/deep/c"):
        Path(name).parent.mkdir(exist_ok=True, parents=True)
        write(**{name: CLIP})
    configure('per-file-ignores = {"tests/" = ["AMP"], "a.py" = "TCU"}')
    assert codes() == ["a.py:12 AMP101"]
    assert codes("tests/b.py", "--select", "AMP101") == []


# What it is judged for


def test_profile_dtype_and_align() -> None:
    write(wide=WIDE)
    [found] = findings()
    assert "float16" in found["message"]
    [found] = findings("--dtype", "bfloat16")
    assert "bfloat16" in found["message"]
    write(wide=WIDE.replace("1501", "1512"))
    assert findings() == []
    [found] = findings("--align", "64")
    assert "64" in found["message"]
    configure("align = 64")
    assert len(findings()) == 1
    assert findings("--align", "8") == []


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('profil = "ampere"', "unknown key 'profil'; did you mean 'profile'?"),
        ('profile = "kepler"', "profile: must be one of volta, turing, "),
        ("align = 0", "align: must be a positive number of elements"),
        ('fail-on = "fatal"', "fail-on: must be one of error, warning, info, never"),
        ("select = [1]", "select: must be a string or a list of strings"),
        ('per-file-ignores = ["a"]', "per-file-ignores: must be a table"),
        ('output-format = "xml"', "output-format: must be one of text, concise,"),
    ],
)
def test_mistakes_in_the_configuration_are_told_in_one_line(
    table: str, words: str
) -> None:
    configure(table)
    result = lint()
    assert result.exit_code == Lint.ERROR
    assert "pyproject.toml: [tool.amp-migrate.lint] " in result.stderr
    assert words in result.stderr and len(result.stderr.splitlines()) == 1


def test_a_type_that_a_gpu_does_not_have() -> None:
    result = lint("--profile", "volta", "--dtype", "bfloat16")
    assert result.exit_code == Lint.ERROR
    assert "volta has no Tensor Cores for bfloat16" in result.stderr


# Mending


def test_a_diff_shows_and_writes_nothing() -> None:
    write(old=OLD)
    assert lint("--diff").stdout == ""
    assert lint("--diff").exit_code == Lint.CLEAN
    result = lint("--diff", "--unsafe-fixes")
    assert "-    optimizer.zero_grad(set_to_none=False)\n" in result.stdout
    assert result.stderr == "would fix 1 finding in 1 file\n"
    assert result.exit_code == Lint.FOUND
    assert Path("old.py").read_text() == OLD


def test_fix_mends_what_is_safe_and_more_where_it_may() -> None:
    write(old=OLD)
    assert "fixed" not in lint("--fix").stdout
    assert Path("old.py").read_text() == OLD
    result = lint("--fix", "--unsafe-fixes", "--fail-on", "warning")
    assert result.exit_code == Lint.CLEAN
    assert result.stderr == "rewrote old.py\n"
    assert result.stdout.endswith("1 info (--severity info); 1 fixed\n")
    assert Path("old.py").read_text() == OLD.replace("set_to_none=False", "")


def test_fix_of_standard_input_goes_to_standard_output() -> None:
    result = lint("-", "--fix", "--unsafe-fixes", stdin=OLD.encode())
    assert result.stdout == OLD.replace("set_to_none=False", "")
    assert "1 fixed" in result.stderr
    result = lint("-", "--fix", "--output-format", "json", stdin=b"")
    assert result.exit_code == Lint.ERROR


@pytest.mark.parametrize(
    "arguments",
    [
        ["--fix", "--diff"],
        ["--unsafe-fixes"],
        ["--write-baseline"],
        ["--write-baseline", "--baseline", "b", "--fix"],
        ["-q", "-v"],
        ["--output-format", "xml"],
        ["--align", "0"],
        ["--profile", "kepler"],
        ["a.py", "-"],
        ["--stdin-filename", "x.py"],
    ],
)
def test_usage(arguments: list[str]) -> None:
    result = lint(*arguments)
    assert result.exit_code == Lint.ERROR
    assert result.stderr.startswith("error: ")


def test_nothing_is_imported_that_is_not_needed() -> None:
    write(clip=CLIP)
    code = (
        "import sys\n"
        "from amp_migrate.cli.main import main\n"
        "main(['lint', 'clip.py'], standalone_mode=False)\n"
        "print(*sys.modules)"
    )
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "amp_migrate.lint.program" in loaded
    heavy = {"libcst", "black", "rich", "torch", "pathspec", "nbformat", "asyncio"}
    assert not loaded & heavy
    rooms = (
        "amp_migrate.validate",
        "amp_migrate.codemod",
        "amp_migrate.migrate.program",
    )
    assert not [name for name in loaded if name.startswith(rooms)]


# Odd programs


def test_a_file_that_is_too_deep_is_no_matter_of_its_neighbours() -> None:
    branches = "".join(f"elif x == {n}:\n    y = {n}\n" for n in range(400))
    write(a=f"import b\nimport torch\nif x:\n    pass\n{branches}", b=CLIP)
    result = lint("--output-format", "concise")
    assert result.exit_code == Lint.ERROR
    assert "b.py:12:5 AMP101" in result.stdout
    assert "a.py: nested too deeply" in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has it")
def test_a_full_disk_is_no_internal_error() -> None:
    write(a=CLIP)
    command = [sys.executable, "-m", "amp_migrate", "lint"]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == Lint.ERROR
    assert "error: standard output: cannot be written: No space left" in ended.stderr
    assert "internal" not in ended.stderr


def test_many_layers_in_one_body_take_no_more_time_each() -> None:
    def seconds(count: int) -> float:
        layers = "".join(f"l{n} = nn.Linear({n + 1001}, 64)\n" for n in range(count))
        write(a=f"import torch\nfrom torch import nn\n{layers}")
        before = time.process_time()
        lint("--jobs", "1", "--output-format", "concise")
        return time.process_time() - before

    seconds(10)
    assert seconds(1500) < 15 * seconds(300)
