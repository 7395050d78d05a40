"""IPython's own syntax in a notebook's cell, masked so that the rest can be read as Python, and back.

A mask keeps the number of lines. What runs Python, like ``%time train(model)``, keeps that Python in
sight, so that it can be read and edited like any other; the rest becomes a statement or a name that
means nothing:

=============================  ================================================
``!pip install x``, ``f?``     ``"amp-migrate: magic 1"``
``%run setup.py``              ``from _amp_migrate_magic_1 import *``
``files = !ls``                ``files = _amp_migrate_magic_1``
``%time train(model)``         ``train(model)  # amp-migrate: magic 1``
``t = %timeit -o f(x)``        ``t = _amp_migrate_magic_1(f(x))``
=============================  ================================================

A star import is what a magic amounts to that may give any name a value. Of a magic that nobody here
has heard of, with an argument that looks like a call in Python, it is not known whether it runs that
call; such a cell is an error, not a guess.

As in IPython, a magic begins a logical line, or stands right after the ``=`` of one, and a cell magic
begins its cell.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from amp_migrate.core.effort import cut

INERT = frozenset("""
    alias autoreload autosave bookmark cat cd colors conda config cp dhist dirs doctest_mode env gui
    hist history ldir less lf lk ll load_ext logoff logon logstart logstate logstop ls lsmagic lx magic
    mamba man matplotlib micromamba mkdir more mv nbagg notebook page pdef pdoc pfile pinfo pinfo2 pip
    popd pprint precision profile psearch psource pushd pwd pycat quickref rehashx reload_ext rm rmdir
    save set_env shell sx system tensorboard tqdm unalias unload_ext uv watermark who who_ls whos xmode
    """.split())
"""Line magics that run no Python of the notebook and set none of its variables."""

RUNS_LINE = frozenset(
    "debug lprun memit mprun prun pyinstrument scalene snakeviz time timeit".split()
)
"""Line magics whose argument is Python that they run, after options."""

RUNS_CELL = frozenset("""
    capture debug heat lprun memit mprun notify prun pyinstrument scalene snakeviz time timeit wandb
    """.split())
"""Cell magics whose cell is Python that they run in the notebook's namespace."""

FOREIGN_INERT = frozenset("""
    ! HTML SVG bash cmd file html javascript js latex markdown perl pypy python python2 python3 ruby
    script sh shell svg sx system writefile writetemplate
    """.split())
"""Cell magics whose cell is another program, or none."""

FOREIGN = frozenset("R bigquery cython fortran julia sql".split())
"""Cell magics whose cell is another language, which may set variables of the notebook."""


class MaskError(Exception):
    """A cell that cannot be masked; ``line`` counts from 1."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.message = message
        self.line = line


class LostMarkError(Exception):
    """An edit displaced what stands for a cell or a magic: a defect of this tool."""


class Kind(Enum):
    """What a mask looks like, and which part of the cell it stands for."""

    LINE = 1
    """A string as a statement, for whole lines."""
    OPAQUE = 2
    """A star import, for whole lines."""
    VALUE = 3
    """A name, for what an assignment assigns."""
    ARGUMENT = 4
    """A call with the Python in sight as its argument, for the same."""
    STATEMENT = 5
    """A comment after the Python in sight, for what stands before that."""


@dataclass(frozen=True, slots=True)
class Mask:
    """One piece of IPython's syntax."""

    number: int
    kind: Kind
    hidden: str
    """What the cell says and the program does not."""
    payload: str = ""
    """The Python in sight."""
    first: bool = False
    """Whether it is a cell magic: nothing may come before it."""
    only: bool = False
    """Whether it is the rest of its cell: nothing may come after it."""


def mask(source: str, number: int) -> tuple[str, tuple[Mask, ...]]:
    """A cell as Python, with masks that count from ``number``.

    Raises `MaskError`. What is not valid Python without IPython's syntax is not noticed here.
    """
    masker = _Masker(source, number)
    masker.cell()
    return "".join(masker.parts), tuple(masker.masks)


def unmask(text: str, masks: Sequence[Mask]) -> str:
    """The cell that the program text of one, edited or not, stands for.

    Raises `LostMarkError` where a mask is not where it can be taken off.
    """
    pending = list(masks)
    parts: list[str] = []
    at = 0
    while at < len(text):
        end, _ = _logical_line(text, at)
        line = text[at:end]
        while found := _NUMBER.search(line):
            number = int(found[1] or found[2])
            if not pending or pending[0].number != number:
                raise LostMarkError(f"the mask of magic {number} is out of order")
            line = _unmasked(line, pending.pop(0), "".join(parts), text[end:])
        parts.append(line)
        at = end
    if pending:
        raise LostMarkError(f"the mask of magic {pending[0].number} is lost")
    return "".join(parts)


# -- logical lines ------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""
      (?P<string>\"{3}(?:\\.|[^\\])*?\"{3} | '{3}(?:\\.|[^\\])*?'{3}
        | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*')
    | (?P<comment>\#[^\n]*)
    | (?P<joined>\\\r?\n)
    | (?P<newline>\n)
    | (?P<open>[(\[{])
    | (?P<close>[)\]}])
    | (?P<assign>(?<![=!<>:+\-*/%@&|^])=(?!=))
    | (?P<other>\w+|[ \t]+|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ASSIGNED = re.compile(r"(?:[ \t]|\\\n)*(?=%[A-Za-z_]|!)")


def _logical_line(text: str, at: int) -> tuple[int, int | None]:
    """Where the logical line that begins at ``at`` ends, and where a magic that it assigns begins.

    A blank line, or one with a comment only, is a line too. A line's newline belongs to it.
    """
    depth = 0
    assigned = False
    for token in _TOKEN.finditer(text, at):
        match token.lastgroup:
            case "open":
                depth += 1
            case "close":
                depth = max(depth - 1, 0)
            case "newline" if depth == 0:
                return token.end(), None
            case "assign" if depth == 0 and not assigned:
                assigned = True
                magic = _ASSIGNED.match(text, token.end())
                if magic:
                    return _joined_lines(text, magic.end()), magic.end()
    return len(text), None


def _joined_lines(text: str, at: int) -> int:
    """Where the line ends that is continued by backslashes only, whatever else it holds."""
    while True:
        newline = text.find("\n", at)
        if newline < 0:
            return len(text)
        if not text.endswith("\\", 0, newline):
            return newline + 1
        at = newline + 1


# -- masking ------------------------------------------------------------------------------------------

_BLANK = re.compile(r"(?:[ \t]*\n)*")
_INDENT = re.compile(r"[ \t]*")
_CELL_MAGIC = re.compile(r"%%(\w[\w.]*|!)(?!\w*\?)([^\n]*)(\n|\Z)")
_LINE_MAGIC = re.compile(r"%{1,2}[ \t]*([\w.]*)[ \t]*")
_WORD = re.compile(r"[A-Za-z_]+(?=[ \t]|\Z)")
_NEXT_WORD = re.compile(r"\S+\s*")


class _Masker:
    def __init__(self, source: str, number: int) -> None:
        self.source = source
        self.number = number
        self.parts: list[str] = []
        self.masks: list[Mask] = []

    def cell(self) -> None:
        source = self.source
        at = self._blank(0)
        while (found := _CELL_MAGIC.match(source, at)) is not None:
            if found[1] not in RUNS_CELL:
                self._foreign_cell(found[1], at, found.end())
                return
            end = found.end() - len(found[3])
            if found[1] != "timeit" or not self._statement(at, end, first=True):
                self._line(Kind.LINE, at, end, first=True)
            self.parts.append(found[3])
            at = self._blank(found.end())
        if self._automagic(at):
            self._line(Kind.LINE, at, len(source.rstrip()))
            self.parts.append(source[len(source.rstrip()) :])
            return
        while at < len(source):
            at = self._logical(at)

    def _blank(self, at: int) -> int:
        found = _BLANK.match(self.source, at)
        end = found.end() if found else at
        self.parts.append(self.source[at:end])
        return end

    def _foreign_cell(self, name: str, at: int, body: int) -> None:
        if name not in FOREIGN_INERT | FOREIGN:
            inner = _Masker(self.source[body:], 0)
            inner.cell()
            if _calls("".join(inner.parts)):
                message = f"it is not known whether %%{name} runs its cell"
                raise MaskError(message, self._line_number(at))
        kind = Kind.LINE if name in FOREIGN_INERT else Kind.OPAQUE
        self._line(kind, at, len(self.source), first=True, only=True)

    def _automagic(self, at: int) -> bool:
        """Whether the cell is one line that IPython runs as a magic although it has no ``%``."""
        text = self.source[at:].strip()
        word = _WORD.match(text)
        return (
            word is not None
            and "\n" not in text
            and word[0] in INERT
            and _parsed(text) is None
            and not text[word.end() :].lstrip().startswith(("=", "(", "."))
        )

    def _logical(self, at: int) -> int:
        source = self.source
        indent = _INDENT.match(source, at)
        begin = indent.end() if indent else at
        escaped = source.startswith(("!", "%", "?"), begin)
        end, assigned = (
            (_joined_lines(source, begin), None)
            if escaped
            else _logical_line(source, at)
        )
        stop = end - 1 if source.endswith("\n", begin, end) else end
        text = source[begin:stop]
        if escaped:
            self.parts.append(source[at:begin])
            self._magic(begin, stop)
        elif assigned is not None:
            self.parts.append(source[at:assigned])
            self._assigned(assigned, stop)
        elif text.rstrip().endswith("?") and "#" not in text:
            self.parts.append(source[at:begin])
            self._line(Kind.LINE, begin, stop)
        else:
            self.parts.append(source[at:stop])
        self.parts.append(source[stop:end])
        return end

    def _magic(self, at: int, end: int) -> None:
        text = self.source[at:end]
        found = _LINE_MAGIC.match(text)
        if found is None or text.rstrip().endswith("?") or found[1] in INERT:
            self._line(Kind.LINE, at, end)
        elif found[1] in RUNS_LINE:
            if not self._statement(at, end):
                self._line(Kind.LINE, at, end)
        else:
            self._check_unknown(at, end)
            self._line(Kind.OPAQUE, at, end)

    def _assigned(self, at: int, end: int) -> None:
        text = self.source[at:end]
        found = _LINE_MAGIC.match(text)
        if found is not None and found[1] in RUNS_LINE:
            payload = self._payload(at, end)
            if payload is not None:
                self._argument(at, text, payload)
                return
        elif found is not None and found[1] not in INERT:
            self._check_unknown(at, end)
        self._new(Kind.VALUE, text)
        lines = "\n" * text.count("\n")
        self.parts.append(f"({self._name()}{lines})" if lines else self._name())

    def _argument(self, at: int, text: str, payload: str) -> None:
        core = payload.rstrip(" \t;")
        if not _is_expression(core):
            message = "what the magic is to run is not a plain expression"
            raise MaskError(message, self._line_number(at))
        self._new(Kind.ARGUMENT, text.removesuffix(payload), payload=core)
        self.parts.append(f"{self._name()}({core}){payload[len(core) :]}")

    def _check_unknown(self, at: int, end: int) -> None:
        found = _LINE_MAGIC.match(self.source, at)
        assert found is not None
        arguments = self.source[found.end() : end]
        if any(_calls(words) for _, words in _payloads(arguments)):
            message = f"it is not known whether %{found[1]} runs its argument"
            raise MaskError(message, self._line_number(at))

    def _statement(self, at: int, end: int, *, first: bool = False) -> bool:
        """Mask a magic with its Python in sight; no where there is none worth seeing."""
        payload = self._payload(at, end)
        if payload is None:
            return False
        hidden = self.source[at : end - len(payload)]
        self._new(Kind.STATEMENT, hidden, payload=payload, first=first)
        self.parts.append(f"{payload}  # amp-migrate: magic {self.masks[-1].number}")
        return True

    def _payload(self, at: int, end: int) -> str | None:
        """The Python at the end of a magic, after its name and options."""
        found = _LINE_MAGIC.match(self.source, at)
        assert found is not None
        for start, words in _payloads(self.source[found.end() : end]):
            tree = _parsed(words)
            if tree is None or _is_trivial(tree):
                continue
            if found[1] == "timeit" and _trains(tree):
                message = "%timeit repeats a part of a training step"
                raise MaskError(message, self._line_number(at))
            return self.source[found.end() + start : end]
        return None

    def _line(
        self, kind: Kind, at: int, end: int, *, first: bool = False, only: bool = False
    ) -> None:
        text = self.source[at:end]
        self._new(kind, text, first=first, only=only)
        words = f"amp-migrate: magic {self.masks[-1].number}"
        lines = text.count("\n")
        if kind is Kind.LINE:
            fill = "\n" * lines
            self.parts.append(f'"""{words}{fill}"""' if lines else f'"{words}"')
        else:
            fill = "\\\n" * lines
            self.parts.append(f"from {self._name()} {fill}import *")

    def _new(
        self,
        kind: Kind,
        hidden: str,
        *,
        payload: str = "",
        first: bool = False,
        only: bool = False,
    ) -> None:
        number = self.number + len(self.masks)
        self.masks.append(Mask(number, kind, hidden, payload, first, only))

    def _name(self) -> str:
        return f"_amp_migrate_magic_{self.masks[-1].number}"

    def _line_number(self, at: int) -> int:
        return self.source.count("\n", 0, at) + 1


def _payloads(text: str) -> Iterator[tuple[int, str]]:
    """What may be Python at the end of ``text``: all of it, or what is left after options.

    How many words belong to an option differs; the first rest that is valid Python is taken.
    """
    at = len(text) - len(text.lstrip())
    has_options = text.startswith("-", at)
    while word := _NEXT_WORD.match(text, at):
        if not word[0].startswith("-"):
            yield at, text[at:]
            if not has_options:
                return
        at = word.end()


def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    except (RecursionError, MemoryError):
        cut()
        return None


def _kinds(tree: ast.Module) -> list[type[ast.stmt]]:
    return [type(statement) for statement in tree.body]


def _is_expression(text: str) -> bool:
    tree = _parsed(f"({text})")
    return tree is not None and len(tree.body) == 1


def _is_trivial(tree: ast.Module) -> bool:
    """Whether it does nothing: an option's value may look like that."""
    return all(
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, (ast.Constant, ast.Name, ast.Attribute))
        for statement in tree.body
    )


def _calls(text: str) -> bool:
    tree = _parsed(text)
    return tree is not None and any(isinstance(n, ast.Call) for n in ast.walk(tree))


def _trains(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr in ("backward", "step")
        for node in ast.walk(tree)
    )


# -- unmasking ----------------------------------------------------------------------------------------

_NUMBER = re.compile(r"amp-migrate: magic (\d+)|_amp_migrate_magic_(\d+)")


def _unmasked(line: str, one: Mask, before: str, after: str) -> str:
    """A logical line with one mask taken off, between what comes before and after it in its cell."""
    if one.first and any(
        line.strip() and not line.startswith("%%") for line in before.split("\n")
    ):
        raise LostMarkError("code would come before a cell magic")
    if one.only and after.strip():
        raise LostMarkError("code would come into a cell that is not Python")
    body = line.rstrip()
    end = line[len(body) :]
    indent = body[: len(body) - len(body.lstrip())]
    match one.kind:
        case Kind.LINE:
            form = rf'("""|")amp-migrate: magic {one.number}\n*\1'
        case Kind.OPAQUE:
            form = rf"from _amp_migrate_magic_{one.number} (?:\\\n)*import \*"
        case Kind.STATEMENT:
            return f"{indent}{one.hidden}{_statement(body.lstrip(), one)}{end}"
        case Kind.VALUE | Kind.ARGUMENT:
            return _value_unmasked(line, one)
    if re.fullmatch(form, body.lstrip()) is None:
        raise LostMarkError(f"the line of magic {one.number} has changed")
    return indent + one.hidden + end


def _statement(body: str, one: Mask) -> str:
    payload, _, comment = body.rpartition("# ")
    if comment != f"amp-migrate: magic {one.number}":
        raise LostMarkError(f"the mask of magic {one.number} has moved")
    # Two blanks stand before the mask; what the user left at the end of the line before that stays.
    payload = _on_one_line(payload.removesuffix("  "), one)
    old, new = _parsed(one.payload), _parsed(payload)
    if old is None or new is None or _kinds(old) != _kinds(new):
        raise LostMarkError(f"the statement of magic {one.number} was taken apart")
    return payload


def _value_unmasked(line: str, one: Mask) -> str:
    name = f"_amp_migrate_magic_{one.number}"
    start = line.index(name)
    stop = start + len(name)
    if one.kind is Kind.VALUE:
        if "\n" in one.hidden:
            found = re.compile(rf"\({name}\s*\)").search(line)
            if found is None:
                raise LostMarkError(f"the value of magic {one.number} has changed")
            start, stop = found.span()
        return line[:start] + one.hidden + line[stop:]
    body = line.rstrip(" \t;\n")
    if not (line.startswith("(", stop) and body.endswith(")")):
        raise LostMarkError(f"the argument of magic {one.number} has changed")
    payload = _on_one_line(line[stop + 1 : len(body) - 1].strip(), one)
    if not _is_expression(payload):
        raise LostMarkError(f"the argument of magic {one.number} was taken apart")
    return line[:start] + one.hidden + payload + line[len(body) :]


def _on_one_line(payload: str, one: Mask) -> str:
    """A magic ends with its line: what a long argument list was wrapped for is undone."""
    lines = payload.split("\n")
    if len(lines) == 1 or all(line.endswith("\\") for line in lines[:-1]):
        return payload
    joined = lines[0].rstrip()
    for line in lines[1:]:
        word = line.strip()
        tight = joined.endswith(("(", "[", "{")) or word.startswith((")", "]", "}"))
        joined += word if tight else f" {word}"
    before, after = _parsed(payload), _parsed(joined)
    if before is None or after is None or ast.dump(before) != ast.dump(after):
        raise LostMarkError(f"the statement of magic {one.number} takes several lines")
    return joined
