"""Dicts whose items are attributes, too: ``parts.optimizer`` for ``parts["optimizer"]``."""

from __future__ import annotations

from amp_migrate.program import ir
from amp_migrate.program.names import Names

_READS, _WRITES = "__getattr__", "__setattr__"
_AS_ITEMS = {
    _READS: ("__getitem__", "get"),
    _WRITES: ("__setitem__",),
    "__delattr__": ("__delitem__",),
}
"""What makes attributes of items, by which methods of a dict."""


def attribute_dicts(names: Names) -> frozenset[str]:
    """The classes that are a dict, with access to its items and nothing else, and no class's base."""
    bases = {
        (ir.key_of(base) or "").rpartition(".")[2]
        for found in names.classes.values()
        for base in found.bases
    }
    return frozenset(
        name
        for name, found in names.classes.items()
        if len(found.bases) == 1
        and names.origin(found.bases[0], found.parent) == "builtins.dict"
        and found.name not in bases
        and not found.decorators
        and {_READS, _WRITES} <= _as_items(names, found)
    )


def _as_items(names: Names, found: ir.Class) -> set[str]:
    """What the body of a class does to attributes as a dict does to items; nothing where there is
    anything else in it."""
    given: set[str] = set()
    for stmt in found.body:
        match stmt:
            case ir.Stmt(
                kind="assign",
                targets=(ir.Name(name),),
                value=ir.Attr(ir.Name("dict"), method),
            ) if method in _AS_ITEMS.get(name, ()):
                given.add(name)
            case ir.Stmt(kind="functiondef", names=(name, qualname, *_)):
                itself = names.functions[qualname]
                if name == "__init__" and _is_own_dict(itself):
                    given |= {_READS, _WRITES}
                elif name in _AS_ITEMS and _is_about_item(itself):
                    given.add(name)
                else:
                    return set()
            case ir.Stmt(kind="pass") | ir.Stmt(kind="expr", value=ir.Const()):
                continue
            case _:
                return set()
    return given


def _is_about_item(method: ir.Function) -> bool:
    """Whether a method does to an item what it is called for an attribute of that name."""
    if len(method.params) < 2:
        return False
    itself, key, *value = (ir.Name(param.name) for param in method.params)
    item = ir.Item(itself, key)
    for stmt in ir.statements(method.body):
        match stmt:
            case ir.Stmt(kind="return", value=ir.Item() as given) if given == item:
                continue
            case ir.Stmt(kind="assign", targets=(target,), value=put):
                if target != item or value != [put]:
                    return False
            case ir.Stmt(kind="delete", targets=targets) if targets == (item,):
                continue
            case ir.Stmt(kind="try" | "raise" | "handler" | "pass"):
                continue
            case _:
                return False
    return True


def _is_own_dict(init: ir.Function) -> bool:
    """``super().__init__(*args, **kwargs); self.__dict__ = self``."""
    match [*ir.statements(init.body)]:
        case [
            ir.Stmt(value=ir.Call(func=ir.Attr(value, "__init__"), args=args)),
            ir.Stmt(kind="assign", targets=(ir.Attr(itself, "__dict__"),), value=given),
        ]:
            is_super = isinstance(value, ir.Call) and value.func == ir.Name("super")
            return (
                is_super and itself == given and {a.star for a in args} == {"*", "**"}
            )
    return False
