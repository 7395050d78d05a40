"""Scopes and imports: where a name lives, what gives it a value, and which file it comes from."""

from __future__ import annotations

import builtins
import posixpath
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from functools import cached_property

from amp_migrate.core.effort import spend
from amp_migrate.core.records import quickly_made
from amp_migrate.program import ir
from amp_migrate.program.bindings import IMPORTS, bindings, unpacked
from amp_migrate.program.layout import Ambiguous, Layout, Located

_MOST_REEXPORTS = 50
"""Imports of imports that are followed."""
_BUILTINS = frozenset(dir(builtins))
_LOCAL = "."
"""What the dotted origin of a value from this project begins with, where it is not followed."""
UNCLEAR = f"{_LOCAL}?."
"""The same, where several imports may be meant."""


@quickly_made
@dataclass(frozen=True, slots=True)
class Definition:
    """One place where a variable or attribute gets a value."""

    function: str
    stmt: ir.Stmt
    value: ir.Expr | None
    """None where the value is not an expression of its own (a loop target, ``with ... as``)."""
    index: int | None = None
    """Position in an unpacked value."""
    call: ir.Call | None = None
    """The call of a dataclass that the value is an argument of; None where it is assigned."""


class Names:
    """What the names in some files mean, where imports lead from one to another."""

    def __init__(
        self, modules: Iterable[ir.ModuleFacts], layout: Layout | None = None
    ) -> None:
        """``layout`` tells which of the files an import means; without it each stands alone."""
        self.modules = {facts.path: facts for facts in modules}
        self.layout = layout
        self._imported: dict[
            tuple[str, ir.Expr | str], str | tuple[ir.Expr, str] | None
        ] = {}
        self._located: dict[tuple[str, str], Located | Ambiguous | None] = {}
        self._targets: dict[str, dict[str, set[str]]] = {}
        self._importers: dict[str, frozenset[str]] = {}
        self._starred: dict[str, tuple[str, ...]] = {}
        self._arounds: dict[frozenset[str], frozenset[str]] = {}
        self._statements: dict[str, tuple[ir.Stmt, ...]] = {}
        self.functions: dict[str, ir.Function] = {}
        self.classes: dict[str, ir.Class] = {}
        for facts in self.modules.values():
            self.functions |= facts.functions
            self.classes |= facts.classes

    def statements(self, function: str) -> Iterator[ir.Stmt]:
        """Every statement of a function, in source order."""
        found = self._statements.get(function)
        if found is None:
            body = self.functions[function].body
            found = self._statements[function] = tuple(ir.statements(body))
        spend(len(found))
        return iter(found)

    # -- scopes -------------------------------------------------------------------------------

    def owner(self, name: str, function: str) -> str | None:
        """The function in whose scope ``name`` lives when ``function`` mentions it."""
        current: str | None = function
        while current is not None:
            scope = self.functions[current]
            if name in scope.global_names:
                return ir.top_of(current)
            if name in scope.bound:
                return current
            current = scope.parent
        if self.modules[ir.file_of(function)].star_imports:
            for file in self._star_homes(name, function):
                return self.modules[file].top.qualname
        return None

    def is_param(self, function: str, name: str) -> bool:
        """Whether a function is given what it calls by a name."""
        return any(param.name == name for param in self.functions[function].params)

    def param(self, function: str, name: str) -> ir.Param | None:
        """What a function is given by a name."""
        params = self.functions[function].params
        return next((param for param in params if param.name == name), None)

    def encloses(self, outer: str, function: str) -> bool:
        """Whether a function is another one or lies inside it."""
        current: str | None = function
        while current is not None:
            if current == outer:
                return True
            current = self.functions[current].parent
        return False

    # -- definitions --------------------------------------------------------------------------

    def definitions(self, owner: str, name: str) -> list[Definition]:
        """Every statement that gives ``name``, a variable of ``owner``, a value.

        Of an imported variable, those in the file that it comes from.
        """
        owner, name = self.home(owner, name)
        own = self._definitions.get((owner, name), [])
        return own + self.set_from_outside.get((owner, name), [])

    def defined(self, name: str, function: str) -> list[Definition]:
        """Every statement that gives a value to the variable that a function means by a name."""
        owner = self.owner(name, function)
        return [] if owner is None else self.definitions(owner, name)

    def set_to(self, expr: ir.Expr | None, function: str) -> list[Definition]:
        """The same of a variable that an expression names; nothing of a parameter, which callers set."""
        if isinstance(expr, ir.Name):
            owner = self.owner(expr.id, function)
            if owner is not None and not self.is_param(owner, expr.id):
                return self.definitions(owner, expr.id)
        return []

    def home(self, owner: str, name: str) -> tuple[str, str]:
        """The scope and the name under which an imported variable is given its value."""
        there = self.elsewhere(ir.Name(name), owner)
        if there is not None and isinstance(there[0], ir.Name):
            return there[1], there[0].id
        return owner, name

    def bindings(self, owner: str, name: str) -> list[Definition]:
        """Every statement that binds ``name`` in the scope of ``owner`` itself, imports included."""
        return self._definitions.get((owner, name), [])

    @cached_property
    def _definitions(self) -> dict[tuple[str, str], list[Definition]]:
        found: dict[tuple[str, str], list[Definition]] = defaultdict(list)
        for qualname in self.functions:
            for stmt in self.statements(qualname):
                for name, value, index in bindings(stmt):
                    owner = self.owner(name, qualname)
                    if owner is not None:
                        found[owner, name].append(
                            Definition(qualname, stmt, value, index)
                        )
        return found

    @cached_property
    def set_from_outside(self) -> dict[tuple[str, str], list[Definition]]:
        """``settings.optimizer = ...`` sets a variable of the file ``settings``."""
        found: dict[tuple[str, str], list[Definition]] = defaultdict(list)
        for qualname in self.functions:
            for stmt in self.statements(qualname):
                for target, value, index in unpacked(stmt):
                    if not isinstance(target, ir.Attr):
                        continue
                    there = self.elsewhere(target, qualname)
                    if there is not None and isinstance(there[0], ir.Name):
                        definition = Definition(qualname, stmt, value, index)
                        found[there[1], there[0].id].append(definition)
        return found

    # -- imports ------------------------------------------------------------------------------

    def origin(self, expr: ir.Expr, function: str) -> str | None:
        """``torch.optim.Adam`` for ``optim.Adam``, where the root is an import and nothing else.

        None for what is found in one of these files. What lies in a file of the project that is not
        among them, or cannot be told from another, begins with a dot.
        """
        found = self._import(expr, function)
        if not isinstance(found, str):
            return None
        if found.startswith(UNCLEAR) and self.alternatives(expr, function):
            return None
        return found

    def elsewhere(self, expr: ir.Expr, function: str) -> tuple[ir.Expr, str] | None:
        """What an import stands for in the other file that it leads to: (expression, top level)."""
        found = self._import(expr, function)
        return found if isinstance(found, tuple) else None

    def imported_from(self, expr: ir.Expr, function: str) -> tuple[ir.Expr, str] | None:
        """What an import stands for in the file that it names, which may import it in its turn."""
        dotted = None if self.layout is None else self._dotted(expr, function)
        if dotted is None:
            return None
        located = self._locate(ir.file_of(function), dotted)
        return None if located is None else self._in_file(located)

    def targets(self, name: str, function: str) -> Iterator[tuple[str, ir.Expr | None]]:
        """What each of a function's imports of one name leads to: a file, and an expression in it, or
        None for the file itself. What a package does not hold is out of sight: compiled, say.
        """
        file = ir.file_of(function)
        for local, target in self.functions[function].imports:
            if local != name or self.layout is None:
                continue
            located = self._locate(file, target)
            if isinstance(located, Located) and located.file in self.modules:
                there = self._in_file(located)
                if there is not None or not located.rest:
                    yield located.file, None if there is None else there[0]

    def file_named(self, module: str, function: str) -> tuple[str, ...]:
        """The file that a module is, as a function's file would import it."""
        layout = self.layout
        found = layout and layout.locate(ir.file_of(function), module)
        if not isinstance(found, Located) or found.rest:
            return ()
        return (found.file,) if found.file in self.modules else ()

    def alternatives(self, expr: ir.Expr, function: str) -> list[tuple[ir.Expr, str]]:
        """What a name stands for that imports in several branches bind, and nothing else does: each an
        expression, and the top level of its file. Nothing where one of them is out of sight.
        """
        unclear = self._import(expr, function)
        if not (isinstance(unclear, str) and unclear.startswith(UNCLEAR)):
            return []
        owner = self.owner(expr.id, function) if isinstance(expr, ir.Name) else None
        if owner is None or not isinstance(expr, ir.Name):
            return []  # part of one of them
        written = [one for one, _ in self.functions[owner].imports if one == expr.id]
        found = [
            (there, ir.top_of(ir.global_name(file, "")))
            for file, there in self.targets(expr.id, owner)
            if there is not None
        ]
        return found if len(found) == len(written) else []

    @staticmethod
    def is_local(origin: str) -> bool:
        """Whether a dotted origin lies in the project, in a file that is not followed."""
        return origin.startswith(_LOCAL)

    def imports(self, file: str) -> frozenset[str]:
        """The files among these that one of them imports."""
        facts = self.modules[file]
        targets = {
            target for found in facts.functions.values() for _, target in found.imports
        }
        targets |= {*facts.star_imports, *facts.plain_imports, *facts.named_imports}
        if self.layout is None:
            return frozenset()
        targets |= self.layout.imported_by_configuration(targets)
        return frozenset(
            found
            for target in targets
            for found in self.layout.meant(file, target)
            if found in self.modules
        )

    def around(self, files: Iterable[str]) -> frozenset[str]:
        """The files that can take part where one of these runs: what imports it, and all they import."""
        key = frozenset(files)
        if key not in self._arounds:
            importers = frozenset().union(*map(self._importers_of, key))
            # Many are imported by the same.
            if importers not in self._arounds:
                self._arounds[importers] = _closed(importers, self._imports)
            self._arounds[key] = self._arounds[importers]
        return self._arounds[key]

    def importing(self, files: Iterable[str]) -> frozenset[str]:
        """Some files with all that they import, directly or through others."""
        return _closed(files, self._imports)

    def may_run_together(self, file: str, other: str) -> bool:
        """Whether one run of a script may execute code of both files: one imports the other, or some
        file imports both."""
        one, two = self._importers_of(file), self._importers_of(other)
        return not (
            one.isdisjoint(two)
            and one.isdisjoint(self.imported_by_name)
            and two.isdisjoint(self.imported_by_name)
        )

    def is_imported(self, file: str) -> bool:
        """Whether another file imports it; if not, it is a script, or for whom is not known."""
        return len(self._importers_of(file)) > 1

    def scripts_of(self, files: Iterable[str], among: frozenset[str]) -> frozenset[str]:
        """Those whose run as a script may execute code of some files."""
        found = [self._importers_of(file) for file in files]
        if all(one.isdisjoint(self.imported_by_name) for one in found):
            return among.intersection(frozenset().union(*found))
        return among

    def _importers_of(self, file: str) -> frozenset[str]:
        if file not in self._importers:
            self._importers[file] = _closed((file,), self._imported_by)
        return self._importers[file]

    def is_library(self, key: str) -> bool:
        """Whether a function or class is public in a package that other projects may import."""
        names = ir.local_name(key).removesuffix(".__init__").split(".")
        if self.layout is None or any(name.startswith("_") for name in names):
            return False
        return self.layout.is_library(ir.file_of(key))

    def is_public(self, key: str) -> bool:
        """Whether callers out of sight are to be expected: in such a package, or where a function or
        class is exported by another package of the project, or the README shows a call of it.
        """
        names = ir.local_name(key).removesuffix(".__init__").split(".")
        if self.layout is None or any(name.startswith("_") for name in names):
            return False
        return (
            self.is_library(key)
            or names[0] in self._exported[ir.file_of(key)]
            or not self.layout.documented.isdisjoint((names[0], names[-1]))
        )

    @cached_property
    def _exported(self) -> dict[str, set[str]]:
        """What ``__all__`` lists of each file, and what the packages around it hand on."""
        found: dict[str, set[str]] = defaultdict(set)
        for file, facts in self.modules.items():
            top = facts.top.qualname
            names: list[str] = []
            if posixpath.basename(file) == "__init__.py":
                names += (local for local, _ in facts.top.imports)
                for module in facts.star_imports:
                    located = self.layout and self.layout.locate(file, module)
                    if isinstance(located, Located) and located.file in self.modules:
                        names += self.modules[located.file].top.bound
            for listed in self._definitions.get((top, "__all__"), ()):
                for inner in () if listed.value is None else ir.walk(listed.value):
                    if isinstance(inner, ir.Const) and isinstance(inner.value, str):
                        names.append(inner.value)
            for name in names:
                owner = self.owner(name, top) or top
                expr, home = self.elsewhere(ir.Name(name), owner) or (
                    ir.Name(name),
                    owner,
                )
                if isinstance(expr, ir.Name):
                    found[ir.file_of(home)].add(expr.id)
        return found

    @cached_property
    def strings(self) -> frozenset[str]:
        """String constants of all files that could be names."""
        return frozenset().union(*(facts.strings for facts in self.modules.values()))

    @cached_property
    def imported_by_name(self) -> frozenset[str]:
        """The files that `importlib.import_module` is asked for: who calls what in them is not seen."""
        layout = self.layout
        return frozenset(
            found
            for file, facts in self.modules.items()
            for dotted in facts.named_imports
            for found in (() if layout is None else layout.meant(file, dotted))
        )

    @cached_property
    def _imports(self) -> dict[str, frozenset[str]]:
        return {file: self.imports(file) for file in self.modules}

    @cached_property
    def _imported_by(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = defaultdict(set)
        for file, others in self._imports.items():
            for other in others:
                found[other].add(file)
        return found

    def import_roots(self, function: str) -> frozenset[str]:
        """Top-level names of everything that a function's file imports, in whatever scope."""
        return self._import_roots[ir.file_of(function)]

    @cached_property
    def _import_roots(self) -> dict[str, frozenset[str]]:
        roots = {
            file: {
                target.split(".")[0]
                for found in facts.functions.values()
                for _, target in found.imports
            }
            | {module.split(".")[0] for module in facts.star_imports}
            for file, facts in self.modules.items()
        }
        starred = [
            (file, located.file)
            for file, facts in self.modules.items()
            for module in facts.star_imports
            if isinstance(
                located := self.layout and self.layout.locate(file, module), Located
            )
            and located.file in roots
        ]
        for _ in starred:
            if all(roots[other] <= roots[file] for file, other in starred):
                break
            for file, other in starred:
                roots[file] |= roots[other]
        return {file: frozenset(found) for file, found in roots.items()}

    def _import(self, expr: ir.Expr, function: str) -> str | tuple[ir.Expr, str] | None:
        """A dotted origin, or the place in another of these files; re-exports are followed."""
        # What a name is called is told apart faster than names are, which are asked for most.
        if isinstance(expr, ir.Name):
            asked: tuple[str, str | ir.Attr] = (function, expr.id)
        elif isinstance(expr, ir.Attr):
            asked = (function, expr)
        else:
            return None
        try:
            return self._imported[asked]
        except KeyError:
            pass
        found: str | tuple[ir.Expr, str] | None = None
        parts = ir.dotted(expr)
        if parts is not None:
            owner = self.owner(parts[0], function) or ir.top_of(function)
            if owner == function or ir.file_of(owner) != ir.file_of(function):
                found = self._follow_import(expr, function)
            else:
                # What it means in the scope that it is a name of, which many functions share.
                found = self._import(expr, owner)
        self._imported[asked] = found
        return found

    def _follow_import(
        self, expr: ir.Expr, function: str
    ) -> str | tuple[ir.Expr, str] | None:
        here = current = (expr, function)
        # What leads back to itself may grow a name longer each time, and so never be the same.
        for _ in range(_MOST_REEXPORTS):
            dotted = self._dotted(*current)
            if dotted is None:
                return None if current == here else current
            if self.layout is None:
                return dotted
            if dotted.startswith(UNCLEAR):
                return dotted
            # `import *` brings names that another file imports, as seen from there.
            head = ir.dotted(current[0]) or ("",)
            importer = self.owner(head[0], current[1]) or current[1]
            located = self._locate(ir.file_of(importer), dotted)
            if located is None:
                return dotted
            there = self._in_file(located)
            if there is None:
                return dotted if dotted.startswith(_LOCAL) else _LOCAL + dotted
            current = there
        return None

    def _locate(self, importer: str, dotted: str) -> Located | Ambiguous | None:
        """What ``layout`` says, but a package's own variable comes before its module of that name."""
        asked = (importer, dotted)
        if asked not in self._located:
            self._located[asked] = self._find(importer, dotted)
        return self._located[asked]

    def _find(self, importer: str, dotted: str) -> Located | Ambiguous | None:
        assert self.layout is not None
        found = self.layout.locate(importer, dotted)
        if not isinstance(found, Located):
            return found
        package, module = posixpath.split(found.file)
        init = posixpath.join(package, "__init__.py")
        facts = self.modules.get(init)
        name = module.removesuffix(".py")
        if (
            facts is None
            or init in (importer, found.file)
            or name not in facts.top.bound
        ):
            return found
        targets = {target for local, target in facts.top.imports if local == name}
        known = [self.layout.locate(init, target) for target in targets]
        # `from .fit import fit`, and somebody else's `from package.fit import fit`.
        if all(
            isinstance(one, Located)
            and one.file == found.file
            and (not one.rest or found.rest)
            for one in known
        ):
            return found
        return Located(init, (name, *found.rest))

    def module_file(self, expr: ir.Expr, function: str) -> str | None:
        """The file of these that an expression stands for, which is imported as a module."""
        dotted = self._dotted(expr, function)
        if dotted is None or self.layout is None:
            return None
        located = self._locate(ir.file_of(function), dotted)
        if not isinstance(located, Located) or located.rest:
            return None
        return located.file if located.file in self.modules else None

    def _in_file(self, located: Located | Ambiguous) -> tuple[ir.Expr, str] | None:
        if not isinstance(located, Located) or not located.rest:
            return None
        facts = self.modules.get(located.file)
        if facts is None:
            return None
        # Not the file's own top level where it is `import *` that brings the name.
        owner = self.owner(located.rest[0], facts.top.qualname)
        if owner is None:
            return None
        expr: ir.Expr = ir.Name(located.rest[0])
        for attr in located.rest[1:]:
            expr = ir.Attr(expr, attr)
        return expr, owner

    def _star_homes(self, name: str, function: str) -> Iterator[str]:
        """The files in which a name that ``import *`` brings to a function's file is bound."""
        if not name.startswith("_"):
            for file in self._behind_stars(ir.file_of(function)):
                if self._exports(self.modules[file], name):
                    yield file

    def _behind_stars(self, file: str) -> tuple[str, ...]:
        """The files that ``import *`` leads to from a file, the nearest first."""
        if file not in self._starred:
            found, pending = dict.fromkeys((file,)), [file]
            for one in pending:
                for module in self.modules[one].star_imports:
                    located = self.layout and self.layout.locate(one, module)
                    if isinstance(located, Located) and not located.rest:
                        if located.file in self.modules and located.file not in found:
                            found[located.file] = None
                            pending.append(located.file)
            self._starred[file] = tuple(found)[1:]
        return self._starred[file]

    def _exports(self, facts: ir.ModuleFacts, name: str) -> bool:
        """Whether ``import *`` from a file brings one of the file's own names."""
        if name not in facts.top.bound:
            return False
        listed = self._definitions.get((facts.top.qualname, "__all__"))
        return listed is None or any(
            ir.Const(name) in ir.walk(d.value) for d in listed if d.value is not None
        )

    def _dotted(self, expr: ir.Expr, function: str) -> str | None:
        """The dotted name of what an import, or a builtin, stands for, as the file writes it."""
        parts = ir.dotted(expr)
        if parts is None:
            return None
        owner = self.owner(parts[0], function)
        if owner is None:
            if parts[0] in _BUILTINS:
                return ".".join(("builtins", *parts))
            for module in self._foreign_stars(function):
                return _joined(module, parts)
            return None
        targets = self._imports_in(owner).get(parts[0])
        if not targets:
            return None
        others = self._definitions.get((owner, parts[0]), ())
        others = [d for d in others if d.stmt.kind not in IMPORTS]
        if others and not self._is_of_module(parts, targets, others, function):
            return None
        if len(targets) > 1 and any(self._is_ours(t, function) for t in targets):
            return UNCLEAR + ".".join(parts)
        # `try: import a as x / except ImportError: import b as x`: the last one named is the usual.
        target = sorted(targets)[0] if len(targets) > 1 else next(iter(targets))
        return ".".join((target, *parts[1:]))

    def _is_of_module(
        self,
        parts: tuple[str, ...],
        targets: set[str],
        others: list[Definition],
        function: str,
    ) -> bool:
        """Whether ``net.Net`` is what the module holds, where ``net = net.Net()`` is all that binds its name
        anew: nothing in sight has an attribute of that name.
        """
        if len(parts) < 2 or len(targets) > 1 or self.layout is None:
            return False
        module = self._locate(ir.file_of(function), next(iter(targets)))
        if not isinstance(module, Located) or module.rest:
            return False
        facts = self.modules.get(module.file)
        return (
            facts is not None
            and parts[1] in facts.top.bound
            and parts[1] not in self._attribute_names
            and all(
                isinstance(d.value, ir.Call)
                and d.index is None
                and (ir.dotted(d.value.func) or ())[:2] == parts[:2]
                for d in others
            )
        )

    @cached_property
    def _attribute_names(self) -> frozenset[str]:
        """What attributes and methods of the classes here, and of their objects, may be called: what is a
        tensor's has another name mostly, and nobody need ask whose it is."""
        found = {*self._written_targets}
        for facts in self.classes.values():
            found.update(name for name, _ in facts.methods)
            found.update(self.annotated(facts.qualname))
            for stmt in facts.body:
                found.update(t.id for t in stmt.targets if isinstance(t, ir.Name))
        for module in self.modules.values():
            if "locals" in module.identifiers:
                # `self.__dict__.update(locals())`
                for function in module.functions.values():
                    found |= function.bound
        return frozenset(found)

    @cached_property
    def _written_targets(self) -> dict[str, list[tuple[ir.Expr, Definition]]]:
        """By attribute: what it is set on by a statement that names it."""
        found: dict[str, list[tuple[ir.Expr, Definition]]] = defaultdict(list)
        for qualname in self.functions:
            for stmt in self.statements(qualname):
                for target, value, index in unpacked(stmt):
                    if isinstance(target, ir.Attr) and stmt.kind != "delete":
                        definition = Definition(qualname, stmt, value, index)
                        found[target.attr].append((target.value, definition))
        return found

    def annotated(self, class_name: str) -> tuple[str, ...]:
        """The names that the body of a class annotates, in order."""
        return tuple(
            target.id
            for stmt in self.classes[class_name].body
            if stmt.kind == "annassign"
            for target in (*stmt.targets, *stmt.exprs)[:1]
            if isinstance(target, ir.Name)
        )

    def _imports_in(self, function: str) -> dict[str, set[str]]:
        """What the imports in a scope itself bind each of their names to."""
        if function not in self._targets:
            found: dict[str, set[str]] = {}
            for local, target in self.functions[function].imports:
                found.setdefault(local, set()).add(target)
            self._targets[function] = found
        return self._targets[function]

    def _is_ours(self, dotted: str, function: str) -> bool:
        """Whether an import leads to a file of the project, read or not."""
        return self.layout is not None and (
            self.layout.locate(ir.file_of(function), dotted) is not None
        )

    def _foreign_stars(self, function: str) -> Iterator[str]:
        file = ir.file_of(function)
        for module in self.modules[file].star_imports:
            located = self.layout and self.layout.locate(file, module)
            if not isinstance(located, Located) or located.file not in self.modules:
                yield module


def _joined(module: str, parts: tuple[str, ...]) -> str:
    """``module`` may be only dots."""
    name = ".".join(parts)
    return f"{module}{name}" if module.endswith(".") else f"{module}.{name}"


def _closed(files: Iterable[str], steps: Mapping[str, Set[str]]) -> frozenset[str]:
    """Some files with all that can be reached from them."""
    found = set(files)
    pending = list(found)
    while pending:
        fresh = steps.get(pending.pop(), frozenset()) - found
        found |= fresh
        pending += fresh
    return frozenset(found)
