"""A call of an older interface as one of torch.amp: the device comes first, the rest by name."""

from __future__ import annotations

from typing import Protocol

from amp_migrate.edit.names.edits import Recall
from amp_migrate.edit.names.uses import Mention

PARAMETERS = {
    "autocast": ("enabled", "dtype", "cache_enabled"),
    "GradScaler": (
        "init_scale",
        "growth_factor",
        "backoff_factor",
        "growth_interval",
        "enabled",
    ),
    "custom_fwd": ("fwd",),
    "custom_bwd": ("bwd",),
}
"""What the older interfaces take by position."""

_KEYWORDS = {"custom_fwd": ("fwd", "cast_inputs"), "custom_bwd": ("bwd",)}
_USUAL_DTYPE = {"cuda": "float16", "cpu": "bfloat16"}


class _Ambient(Protocol):
    @property
    def dtype(self) -> bool: ...
    @property
    def cache(self) -> bool: ...


def new_call(
    name: str, mention: Mention, new: str, device: str, ambient: _Ambient, torch: str
) -> Recall | str:
    """The edit of a call, or why there is none. ``torch``: what the place calls torch."""
    parameters = PARAMETERS[name]
    written = ".".join(mention.parts)
    keywords: list[str | None] = []
    given: set[str] = set()
    spread = False
    for position, argument in enumerate(mention.arguments):
        if argument.star == "*":
            if name != "GradScaler":
                return f"{written} is given arguments that cannot be counted (*)"
            spread = True
        if argument.star:
            keywords.append(None)
            given.add(argument.star)
            continue
        if argument.keyword is not None:
            if argument.keyword not in _KEYWORDS.get(name, parameters):
                return f"{written} has no parameter {argument.keyword}"
            keywords.append(None)
            given.add(argument.keyword)
            continue
        if spread:
            # Behind a star: the new first parameter moves all of them alike.
            keywords.append(None)
            continue
        if position >= len(parameters):
            return f"{written} is given too many arguments"
        if argument.value[:1] in ("'", '"'):
            return f"{written} is given a text for {parameters[position]}"
        of_function = name.startswith("custom")
        keywords.append(None if of_function else parameters[position])
        given.add(parameters[position])
    if spread:
        keywords = [None for _ in keywords]
    if name.startswith("custom"):
        place = f'device_type="{device}"'
        return Recall(mention.at, written, new, place, tuple(keywords))
    more: list[tuple[str, str]] = []
    if name == "autocast" and not _is_off(mention):
        if ambient.dtype and "dtype" not in given:
            if not torch or "**" in given:
                return "another region's dtype might count, and torch is not imported"
            more.append(("dtype", f"{torch}.{_USUAL_DTYPE[device]}"))
        if ambient.cache and "cache_enabled" not in given:
            if "**" in given:
                return "another region's cache_enabled might count"
            more.append(("cache_enabled", "True"))
    return Recall(mention.at, written, new, f'"{device}"', tuple(keywords), tuple(more))


def _is_off(mention: Mention) -> bool:
    """Whether a region is there to switch autocast off: then its dtype is nobody's."""
    for index, argument in enumerate(mention.arguments):
        if argument.star:
            return False
        if argument.keyword == "enabled" or (not index and argument.keyword is None):
            return argument.value == "False"
    return False
