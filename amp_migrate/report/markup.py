"""Elements of HTML and SVG that are balanced and escaped by how they are made."""

from __future__ import annotations


class Markup(str):
    """Text that is markup already; all other text is escaped where it is put into an element."""

    __slots__ = ()


VOID = frozenset({"br", "meta"})
"""Elements of HTML that have no end."""


def element(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """One element. An attribute that is None is left out; ``class_`` is class, ``a_b`` is a-b."""
    words = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Markup(f"<{name}{words}>")
    return Markup(f"<{name}{words}>{joined(*children)}</{name}>")


def joined(*children: str) -> Markup:
    """Children of an element, side by side."""
    return Markup(
        "".join(
            child if isinstance(child, Markup) else escape(child) for child in children
        )
    )


def escape(text: str) -> str:
    """Text for a place where an element or a quoted attribute may stand.

    What UTF-8 or HTML cannot hold (undecodable bytes of file names, control characters) is shown as
    a Python escape, and so are the characters that turn the direction of what follows.
    """
    shown = "".join(
        character if _is_shown(character) else _escaped(character) for character in text
    )
    for plain, entity in _ENTITIES:
        shown = shown.replace(plain, entity)
    return shown


# The ampersand first, or the others would be escaped twice.
_ENTITIES = (
    ("&", "&amp;"),
    ("<", "&lt;"),
    (">", "&gt;"),
    ('"', "&quot;"),
    ("'", "&#x27;"),
)

_TURNING = frozenset(
    "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
)


def _is_shown(character: str) -> bool:
    if character in "\n\t":
        return True
    code = ord(character)
    return not (
        code < 0x20
        or 0x7F <= code < 0xA0
        or 0xD800 <= code < 0xE000
        or character in _TURNING
    )


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
