"""Scripts under AMP that are broken in one way each, and the finding that has to come of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FIXTURES = Path(__file__).parent.parent.parent / "fixtures" / "migrate"


@dataclass(frozen=True, slots=True)
class Broken:
    """A correct script, and the replacements that break it."""

    name: str
    base: str
    """A fixture that was migrated, or one of `SCRIPTS`."""
    edits: tuple[tuple[str, str], ...]
    rule: str
    at: str
    """Text of the line that has to be named; its first one in the broken script."""
    others: frozenset[str] = frozenset()
    """Rules that are broken as well, in consequence."""

    def text(self) -> str:
        text = SCRIPTS.get(self.base) or golden(self.base)
        for old, new in self.edits:
            assert old in text, (self.name, old)
            text = text.replace(old, new, 1)
        return text

    def line(self) -> int:
        lines = self.text().splitlines()
        return next(number for number, line in enumerate(lines, 1) if self.at in line)


def golden(name: str) -> str:
    return (FIXTURES / name / "migrated.py").read_text(encoding="utf-8")


SCRIPTS = {
    "small": """\
import copy
import torch
import torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cuda")
# before the loop
for step in range(6):
    x = torch.randn(8, 4)
    y = x.sum(1, keepdim=True)
    optimizer.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.mse_loss(model(x), y)
    scaler.scale(loss).backward()
    # gradients
    scaler.step(optimizer)
    scaler.update()
# after the loop
""",
    "pair": """\
import torch
import torch.nn as nn
torch.manual_seed(0)
encoder, decoder = nn.Linear(4, 8), nn.Linear(8, 4)
optim_e = torch.optim.Adam(encoder.parameters(), lr=1e-2)
optim_d = torch.optim.Adam(decoder.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cuda")
other = torch.amp.GradScaler("cuda")
for step in range(4):
    x = torch.randn(8, 4)
    optim_e.zero_grad()
    optim_d.zero_grad()
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.mse_loss(decoder(encoder(x)), x)
    scaler.scale(loss).backward()
    scaler.step(optim_e)
    scaler.step(optim_d)
    scaler.update()
""",
    "checkpoints": """\
import torch
import torch.nn as nn
torch.manual_seed(0)

def train(resume):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cuda")
    if resume:
        state = torch.load("last.pt", weights_only=True)
        model.load_state_dict(state["net"]["model"])
        optimizer.load_state_dict(state["net"]["optimizer"])
        scaler.load_state_dict(state["scaler"])
    for step in range(3):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(torch.randn(8, 4)).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    net = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save({"net": net, "scaler": scaler.state_dict()}, "last.pt")

train(False)
train(True)
""",
}
"""Correct scripts, short enough to be broken in many ways."""

_SCALED = "scaler.scale(loss).backward()"
_STEP = "scaler.step(optimizer)"
_REGION = 'with torch.autocast("cuda", dtype=torch.float16):\n'
_BLOCK = _REGION + "        loss = nn.functional.mse_loss(model(x), y)\n"

# fmt: off
BROKEN = (
    Broken("plain backward", "small", ((_SCALED, "loss.backward()" + " if step else " + _SCALED),),
           "backward-not-scaled", "loss.backward()"),
    Broken("plain backward in a GAN", "gan_two_optimizers",
           (("scalerD.scale(errD_fake).backward()", "errD_fake.backward()"),),
           "backward-not-scaled", "errD_fake.backward()"),
    Broken("partly scaled sum", "small", ((_SCALED, "(scaler.scale(loss) + loss).backward()"),),
           "backward-not-scaled", "+ loss).backward()"),
    Broken("backward inside", "mnist_style_cnn", ((
        "        scaler.scale(loss).backward()\n        scaler.step",
        "            scaler.scale(loss).backward()\n        scaler.step"),),
           "backward-in-autocast", _SCALED),
    Broken("plain step", "mnist_style_cnn", ((_STEP, "optimizer.step()"), ("scaler.update()", "pass")),
           "step-outside-scaler", "optimizer.step()"),
    Broken("plain step of one of two", "pair", (("scaler.step(optim_d)", "optim_d.step()"),),
           "step-outside-scaler", "optim_d.step()"),
    Broken("a second, plain step", "small", ((_STEP, _STEP + "; optimizer.step()"),),
           "step-outside-scaler", "optimizer.step()"),
    Broken("plain step after unscale_", "small",
           ((_STEP, "scaler.unscale_(optimizer)\n    optimizer.step()"),),
           "step-without-inf-check", "    optimizer.step()"),
    Broken("clip before unscale_", "gpt_microsteps",
           (("    scaler.unscale_(optimizer)\n", ""),),
           "clipped-scaled-gradients", "clip_grad_norm_("),
    Broken("clip by value", "small",
           (("# gradients", "nn.utils.clip_grad_value_(model.parameters(), 1.0)"),),
           "clipped-scaled-gradients", "clip_grad_value_"),
    Broken("clip only one of two", "pair",
           (("scaler.step(optim_e)", "scaler.unscale_(optim_e)\n    both = [*encoder.parameters(), "
             "*decoder.parameters()]\n    nn.utils.clip_grad_norm_(both, 1.0)\n    scaler.step(optim_e)"),),
           "clipped-scaled-gradients", "clip_grad_norm_"),
    Broken("norms in the log", "grad_norm_logging", (("        scaler.unscale_(optimizer)\n", ""),),
           "read-scaled-gradients", "p.grad.detach().norm(2)"),
    Broken("total norm", "small",
           (("# gradients", "nn.utils.get_total_norm([p.grad for p in model.parameters()])"),),
           "read-scaled-gradients", "get_total_norm"),
    Broken("printed", "small", (("# gradients", "print(model[0].weight.grad)"),),
           "read-scaled-gradients", "print("),
    Broken("item", "small", (("# gradients", "v = model[0].weight.grad[0, 0].item()"),),
           "read-scaled-gradients", "item()"),
    Broken("histogram", "small", (("# gradients", "v = model[0].weight.grad.cpu().numpy()"),),
           "read-scaled-gradients", "numpy()"),
    Broken("noise", "gradient_edits", (("scaler.unscale_(", "id("),),
           "edited-scaled-gradients", "p.grad.add_("),
    Broken("noise, in place", "small",
           (("# gradients", "model[0].weight.grad.add_(torch.randn(16, 4))"),),
           "edited-scaled-gradients", "add_("),
    Broken("clamped through data", "small",
           (("# gradients", "model[0].weight.grad.data.clamp_(-1, 1)"),),
           "edited-scaled-gradients", "clamp_("),
    Broken("replaced", "small",
           (("# gradients", "p = model[0].weight; p.grad = torch.randn(16, 4)"),),
           "edited-scaled-gradients", "p.grad ="),
    Broken("written over in part", "small",
           (("# gradients", "model[0].weight.grad[:3] = 0; model[0].weight.grad[3] = torch.ones(4)"),),
           "edited-scaled-gradients", "grad[:3]"),
    Broken("unscale_ twice", "gpt_microsteps",
           (("scaler.step(optimizer)", "scaler.unscale_(optimizer)  # again\n    scaler.step(optimizer)"),),
           "unscaled-twice", "# again"),
    Broken("unscale_ after the step", "small", ((_STEP, _STEP + "; scaler.unscale_(optimizer)"),),
           "unscaled-after-step", _STEP),
    Broken("two steps", "small", ((_STEP, _STEP + "; scaler.step(optimizer)"),),
           "stepped-twice", _STEP),
    Broken("two optimizers over one model", "small", (
        ("# before", "second = torch.optim.SGD(model.parameters(), lr=0.1)\n# before"),
        (_STEP, _STEP + "\n    scaler.step(second)")),
           "unscaled-twice", "scaler.step(second)"),
    Broken("unscale_ for each micro step", "gpt_microsteps", (
        ("        scaler.scale(loss).backward()\n    scaler.unscale_(optimizer)\n",
         "        scaler.scale(loss).backward()\n        if not micro_step: scaler.unscale_(optimizer)\n"),),
           "unscaled-between-backwards", "scaler.unscale_(optimizer)",
           frozenset({"clipped-scaled-gradients"})),
    Broken("update for each micro step", "gpt_microsteps", (
        ("        scaler.scale(loss).backward()\n",
         "        scaler.scale(loss).backward()\n        scaler.update(2.0 ** 8)\n"),),
           "updated-between-backwards", "scaler.update("),
    Broken("update between two optimizers", "pair",
           (("scaler.step(optim_e)", "scaler.step(optim_e); scaler.update()"),),
           "updated-before-step", "scaler.step(optim_e)"),
    Broken("no update", "mnist_style_cnn", (("        scaler.update()\n", ""),),
           "missing-update", _STEP),
    Broken("no update, and unscale_", "skip_nonfinite_continue", (
        ("    scaler.update()\n    scheduler", "    scheduler"),), "missing-update", "scaler.step("),
    Broken("no update at the end", "small", (("range(6)", "range(1)"), ("    scaler.update()\n", "")),
           "missing-update", _STEP),
    Broken("update without a step", "small", ((_STEP, "if step != 3: " + _STEP),),
           "update-without-step", "scaler.update()"),
    Broken("another scaler's step", "pair", (("scaler.step(optim_d)\n    scaler.update()",
           "other.scale(loss)\n    other.step(optim_d)\n    scaler.update(); other.update()"),),
           "backward-over-two-scalers", "other.step(optim_d)"),
    Broken("scaler per epoch", "small",
           ((_SCALED, 'scaler = torch.amp.GradScaler("cuda") if step % 2 == 0 else scaler\n    ' + _SCALED),),
           "scaler-reborn", 'GradScaler("cuda") if'),
    Broken("half a model", "small", (("nn.Tanh(), nn.Linear(16, 1))", "nn.Tanh(), nn.Linear(16, 1)).half()"),
           ("model(x), y)", "model(x.half()), y.half())"),), "half-parameters", "scaler.step"),
    Broken("forward outside", "small", (
        (_BLOCK, "out = model(x)\n    with torch.autocast('cuda'):\n"
                 "        loss = nn.functional.mse_loss(out, y)\n"),),
           "forward-outside-autocast", "out = model(x)"),
    Broken("one forward of two outside", "gan_two_optimizers", ((
        "        fake = netG(torch.randn(8, 4, device=device))\n", ""), (
        "    scalerD.scale(errD_real).backward()\n",
        "    scalerD.scale(errD_real).backward()\n    fake = netG(torch.randn(8, 4, device=device))\n")),
           "forward-outside-autocast", "fake = netG("),
    Broken("BCE inside", "bce_after_sigmoid",
           (('        with torch.autocast("cuda", enabled=False):\n            loss',
             "        if True:\n            loss"),),
           "bce-in-autocast", "loss = criterion"),
    Broken("functional BCE inside", "small",
           (("mse_loss(model(x), y)", "binary_cross_entropy(model(x).sigmoid(), y.sigmoid())"),),
           "bce-in-autocast", "binary_cross_entropy"),
    Broken("autocast never left", "small", (
        (_BLOCK, "torch.autocast('cuda', dtype=torch.float16).__enter__()\n"
                 "    loss = nn.functional.mse_loss(model(x), y)\n"),),
           "autocast-left-on", "__enter__()",
           frozenset({"step-in-autocast", "backward-in-autocast"})),
    Broken("autocast left on at the end", "small", (
        ("# after the loop", "torch.autocast('cuda').__enter__()"),),
           "autocast-left-on", "__enter__()"),
    Broken("one region around the loop", "small", (
        (_REGION, "if True:\n"), ("# before the loop\n", ""),
        ("for step", "region = torch.autocast('cuda', dtype=torch.float16)\nfor step"),
        ("    x = ", "    if not step: region.__enter__()\n    x = "),
        ("# after the loop", "region.__exit__(None, None, None)")),
           "step-in-autocast", _STEP, frozenset({"autocast-left-on", "backward-in-autocast"})),
    Broken("one instance twice", "small", (
        ("# before the loop", "ctx = torch.autocast('cuda', dtype=torch.float16)"),
        (_BLOCK, "with ctx:\n        with ctx:  # again\n"
                 "            loss = nn.functional.mse_loss(model(x), y)\n")),
           "autocast-reentered", "with ctx:  # again",
           frozenset({"step-in-autocast"})),
    Broken("closure", "small", ((_STEP, "scaler.step(optimizer, lambda: loss)"),),
           "closure-in-scaler-step", "lambda: loss"),
    Broken("checkpoint without scaler", "checkpoints", (
        (', "scaler": scaler.state_dict()', ""), ('        scaler.load_state_dict(state["scaler"])\n', "")),
           "checkpoint-without-scaler", "torch.save("),
    Broken("scaler not loaded", "checkpoints", (
        ('        scaler.load_state_dict(state["scaler"])\n', ""),),
           "scaler-state-not-loaded", "torch.load("),
    Broken("checkpoint without scaler in a dict", "checkpoint_resume_dict", (
        ('            "scaler_state_dict": scaler.state_dict(),\n', ""),),
           "checkpoint-without-scaler", "torch.save("),
)
# fmt: on
