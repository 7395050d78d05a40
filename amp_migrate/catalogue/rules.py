"""The words of the rule catalogue: why a training loop is left alone, and what lint finds fault with.

The rules are data, one TOML file each, in ``rules/``. A file is read when its code is asked for,
so that a run which refuses nothing reads nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amp_migrate.catalogue.tables import a_table, read_table, texts

if TYPE_CHECKING:
    from importlib.abc import Traversable

_LINT_CODE = re.compile(r"(?:AMP[12]|TCU[123])\d\d")
_FILE_NAME = re.compile(r"((?:AMP|TCU)\d{3})-([a-z0-9]+(?:-[a-z0-9]+)*)\.toml")


THE_LINE = "{line}"
"""Stands for the line of code that is in the way."""


class CatalogueError(Exception):
    """A rule file is missing or malformed. The message names the file."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What every rule says."""

    code: str
    name: str
    kind: str
    """``refusal`` of a training loop, ``old-use`` for an older AMP interface that stays, or ``lint``."""
    summary: str
    """Completes "2 loops ...", or is the title of a lint rule: "with several optimizers"."""
    message: str
    """One sentence, for a finding that has nothing more particular to say."""
    why: str
    """What would go wrong, in one paragraph without line breaks."""
    by_hand: tuple[str, ...]
    """The few lines that a person would write."""
    example: str
    """A script in which this code is found; empty where none can be given."""
    sources: tuple[str, ...]
    """Where the facts come from."""
    counter_example: str = ""
    """The closest script in which it is not; empty where that would show nothing."""


@dataclass(frozen=True, slots=True)
class Refusal(Rule):
    """One reason for which a training loop, or an older use, is left byte for byte as it was."""

    remedy: str = field(kw_only=True)
    """The one command or edit that helps most often, in a few words."""
    advice: Mapping[str, Any] = field(default_factory=dict)
    """What to write by hand in place of ``by_hand``, by a phrase of the message."""

    def by_hand_for(self, message: str, line: str) -> tuple[str, ...]:
        """What to write by hand where a message is told; ``line``: the code that is in the way."""
        found = next(
            (one for phrase, one in self.advice.items() if phrase in message), ()
        )
        written = [line if one == THE_LINE else one for one in found]
        return tuple(one for one in written if one) or self.by_hand


@dataclass(frozen=True, slots=True)
class LintRule(Rule):
    """Something that lint finds fault with."""

    severity: str = "warning"
    """``error``, ``warning`` or ``info``: the worst grade; a finding may be graded down, with the reason."""
    fix: str = "none"
    """``safe``, ``unsafe`` or ``none``: what ``--fix`` can do about it, at most."""
    default: bool = True
    """It is on where ``select`` does not say otherwise."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """`LintOptions` under which the examples are linted."""


@cache
def rule(code: str) -> Rule:
    """The rule with this code, such as ``AMP013`` or ``TCU101``."""
    try:
        path = _files()[code]
    except KeyError:
        raise CatalogueError(f"no rule file for the code {code!r}") from None
    return _load(path)


def refusal(code: str) -> Refusal:
    """Why a loop is left alone, by its code."""
    found = rule(code)
    if not isinstance(found, Refusal):
        raise CatalogueError(f"{code} is a rule of lint")
    return found


def lint_rule(code: str) -> LintRule:
    """What lint finds fault with, by its code."""
    found = rule(code)
    if not isinstance(found, LintRule):
        raise CatalogueError(f"{code} is no rule of lint")
    return found


def codes() -> tuple[str, ...]:
    """The codes of all rules, in order; no rule is read for it."""
    return tuple(sorted(_files()))


def lint_codes() -> tuple[str, ...]:
    """The codes of what lint finds fault with, in order; no rule is read for it."""
    return tuple(code for code in codes() if _LINT_CODE.fullmatch(code))


def lint_code(name: str) -> str:
    """The code of the rule of lint that goes by a name, or nothing; no rule is read for it."""
    found = _files()
    named = (c for c in lint_codes() if found[c].name == f"{c}-{name}.toml")
    return next(named, "")


def rules() -> tuple[Rule, ...]:
    """All rules, ordered by code."""
    return tuple(rule(code) for code in codes())


def refusals() -> tuple[Refusal, ...]:
    """Why training loops are left alone, ordered by code."""
    return tuple(
        one for one in rules() if isinstance(one, Refusal) and one.kind == "refusal"
    )


def lint_rules() -> tuple[LintRule, ...]:
    """What lint finds fault with, ordered by code."""
    return tuple(lint_rule(code) for code in lint_codes())


@cache
def rules_folder() -> Traversable:
    """Where the data lies that the rules stand on: in the wheel, or in a checkout."""
    package = Path(__file__).resolve().parents[1]
    # In an installed wheel, and in an editable install.
    for folder in (package / "rules", package.parent / "rules"):
        if folder.is_dir():
            return folder
    # Imported here: it costs as much as all the rest of this module.
    from importlib.resources import files

    packed = files("amp_migrate") / "rules"  # in a zip file
    if not packed.is_dir():
        raise CatalogueError(f"the rule catalogue is missing: no folder {packed}")
    return packed


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


def _load(path: Traversable) -> Rule:
    try:
        found = _rule(read_table(path))
    except ValueError as error:  # not UTF-8, not TOML, or not a rule
        raise CatalogueError(f"{path.name}: {error}") from None
    if path.name != f"{found.code}-{found.name}.toml":
        raise CatalogueError(f"{path.name}: holds the rule {found.code}-{found.name}")
    return found


def _rule(data: dict[str, Any]) -> Rule:
    kind = data.get("kind")
    if kind not in ("refusal", "old-use", "lint"):
        raise ValueError(f"kind must be 'refusal', 'old-use' or 'lint', not {kind!r}")
    form = LintRule if kind == "lint" else Refusal
    known = {one.name: one for one in fields(form)}
    if unknown := data.keys() - known.keys():
        raise ValueError(f"unknown keys: {', '.join(sorted(unknown))}")
    values: dict[str, Any] = {}
    for name, one in known.items():
        if name in data:
            values[name] = _CHECKS[str(one.type)](name, data[name])
        elif one.default is MISSING and one.default_factory is MISSING:
            raise ValueError(f"no {name}")
    values["why"] = " ".join(values["why"].split())
    for name, allowed in _WORDS.items():
        if name in values and values[name] not in allowed:
            raise ValueError(f"{name} must be one of {', '.join(allowed)}")
    return form(**values)


_WORDS = {"severity": ("error", "warning", "info"), "fix": ("safe", "unsafe", "none")}


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} must be a string")
    return value


def _truth(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be true or false")
    return value


_CHECKS: dict[str, Callable[[str, object], Any]] = {
    "str": _text,
    "tuple[str, ...]": texts,
    "bool": _truth,
    "Mapping[str, Any]": a_table,
}
"""What a value of each type of field must be; raises ValueError."""
