"""The command line, from what is typed to what comes out, with a stand-in for the core."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import standin
from click.testing import CliRunner, Result

from amp_migrate import __version__
from amp_migrate.cli.exits import ExitCode
from amp_migrate.cli.main import main
from amp_migrate.core.options import Options
from amp_migrate.core.places import Place
from amp_migrate.core.results import Diagnostic
from amp_migrate.report import messages

LOOP = "for x in y:\n    loss.backward()\n"
DONE = "for x in y:\n    scaler.scale(loss).backward()\n    scaler.update()\n"
DIFF = """\
diff --git a/{0} b/{0}
--- a/{0}
+++ b/{0}
@@ -1,2 +1,3 @@
 for x in y:
-    loss.backward()
+    scaler.scale(loss).backward()
+    scaler.update()
"""
REFUSED = "loss = x\nloss.backward()  # AMP013\n"
CLOSURE = "take an optimizer that needs no closure, or call the closure yourself"
SUMMARY = (
    "would migrate 1 of 1 training loop in 1 file\n"
    "next: `--write` rewrites the files;"
    " `--write --validate` first runs them, and writes only what is proven\n"
)


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    standin.install(monkeypatch)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def amp(*arguments: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(
        main, list(arguments), input=stdin, prog_name="amp-migrate"
    )


def subprocess_amp(
    *arguments: str, **options: object
) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, str(Path(standin.__file__).resolve()), *arguments]
    return subprocess.run(command, capture_output=True, **options)  # type: ignore[call-overload]


def write(**contents: str) -> None:
    for name, content in contents.items():
        Path(f"{name}.py").write_bytes(content.encode())


# Modes


@pytest.mark.parametrize(
    "arguments", [[], ["--diff"], ["migrate"], ["migrate", "--diff", "."]]
)
def test_a_diff_is_what_one_gets(arguments: list[str]) -> None:
    write(a=LOOP)
    result = amp(*arguments)
    assert result.stdout == DIFF.format("a.py")
    assert result.stderr == SUMMARY
    assert result.exit_code == ExitCode.OK
    assert Path("a.py").read_text() == LOOP


def test_write_rewrites() -> None:
    write(a=LOOP, b=REFUSED, c=DONE)
    result = amp("--write")
    assert Path("a.py").read_text() == DONE
    assert Path("b.py").read_text() == REFUSED
    assert result.stdout == ""
    assert result.stderr == (
        "rewrote a.py\n"
        "b.py:2:1 AMP013 it cannot be.\n"
        "  blocked by b.py:1: loss = x\n"
        "  by hand:\n"
        "    with autocast():\n"
        "        loss = x\n"
        "migrated 1 of 2 training loops in 2 files\n"
        "left alone: 1\n"
        "  1  AMP013  with a step closure\n"
        f"             {CLOSURE}\n"
    )
    assert result.exit_code == ExitCode.OK
    again = amp("--write")
    assert Path("a.py").read_text() == DONE
    assert "rewrote" not in again.stderr


def test_what_to_write_by_hand_is_said_once() -> None:
    write(a=REFUSED, b=REFUSED)
    assert amp().stderr.splitlines()[5:8] == [
        "b.py:2:1 AMP013 it cannot be.",
        "  blocked by b.py:1: loss = x",
        "would migrate 0 of 2 training loops in 2 files",
    ]
    said: dict[tuple[str, ...], Place] = {}
    told = [
        [*messages.diagnostic(Diagnostic("AMP013", place, "no", None, (text,)), said)]
        for line, text in enumerate(["x", "x", "y", "x", "x", "y"], 1)
        for place in [Place("a.py", line, 1)]
    ]
    assert [lines[1:] for lines in told] == [
        ["  by hand:", "    x"],
        [],
        ["  by hand:", "    y"],
        ["  by hand: as above, for a.py:1"],
        [],
        ["  by hand: as above, for a.py:3"],
    ]


def test_check_says_what_it_would_do() -> None:
    write(a=LOOP, c=DONE)
    result = amp("--check")
    assert (result.stdout, result.stderr) == ("", f"would rewrite a.py\n{SUMMARY}")
    assert Path("a.py").read_text() == LOOP


def test_a_plan_is_all_there_is_on_standard_output() -> None:
    write(a=LOOP, b=REFUSED)
    result = amp(
        "--explain-plan", "--dtype", "bfloat16", "--torch-version", "2.1", "--eval"
    )
    options = Options(dtype="bfloat16", torch_version=(2, 1), evaluation=True)
    root = Path.cwd()
    assert result.stdout == f"a.py: {options} {root}\nb.py: {options} {root}\n"
    assert "AMP013" in result.stderr
    assert Path("a.py").read_text() == LOOP


# Exit codes

EXITS = [
    (ExitCode.OK, [], {"a": LOOP}),
    (ExitCode.OK, ["--diff"], {"a": LOOP}),
    (ExitCode.OK, ["--write"], {"a": LOOP}),
    (ExitCode.OK, ["--explain-plan"], {"a": LOOP}),
    (ExitCode.OK, ["--check"], {"a": DONE}),
    (ExitCode.OK, ["--check"], {"a": REFUSED}),
    (ExitCode.OK, ["--check"], {}),
    (ExitCode.OK, ["--diff", "--exit-code"], {"a": REFUSED}),
    (ExitCode.WOULD_CHANGE, ["--check"], {"a": LOOP, "b": REFUSED}),
    (ExitCode.WOULD_CHANGE, ["--diff", "--exit-code"], {"a": LOOP}),
    (ExitCode.WOULD_CHANGE, ["--exit-code", "-q"], {"a": LOOP}),
    (ExitCode.ERROR, ["--check"], {"a": LOOP, "b": "# core: invalid\n" + LOOP}),
    (ExitCode.ERROR, ["--check"], {"a": LOOP, "b": "# core: crash\n" + LOOP}),
    (ExitCode.ERROR, ["--check"], {"a": "loss.backward()  # AMP090\n"}),
    (ExitCode.ERROR, ["--diff"], {"a": "# coding: klingon\n" + LOOP}),
    (ExitCode.ERROR, ["--check", "missing.py", "a.py"], {"a": LOOP}),
    (ExitCode.ERROR, ["--no-such-option"], {"a": LOOP}),
    (
        ExitCode.NOT_PROVEN,
        ["--write", "--validate", "--python", "no-such-python"],
        {"a": LOOP},
    ),
    (ExitCode.INTERRUPTED, ["--check"], {"a": "# core: interrupt\n" + LOOP}),
]


@pytest.mark.parametrize("code, arguments, sources", EXITS)
def test_exit_codes(
    code: ExitCode, arguments: list[str], sources: dict[str, str]
) -> None:
    write(**sources)
    assert amp(*arguments).exit_code == code


def test_every_exit_code_is_tested_and_in_the_help() -> None:
    # That of a closed pipe is tested in test_endings.py, that of a wrong rewrite in test_keeping.py.
    assert {code for code, _, _ in EXITS} == {*ExitCode} - {
        ExitCode.CUT_SHORT,
        ExitCode.DISPROVED,
    }
    help_text = " ".join(amp("--help").stdout.split())
    for code in ExitCode:
        assert f"{code.value} {code.meaning}" in help_text


# Errors

USAGE = {
    ("--diff", "--write"): "--diff and --write exclude each other",
    ("--check", "--explain-plan"): "--check and --explain-plan exclude each other",
    ("--write", "--exit-code"): "--exit-code goes with --diff",
    ("-", "a.py"): "standard input (-) goes with no other path",
    ("-", "--write"): "--write has no file to write with standard input (-)",
    ("--stdin-filename", "x.py"): "--stdin-filename goes with standard input (-)",
    ("-q", "-v"): "--quiet and --verbose exclude each other",
    ("--validate",): "--validate goes with --write",
    ("--write", "--validate", "--arguments", "'"): "--arguments: No closing quotation",
    ("--dtype", "float8"): "'float8' is not one of",
    ("--torch-version", "two"): "a torch version is written X.Y, not 'two'",
    ("--torch-version", "1.5"): "torch 1.5 has no autocast",
    ("--wriet",): "--wriet",
    ("--jobs", "0"): "0 is not in the range",
    (
        "--config",
        "nowhere.toml",
    ): "nowhere.toml: cannot be read: No such file or directory",
    ("--exclude", "!"): "'!' is not a gitignore-style pattern",
    ("nowhere.py",): "nowhere.py: No such file or directory",
    ("book.ipynb",): "book.ipynb:1: not valid JSON",
}


@pytest.mark.parametrize("arguments, message", USAGE.items(), ids=map(" ".join, USAGE))
def test_errors_are_one_line(arguments: tuple[str, ...], message: str) -> None:
    write(a=LOOP)
    Path("book.ipynb").write_text("{loss.backward()")
    result = amp(*arguments)
    assert result.exit_code == ExitCode.ERROR
    assert result.stdout == ""
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert message in errors[0]
    assert "Traceback" not in result.stderr
    assert Path("a.py").read_text() == LOOP


def test_a_configuration_error_is_one() -> None:
    write(a=LOOP)
    Path("pyproject.toml").write_text("[tool.amp-migrate]\ndtpye = 'float16'\n")
    result = amp()
    assert result.exit_code == ExitCode.ERROR
    assert result.stderr.endswith("unknown key 'dtpye'; did you mean 'dtype'?\n")
    assert result.stderr.startswith("error: ")


def test_errors_do_not_stop_the_rest() -> None:
    write(a=LOOP, b="# core: crash\n" + LOOP, c="# core: invalid\n" + LOOP)
    result = amp("--write", "missing", ".")
    assert Path("a.py").read_text() == DONE
    assert result.stderr.splitlines() == [
        "rewrote a.py",
        "error: missing: No such file or directory",
        "error: b.py: internal error: RuntimeError: first line second line; please report it,"
        " with the file if you can",
        "error: c.py:3: not valid for Python 3.99",
        "migrated 1 of 1 training loop in 1 file",
        "3 errors",
    ]


def test_verbose_shows_settings_and_tracebacks() -> None:
    write(b="# core: crash\n" + LOOP)
    result = amp("-v", "--torch-version", "2.1")
    assert "configuration none; float16; torch 2.1 (command line)" in result.stderr
    assert "Traceback (most recent call last)" in result.stderr


def test_a_fault_of_the_command_line_itself_is_an_internal_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("amp_migrate.run.engine.run_all", lambda *_, **__: 1 / 0)
    result = amp()
    assert result.exit_code == ExitCode.ERROR
    assert result.stderr.startswith(
        "error: internal error: ZeroDivisionError: division by zero ("
    )


# What is said

_NEXT = SUMMARY.splitlines()[-1]
_OF_MODULES = "next: `--write` rewrites the files; `amp-migrate validate SCRIPT` runs a script to prove it"
SUMMARIES = [
    ({}, ["no Python files found"]),
    (
        {"a": "x = 1\n", "b": "loss.backward()  # amp: off\n"},
        ["no training loops found in 2 files"],
    ),
    (
        {"a": LOOP, "b": "x = 1\n"},
        ["would migrate 1 of 1 training loop in 1 file", _NEXT],
    ),
    (
        {"a": LOOP + LOOP, "b": LOOP},
        ["would migrate 3 of 3 training loops in 2 files", _OF_MODULES],
    ),
    (
        {"a": LOOP, "b": 'if __name__ == "__main__":\n    ' + LOOP},
        ["would migrate 2 of 2 training loops in 2 files", _NEXT],
    ),
    (
        {"a": REFUSED},
        [
            "would migrate 0 of 1 training loop in 1 file",
            "left alone: 1",
            "  1  AMP013  with a step closure",
            f"             {CLOSURE}",
            "next: `amp-migrate explain AMP013` says more",
        ],
    ),
    (
        {
            "a": LOOP + REFUSED + REFUSED,
            "b": "loss.backward()  # AMP012\nloss.backward()  # AMP0XX\n",
        },
        [
            "would migrate 1 of 5 training loops in 2 files",
            "left alone: 4",
            "  2  AMP013  with a step closure",
            f"             {CLOSURE}",
            "  1  AMP012  with optimizers that are not followed",
            "             keep each optimizer in a variable of its own",
            "  1  AMP0XX",
            _NEXT,
        ],
    ),
]


@pytest.mark.parametrize("sources, wanted", SUMMARIES)
def test_the_sum(sources: dict[str, str], wanted: list[str]) -> None:
    write(**sources)
    assert amp().stderr.splitlines()[-len(wanted) :] == wanted


def test_rare_reasons_are_only_counted_but_for_those_who_ask() -> None:
    codes = [f"AMP01{digit}" for digit in range(8)]
    write(a="".join(f"loss.backward()  # {code}\n" for code in codes) + REFUSED * 9)
    shown = amp().stderr.partition("left alone: 17\n")[2].splitlines()
    assert shown[0] == "  10  AMP013  with a step closure"
    assert shown[2] == "   1  AMP010  with an optimizer of unknown origin"
    assert shown[12] == "   2  for 2 other reasons (-v lists them)"
    everything = amp("-v").stderr.partition("left alone: 17\n")[2]
    assert all(f"1  {code}" in everything for code in codes if code != "AMP013")


def test_a_reason_that_is_as_short_to_name_is_not_counted() -> None:
    codes = [f"AMP01{digit}" for digit in range(7)]
    write(a="".join(f"loss.backward()  # {code}\n" for code in codes))
    assert "other reasons" not in amp().stderr


def test_a_file_that_is_not_there_is_not_counted_as_analysed() -> None:
    write(a="x = 1\n")
    last = amp("missing.py", "a.py").stderr.splitlines()[-2:]
    assert last == ["no training loops found in 1 file", "1 error"]


def test_quiet_is_quiet_but_for_errors() -> None:
    write(a=LOOP, b=REFUSED, c="# core: invalid\n" + LOOP)
    result = amp("-q", "--write")
    assert result.stderr == "error: c.py:3: not valid for Python 3.99\n"
    assert result.stdout == ""


# Files


def test_paths_are_named_as_the_user_names_them(project: Path) -> None:
    (project / "sub").mkdir()
    write(**{"sub/a": REFUSED, "b": REFUSED})
    assert "\nsub/a.py:2:1 AMP013" in "\n" + amp("sub").stderr
    assert "\n./b.py:2:1 AMP013" in "\n" + amp("./b.py").stderr


def test_patterns_come_from_configuration_and_command_line(project: Path) -> None:
    write(a=LOOP, b=LOOP, c=LOOP)
    Path("pyproject.toml").write_text('[tool.amp-migrate]\nexclude = ["a.py"]\n')
    assert amp("--check").stderr.startswith("would rewrite b.py\nwould rewrite c.py\n")
    one = amp("--check", "--exclude", "b.py", "--exclude", "c.py").stderr
    assert one.startswith("would rewrite a.py\nwould migrate")
    two = amp("--check", "--include", "b.*", "a.py", ".").stderr
    assert two.startswith("would rewrite a.py\nwould rewrite b.py\nwould migrate")
    three = amp("--check", "--force-exclude", "b.py", "b.py", "c.py").stderr
    assert three.startswith("would rewrite c.py\nwould migrate")


def test_no_eval_overrides_the_configuration() -> None:
    write(a=LOOP)
    Path("pyproject.toml").write_text("[tool.amp-migrate]\neval = true\n")
    assert "evaluation=True" in amp("--explain-plan").stdout
    assert "evaluation=False" in amp("--explain-plan", "--no-eval").stdout


def test_encoding_and_newlines_survive() -> None:
    latin = "# coding: latin-1\r\ns = 'é'\r\nloss.backward()\r\n".encode("latin-1")
    Path("a.py").write_bytes(b"\xef\xbb\xbf" + LOOP.encode())
    Path("b.py").write_bytes(latin)
    amp("--write")
    assert Path("a.py").read_bytes() == b"\xef\xbb\xbf" + DONE.encode()
    assert Path("b.py").read_bytes() == latin.replace(
        b"loss.backward()", b"scaler.scale(loss).backward()\r\nscaler.update()"
    )


# Standard input


def test_standard_input_goes_to_standard_output() -> None:
    result = amp("-", stdin=LOOP.encode())
    assert (result.stdout, result.exit_code) == (DONE, ExitCode.OK)
    assert result.stderr == "migrated 1 of 1 training loop in 1 file\n"


def test_standard_input_keeps_its_bytes() -> None:
    data = b"# coding: latin-1\r\ns = '\xe9'"
    assert amp("-", stdin=data).stdout_bytes == data
    assert amp("-", stdin=data + b"\r\nloss.backward()").stdout_bytes == (
        data + b"\r\nscaler.scale(loss).backward()\r\nscaler.update()"
    )


def test_standard_input_in_other_modes() -> None:
    named = ("-", "--stdin-filename", "sub/a.py")
    assert amp(*named, "--diff", stdin=LOOP.encode()).stdout == DIFF.format("sub/a.py")
    check = amp(*named, "--check", stdin=LOOP.encode())
    assert (check.stdout, check.exit_code) == ("", ExitCode.WOULD_CHANGE)
    assert amp("-", "--explain-plan", stdin=LOOP.encode()).stdout.startswith(
        "<stdin>: "
    )


def test_standard_input_is_configured_by_its_name(project: Path) -> None:
    (project / "sub").mkdir()
    Path("sub/pyproject.toml").write_text(
        "[tool.amp-migrate]\ndtype = 'bfloat16'\nforce-exclude = 'b.py'\n"
    )
    named = ("-", "--stdin-filename")
    plan = amp(*named, "sub/a.py", "--explain-plan", stdin=LOOP.encode()).stdout
    assert plan.startswith("sub/a.py: Options(dtype='bfloat16'")
    assert amp(*named, "sub/b.py", stdin=LOOP.encode()).stdout == LOOP


def test_standard_input_that_is_no_python_gives_no_output() -> None:
    result = amp("-", stdin=b"# core: invalid\n" + LOOP.encode())
    assert (result.stdout, result.exit_code) == ("", ExitCode.ERROR)
    assert result.stderr.startswith("error: <stdin>:3: not valid for Python 3.99\n")
    broken = b"{loss.backward()"
    notebook = amp("-", "--stdin-filename", "a.ipynb", stdin=broken)
    assert (notebook.stdout, notebook.exit_code) == ("", ExitCode.ERROR)


# Commands and help


def test_a_path_that_is_named_like_a_command_can_be_reached(project: Path) -> None:
    (project / "migrate").mkdir()
    write(**{"migrate/a": LOOP, "b": LOOP})
    assert amp("migrate").stdout == DIFF.format("b.py") + DIFF.format("migrate/a.py")
    assert amp("./migrate").stdout == DIFF.format("migrate/a.py")
    assert amp("--", "migrate").stdout == DIFF.format("migrate/a.py")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["-h"], ["migrate", "--help"], ["x", "--help"]]
)
def test_help_shows_options_and_examples(arguments: list[str]) -> None:
    result = amp(*arguments)
    assert result.exit_code == ExitCode.OK
    for part in (
        "[PATHS]...",
        "--write",
        "--torch-version X.Y",
        "Examples:",
        "Exit codes:",
    ):
        assert part in result.stdout


def test_help_of_the_program_shows_commands_and_version() -> None:
    assert "Commands:\n  migrate" in amp("--help").stdout
    assert amp("--version").stdout == f"amp-migrate {__version__}\n"


# Terminals


@pytest.mark.parametrize("variable", [None, "NO_COLOR"])
def test_colour_on_demand(
    variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv(variable, "1")
    write(a='x = """\n\x1b[31m\n"""\n' + LOOP)
    assert "\x1b[" in amp("--color", "always").stdout
    assert "\x1b[31m\n" not in amp("--color", "always").stdout
    assert amp().stdout == amp("--color", "never").stdout
    assert "\x1b[1m" not in amp().stdout


def test_colour_changes_no_text() -> None:
    import re

    write(
        a="def f():\n\n    '''x\n\n    y'''\n\n\n\n"
        + LOOP
        + "\n\n\nif x:\n\n\n    pass"
    )
    coloured = re.sub(r"\x1b\[[0-9;]*m", "", amp("--color", "always").stdout)
    assert coloured == amp().stdout


# Processes


def test_many_files_go_through_processes_in_the_same_order() -> None:
    for number in range(30):
        write(**{f"f{number:02}": LOOP if number % 7 else REFUSED})
    one, two = subprocess_amp("--jobs", "1"), subprocess_amp("--jobs", "2")
    assert one.stdout == two.stdout != b""
    assert one.stderr == two.stderr
    assert one.returncode == two.returncode == ExitCode.OK


def test_a_process_that_dies_costs_only_its_file() -> None:
    for number in range(24):
        write(**{f"f{number:02}": LOOP if number != 5 else "# core: die\n" + LOOP})
    result = subprocess_amp("--jobs", "2", "--check")
    assert result.returncode == ExitCode.ERROR
    assert b"error: f05.py: internal error: the process died" in result.stderr
    assert (
        b"would migrate 23 of 23 training loops in 23 files\n1 error\n" in result.stderr
    )


@pytest.mark.parametrize("arguments", [["--version"], ["--check"]])
def test_nothing_heavy_is_imported_for_nothing(arguments: list[str]) -> None:
    write(a="x = 1\n")
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "amp_migrate", *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "amp_migrate.cli.main" in imported
    heavy = {"libcst", "black", "rich", "multiprocessing"}
    assert imported & heavy == set()


def test_standard_output_takes_any_bytes_in_any_locale() -> None:
    Path("a.py").write_bytes("# é☃\n".encode() + LOOP.encode())
    Path("b.py").write_bytes(b"# coding: latin-1\n# \xe9\n" + LOOP.encode())
    done = subprocess_amp(
        env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    )
    assert done.returncode == ExitCode.OK, done.stderr
    assert " # é☃\n".encode() in done.stdout
    assert b" # \xe9\n" in done.stdout
