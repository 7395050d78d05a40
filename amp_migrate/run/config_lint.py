"""``[tool.amp-migrate.lint]``: the keys, and the check that each value must pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amp_migrate.core.findings import Severity
from amp_migrate.core.options import LINT_DTYPES, LintOptions
from amp_migrate.run.keys import Key, quoted, texts

FORMATS = ("text", "concise", "json", "jsonl", "github", "gitlab", "sarif", "junit")
"""How findings can be told."""

SEVERITIES = tuple(one.value for one in Severity)
NEVER = "never"
FAIL_ON = (*SEVERITIES, NEVER)
ALL = "ALL"
"""Stands for every code where a prefix is asked for."""


@dataclass(frozen=True, slots=True)
class Showing:
    """What is told of the findings, and which of them fail the run."""

    output_format: str = "text"
    """One of `FORMATS`."""
    severity: Severity = Severity.WARNING
    """The least that people are shown; machines are given everything."""
    fail_on: Severity | None = Severity.ERROR
    """The least that fails the run; None: nothing does."""
    baseline: str | None = None
    """A file with the findings that are known and accepted."""


def prefixes(values: Iterable[str]) -> tuple[str, ...]:
    """Prefixes of codes of lint rules, as typed. Raises ValueError for one that fits none."""
    # Imported here: the rule files are only listed where somebody names a rule.
    from amp_migrate.catalogue.rules import codes, lint_codes

    known = lint_codes()
    found = []
    for value in values:
        prefix = value.strip().upper()
        if prefix == ALL:
            found.append("")
        elif prefix and any(code.startswith(prefix) for code in known):
            found.append(prefix)
        elif prefix in codes():
            raise ValueError(
                f"{prefix} is not a rule of lint, but a reason for leaving a loop alone"
            )
        else:
            # Imported here: most are typed well.
            import difflib

            close = difflib.get_close_matches(prefix, known, n=1)
            hint = f"did you mean {close[0]}?" if close else f"codes: {_span(known)}"
            raise ValueError(f"no lint rule has a code like {value.strip()!r}; {hint}")
    return tuple(found)


def _span(known: tuple[str, ...]) -> str:
    return f"{known[0]} to {known[-1]}" if known else "none"


def a_profile(value: object) -> str:
    """The name of a GPU architecture. Raises ValueError."""
    from amp_migrate.catalogue.gpus import profiles

    return _one_of(profiles.names())(value)


def _codes(value: object) -> tuple[str, ...]:
    return prefixes(texts(value))


def _per_file(value: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if not isinstance(value, dict):
        raise ValueError(
            'must be a table of patterns and codes, such as {"tests/" = ["TCU"]}'
        )
    return tuple((pattern, _codes(codes)) for pattern, codes in value.items())


def _one_of(words: tuple[str, ...]) -> Callable[[object], str]:
    def check(value: object) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}, not {value!r}")
        return str(value)

    return check


def _an_alignment(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError("must be a positive number of elements")
    return value


def _a_path(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be the path of a file")
    return value


_CODES = 'codes or their beginnings, such as `"TCU1"`, or `"ALL"`'

LINT_KEYS: Mapping[str, Key] = {
    "select": Key(
        _codes,
        _CODES,
        "all rules that are on by default",
        "Only these rules. The longest beginning that fits a code decides. On the command line `--select`"
        " replaces the whole choice of the configuration, `--extend-select` and `--ignore` add to it.",
        '["AMP", "TCU1"]',
    ),
    "extend-select": Key(
        _codes,
        _CODES,
        "none",
        "These rules as well: some are off by default.",
        '["TCU110"]',
    ),
    "ignore": Key(
        _codes,
        _CODES,
        "none",
        "Not these rules.",
        '["TCU306"]',
    ),
    "per-file-ignores": Key(
        _per_file,
        "a table of patterns, each with codes or their beginnings",
        "none",
        "Not these rules in these files. Patterns are those of .gitignore, relative to the project root.",
        '{ "tests/" = ["ALL"] }',
    ),
    "profile": Key(
        a_profile,
        "the name of a GPU architecture, see below",
        '`"ampere"`',
        "The GPU that shapes are judged for.",
        '"hopper"',
    ),
    "dtype": Key(
        _one_of(LINT_DTYPES),
        quoted(LINT_DTYPES),
        "what autocast in the code says, else float16",
        "The dtype of matrix products.",
        '"bfloat16"',
    ),
    "align": Key(
        _an_alignment,
        "a positive number of elements",
        "what the GPU and the dtype need",
        "What sizes should be a multiple of.",
        "64",
    ),
    "extend-rules": Key(
        texts,
        "a path, or a list of paths, relative to the pyproject.toml",
        "none",
        "Files that describe [layers of your own](lint.md#layers-of-your-own).",
        '["our-layers.toml"]',
    ),
    "baseline": Key(
        _a_path,
        "a path, relative to the pyproject.toml",
        "none",
        "A file with the findings that are known and accepted; only others are reported."
        " `--write-baseline` writes it.",
        '"amp-baseline.json"',
    ),
    "fail-on": Key(
        _one_of(FAIL_ON),
        quoted(FAIL_ON),
        '`"error"`',
        "Findings of this severity or worse make the exit code 1.",
        '"warning"',
    ),
    "severity": Key(
        _one_of(SEVERITIES),
        quoted(SEVERITIES),
        '`"warning"`',
        "The lowest severity that text shows. The formats for programs hold every severity.",
        '"info"',
    ),
    "output-format": Key(
        _one_of(FORMATS),
        quoted(FORMATS),
        '`"text"`',
        "How findings are reported.",
        '"concise"',
    ),
}
"""The keys of ``[tool.amp-migrate.lint]``."""


def options(
    table: Mapping[str, Any], given: Mapping[str, Any], folder: Path
) -> LintOptions:
    """What to look for, from the checked table and the command line, which wins.

    ``given["select"]`` replaces the whole choice of rules; ``ignore`` and ``extend-select`` add to it.
    ``folder``: what paths in the table are relative to.
    """
    chosen = {} if given.get("select") else table
    extended = given.get("extend-select", ())
    ignored = [one for one in chosen.get("ignore", ()) if one not in extended]
    values = {**table, **{key: one for key, one in given.items() if one is not None}}
    return LintOptions(
        profile=values.get("profile", LintOptions().profile),
        dtype=values.get("dtype"),
        align=values.get("align"),
        select=tuple(given.get("select") or table.get("select", ())),
        extend_select=(*chosen.get("extend-select", ()), *extended),
        ignore=(*ignored, *given.get("ignore", ())),
        per_file_ignores=table.get("per-file-ignores", ()),
        extend_rules=tuple(
            str(folder / path) for path in table.get("extend-rules", ())
        ),
        fix=bool(given.get("fix")),
        unsafe_fixes=bool(given.get("unsafe-fixes")),
    )


def showing(
    table: Mapping[str, Any], given: Mapping[str, Any], folder: Path
) -> Showing:
    """What to tell, from the checked table and the command line, which wins."""
    inherited = {**table}
    if "baseline" in table:
        inherited["baseline"] = str(folder / table["baseline"])
    values = {**inherited, **{k: one for k, one in given.items() if one is not None}}
    defaults = Showing()
    fail_on = values.get("fail-on", Severity.ERROR.value)
    return Showing(
        output_format=values.get("output-format", defaults.output_format),
        severity=Severity(values.get("severity", defaults.severity)),
        fail_on=None if fail_on == NEVER else Severity(fail_on),
        baseline=values.get("baseline"),
    )
