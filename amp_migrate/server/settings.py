"""What an editor may say over the project's own configuration: ``initializationOptions``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from amp_migrate.run import config
from amp_migrate.run.keys import a_bool

SOURCE = "the editor's settings"


def _a_text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a string")
    return value


def _milliseconds(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("must be a number of milliseconds")
    return value


KEYS: Mapping[str, Callable[[object], Any]] = {
    "migration": a_bool,
    "debounce": _milliseconds,
    "config": _a_text,
    "rule-pages": _a_text,
}
"""Those of the server itself; all others are those of ``[tool.amp-migrate]``."""


@dataclass(frozen=True)
class EditorSettings:
    """What one editor has chosen."""

    overrides: config.Overrides = field(default_factory=config.Overrides)
    config_file: str | None = None
    """A pyproject.toml to use instead of the project's."""
    migration: bool = True
    """Tell which training loops can be put under AMP, and why others cannot."""
    debounce: int = 100
    """Milliseconds without an edit to wait for."""
    rule_pages: str | None = None
    """The address of the rules' pages, with ``{code}``."""

    @classmethod
    def read(cls, given: object) -> EditorSettings:
        """From what a client sends. Raises `ConfigError`."""
        if given is None:
            return cls()
        if not isinstance(given, Mapping):
            raise config.ConfigError(f"{SOURCE}: must be an object")
        own = {}
        for key in given.keys() & KEYS.keys():
            try:
                own[key] = KEYS[key](given[key])
            except ValueError as error:
                raise config.ConfigError(f"{SOURCE}: {key}: {error}") from None
        rest = {key: value for key, value in given.items() if key not in KEYS}
        return cls(
            overrides=config.overrides(rest, SOURCE),
            config_file=own.get("config"),
            migration=own.get("migration", cls.migration),
            debounce=own.get("debounce", cls.debounce),
            rule_pages=own.get("rule-pages"),
        )
