"""Text to the standard library's syntax tree, with errors of one line."""

from __future__ import annotations

import ast
import sys
import warnings

from amp_migrate.core.effort import cut
from amp_migrate.core.results import SourceError


def parse(text: str, path: str) -> ast.Module:
    """``ast.parse`` with one-line errors, and without the warnings that the user's code would raise."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except SyntaxError as error:
        message = f"not valid for Python {version}, which runs amp-migrate: {error.msg}"
        raise SourceError(path, message, error.lineno or 0, error.offset or 0) from None
    except ValueError as error:
        raise SourceError(path, f"not valid for Python {version}: {error}") from None
    except (RecursionError, MemoryError):
        cut()
        raise SourceError(path, "nested too deeply to be parsed") from None


def compiles(tree: ast.Module) -> bool:
    """Whether a program holds none of the mistakes that a parser lets pass, such as an argument given
    twice. Without warnings, too."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(tree, "<program>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    except (SyntaxError, ValueError):
        return False
    return True
