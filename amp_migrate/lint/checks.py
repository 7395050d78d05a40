"""The checks there are: which codes each may find, and the words without which it finds none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module

from amp_migrate.core.findings import Finding
from amp_migrate.core.options import LintOptions
from amp_migrate.lint.context import Context

_BRACE = "\0"
"""In place of a brace that is meant, so that those are left that hold patterns together."""


class Words:
    """What a text holds if a check may find something in it: one of several patterns."""

    def __init__(self, pattern: str) -> None:
        """``pattern``: the patterns, between bars; a bar within one stands in parentheses."""
        self._literal: list[str] = []
        others: list[str] = []
        for part in re.split(r"\|(?![^()]*\))", pattern.replace(r"\(", _BRACE)):
            plain = part.replace(_BRACE, "(")
            either = re.fullmatch(r"\[(\w)(\w)\](\w+)", plain)
            if either:
                self._literal += (either[1] + either[3], either[2] + either[3])
            elif re.fullmatch(r"[\w/(]+", plain):
                self._literal.append(plain)
            else:
                others.append(part.replace(_BRACE, r"\("))
        self._other = re.compile("|".join(others)) if others else None

    def are_in(self, text: str, holds: Callable[[str], bool]) -> bool:
        """Whether a text holds one: a search for a plain word is far cheaper than one for a pattern.

        ``holds`` tells of a word whether the text holds it, which several patterns ask.
        """
        return any(map(holds, self._literal)) or bool(
            self._other and self._other.search(text)
        )


_words = lru_cache(Words)
"""The same for the same patterns, which several checks look for."""

Run = Callable[[Context, str], Iterable[Finding]]
"""A check of one file of a program, by its path."""


@dataclass(frozen=True, slots=True)
class Check:
    """One checker function, ``check`` of a module that is imported only where it is needed."""

    module: str
    """Below ``amp_migrate.lint``."""
    codes: tuple[str, ...]
    words: Words
    """What a text holds if the check may find something in it."""
    extended: bool = False
    """So do the names of layers of the user's own (``extend-rules``)."""

    @property
    def is_about_misuse(self) -> bool:
        """Whether it looks for misuse of AMP, as opposed to sizes and throughput."""
        return self.module.startswith("misuse.")

    def is_about_own(self, text: str, options: LintOptions) -> bool:
        """Whether a text without these words holds layers of the user's own that the check looks for."""
        if not self.extended or not options.extend_rules:
            # A probe may have seen layers that are made under any name.
            return self.extended and bool(options.probed)
        # Imported here: few users have layers of their own in files without torch's.
        from amp_migrate.catalogue.layers import layer_table

        names = layer_table(options.extend_rules).short_names
        return any(name in text for name in names)

    def run(self, context: Context, file: str) -> Iterable[Finding]:
        """What is found in one file."""
        check: Run = import_module(f"amp_migrate.lint.{self.module}").check
        return check(context, file)


_TRAINS = r"\.(backward|zero_grad)\("


def _throughput(module: str, words: str, *codes: str) -> Check:
    return Check(f"throughput.{module}", codes, _words(words))


_LAYERS = _words(
    r"Linear|Conv|Embedding|RNN|LSTM|GRU|Attention|Transformer|AdaptiveLog"
    r"|linear\(|embedding\(|conv|matmul|\bb?mm\b|[\w\x29\]]\s*@\s*[\w\x28]"
)

SHAPES: tuple[Check, ...] = (
    Check(
        "shapes.layers",
        (
            *("TCU101", "TCU102", "TCU103", "TCU104"),
            *("TCU105", "TCU106", "TCU109", "TCU112"),
        ),
        _LAYERS,
        extended=True,
    ),
    Check("shapes.widths", ("TCU107",), _words(r"\bint\(|\bround\(|//")),
    Check("shapes.attention", ("TCU108",), _words("softmax|Softmax")),
    Check("shapes.fine", ("TCU110", "TCU111", "TCU114"), _LAYERS, extended=True),
    Check("shapes.batches", ("TCU113",), _words("batch_size")),
)


def _misuse(module: str, words: str, *codes: str) -> Check:
    return Check(f"misuse.{module}", codes, _words(words))


def _numbered(prefix: str, *numbers: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{number}" for number in numbers)


_AMP = r"autocast|[Ss]caler|unscale_"
_UNDER_AMP = (
    rf"{_AMP}|\.(scale|backward|step|apply|grad|register\w*_hook)\b|clip_grad|fill|full|log\(|eps|Eps|EPS|(item|detach)\("
    "|BCE|bce|binary_cross"
)
"""Files without a word of AMP may be what a region, or a step, of another file calls."""


CHECKS: tuple[Check, ...] = (
    *SHAPES,
    _throughput("settings", _TRAINS, "TCU201", "TCU202", "TCU203"),
    _throughput("precision", r"[dD]ouble|float64|autocast", "TCU204"),
    _throughput("debugging", r"anomaly|emit_nvtx|gradcheck", "TCU205"),
    _throughput("syncs", _TRAINS, "TCU301"),
    _throughput("stalls", r"synchronize|empty_cache", "TCU302"),
    _throughput("copies", r"\.(cuda|to)\(", "TCU303"),
    _throughput("zeroing", r"zero_grad", "TCU304"),
    _throughput("loaders", r"DataLoader|non_blocking", "TCU305", "TCU306"),
    _throughput("biases", r"BatchNorm", "TCU307"),
    _throughput("parallel", rf"DataParallel|{_TRAINS}", "TCU308"),
    _throughput("hints", _TRAINS, "TCU309"),
    _misuse(
        "training",
        _UNDER_AMP,
        *_numbered("AMP", *range(101, 117), 120, 128, *range(201, 208)),
    ),
    _misuse(
        "scalers",
        rf"{_AMP}|half|float16",
        *_numbered("AMP", *range(117, 120), 121, 124),
    ),
    _misuse("tensors", r"\.numpy\(|np\.a|index_|scatter|\]\s*=", "AMP218", "AMP219"),
    _misuse("forwards", rf"{_AMP}|no_grad|inference_mode", "AMP220", "AMP221"),
    _misuse("switches", _AMP, "AMP127"),
    _misuse("checkpoints", r"state_dict", *_numbered("AMP", 122, 123, 125, 126)),
    _misuse("interfaces", r"amp\b|cast|bf16", *_numbered("AMP", *range(208, 214), 215)),
    _misuse("placement", rf"{_AMP}|amp\b", "AMP214", "AMP216", "AMP217"),
)
