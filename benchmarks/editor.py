"""How long an editor waits: from a change in a file of 500 lines to its findings, in a program of 50 files.

``python benchmarks/editor.py [--files 50] [--lines 500] [--edits 40]`` writes such a program into a temporary
folder, starts ``amp-migrate server`` as an editor does, types in the training script, and prints the median
and the 95th percentile of the time from the change to the diagnostics of lint, debouncing included. After
each edit it pauses, so that the server also plans the migration, which is in the way of the next edit where
it is still at work. The CPU time is that of the same analysis in this process, which is less a matter of
what else the machine does. The peer is `ast.parse` of all files of the program, between the edits.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lsprotocol import types
from pygls.lsp.client import LanguageClient

from amp_migrate.core.garbage import collect_seldom
from amp_migrate.run import config
from amp_migrate.server.analysis import look
from amp_migrate.server.requests import Project

MODEL = '''\
"""Model {n}."""

from __future__ import annotations

import torch
from torch import nn

from .{below} import {base}


class Block{n}(nn.Module):
    """A residual block."""

    def __init__(self, width: int, expansion: int = 4, dropout: float = 0.1) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, expansion * width)
        self.act = nn.GELU()
        self.down = nn.Linear(expansion * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.act(self.up(self.norm(x)))
        return x + self.drop(self.down(hidden))


class Attention{n}(nn.Module):
    """Attention over a sequence."""

    def __init__(self, width: int, heads: int = 8) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e4)
        mixed = scores.softmax(dim=-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Net{n}(nn.Module):
    """A network of its own."""

    def __init__(self, width: int = {width}, depth: int = 4, classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, kernel_size=16, stride=16)
        self.mix = nn.ModuleList(Attention{n}(width) for _ in range(depth))
        self.blocks = nn.ModuleList(Block{n}(width) for _ in range(depth))
        self.shared = {base}(width)
        self.head = nn.Linear(width, classes)

    def features(self, images: torch.Tensor) -> torch.Tensor:
        x = self.stem(images).flatten(2).transpose(1, 2)
        for mix, block in zip(self.mix, self.blocks):
            x = block(x + mix(x))
        return x

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.features(images)
        return self.head(self.shared(x).mean(dim=1))


def build(name: str, classes: int = 1000) -> nn.Module:
    sizes = {{"small": 256, "base": 512, "large": {width}}}
    if name not in sizes:
        raise ValueError(f"no model called {{name}}")
    return Net{n}(width=sizes[name], classes=classes)
'''

COMMON = '''\
"""What all models share."""

from __future__ import annotations

import torch
from torch import nn


class Scale(nn.Module):
    """One factor a channel."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor
'''

HEAD = '''\
"""Trains one of the models."""

from __future__ import annotations

import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

{imports}

MODELS = {{{table}}}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="model_1")
    parser.add_argument("--size", default="base")
    parser.add_argument("--classes", type=int, default=1001)
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--lr", type=float, default=3e-4)
    return parser.parse_args()


def loaders(args: argparse.Namespace) -> DataLoader:
    images = torch.randn(512, 3, 224, 224)
    labels = torch.randint(0, args.classes, (512,))
    return DataLoader(TensorDataset(images, labels), batch_size=args.batch_size, shuffle=True)


def train(model: nn.Module, loader: DataLoader, optimizer, device: torch.device) -> float:
    criterion = nn.CrossEntropyLoss()
    total = 0.0
    model.train()
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = criterion(model(images), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total += loss.item()
    return total / len(loader)

'''

METER = '''
class Meter{n}:
    """Keeps the mean of something."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.values: list[float] = []

    def add(self, value: torch.Tensor | float) -> None:
        self.values.append(float(value))

    def mean(self, last: int = {n}) -> float:
        chosen = self.values[-last:]
        return sum(chosen) / max(len(chosen), 1)

'''

MAIN = """
def main() -> None:
    args = parse()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = MODELS[args.model](args.size, args.classes).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    loader = loaders(args)
    meter = Meter1("loss")
    for epoch in range(args.epochs):
        start = time.time()
        meter.add(train(model, loader, optimizer, device))
        print(epoch, meter.mean(), time.time() - start)
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, f"checkpoint_{epoch}.pt")


if __name__ == "__main__":
    main()
"""


def write_program(folder: Path, files: int, lines: int) -> Path:
    """A training script of so many lines, and the modules that it imports; the script."""
    models = folder / "models"
    models.mkdir(parents=True)
    (folder / "pyproject.toml").write_text("[tool.amp-migrate]\n")
    (models / "__init__.py").write_text("")
    (models / "common.py").write_text(COMMON)
    numbers = range(1, files - 2)
    for n in numbers:
        below, base = (
            ("common", "Scale") if n < 3 else (f"model_{n // 2}", f"Block{n // 2}")
        )
        text = MODEL.format(n=n, below=below, base=base, width=768 + 8 * n)
        (models / f"model_{n}.py").write_text(text)
    imports = "\n".join(
        f"from models.model_{n} import build as build_{n}" for n in numbers
    )
    table = ", ".join(f'"model_{n}": build_{n}' for n in numbers)
    text = HEAD.format(imports=imports, table=table)
    meters = 0
    while text.count("\n") + MAIN.count("\n") < lines or not meters:
        meters += 1
        text += METER.format(n=meters)
    script = folder / "train.py"
    script.write_text(text + MAIN)
    return script


class Client:
    """An editor with one open file."""

    def __init__(self) -> None:
        self.connection = LanguageClient("benchmark", "1")
        self.shown: asyncio.Queue[int | None] = asyncio.Queue()

        @self.connection.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def published(params: types.PublishDiagnosticsParams) -> None:
            self.shown.put_nowait(params.version)

    async def start(self, script: Path) -> float:
        """Open the file; the seconds until its first findings, from the start of the server."""
        start = time.perf_counter()
        command = (sys.executable, "-m", "amp_migrate", "server")
        await self.connection.start_io(*command)
        folder = script.parent.as_uri()
        options = {"lint": {"severity": "info"}}
        capabilities = types.ClientCapabilities()
        await self.connection.initialize_async(
            types.InitializeParams(
                capabilities=capabilities,
                root_uri=folder,
                initialization_options=options,
            )
        )
        self.connection.initialized(types.InitializedParams())
        document = types.TextDocumentItem(
            script.as_uri(), "python", 1, script.read_text()
        )
        self.connection.text_document_did_open(
            types.DidOpenTextDocumentParams(document)
        )
        await self.until(1)
        return time.perf_counter() - start

    async def until(self, version: int) -> None:
        """Wait for the diagnostics of a version."""
        while await self.shown.get() != version:
            pass

    async def edit(self, script: Path, version: int, text: str) -> float:
        """The seconds from a change to its diagnostics."""
        start = time.perf_counter()
        self.connection.text_document_did_change(
            types.DidChangeTextDocumentParams(
                types.VersionedTextDocumentIdentifier(
                    version=version, uri=script.as_uri()
                ),
                [types.TextDocumentContentChangeWholeDocument(text)],
            )
        )
        await self.until(version)
        return time.perf_counter() - start

    async def stop(self) -> None:
        """End the session."""
        await self.connection.shutdown_async(None)
        self.connection.exit(None)
        await self.connection.stop()


def cpu_seconds(work: Callable[[], object]) -> float:
    """The CPU time of something."""
    start = time.process_time()
    work()
    return time.process_time() - start


def analyse(script: Path, text: str, *, fresh: bool) -> None:
    """What the server asks of its process."""
    settings = config.load([str(script)])
    look(Project(settings, {str(script): text}, fresh))


async def measure(script: Path, edits: int, pause: float) -> None:
    """Type, and print what it took."""
    texts = [file.read_text() for file in script.parent.rglob("*.py")]
    client = Client()
    first = await client.start(script)
    text = script.read_text()
    analyse(script, text, fresh=True)
    waits, own, peers = [], [], []
    for number in range(edits):
        await asyncio.sleep(pause)
        # A statement more in main(), which grows by a character an edit.
        body = f"    args = parse()\n    name = {'x' * (number + 1)!r}\n"
        edited = text.replace("    args = parse()\n", body)
        waits.append(await client.edit(script, number + 2, edited))
        own.append(cpu_seconds(partial(analyse, script, edited, fresh=False)))
        peers.append(cpu_seconds(lambda: [ast.parse(one) for one in texts]))
    await client.stop()
    lines = sum(one.count("\n") for one in texts)
    percentiles = statistics.quantiles(waits, n=20)
    p50, p95 = percentiles[9], percentiles[18]
    cpu, peer = statistics.median(own), statistics.median(peers)
    print(f"Python {platform.python_version()}, {platform.machine()}")
    print("| files | lines | start | p50 | p95 | CPU | ast.parse | CPU to ast.parse |")
    print("|---|---|---|---|---|---|---|---|")
    cells = [len(texts), lines, f"{first:.1f} s"]
    cells += [f"{1000 * one:.0f} ms" for one in (p50, p95, cpu, peer)]
    print(f"| {' | '.join(map(str, cells))} | {cpu / peer:.1f} |")


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=50)
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--edits", type=int, default=40)
    parser.add_argument("--pause", type=float, default=1.0, help="seconds")
    given = parser.parse_args()
    collect_seldom()
    with tempfile.TemporaryDirectory() as folder:
        script = write_program(Path(folder), given.files, given.lines)
        asyncio.run(measure(script, given.edits, given.pause))


if __name__ == "__main__":
    main()
