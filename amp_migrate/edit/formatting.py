"""A file that was clean for black, under its own configuration, stays clean. Others are not touched."""

from __future__ import annotations

import io
import re
import tokenize
from dataclasses import replace
from itertools import pairwise
from keyword import iskeyword, softkwlist
from pathlib import Path
from typing import Any

import black
from black.const import DEFAULT_LINE_LENGTH
from black.files import find_pyproject_toml, parse_pyproject_toml
from black.mode import TargetVersion
from black.parsing import ASTSafetyError, InvalidInput

from amp_migrate.program.programs import ProgramSources

_MASK = re.compile(r"^([ \t]*)b?(\"+amp-migrate: magic )", re.MULTILINE)

_SWITCHED_OFF = re.compile(r"fmt:|yapf:|\f")
_SINGLE_QUOTED = re.compile(r"'[^'\"\\\n]*'")
_AFTER_HASH = ("", *" !:#'")
"""What black leaves right behind the sign of a comment."""
_FIRST = frozenset("0123456789'\"")
"""What values begin with, beside the letters of names."""
_ENDS = (")", "]")
_APART = frozenset("== != <= >= < > -> += -= *= /= //= %= |= &= ^= // % | & ^".split())
"""Operators that have a space on both sides wherever they stand."""
_BETWEEN = (tokenize.NEWLINE, tokenize.NL, tokenize.COMMENT)
"""Tokens that no statement begins with."""
_ITEMS = re.compile(
    r"[ \t]*(?:(?P<name>def )?|[\w.]+ [+*]?= )(?P<called>[\w.]*)[\[({]|from [\w.]+ import \w"
)
"""How a statement begins that is, behind its first bracket, a list of items and nothing else."""

_HOOK = re.compile(
    r"(?ms)^\s*-\s*id:\s*[\"']?black[\"']?\s*$(.*?)(?=^\s*-\s*(?:id|repo):|\Z)"
)
_ARGS = re.compile(r"(?ms)^\s*args:(.*?)(?=^\s*[\w-]+:\s|\Z)")
_SWITCHES = {
    "-S": "skip_string_normalization",
    "--skip-string-normalization": "skip_string_normalization",
    "-C": "skip_magic_trailing_comma",
    "--skip-magic-trailing-comma": "skip_magic_trailing_comma",
    "--preview": "preview",
}


def mode_for(directory: str) -> black.Mode:
    """Black's mode as the project around a directory configures it; black's defaults elsewhere."""
    settings: dict[str, Any] = {}
    try:
        found = find_pyproject_toml((directory,))
        if found is not None:
            settings = parse_pyproject_toml(found)
    except (OSError, ValueError):
        # Black itself would refuse this file: then nothing here is clean by its standards.
        settings = {}
    # What a hook gives black on its command line has the last word.
    settings |= _given_by_hook(Path(directory))
    versions = settings.get("target_version", [])
    targets = {
        TargetVersion[str(version).upper()]
        for version in (versions if isinstance(versions, list) else [versions])
        if str(version).upper() in TargetVersion.__members__
    }
    length = settings.get("line_length", DEFAULT_LINE_LENGTH)
    return black.Mode(
        target_versions=targets,
        line_length=length if isinstance(length, int) else DEFAULT_LINE_LENGTH,
        string_normalization=not settings.get("skip_string_normalization", False),
        magic_trailing_comma=not settings.get("skip_magic_trailing_comma", False),
        preview=bool(settings.get("preview", False)),
    )


def _given_by_hook(directory: Path) -> dict[str, Any]:
    """What the project's pre-commit configuration gives to black."""
    for folder in (directory, *directory.absolute().parents):
        file = folder / ".pre-commit-config.yaml"
        if file.is_file():
            try:
                return _of_hook(file.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                return {}
        if (folder / ".git").exists():
            break
    return {}


def _of_hook(text: str) -> dict[str, Any]:
    bare = "\n".join(line.partition(" #")[0] for line in text.splitlines())
    hook = _HOOK.search(bare)
    given = _ARGS.search(hook[1]) if hook is not None else None
    words = re.split(r"""[\s,\[\]"'=]+""", given[1]) if given is not None else []
    settings: dict[str, Any] = {
        name: True for word, name in _SWITCHES.items() if word in words
    }
    for word, value in pairwise(words):
        if word in ("-l", "--line-length") and value.isdigit():
            settings["line_length"] = int(value)
    return settings


def mode_of_file(path: str) -> black.Mode:
    """The mode for a file's path; paths that are no files have black's defaults."""
    parent = Path(path).parent
    return mode_for(str(parent)) if parent.is_dir() else black.Mode()


def mode_of(file: str, sources: ProgramSources) -> black.Mode:
    """The mode for a file of a program."""
    known: black.Mode | None = sources.modes.get(file)
    return mode_of_file(file) if known is None else known


def is_clean(text: str, mode: black.Mode) -> bool:
    """Whether black would leave the text as it is."""
    try:
        return black.format_str(text, mode=mode) == text
    except (InvalidInput, ASTSafetyError, AssertionError):
        return False


def is_surely_unclean(text: str, mode: black.Mode) -> bool:
    """Whether some token, as it stands, is one that black would change: found in a tenth of its time.

    Most files of those who do not use it say so in their first lines; that none does says nothing.
    """
    if _SWITCHED_OFF.search(text):
        return False
    depth = inside = levels = blank = 0
    is_lambda = is_value = False
    row, column, last = 0, 0, ""
    # Of this statement: its row, its outermost pairs of brackets, and the commas between them.
    begun = pairs = items = 0
    try:
        for kind, word, start, end, line in tokenize.generate_tokens(
            io.StringIO(text, newline="").readline
        ):
            name = tokenize.tok_name[kind]
            gap = start[1] - column if start[0] == row else None
            inside += name.endswith("STRING_START") - name.endswith("STRING_END")
            if inside or name.endswith("STRING_END"):
                # Of an f-string, whose parts are tokens from Python 3.12 on.
                gap, word = None, ""
            elif kind == tokenize.STRING:
                if mode.string_normalization and _SINGLE_QUOTED.fullmatch(word):
                    return True
            elif kind == tokenize.COMMENT:
                if word[1:2] not in _AFTER_HASH or (gap is not None and gap < 2):
                    return True
            elif kind in (tokenize.INDENT, tokenize.DEDENT):
                levels += 1 if kind == tokenize.INDENT else -1
                if word and word != "    " * levels:
                    return True
                continue
            elif kind in (tokenize.NEWLINE, tokenize.NL):
                blank = blank + 1 if gap is None else 0
                if blank > 2 or (start[1] > 0 if gap is None else gap > 0):
                    return True
                is_lambda = is_lambda and kind == tokenize.NL
                if kind == tokenize.NEWLINE:
                    in_one = begun == start[0] and items > 0 and pairs <= 1
                    too_long = start[1] > mode.line_length and line.isascii()
                    if in_one and too_long and _is_of_items(line, last):
                        return True
                    begun = pairs = items = 0
            elif word == "lambda":
                # Its defaults have no spaces around them.
                is_lambda = True
            elif kind == tokenize.OP:
                depth += (word in "([{") - (word in ")]}")
                pairs += word in ")]}" and not depth
                items += word == "," and depth <= 1
                behind = line[end[1] : end[1] + 1]
                if line[start[1] : end[1]] != word:
                    behind = " "
                close = behind.isidentifier() or behind in _FIRST
                if word == "," and (close or gap):
                    return True
                if word == ";" or (word in ")]}" and gap):
                    return True
                if word == "(" and gap and is_value and last not in softkwlist:
                    return True
                apart = word in _APART or (word in "+-*" and is_value)
                if apart or (word == "=" and not depth and not is_lambda):
                    if gap == 0 or close:
                        return True
            if gap and last and last in "([{" and kind != tokenize.COMMENT:
                return True
            is_value = (kind == tokenize.NAME and not iskeyword(word)) or word in _ENDS
            row, column, last = *end, word
            if not begun and kind not in _BETWEEN:
                begun = row
    except (tokenize.TokenError, SyntaxError):
        pass
    return False


def _is_of_items(line: str, last: str) -> bool:
    """Whether a statement in one line is a list of items, as a call has them, or the names of an import.

    Black puts them in lines of their own where they do not fit.
    """
    begins = _ITEMS.match(line)
    if begins is None or iskeyword(begins["called"] or ""):
        return False
    if begins["called"] is None:
        return last.isidentifier()
    return last in ((":",) if begins["name"] else (")", "]", "}"))


def keep_clean(before: str, after: str, mode: black.Mode) -> str:
    """``after``, formatted if ``before`` was clean."""
    if is_surely_unclean(before, mode):
        return after
    try:
        formatted = black.format_str(after, mode=mode)
    except (InvalidInput, ASTSafetyError, AssertionError):
        if is_clean(before, mode):
            raise
        return after
    # Most rewrites are laid out as black has it: then nobody has to know of the rest of the file.
    return formatted if formatted == after or is_clean(before, mode) else after


def keep_cell_clean(before: str, after: str, mode: black.Mode) -> str:
    """As `keep_clean`, for a cell of a notebook.

    Such a cell ends without a newline, and may end with a semicolon, which hides its value.
    """
    if before == after:
        return after
    end = ";" if before.endswith(";") and after.endswith(";") else ""
    old, new = (_for_black(cell.removesuffix(end)) for cell in (before, after))
    of_cell = replace(mode, is_ipynb=True)
    if not is_clean(old, of_cell):
        return after
    clean = black.format_str(new, mode=of_cell).removesuffix("\n")
    return _MASK.sub(r"\1\2", clean) + end


def _for_black(cell: str) -> str:
    # To black, what stands for a magic at the head of a cell must be no docstring.
    return _MASK.sub(r"\1b\2", cell) + "\n"
