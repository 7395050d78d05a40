"""Which files of a program hold its tests."""

from __future__ import annotations

import re

_TESTS = re.compile(
    r"(^|/)(tests?|testing)/|(^|/)(test_[^/]*|[^/]*_test|conftest)\.py$"
)


def is_test(path: str) -> bool:
    """Whether a file trains nothing that anybody waits for, by its path within the project."""
    return _TESTS.search(path) is not None
