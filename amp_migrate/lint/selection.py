"""Which codes the user wants to hear of."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from amp_migrate.catalogue.rules import lint_rule
from amp_migrate.core.options import LintOptions


def is_selected(code: str, options: LintOptions) -> bool:
    """Whether a rule is on. The longest prefix that fits decides, and ``ignore`` where two are equal."""
    wanted = max(_fits(code, options.select), _fits(code, options.extend_select))
    if wanted < 0 and not options.select and lint_rule(code).default:
        wanted = 0
    return wanted > _fits(code, options.ignore)


def _fits(code: str, prefixes: tuple[str, ...]) -> int:
    """The length of the longest prefix that fits; -1 where none does."""
    fitting = (len(one) for one in prefixes if code.startswith(one))
    return max(fitting, default=-1)


@dataclass(frozen=True, slots=True)
class Selection:
    """The rules that are on for one file."""

    options: LintOptions
    ignored: tuple[str, ...] = ()
    """Prefixes that ``per-file-ignores`` have for the file: nothing is said against these."""

    def takes(self, code: str) -> bool:
        """Whether a rule is on."""
        return is_selected(code, self.options) and not code.startswith(self.ignored)


def selection(file: str, root: str | None, options: LintOptions) -> Selection:
    """For a file, by its path; patterns are relative to ``root``, or to the current folder."""
    if not options.per_file_ignores:
        return Selection(options)
    # Imported here: most runs have no such patterns.
    from amp_migrate.sources.discovery import lexical
    from amp_migrate.sources.ignore import Patterns

    base, path = str(Path(root)) if root else str(Path.cwd()), lexical(file)
    ignored = [
        code
        for pattern, codes in options.per_file_ignores
        if Patterns(base, [pattern]).covers(path)
        for code in codes
    ]
    return Selection(options, tuple(ignored))
