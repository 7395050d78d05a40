"""Short training scripts around an operation that half precision does not suit, run for real.

A table of cases is one text. A case has a name, what stands before the loop, the lines that make the
loss, and lines to look for. These words stand for lines that many scripts share:

- ``LINEAR``: one layer; ``SEQ``: layers in a row, the last a sigmoid;
- ``JUDGE``: a class of such layers, behind others;
- ``NET``: a module of one's own, with the body of its ``forward`` indented behind it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from exactness import MOVING_SCALES, check_mixed, check_off, check_scaled

_HEAD = """\
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = [(torch.randn(8, 6), torch.randint(0, 2, (8, 1)).float()) for _ in range(6)]
"""
_LOOP = """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    LOSS
    loss.backward()
    optimizer.step()
print(loss.item())
"""
_WORDS = {
    "LINEAR": "model = nn.Linear(6, 1).to(device)\n",
    "SEQ": "model = nn.Sequential(\n"
    "    nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid()\n"
    ").to(device)\n",
    "JUDGE": "class Judge(nn.Sequential):\n"
    "    def __init__(self, size):\n"
    "        last = nn.Sequential(nn.Linear(4, 1), nn.Sigmoid())\n"
    "        super().__init__(nn.Linear(size, 4), nn.ReLU(), last)\n",
    "BCE": "criterion = nn.BCELoss()\n",
}
_NET = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 8)
        self.fc2 = nn.Linear(8, 1)
        self.bn = nn.BatchNorm1d(8)
        self.sigmoid = nn.Sigmoid()
        self.main = nn.Sequential(
            nn.Linear(6, 8), nn.LeakyReLU(), nn.Linear(8, 1), nn.Sigmoid()
        )
        self.scale = nn.Parameter(torch.ones(1))
        self.register_buffer("memory", torch.zeros(8, 8))
    def features(self, x):
        return F.relu(self.bn(self.fc1(x)))
    def forward(self, x):
        BODY
model = Net().to(device)
"""


@dataclass(frozen=True)
class Case:
    source: str
    lines: tuple[str, ...]
    """Of a refusal: how the line begins that is in the way. Of a migration: lines of the output; an
    indented one stands right under the head of an island."""


def cases(text: str) -> dict[str, Case]:
    """A table, by name."""
    found = {}
    for part in re.split(r"(?m)^=== ", text)[1:]:
        name, _, rest = part.partition("\n")
        setup, loss, lines = re.split(r"(?m)^---\n?", rest)
        body = _LOOP.replace("LOSS", loss.rstrip("\n").replace("\n", "\n    "))
        wanted = tuple(line for line in lines.split("\n") if line)
        found[name] = Case(_HEAD + written_out(setup) + body, wanted)
    return found


def written_out(setup: str) -> str:
    """Code without words."""
    for word, code in _WORDS.items():
        setup = re.sub(rf"(?m)^{word}\n", lambda _, code=code: code, setup)

    def net(found: re.Match[str]) -> str:
        body = "\n    ".join(found[1].rstrip("\n").split("\n")).lstrip()
        return _NET.replace("BODY", body)

    return re.sub(r"(?m)^NET\n((?:    .*\n)+)", net, setup)


def check_lines(output: str, lines: tuple[str, ...]) -> None:
    """The lines that are looked for are there, the indented ones in an island."""
    written = output.splitlines()
    found = [line.strip() for line in written]
    for line in lines:
        assert line.strip() in found, output
        if line.startswith(" "):
            at = found.index(line.strip())
            depth = len(written[at]) - len(found[at])
            above = (o for o in reversed(written[:at]) if o.strip())
            outer = next(o for o in above if len(o) - len(o.lstrip()) < depth)
            assert outer.strip() == 'with torch.autocast("cuda", enabled=False):'


def check_runs(source: str, output: str) -> None:
    """Off means off, scaling is exact, and it trains under CUDA's autocast."""
    assert check_off(source, output) == []
    assert check_scaled(source, output, MOVING_SCALES[1]) == []
    found = check_mixed(source, output)
    if re.search(r"inverse\(|det\(|judge\(", source):
        # Their backward multiplies matrices, or all of it does, and in fp32, as it should.
        found = [line for line in found if "were left in fp32" not in line]
    assert found == []
