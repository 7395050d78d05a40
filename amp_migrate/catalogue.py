"""The words of the rule catalogue: why a training loop is left alone, and what to write by hand.

The rules are data, one TOML file each, in ``rules/``. A file is read when its code is asked for,
so that a run which refuses nothing reads nothing.
"""

from __future__ import annotations

import re
import sys
from dataclasses import MISSING, dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.abc import Traversable

_FILE_NAME = re.compile(r"(AMP0\d\d)-([a-z0-9]+(?:-[a-z0-9]+)*)\.toml")


class CatalogueError(Exception):
    """A rule file is missing or malformed. The message names the file."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One reason for which a training loop, or an older use, is left byte for byte as it was."""

    code: str
    name: str
    kind: str
    """``refusal`` of a training loop, or ``old-use`` for an older AMP interface."""
    summary: str
    """Completes "2 loops ...", and so reads the same for any number: "with several optimizers"."""
    message: str
    """One sentence, for a diagnostic that has nothing more particular to say."""
    why: str
    """What would go wrong, in one paragraph without line breaks."""
    by_hand: tuple[str, ...]
    """The few lines that a person would write."""
    example: str
    """A script that is refused with this code; empty where none can be given."""
    sources: tuple[str, ...]
    """Where the facts come from."""
    counter_example: str = ""
    """The closest script that is migrated; empty where that would show nothing."""


@cache
def refusal(code: str) -> Refusal:
    """The rule with this code, such as ``AMP013``."""
    try:
        path = _files()[code]
    except KeyError:
        raise CatalogueError(f"no rule file for the code {code!r}") from None
    return _load(path)


def refusals() -> tuple[Refusal, ...]:
    """Why training loops are left alone, ordered by code."""
    return tuple(rule for rule in rules() if rule.kind == "refusal")


def rules() -> tuple[Refusal, ...]:
    """All rules, ordered by code."""
    return tuple(refusal(code) for code in sorted(_files()))


@cache
def rules_folder() -> Traversable:
    """Where the data lies that the rules stand on: in the wheel, or in a checkout."""
    # Imported here: it costs as much as all the rest of this module.
    from importlib.resources import files

    folder = files("amp_migrate") / "rules"  # in an installed wheel
    if not folder.is_dir():
        folder = (
            Path(__file__).resolve().parent.parent / "rules"
        )  # in an editable install
    if not folder.is_dir():
        raise CatalogueError(f"the rule catalogue is missing: no folder {folder}")
    return folder


@cache
def _files() -> dict[str, Traversable]:
    found: dict[str, Traversable] = {}
    for path in rules_folder().iterdir():
        if match := _FILE_NAME.fullmatch(path.name):
            if match[1] in found:
                raise CatalogueError(
                    f"{path.name} and {found[match[1]].name}: the same code twice"
                )
            found[match[1]] = path
    return found


def _load(path: Traversable) -> Refusal:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        rule = _refusal(tomllib.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:  # not UTF-8, not TOML, or not a rule
        raise CatalogueError(f"{path.name}: {error}") from None
    if path.name != f"{rule.code}-{rule.name}.toml":
        raise CatalogueError(f"{path.name}: holds the rule {rule.code}-{rule.name}")
    return rule


def _refusal(data: dict[str, Any]) -> Refusal:
    known = {field.name: field for field in fields(Refusal)}
    if unknown := data.keys() - known.keys():
        raise ValueError(f"unknown keys: {', '.join(sorted(unknown))}")
    values: dict[str, Any] = {}
    for name, field in known.items():
        if name not in data:
            if field.default is MISSING:
                raise ValueError(f"no {name}")
            continue
        value = data[name]
        if field.type == "str":
            if not isinstance(value, str):
                raise ValueError(f"{name} must be a string")
            values[name] = " ".join(value.split()) if name == "why" else value
        elif (
            isinstance(value, list)
            and value
            and all(isinstance(item, str) for item in value)
        ):
            values[name] = tuple(value)
        else:
            raise ValueError(f"{name} must be a list of strings, and not an empty one")
    if values["kind"] not in ("refusal", "old-use"):
        raise ValueError(f"kind must be 'refusal' or 'old-use', not {values['kind']!r}")
    return Refusal(**values)
