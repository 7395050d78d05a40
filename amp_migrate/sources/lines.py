"""Which lines of two versions of a file are the same."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import TypeVar

Line = TypeVar("Line", str, bytes)


def line_before(before: Sequence[Line], after: Sequence[Line], line: int) -> int:
    """The line (from 1) that stood where one of ``after`` stands; of a changed run, its first."""
    at = 1
    for old, new, size in matching_blocks(before, after):
        if line <= new:
            break
        if line <= new + size:
            return old + line - new
        at = old + size + 1
    return min(at, len(before))


def matching_blocks(
    before: Sequence[Line], after: Sequence[Line]
) -> list[tuple[int, int, int]]:
    """Runs of equal lines as (start before, start after, length), in order.

    The common head and tail are taken off first: the rewrite of a long file touches a small part of
    it, and `difflib` is quadratic.
    """
    shortest = min(len(before), len(after))
    head = 0
    while head < shortest and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < shortest - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    middle_before = before[head : len(before) - tail]
    middle_after = after[head : len(after) - tail]
    # Without difflib's "junk" lines where it can be afforded: they make needlessly coarse diffs.
    thorough = len(middle_before) * len(middle_after) <= 4_000_000
    matcher = SequenceMatcher(None, middle_before, middle_after, autojunk=not thorough)
    blocks = [(0, 0, head)] if head else []
    blocks += [
        (old + head, new + head, size)
        for old, new, size in matcher.get_matching_blocks()
        if size
    ]
    if tail:
        blocks.append((len(before) - tail, len(after) - tail, tail))
    return blocks
