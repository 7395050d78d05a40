"""The thresholds and words by which a misaligned size is graded: ``rules/grading.toml``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from amp_migrate.catalogue.rules import CatalogueError, rules_folder
from amp_migrate.catalogue.tables import read_table

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_NAME = re.compile(r"[\w-]+")
_BETWEEN = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class Scale:
    """Figures and word lists; what each means stands in the file."""

    intensity: int
    weights: int
    channels: int
    hidden: int
    large: int
    vocabulary: int
    classes: int
    tile_waste: float
    tiled: int
    head: int
    words: dict[str, tuple[str, ...]]
    names: dict[str, frozenset[str]]
    checkpoint: frozenset[str]

    def says(self, kind: str, texts: Iterable[str]) -> bool:
        """Whether one of some names or texts has a word of a kind, such as ``vocabulary``."""
        for name in (name for text in texts for name in _NAME.findall(text)):
            words = f" {words_of(name)} "
            if any(f" {word} " in words for word in self.words[kind]):
                return True
        return False


def words_of(text: str) -> str:
    """``numClasses`` and ``NUM_CLASSES`` as ``num classes``."""
    return _BETWEEN.sub(" ", _HUMP.sub(" ", text).lower()).strip()


@cache
def scale() -> Scale:
    """Raises `CatalogueError` where the file is missing or malformed."""
    path = rules_folder() / "grading.toml"
    try:
        return _scale(read_table(path))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise CatalogueError(f"grading.toml: {error}") from error


def _scale(data: dict[str, Any]) -> Scale:
    worth = {name: value for name, value in data["worth"].items() if name != "sources"}
    return Scale(
        **worth,
        words={kind: tuple(words) for kind, words in data["words"].items()},
        names={kind: frozenset(names) for kind, names in data["names"].items()},
        checkpoint=frozenset(data["surroundings"]["checkpoint"]),
    )
