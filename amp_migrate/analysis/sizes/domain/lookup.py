"""What names stand for: scopes, imports, other files of the program, builtins and libraries."""

from __future__ import annotations

import builtins

from amp_migrate.analysis.sizes.domain.machine import Machine
from amp_migrate.analysis.sizes.domain.values import (
    Absent,
    Box,
    External,
    Frame,
    Imported,
    Unknown,
    Value,
)
from amp_migrate.program import ir

_BUILTINS = frozenset(dir(builtins))


class Lookup(Machine):
    """Names to values."""

    def name(self, name: str, frame: Frame) -> Value:
        """What a variable holds where a frame mentions it."""
        current: Frame | None = frame
        while current is not None:
            found = current.state.get(name)
            if found is not None and not isinstance(found, Absent):
                if isinstance(found, Imported):
                    asked = (found.name, found.function)
                    library = self._of_libraries.get(asked)
                    if library is not None:
                        return library
                    value = self.imported(ir.Name(found.name), found.function)
                    if isinstance(value, External):
                        self._of_libraries[asked] = value
                    return value
                return found
            current = current.parent
        library = self._of_libraries.get((name, frame.function))
        return self._from_outside(name, frame) if library is None else library

    def _from_outside(self, name: str, frame: Frame) -> Value:
        program = self.program
        owner = program.owner(name, frame.function)
        if owner is not None:
            if ir.is_top(owner) and ir.file_of(owner) != ir.file_of(frame.function):
                home = self.module(ir.file_of(owner))
                if name in home.state:
                    return self.name(name, home)
            return Unknown("unbound")
        if name == "__name__":
            return Unknown("__name__")
        origin = program.origin(ir.Name(name), frame.function)
        found: Value = Unknown("name")
        if origin is not None:
            found = self.external(origin)
        elif name in _BUILTINS:
            found = External(f"builtins.{name}")
        if isinstance(found, External):
            self._of_libraries[name, frame.function] = found
        return found

    def imported(self, expr: ir.Expr, function: str) -> Value:
        """What a dotted name stands for whose first part an import binds."""
        program = self.program
        origin = program.origin(expr, function)
        if origin is not None:
            return self.external(origin)
        there = program.elsewhere(expr, function)
        if there is None:
            return Unknown("import")
        target, top = there
        home = self.module(ir.file_of(top))
        return self._inside(target, home)

    def _inside(self, expr: ir.Expr, home: Frame) -> Value:
        if isinstance(expr, ir.Name):
            found = home.state.get(expr.id)
            if isinstance(found, Imported):
                if ir.Name(found.name) == expr and found.function == home.function:
                    origin = self.program.origin(expr, home.function)
                    return (
                        Unknown("import") if origin is None else self.external(origin)
                    )
                return self.imported(ir.Name(found.name), found.function)
            if found is None or isinstance(found, Absent):
                return Unknown("import")
            return found
        if isinstance(expr, ir.Attr):
            return self.attribute(self._inside(expr.value, home), expr.attr)
        return Unknown("import")

    def external(self, origin: str) -> Value:
        """Something of a library, unless the program puts something else in its place."""
        if self.program.is_local(origin):
            return Unknown("import")
        if origin in self.recorder.replaced:
            return Unknown("replaced")
        return External(origin)

    def dotted(self, expr: ir.Attr, frame: Frame) -> Value | None:
        """``a.b.c`` where ``a`` is bound by an import; None where it is not."""
        root: ir.Expr = expr
        while isinstance(root, ir.Attr):
            root = root.value
        if not isinstance(root, ir.Name):
            return None
        found = self._binding(root.id, frame)
        if not isinstance(found, Imported):
            return None
        if found.name != root.id:
            expr = _renamed(expr, found.name)
        whole = self.imported(expr, found.function)
        if not isinstance(whole, Unknown):
            return whole
        if isinstance(expr.value, ir.Attr):
            outer = self.dotted(expr.value, frame)
        else:
            outer = self.imported(ir.Name(found.name), found.function)
        if outer is None or isinstance(outer, Unknown):
            return whole
        return self.attribute(outer, expr.attr)

    def _binding(self, name: str, frame: Frame) -> Value | None:
        current: Frame | None = frame
        while current is not None:
            found = current.state.get(name)
            if found is not None and not isinstance(found, Absent):
                return found
            current = current.parent
        return None

    def home(self, name: str, frame: Frame) -> Box:
        """The frame whose variable an assignment to a name changes."""
        function = self.program.functions.get(frame.function)
        if function is None or name in frame.state:
            if function is None or name not in function.global_names:
                return frame
        if name in function.global_names:
            return self.module(ir.file_of(frame.function))
        if name in function.nonlocal_names:
            current = frame.parent
            while current is not None:
                if name in current.state:
                    return current
                current = current.parent
        return frame


def _renamed(expr: ir.Attr, name: str) -> ir.Attr:
    inner = expr.value
    root = _renamed(inner, name) if isinstance(inner, ir.Attr) else ir.Name(name)
    return ir.Attr(root, expr.attr)
