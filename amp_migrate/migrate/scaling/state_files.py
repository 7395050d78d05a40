"""Files that hold an optimizer's state and nothing else: the scaler's state gets a file beside them."""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator
from functools import cached_property

from amp_migrate.analysis.paths.loops import refused
from amp_migrate.analysis.tables.torch_names import ModuleNames
from amp_migrate.edit.edits import OPTIMIZER_WORD, StateFile
from amp_migrate.program import ir
from amp_migrate.program.link import Program

_WORDS = ("scaler", "grad_scaler", "amp_scaler", "loss_scaler")
_FOLDERS_READ = frozenset({"listdir", "scandir", "iterdir", "glob", "iglob", "rglob"})
_MOVES = frozenset(
    f"{module}.{name}"
    for module, names in {
        "os": ("rename", "renames", "replace", "link", "symlink"),
        "shutil": ("copy", "copy2", "copyfile", "move"),
    }.items()
    for name in names
)
_JOINS = frozenset({"os.path.join", "pathlib.Path", "pathlib.PurePath"})
_TEXTS = frozenset({"builtins.str", "os.fspath"})
_PURE_CALLS = _JOINS | _TEXTS | {"builtins.int"}
_PURE_OPERATORS = frozenset(
    {"+", "-", "*", "/", "//", "%", "joinedstr", "formattedvalue"}
)


class StateFiles:
    """The files of one program that ``torch.save(optimizer.state_dict(), path)`` writes."""

    def __init__(self, program: Program, os_names: ModuleNames) -> None:
        self._program = program
        self._os_names = os_names

    def saved(
        self, function: str, stmt: ir.Stmt, state: ir.Expr, switch: str
    ) -> StateFile | None:
        """The edit beside a statement that saves a state to a file of its own; None where none does."""
        call = self._saving(function, stmt)
        if call is None or call.args[0].value is not state:
            return None
        word = self._word(call, function, 1)
        return StateFile(stmt.path, switch, word, None)

    def loaded(
        self, function: str, stmt: ir.Stmt, call: ir.Call, switch: str
    ) -> StateFile | None:
        """The edit beside a statement that loads a state from a file of its own; None where none does."""
        given = self._loading(function, stmt)
        if given is None or stmt.value is not call:
            return None
        word = self._word(given, function, 0)
        known = self._os_names.of_file(ir.file_of(function))
        if known.shadowed:
            message = f"{known.name} is bound to something else here"
            raise refused("AMP035", message, known.shadowed)
        if ir.is_top(function) and known.line > stmt.line:
            message = f"{known.name} is imported only below the line that would need it"
            raise refused("AMP040", message, stmt.line)
        return StateFile(stmt.path, switch, word, f"{known.name}.path.exists")

    def _saving(self, function: str, stmt: ir.Stmt) -> ir.Call | None:
        """The call of a statement ``torch.save(state, path)``."""
        call = stmt.value
        if stmt.kind != "expr" or not isinstance(call, ir.Call):
            return None
        if self._program.origin(call.func, function) != "torch.save":
            return None
        plain = bool(call.args) and not (call.args[0].name or call.args[0].star)
        return call if plain else None

    def _loading(self, function: str, stmt: ir.Stmt) -> ir.Call | None:
        """The inner call of a statement ``something.load_state_dict(torch.load(path))``."""
        call = stmt.value
        if stmt.kind != "expr" or not isinstance(call, ir.Call) or len(call.args) != 1:
            return None
        if not isinstance(call.func, ir.Attr) or call.func.attr != "load_state_dict":
            return None
        given = call.args[0]
        if given.star or given.name or not isinstance(given.value, ir.Call):
            return None
        if self._program.origin(given.value.func, function) != "torch.load":
            return None
        return given.value

    # -- names --------------------------------------------------------------------------------

    def _word(self, call: ir.Call, function: str, position: int) -> str:
        """What takes the optimizer's place in a path; raises `Blocked` where nothing can."""
        reason = self._why_not(call, function, position)
        if reason is not None:
            raise refused(
                "AMP040", f"the optimizer's state has a file: {reason}", call.line
            )
        for word in _WORDS:
            known = re.compile(rf"(?i)(?<![a-z]){word}(?![a-z])", re.ASCII)
            if not any(map(known.search, self._strings)):
                return word
        message = "the names that the scaler's file could have are all in use"
        raise refused("AMP040", message, call.line)

    def _why_not(self, call: ir.Call, function: str, position: int) -> str | None:
        path = call.argument(position, "f")
        if path is None or any(arg.star for arg in call.args):
            return "its path is not written out"
        others = [arg.value for arg in call.args if arg.value is not path][position:]
        if not all(self._is_plain_option(other, function) for other in others):
            return "the call has arguments that cannot be repeated"
        if not self._is_pure(path, function):
            return "its path is more than plain text, names and joins"
        words = _optimizer_words(path)
        if len(words) != 1:
            return "its path does not name the optimizer, once and in its own text"
        if not self._in_file_name(path, function):
            return "the optimizer is named in its folder, not in its own name"
        if any(
            other.casefold() != words[0].casefold() for other in self._words_of_files
        ):
            return "other files name the optimizer otherwise"
        if self._may_meet_files:
            return f"{self._may_meet_files[0]}() would come across the new file"
        return None

    @cached_property
    def _strings(self) -> frozenset[str]:
        """All texts of the program that could be file names, or parts of some."""
        return frozenset(
            expr.value
            for expr in self._all_exprs()
            if isinstance(expr, ir.Const) and isinstance(expr.value, str)
            if not re.search(r"\s", expr.value)
        )

    def _all_exprs(self) -> Iterator[ir.Expr]:
        blocks = [function.body for function in self._program.functions.values()]
        blocks += [found.body for found in self._program.classes.values()]
        for block in blocks:
            for stmt in ir.statements(block):
                for expr in stmt.exprs:
                    yield from ir.walk(expr)

    @cached_property
    def _words_of_files(self) -> frozenset[str]:
        """The words for an optimizer in the paths of all such files: two could become one name."""
        found: set[str] = set()
        for function, stmt, call in self._program.all_calls():
            if call is stmt.value:
                saving = self._saving(function, stmt)
                loading = self._loading(function, stmt)
                path = None
                if saving is not None:
                    if self._is_state(saving.args[0].value, function):
                        path = saving.argument(1, "f")
                elif loading is not None:
                    path = loading.argument(0, "f")
                if path is not None:
                    found |= {word.lower() for word in _optimizer_words(path)}
        return frozenset(found)

    def _is_state(self, expr: ir.Expr, function: str) -> bool:
        """Whether it is a state, or a variable that is given one somewhere."""
        exprs: list[ir.Expr] = [expr]
        if isinstance(expr, ir.Name):
            owner = self._program.owner(expr.id, function)
            found = self._program.definitions(owner, expr.id) if owner else []
            exprs = [one.value for one in found if one.value is not None]
        return any(
            isinstance(inner, ir.Attr) and inner.attr == "state_dict"
            for one in exprs
            for inner in ir.walk(one)
        )

    @cached_property
    def _may_meet_files(self) -> list[str]:
        """What finds files by looking through a folder, or moves them: a new one would be taken for
        another, or be left behind."""
        found = []
        for function, _, call in self._program.all_calls():
            origin = self._program.origin(call.func, function) or ""
            last = (
                call.func.attr
                if isinstance(call.func, ir.Attr)
                else origin.rpartition(".")[2]
            )
            if last in _FOLDERS_READ or origin == "os.walk":
                found.append(ir.render(call.func) or last)
            elif origin in _MOVES or last in ("rename", "replace"):
                if any(_optimizer_words(expr) for expr in (call.func, *_values(call))):
                    found.append(ir.render(call.func) or last)
        return found

    # -- the form of a path -------------------------------------------------------------------

    def _is_pure(self, expr: ir.Expr, function: str) -> bool:
        """Whether an expression can be evaluated once more, with the same result."""
        match expr:
            case ir.Const(value=str(value)):
                return value.isprintable()
            case ir.Const() | ir.Name():
                return True
            case ir.Attr(value=value):
                return self._is_pure(value, function)
            case ir.Item() | ir.Display(kind="tuple"):
                return all(self._is_pure(e, function) for e in ir.children(expr))
            case ir.Operation(op=op, operands=operands):
                pure = all(self._is_pure(e, function) for e in operands)
                return op in _PURE_OPERATORS and pure
            case ir.Call(func=func, args=args):
                known = self._program.origin(func, function) in _PURE_CALLS
                return (
                    (known or _formatted(expr) is not None)
                    and not any(arg.star for arg in args)
                    and all(self._is_pure(arg.value, function) for arg in args)
                )
            case _:
                return False

    def _is_plain_option(self, expr: ir.Expr, function: str) -> bool:
        """``map_location=device``, and what else is given so."""
        match expr:
            case ir.Deferred():
                return True
            case ir.Display(kind="dict"):
                return all(self._is_pure(e, function) for e in ir.children(expr))
            case ir.Call(func=func, args=args):
                if self._program.origin(func, function) == "torch.device":
                    return all(self._is_pure(arg.value, function) for arg in args)
        return self._is_pure(expr, function)

    def _in_file_name(self, expr: ir.Expr, function: str) -> bool:
        """Whether the optimizer is named in a path's last component, as far as can be seen."""
        match expr:
            case ir.Const(value=str(value)):
                return _stays_in_component(_after_word(value))
            case ir.Operation(op="joinedstr" | "+"):
                return self._in_last_of(list(_parts(expr)), function)
            case ir.Operation(op="/", operands=(_, right)):
                return self._in_file_name(right, function)
            case ir.Operation(op="%", operands=(ir.Const(value=str(value)), _)):
                return "%(" not in value and _stays_in_component(_after_word(value))
            case ir.Call(args=args):
                template = _formatted(expr)
                if template is not None:
                    return _in_literal(template) and _stays_in_component(
                        _after_word(template)
                    )
                last = args[-1].value if args else ir.Const(None)
                return self._in_file_name(last, function)
        return False

    def _in_last_of(self, parts: list[ir.Expr], function: str) -> bool:
        """The same of texts that are joined to one."""
        at = next((i for i, part in enumerate(parts) if _optimizer_words(part)), None)
        if at is None or not self._in_file_name(parts[at], function):
            return False
        behind = parts[at + 1 :]
        texts = [part for part in behind if isinstance(part, ir.Const)]
        if not all(_stays_in_component(str(text.value)) for text in texts):
            return False
        # What is put in right behind the word could be the rest of a folder's name and more.
        named = parts[at]
        split = isinstance(named, ir.Const) and _after_word(str(named.value))
        return bool(split) or not behind or isinstance(behind[0], ir.Const)


def _values(call: ir.Call) -> Iterable[ir.Expr]:
    return (arg.value for arg in call.args)


def _optimizer_words(expr: ir.Expr) -> list[str]:
    """The words for an optimizer in all texts of an expression."""
    return [
        word
        for inner in ir.walk(expr)
        if isinstance(inner, ir.Const) and isinstance(inner.value, str)
        for word in OPTIMIZER_WORD.findall(inner.value)
    ]


def _parts(expr: ir.Expr) -> Iterator[ir.Expr]:
    """What an f-string or a sum of texts consists of, in order."""
    if isinstance(expr, ir.Operation) and expr.op in ("joinedstr", "+"):
        for operand in expr.operands:
            yield from _parts(operand)
    else:
        yield expr


def _after_word(text: str) -> str:
    """The rest of a text behind the optimizer; what no file name can hold where it is not named."""
    found = OPTIMIZER_WORD.search(text)
    return "/" if found is None else text[found.end() :]


def _stays_in_component(rest: str) -> bool:
    return "/" not in rest and "\\" not in rest


def _formatted(expr: ir.Expr) -> str | None:
    """The text of ``"...".format(...)``."""
    if isinstance(expr, ir.Call) and isinstance(expr.func, ir.Attr):
        if expr.func.attr == "format" and isinstance(expr.func.value, ir.Const):
            value = expr.func.value.value
            return value if isinstance(value, str) else None
    return None


def _in_literal(template: str) -> bool:
    """Whether the optimizer is named beside the fields of a template, not in one."""
    try:
        literals = [text for text, *_ in string.Formatter().parse(template)]
    except ValueError:
        return False
    return any(map(OPTIMIZER_WORD.search, literals))
