"""Short ways to ask for the sizes of layers in tests."""

from __future__ import annotations

from textwrap import dedent

from amp_migrate.analysis.sizes import Layers, LayerSite, Size
from amp_migrate.program.imports import ImportScan
from amp_migrate.program.layout import Layout
from amp_migrate.program.link import Program
from amp_migrate.program.reader import read_module


def sites(text: str, **others: str) -> list[LayerSite]:
    """The layers in one file of a program; ``others`` are its other files, by module name."""
    texts = {"main": "from torch import nn\n" + dedent(text)}
    texts |= {name: dedent(one) for name, one in others.items()}
    modules = [
        read_module(one, f"/p/{name.replace('.', '/')}.py")
        for name, one in texts.items()
    ]
    program = Program(modules, Layout({m.path: ImportScan() for m in modules}, "/p"))
    return Layers(program).of("/p/main.py")


def told(site: LayerSite) -> list[str]:
    """``in=768 out=50257`` for each instance; ``?8`` for an unknown multiple of 8."""
    return [
        " ".join(
            f"{name}={_told(size)}"
            for name, size in instance.sizes.items()
            if name not in ("kernel", "groups")
        )
        for instance in site.instances
    ]


def _told(size: Size) -> str:
    if size.value is not None:
        return str(size.value)
    return "?" if size.multiple == 1 else f"?{size.multiple}"


def only(text: str, **others: str) -> list[str]:
    """What is told of the only layer in a file."""
    (site,) = sites(text, **others)
    return told(site)


def all_of(text: str, **others: str) -> list[list[str]]:
    """What is told of each layer, in source order."""
    return [told(site) for site in sites(text, **others)]
