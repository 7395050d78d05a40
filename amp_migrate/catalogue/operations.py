"""The operations of torch, as ``rules/ops.toml`` has them: one list for all that look at values."""

from __future__ import annotations

from functools import cache

from amp_migrate.catalogue.rules import CatalogueError, rules_folder
from amp_migrate.catalogue.tables import a_table, read_table


@cache
def rows() -> dict[str, frozenset[str]]:
    """What is said of each operation, by its name."""
    data = read_table(rules_folder() / "ops.toml")
    known = a_table("words", data["words"]).keys()
    found: dict[str, frozenset[str]] = {}
    for names, said in a_table("operations", data["operations"]).items():
        words = frozenset(said.split())
        wrong = (words - known) | (found.keys() & names.split())
        if wrong:
            raise CatalogueError(f"ops.toml: {names}: {', '.join(sorted(wrong))}")
        found |= dict.fromkeys(names.split(), words)
    return found


@cache
def since() -> dict[str, tuple[int, int]]:
    """The first torch in which that holds, of those operations that older ones have, too."""
    data = a_table("since", read_table(rules_folder() / "ops.toml")["since"])
    found: dict[str, tuple[int, int]] = {}
    for names, version in data.items():
        major, minor = map(int, str(version).split("."))
        found |= dict.fromkeys(names.split(), (major, minor))
    return found


@cache
def operations(word: str, *others: str) -> frozenset[str]:
    """The names of the operations of which a word is said, or one of the others."""
    found = frozenset(name for name, said in rows().items() if word in said)
    return found.union(*map(operations, others))
