"""The arguments of a call."""

from __future__ import annotations

from dataclasses import dataclass, field

from amp_migrate.analysis.sizes.domain.values import Box, Known, Unknown, Value
from amp_migrate.program import ir


@dataclass(slots=True)
class Given:
    """The arguments of a call."""

    positional: list[Value] = field(default_factory=list)
    keywords: dict[str, Value] = field(default_factory=dict)
    rest: str = ""
    """What may follow unseen: ``""`` nothing, ``default`` only if somebody outside says so (then what
    a parameter is by default is likely), ``unknown`` anything."""
    exprs: dict[int | str, ir.Expr] = field(default_factory=dict)
    """How the arguments are written, by position or name."""
    line: int = 0

    def get(self, position: int, name: str) -> Value | None:
        """The value for a parameter, if it is given."""
        if name in self.keywords:
            return self.keywords[name]
        if 0 <= position < len(self.positional):
            return self.positional[position]
        return Unknown("arguments") if self.rest == "unknown" else None

    def values(self) -> list[Value]:
        """All that is given."""
        return [*self.positional, *self.keywords.values()]

    def says_no_more_than(self, other: Given) -> bool:
        """Whether these are the same as the arguments of another call, as far as they are known, and nothing
        that may have changed since."""
        return (
            self.rest == other.rest
            and self.keywords.keys() == other.keywords.keys()
            and len(self.positional) == len(other.positional)
            and all(map(_is_same, self.positional, other.positional))
            and all(_is_same(v, other.keywords[k]) for k, v in self.keywords.items())
        )


def _is_same(one: Value, other: Value) -> bool:
    match one, other:
        case Unknown(), Unknown():
            return True
        case Known(), Known():
            return type(one.value) is type(other.value) and one.value == other.value
    return one is other and not isinstance(one, Box)
