"""Which codes the user wants to hear of."""

from __future__ import annotations

from amp_migrate.catalogue import lint_rule
from amp_migrate.options import LintOptions


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
