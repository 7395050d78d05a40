"""``torch.autograd.grad`` in a training step: in fp32, or a reason to leave the loop alone."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from half_support import check_runs
from programs import HEAD, before_and_after, left_alone, migrated, trains_as_before
from shorthand import before, written_out

from amp_migrate.api import Options, migrate_paths, migrate_source
from amp_migrate.sources.cells import cell_mark

SETUP = """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 for x, y in data:
     opt.zero_grad()
"""
BACK = "     BACK\n"
HELPER = """\
 def penalty(net, real, fake):
     alpha = torch.rand(real.size(0), 1, device=device)
     mix = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
-    out = net(mix)
-    ones = torch.ones(out.size(), device=device)
-    grads = torch.autograd.grad(outputs=out, inputs=mix, grad_outputs=ones, create_graph=True)[0]
+    with torch.autocast("cuda", enabled=False):
+        out = net(mix)
+        ones = torch.ones(out.size(), device=device)
+        grads = torch.autograd.grad(outputs=out, inputs=mix, grad_outputs=ones, create_graph=True)[0]
     return ((grads.norm(2, dim=1) - 1) ** 2).mean()
"""
CASES = {
    "a helper": HELPER + SETUP + """\
-    loss = criterion(model(x), y) + 0.1 * penalty(model, x, -x)
+    AUTOCAST
+        loss = criterion(model(x), y) + 0.1 * penalty(model, x, -x)
""" + BACK,
    "parameters that a model is lent": SETUP + """\
     noisy = {k: p + 0.1 for k, p in model.named_parameters()}
-    loss = criterion(torch.func.functional_call(model, noisy, (x,)), y)
+    AUTOCAST
+        loss = criterion(torch.func.functional_call(model, noisy, (x,)), y)
""" + BACK,
    "a model for each row": SETUP + """\
     params = dict(model.named_parameters())
-    run = lambda p, row: torch.func.functional_call(model, p, (row[None],))[0]
-    loss = criterion(torch.func.vmap(run, in_dims=(None, 0))(params, x), y)
+    AUTOCAST
+        run = lambda p, row: torch.func.functional_call(model, p, (row[None],))[0]
+        loss = criterion(torch.func.vmap(run, in_dims=(None, 0))(params, x), y)
""" + BACK,
    "a helper, on what a model made": HELPER + SETUP + """\
-    fake = model(x).repeat(1, 3)[:, :8].detach()
-    loss = model(x).mean() + penalty(model, x, fake)
+    AUTOCAST
+        fake = model(x).repeat(1, 3)[:, :8].detach()
+        loss = model(x).float().mean() + penalty(model, x, fake)
""" + BACK,
    "a penalty that goes backward by itself": HELPER + SETUP + """\
-    gp = penalty(model, x, -x)
-    gp.backward()
-    loss = criterion(model(x), y)
+    AUTOCAST
+        gp = penalty(model, x, -x)
+    scaler.scale(gp).backward()
+    AUTOCAST
+        loss = criterion(model(x), y)
""" + BACK,
    "inline": SETUP + """\
     mix = (torch.rand(4, 1) * x).requires_grad_(True)
-    out = model(mix)
-    grads = torch.autograd.grad(out.sum(), mix, create_graph=True)[0]
-    gp = (grads.norm(2, 1) - 1).pow(2).mean()
-    loss = criterion(model(x), y) + gp
+    AUTOCAST
+        with torch.autocast("cuda", enabled=False):
+            out = model(mix)
+            grads = torch.autograd.grad(out.sum(), mix, create_graph=True)[0]
+        gp = (grads.norm(2, 1) - 1).pow(2).mean()
+        loss = criterion(model(x), y) + gp
""" + BACK,
    "in both arms of an if": SETUP + """\
     mix = (torch.rand(4, 1) * x).requires_grad_(True)
-    out = model(mix)
-    if device.type == "cuda":
-        grads = torch.autograd.grad(out, mix, torch.ones(out.size()).cuda(), create_graph=True)[0]
-    else:
-        grads = torch.autograd.grad(out, mix, torch.ones(out.size()), create_graph=True)[0]
-    gp = (grads.norm(2, 1) - 1).pow(2).mean()
-    loss = criterion(model(x), y) + gp
+    AUTOCAST
+        with torch.autocast("cuda", enabled=False):
+            out = model(mix)
+            if device.type == "cuda":
+                grads = torch.autograd.grad(out, mix, torch.ones(out.size()).cuda(), create_graph=True)[0]
+            else:
+                grads = torch.autograd.grad(out, mix, torch.ones(out.size()), create_graph=True)[0]
+        gp = (grads.norm(2, 1) - 1).pow(2).mean()
+        loss = criterion(model(x), y) + gp
""" + BACK,
    "outputs are handed over": """\
 def penalty(y, x):
     grads = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]
     return (grads.view(4, -1).norm(dim=1) - 1).pow(2).mean()
""" + SETUP + """\
-    loss = criterion(model(x), y)
-    mix = (torch.rand(4, 1) * x).requires_grad_(True)
-    out = model(mix)
-    loss = loss + penalty(out, mix)
+    AUTOCAST
+        loss = criterion(model(x), y)
+        mix = (torch.rand(4, 1) * x).requires_grad_(True)
+        with torch.autocast("cuda", enabled=False):
+            out = model(mix)
+            loss = loss + penalty(out, mix)
""" + BACK,
    "R1": SETUP + """\
     x.requires_grad_()
-    out = model(x)
-    (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
-    loss = criterion(out, y) + g.pow(2).sum() + model(x.detach() * 2).mean()
+    AUTOCAST
+        with torch.autocast("cuda", enabled=False):
+            out = model(x)
+            (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
+        loss = criterion(out, y) + g.pow(2).sum() + model(x.detach() * 2).float().mean()
""" + BACK,
    "with respect to what a model made": """\
 maker = nn.Sequential(nn.Linear(8, 8), nn.Tanh()).to(device)
""" + SETUP + """\
-    fake = maker(x)
-    out = model(fake)
-    g = torch.autograd.grad(out.sum(), fake, create_graph=True)[0]
-    loss = criterion(model(x), y) + g.pow(2).sum() + out.mean()
+    AUTOCAST
+        fake = maker(x).float()
+        with torch.autocast("cuda", enabled=False):
+            out = model(fake)
+            g = torch.autograd.grad(out.sum(), fake, create_graph=True)[0]
+        loss = criterion(model(x), y) + g.pow(2).sum() + out.float().mean()
""" + BACK,
    "with respect to one of two things that a model made": """\
 class Maker(nn.Module):
     def __init__(self):
         super().__init__()
         self.style, self.image = nn.Linear(8, 8), nn.Linear(8, 8)
     def forward(self, z, style=False):
         latent = self.style(z)
         if style:
             return self.image(latent), latent
         return self.image(latent), None
 def penalty(fake, latents):
     (g,) = torch.autograd.grad((fake * torch.ones_like(fake)).sum(), latents, create_graph=True)
     return g.pow(2).sum()
 maker = Maker().to(device)
""" + SETUP + """\
-    loss = criterion(model(maker(x)[0]), y)
-    fake, latents = maker(x, style=True)
-    loss = loss + penalty(fake, latents)
+    AUTOCAST
+        loss = criterion(model(maker(x)[0]), y)
+        with torch.autocast("cuda", enabled=False):
+            fake, latents = maker(x, style=True)
+            loss = loss + penalty(fake, latents)
""" + BACK,
    "with respect to what is left of what a model made": """\
 head = nn.Linear(3, 1).to(device)
""" + SETUP + """\
-    fake = model(x)
-    mix = fake.detach().requires_grad_(True)
-    g = torch.autograd.grad(head(mix).sum(), mix, create_graph=True)[0]
-    loss = criterion(fake, y) + g.pow(2).sum()
+    AUTOCAST
+        fake = model(x)
+        mix = fake.detach().float().requires_grad_(True)
+        with torch.autocast("cuda", enabled=False):
+            g = torch.autograd.grad(head(mix).sum(), mix, create_graph=True)[0]
+        loss = criterion(fake, y) + g.pow(2).sum()
""" + BACK,
    "a forward that the loss shares": SETUP + """\
     x.requires_grad_()
-    out = model(x)
-    (g,) = torch.autograd.grad(outputs=out.sum(), inputs=x, create_graph=True)
-    loss = criterion(out, y) + g.pow(2).sum()
+    AUTOCAST
+        out = model(x)
+    (g,) = torch.autograd.grad(outputs=scaler.scale(out.sum()), inputs=x, create_graph=True)
+    inv_scale = 1.0 / scaler.get_scale()
+    g = g * inv_scale
+    AUTOCAST
+        loss = criterion(out, y) + g.pow(2).sum()
""" + BACK,
    "of the loss itself": SETUP + """\
     x.requires_grad_()
-    loss = criterion(model(x), y)
-    grads = torch.autograd.grad(loss, [x], create_graph=True)
+    AUTOCAST
+        loss = criterion(model(x), y)
+    grads = torch.autograd.grad(scaler.scale(loss), [x], create_graph=True)
+    inv_scale = 1.0 / scaler.get_scale()
+    grads = [g * inv_scale for g in grads]
     loss = loss + sum(g.norm() for g in grads)
""" + BACK,
    "now and then": SETUP + """\
-    loss = criterion(model(x), y)
-    if y[0] == 0:
-        mix = x.clone().requires_grad_(True)
-        g = torch.autograd.grad(model(mix).sum(), mix, create_graph=True)[0]
-        loss = loss + g.pow(2).sum()
+    AUTOCAST
+        loss = criterion(model(x), y)
+        if y[0] == 0:
+            mix = x.clone().requires_grad_(True)
+            with torch.autocast("cuda", enabled=False):
+                g = torch.autograd.grad(model(mix).sum(), mix, create_graph=True)[0]
+            loss = loss + g.pow(2).sum()
""" + BACK,
    "an attack": """\
 def attack(x, y, steps=3):
     delta = torch.zeros_like(x, requires_grad=True)
     for _ in range(steps):
-        loss = criterion(model(x + delta), y)
-        g = torch.autograd.grad(loss, delta)[0]
+        with torch.autocast("cuda", enabled=False):
+            loss = criterion(model(x + delta), y)
+            g = torch.autograd.grad(loss, delta)[0]
         delta = (delta + 0.1 * g.sign()).clamp(-0.3, 0.3).detach().requires_grad_()
     return (x + delta).detach()
""" + SETUP + """\
-    x = attack(x, y)
-    loss = criterion(model(x), y)
+    AUTOCAST
+        x = attack(x, y)
+        loss = criterion(model(x), y)
""" + BACK,
    "a leaf of the loss": """\
 class Invariance(nn.Module):
     def __init__(self):
         super().__init__()
         self.scale = torch.tensor(1.).requires_grad_()
     def forward(self, out: torch.Tensor, y):
-        one = F.cross_entropy(out[::2] * self.scale, y[::2])
-        other = F.cross_entropy(out[1::2] * self.scale, y[1::2])
-        first = torch.autograd.grad(one, [self.scale], create_graph=True)[0]
-        second = torch.autograd.grad(other, [self.scale], create_graph=True)[0]
+        with torch.autocast("cuda", enabled=False):
+            one = F.cross_entropy(out[::2].float() * self.scale, y[::2])
+            other = F.cross_entropy(out[1::2].float() * self.scale, y[1::2])
+            first = torch.autograd.grad(one, [self.scale], create_graph=True)[0]
+            second = torch.autograd.grad(other, [self.scale], create_graph=True)[0]
         return (first * second).sum()
 penalty = Invariance()
""" + SETUP + """\
-    out = model(x)
-    loss = criterion(out, y) + penalty(out, y)
+    AUTOCAST
+        out = model(x)
+        loss = criterion(out, y) + penalty(out, y)
""" + BACK,
    "not in the training step": """\
 def saliency(x):
     x.requires_grad_()
     return torch.autograd.grad(model(x).max(1)[0].sum(), x)[0].abs().mean()
""" + SETUP + """\
-    loss = criterion(model(x), y)
+    AUTOCAST
+        loss = criterion(model(x), y)
""" + BACK + " print(saliency(data[0][0]))\n",
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_written(name: str) -> None:
    source, expected = before_and_after(written_out(CASES[name]))
    assert migrated(source) == expected


@pytest.mark.parametrize("name", CASES)
def test_it_trains_as_before(name: str) -> None:
    trains_as_before(written_out(CASES[name]))


LEFT = {
    "nothing is left, a gradient to begin with": """\
        for x, y in data:
            opt.zero_grad()
            x.requires_grad_()
            out = model(x)
            g = torch.autograd.grad(out, x, torch.ones_like(out), create_graph=True)[0]
            loss = criterion(out, y) + g.pow(2).sum()
        """,
    "nothing is left, no graph": """\
        for x, y in data:
            opt.zero_grad()
            x.requires_grad_()
            out = model(x)
            g = torch.autograd.grad(out.sum(), x, retain_graph=True)[0]
            loss = criterion(out, y) + g.pow(2).sum()
        """,
    "nothing is left, and the data change": """\
        for x, y in data:
            opt.zero_grad()
            x.requires_grad_()
            out = model(x)
            g = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
            loss = criterion(out, y) + g.pow(2).sum()
            x.data.add_(g.detach())
        """,
    "nothing is left, a threshold": """\
        for x, y in data:
            opt.zero_grad()
            x.requires_grad_()
            out = model(x)
            g = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
            loss = criterion(out, y) + g.pow(2).sum().clamp(max=1.0)
        """,
    "nothing is left, infinite losses are passed over": """\
        for x, y in data:
            opt.zero_grad()
            x.requires_grad_()
            out = model(x)
            g = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
            loss = criterion(out, y) + g.pow(2).sum()
            if not torch.isfinite(loss):
                continue
        """,
    "nothing is left, and missing gradients": """\
        for x, y in data:
            opt.zero_grad()
            x.requires_grad_()
            out = model(x)
            g = torch.autograd.grad(out.sum(), x, create_graph=True, allow_unused=True)[0]
            loss = criterion(out, y) + g.pow(2).sum()
        """,
    "second derivatives": """\
        for x, y in data:
            opt.zero_grad()
            x.requires_grad_()
            out = model(x)
            g = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
            h = torch.autograd.grad(g.sum(), x, create_graph=True)[0]
            loss = criterion(model(x), y) + h.pow(2).sum()
        """,
    "fast weights": """\
        for x, y in data:
            opt.zero_grad()
            fast = list(model.parameters())
            inner = criterion(model(x), y)
            gs = torch.autograd.grad(inner, fast, create_graph=True)
            fast = [p - 0.1 * g for p, g in zip(fast, gs)]
            loss = criterion(F.linear(x[:, :3], fast[-1][None, :3].expand(3, 3)), y) + model(x).mean()
        """,
    "copies of parameters": """\
        for x, y in data:
            opt.zero_grad()
            copies = [p.detach().clone().requires_grad_(True) for p in head.parameters()]
            inner = F.linear(model(x), *copies).sum()
            gs = torch.autograd.grad(inner, copies, create_graph=True)
            loss = criterion(model(x), y) + gs[0].pow(2).sum()
        """,
    "of the loss, for a log": """\
        for x, y in data:
            opt.zero_grad()
            x.requires_grad_()
            loss = criterion(model(x), y)
            print(torch.autograd.grad(loss, x, retain_graph=True)[0].norm())
        """,
    "backward": """\
        for x, y in data:
            opt.zero_grad()
            loss = criterion(model(x), y)
            loss.backward(create_graph=True)
        """,
    "jacobian": """\
        for x, y in data:
            opt.zero_grad()
            j = torch.autograd.functional.jacobian(model, x, create_graph=True)
            loss = criterion(model(x), y) + j.pow(2).sum()
        """,
    "torch.func": """\
        for x, y in data:
            opt.zero_grad()
            g = torch.func.grad(lambda one: model(one).sum())(x)
            loss = criterion(model(x), y) + g.pow(2).sum()
        """,
    "a parameter of the loss": """\
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.tensor(1.), requires_grad=True)
            def forward(self, out: torch.Tensor, y):
                one = F.cross_entropy(out * self.scale, y)
                return torch.autograd.grad(one, [self.scale], create_graph=True)[0].sum()
        penalty = Scaled()
        for x, y in data:
            opt.zero_grad()
            out = model(x)
            loss = criterion(out, y) + penalty(out, y)
        """,
    "a leaf of the loss that is another later": """\
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = torch.tensor(1.).requires_grad_()
            def of(self, net):
                self.scale = net[0].weight
            def forward(self, out: torch.Tensor, y):
                one = F.cross_entropy(out * self.scale.sum(), y)
                return torch.autograd.grad(one, [self.scale], create_graph=True)[0].sum()
        penalty = Scaled()
        penalty.of(model)
        for x, y in data:
            opt.zero_grad()
            out = model(x)
            loss = criterion(out, y) + penalty(out, y)
        """,
    "a leaf, and what the forward was given": """\
        class Scaled(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = torch.tensor(1.).requires_grad_()
            def forward(self, out: torch.Tensor, x: torch.Tensor, y):
                one = F.cross_entropy(out * self.scale, y)
                g = torch.autograd.grad(one, [self.scale, x], create_graph=True)
                return g[0].sum() + g[1].sum()
        penalty = Scaled()
        for x, y in data:
            opt.zero_grad()
            x.requires_grad_()
            out = model(x)
            loss = criterion(out, y) + penalty(out, x, y)
        """,
    "torch.func, in a helper": """\
        def slope(x):
            return torch.func.grad(lambda one: model(one).sum())(x).pow(2).sum()
        for x, y in data:
            opt.zero_grad()
            loss = criterion(model(x), y) + slope(x)
        """,
    "torch.func, in a module": """\
        class Sloped(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = model
            def forward(self, x):
                g = torch.func.grad(lambda one: self.inner(one).sum())(x)
                return self.inner(x) + g.sum()
        sloped = Sloped()
        for x, y in data:
            opt.zero_grad()
            loss = criterion(sloped(x), y)
        """,
    "torch.func, kept in a helper": """\
        def build():
            slope = torch.func.grad(lambda one: model(one).sum())
            return lambda x: slope(x).pow(2).sum()
        slope = build()
        for x, y in data:
            opt.zero_grad()
            loss = criterion(model(x), y) + slope(x)
        """,
    "arguments in a dict": """\
        for x, y in data:
            opt.zero_grad()
            x.requires_grad_()
            given = {"outputs": model(x).sum(), "inputs": x, "create_graph": True}
            loss = criterion(model(x), y) + torch.autograd.grad(**given)[0].sum()
        """,
    "kept under another name": """\
        take = torch.autograd.grad
        for x, y in data:
            opt.zero_grad()
            x.requires_grad_()
            loss = criterion(model(x), y) + take(model(x).sum(), x, create_graph=True)[0].sum()
        """,
    "a partial": """\
        from functools import partial
        take = partial(torch.autograd.grad, create_graph=True)
        for x, y in data:
            opt.zero_grad()
            x.requires_grad_()
            loss = criterion(model(x), y) + take(model(x).sum(), x)[0].sum()
        """,
    "two cells": f"""\
        for x, y in data[:1]:
            opt.zero_grad()
            x.requires_grad_()
            out = model(x)
            {cell_mark(2)}
            g = torch.autograd.grad(out.sum(), x, create_graph=True)[0]
            loss = criterion(model(x * 2), y) + g.pow(2).sum()
        """,
    "a penalty that is not called by name": """\
        def penalty(x):
            out = model(x)
            return torch.autograd.grad(out.sum(), list(model.parameters()), create_graph=True)[0].sum()
        extra = {"gp": penalty}
        for x, y in data:
            opt.zero_grad()
            loss = criterion(model(x), y) + extra["gp"](x)
        """,
    "a function that is not its own": """\
        def penalty(y, x):
            return torch.autograd.grad(y, x, create_graph=True)[0].pow(2).sum()
        use = [penalty]
        for x, y in data:
            opt.zero_grad()
            x.requires_grad_()
            loss = criterion(model(x), y) + use[0](model(x).sum(), x)
        """,
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_left_alone(name: str) -> None:
    setup = """\
        head = nn.Linear(3, 1)
        opt = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
        """
    backward = "    loss.backward()\n" if name != "backward" else ""
    body = dedent(setup) + dedent(LEFT[name]) + backward + "    opt.step()\n"
    assert left_alone(body) == "AMP023"


INNER_LOOP = """\
import higher
opt = torch.optim.SGD(model.parameters(), lr=0.1)
def turn(x, y):
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    opt.step()
def adapted(x, y):
    other = make()
    with higher.innerloop_ctx(other, torch.optim.SGD(other.parameters(), lr=0.1)) as (fast, inner):
        {inside}
for x, y in data:
    turn(x, y)
    adapted(x, y)
"""


def test_an_inner_loop_concerns_the_loops_that_run_in_it() -> None:
    beside = INNER_LOOP.format(inside="inner.step(criterion(fast(x), y))")
    assert "scaler.scale(loss).backward()" in migrated(beside)
    assert left_alone(INNER_LOOP.format(inside="turn(x, y)")) == "AMP023"


def test_in_another_file(tmp_path: Path) -> None:
    text = """\
    import torch
    from torch.autograd import Variable, grad

    Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor


    def compute_gradient_penalty(D, real, fake):
        alpha = Tensor(real.size(0), 1).uniform_()
        mix = Variable(alpha * real + (1 - alpha) * fake, requires_grad=True)
        out = D(mix)
        ones = Variable(Tensor(out.size()).fill_(1.0), requires_grad=False)
        found = grad(outputs=out, inputs=mix, grad_outputs=ones, create_graph=True, only_inputs=True)
        return ((found[0].norm(2, dim=1) - 1) ** 2).mean()
    """
    (tmp_path / "penalties.py").write_text(dedent(text))
    loop = """\
    from penalties import compute_gradient_penalty
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in data:
        opt.zero_grad()
        loss = model(x).mean() + compute_gradient_penalty(model, x.data, -x.data)
        loss.backward()
        opt.step()
    """
    (tmp_path / "train.py").write_text(HEAD + dedent(loop))
    report = migrate_paths([str(tmp_path)])
    outputs = {Path(m.result.path).name: m.result.output for m in report.changed}
    assert outputs["penalties.py"].count("autocast") == 1
    assert (
        '    with torch.autocast("cuda", enabled=False):\n'
        "        out = D(mix)\n"
        "        ones = Variable("
    ) in outputs["penalties.py"]


_MIXED = """\
class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
    def forward(self, x):
        return self.net(x)
    def penalty(self, real, fake):
        alpha = torch.rand(4, 1, device=device)
        mix = alpha * real + (1 - alpha) * fake
        out = self(mix)
        g = torch.autograd.grad(out, mix, torch.ones_like(out), create_graph=True)[0]
        return ((g.norm(2, dim=1) - 1) ** 2).mean()
maker = nn.Sequential(nn.Linear(8, 8), nn.Tanh()).to(device)
judge = Judge().to(device)
opt = torch.optim.SGD(judge.parameters(), lr=0.1)
for x, y in data:
    fake = maker(x)
    loss = judge(fake).mean() - judge(x).mean() + judge.penalty(x, fake)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_a_mixture_with_what_a_model_made_is_no_parameter() -> None:
    output = migrated(_MIXED)
    assert (
        '        with torch.autocast("cuda", enabled=False):\n            out = '
        in output
    )
    check_runs(HEAD + _MIXED, HEAD + output)


@pytest.mark.parametrize(
    ("old", "new"),
    (
        # Weights of an inner loop.
        ("out = self(mix)", "out = F.linear(real, mix)"),
        ("out = self(mix)", "out = self.net[2](self.net[0](real) * mix)"),
        (
            "        mix = alpha * real",
            "        mix = list(self.parameters())[0]\n        old = mix * real",
        ),
    ),
)
def test_a_mixture_that_may_be_of_parameters(old: str, new: str) -> None:
    assert left_alone(_MIXED.replace(old, new)) == "AMP023"


_OF_A_NUMBER = """\
def penalty(logits, y):
    where = "cuda" if logits[0][0].is_cuda else "cpu"
    scale = torch.tensor(1.).to(where).requires_grad_()
    first = F.cross_entropy(logits[::2] * scale, y[::2])
    second = F.cross_entropy(logits[1::2] * scale, y[1::2])
    one = torch.autograd.grad(first, [scale], create_graph=True)[0]
    other = torch.autograd.grad(second, [scale], create_graph=True)[0]
    return torch.sum(one * other)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    logits = model(x)
    loss = criterion(logits, y) + penalty(logits, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_gradients_to_a_number_that_what_may_be_half_is_multiplied_by() -> None:
    output = migrated(_OF_A_NUMBER)
    assert "F.cross_entropy(logits[::2].float() * scale, y[::2])" in output
    check_runs(HEAD + _OF_A_NUMBER, HEAD + output)


@pytest.mark.parametrize(
    "made",
    (
        "logits.detach().mean().requires_grad_()",
        "torch.tensor(float(logits.mean())).requires_grad_()",
        "torch.tensor(1.).to(logits).requires_grad_() * logits.mean()",
    ),
)
def test_gradients_to_what_is_made_of_what_may_be_half(made: str) -> None:
    made = f"scale = {made}"
    text = "scale = torch.tensor(1.).to(where).requires_grad_()"
    assert left_alone(_OF_A_NUMBER.replace(text, made)) == "AMP023"


_OF_FEATURES = """\
class Muted(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body = body
        self.head = nn.Linear(3, 3)
    def update(self, x, y, opt):
        hot = F.one_hot(y, 3)
        f = self.body(x)
        p = self.head(f)
        g = torch.autograd.grad((p * hot).sum(), f)[0]
        mask = g.lt(g.mean()).float()
        loss = F.cross_entropy(self.head(f * mask), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
import torchvision.models as zoo
muted = Muted(zoo.get(3)).to(device)
opt = torch.optim.SGD(muted.parameters(), lr=0.1)
for x, y in data:
    muted.update(x, y, opt)
"""


def test_gradients_to_features_of_unknown_width() -> None:
    unknown = _OF_FEATURES.replace("torchvision.models", "nets").replace(
        "get(3)", "net()"
    )
    output = migrated(unknown)
    cast = "            f = f.float() if f.dtype is torch.float16 else f\n"
    assert f"            f = self.body(x)\n{cast}" in output
    known = _OF_FEATURES.replace("import torchvision.models as zoo\n", "")
    known = known.replace("zoo.get(3)", "make()")
    check_runs(HEAD + known, HEAD + migrated(known))


def test_features_that_come_with_others() -> None:
    text = _OF_FEATURES.replace("f = self.body(x)", "f, more = self.body(x)")
    assert left_alone(text) == "AMP023"


def test_a_second_run_changes_nothing() -> None:
    for case in CASES.values():
        output = HEAD + before_and_after(written_out(case))[1]
        assert migrate_source(output).output == output


def test_bfloat16() -> None:
    for case in CASES.values():
        source = HEAD + before(before_and_after(written_out(case))[0])
        result = migrate_source(source, options=Options(dtype="bfloat16"))
        assert result.changed and not result.diagnostics


def test_in_the_body_of_a_class() -> None:
    """It runs outside of the region, in fp32."""
    source = """\
    x = data[0][0].requires_grad_()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for y in [data[0][1]]:
        opt.zero_grad()
        class Penalty:
            g = torch.autograd.grad(model(x).sum(), x, create_graph=True)[0]
        loss = criterion(model(x * 2), y) + Penalty.g.pow(2).sum()
        loss.backward()
        opt.step()
    """
    output = migrated(dedent(source))
    assert "    class Penalty:\n        g = torch.autograd" in output


_OF_OUTPUTS = """\
import torch
import torch.nn as nn
from torch.autograd import Variable
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
gen = nn.Sequential(nn.Linear(4, 8), nn.Tanh()).to(device)
critic = nn.Linear(8, 1).to(device)
opt = torch.optim.Adam(critic.parameters(), lr=0.1)
for x in [torch.randn(4, 8) for _ in range(4)]:
    opt.zero_grad()
    made = MADE
    out = critic(made)
    grad = torch.autograd.grad(out, made, torch.ones_like(out), create_graph=True)[0]
    loss = out.mean() - critic(x.to(device)).mean() + (grad.norm(2, dim=1) ** 6).mean()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("made", "words"),
    (
        (
            "Variable(gen(torch.randn(4, 4, device=device)), requires_grad=True)",
            "a forward on made, which may be in half",
        ),
        ("gen[0].weight.t()[:4]", "may be with respect to parameters"),
    ),
)
def test_what_a_module_gives_is_no_parameter(made: str, words: str) -> None:
    source = _OF_OUTPUTS.replace("MADE", made)
    (found,) = migrate_source(source, path="train.py").diagnostics
    assert found.code == "AMP023"
    assert words in found.message


_CHAIN = """\
import sys
import torch
import torch.nn as nn
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(8, 1).to(device)
opt = torch.optim.Adam(model.parameters(), lr=0.1)
def looks(w, v):
    v = v * w.sum()
STEPS
    return torch.autograd.grad(v15.sum(), w, create_graph=True)
for x in [torch.randn(4, 8) for _ in range(4)]:
    opt.zero_grad()
    out = model(x.to(device))
    loss = out.pow(2).mean()
    loss.backward()
    opt.step()
if len(sys.argv) > 1:
    w = torch.ones(1, requires_grad=True)
    print(looks(w, GIVEN))
"""


@pytest.mark.parametrize(
    ("given", "code"), (("torch.load(sys.argv[1])", ""), ("out", "AMP023"))
)
def test_what_is_made_in_many_steps_is_followed(given: str, code: str) -> None:
    steps = "    v0 = v + 1\n"
    steps += "".join(f"    v{i + 1} = v{i} + 1\n" for i in range(15))
    source = _CHAIN.replace("STEPS\n", steps).replace("GIVEN", given)
    result = migrate_source(source, path="train.py")
    assert [found.code for found in result.diagnostics] == ([code] if code else [])


_FAR = """\
maker = nn.Linear(8, 8).to(device)
def penalty(net, real, fake):
    alpha = torch.rand(real.size(0), 1, device=device)
STEPS
    mix = MIX
    mix.requires_grad_(True)
    out = net(mix)
    grads = torch.autograd.grad(out.sum(), mix, create_graph=True)[0]
    return ((grads.norm(2, dim=1) - 1) ** 2).mean()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    opt.zero_grad()
    fake = maker(x).detach()
    loss = criterion(model(x), y) + penalty(model, x, fake)
    loss.backward()
    opt.step()
"""


def test_what_is_not_followed_to_its_end_may_be_half_unless_fp32_makes_it_wide() -> (
    None
):
    """Not the whole is unknown where a part of it is, nor is what is unknown taken for fp32."""
    island = 'with torch.autocast("cuda", enabled=False):\n        out = net(mix)'
    many = ", ".join(f"fake * {i}" for i in range(1400))
    wide = _FAR.replace("STEPS", f"    fake = torch.stack([{many}]).mean(0)")
    wide = migrated(wide.replace("MIX", "alpha * real + (1 - alpha) * fake"))
    assert island in wide and "alpha) * fake\n" in wide
    steps = ["v0 = fake * 2", *(f"v{i + 1} = v{i} * 1.5" for i in range(60))]
    perhaps = _FAR.replace("STEPS", "\n".join(f"    {step}" for step in steps))
    perhaps = migrated(perhaps.replace("MIX", "v60 * 0.5"))
    assert island in perhaps and "mix = (v60 * 0.5).float()" in perhaps


_UNSEEN = """\
def smooth(out, x):
    return torch.autograd.grad(out.sum(), x, create_graph=True)[0].pow(2).mean()
class Other:
    def feed(self, batch):
        self.x = batch.to(device).requires_grad_()
    def penalty(self, net):
        return smooth(net(self.x), self.x)
other = Other()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    opt.step()
"""


def test_what_is_called_from_out_of_sight_is_given_data() -> None:
    assert migrated(_UNSEEN)
    handed = _UNSEEN + "for give in (other.feed,):\n    give(model(x))\n"
    assert left_alone(handed) == "AMP023"


_HANDED = """\
class Teacher:
    def likelihood(self, x):
        return -(x - 1).pow(2).sum(1)
    def score(self, x):
        with torch.enable_grad():
            x = x.detach()
            x.requires_grad_(True)
            return torch.autograd.grad(self.likelihood(x).sum(), x)[0]
def walk(score, x):
    for _ in range(3):
        x = x + 0.1 * score(x)
    return x
teacher = Teacher()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    opt.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    opt.step()
print(walk(teacher.score, torch.randn(4, 8)))
"""


@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        (
            "walk(teacher.score, ",
            "walk(x=torch.randn(4, 8), score=teacher.score) or (",
            "",
        ),
        ("0.1 * score(x)", "0.1 * score(x) + score(x=x)", ""),
        # In a region; on what is half; and where it cannot be seen who calls it.
        ("model(x)", "model(walk(teacher.score, x))", "AMP023"),
        ("torch.randn(4, 8)))", "out))", "AMP023"),
        ("    return x\n", "    data.append(score)\n    return x\n", "AMP023"),
        ("    return x\n", "    score = score\n    return x\n", "AMP023"),
        ("score(x)\n", "min(x, key=score)\n", "AMP023"),
        ("for x, y in data:", "goes = [walk]\nfor x, y in data:", "AMP023"),
        ("    return x\n", "        yield x\n", "AMP023"),
        ("def walk", "@lambda f: f\ndef walk", "AMP023"),
        ("walk(teacher.score, ", "walk(*[teacher.score], ", "AMP023"),
        ("walk(teacher.score, ", "walk(dict(s=teacher.score)['s'], ", "AMP023"),
    ],
)
def test_what_is_handed_to_what_only_calls_it_runs_there(
    before: str, after: str, code: str
) -> None:
    assert migrated(_HANDED)
    source = _HANDED.replace(before, after)
    assert source != _HANDED
    if code:
        assert left_alone(source) == code
    else:
        assert migrated(source)


_OTHER_CLASS = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 3)
    def forward(self, x):
        return self.body(x)
class Plain:
    def __init__(self):
        self.net = Net().to(device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
    def update(self, x, y):
        self.loss = criterion(self.net(x), y)
        self.opt.zero_grad()
        self.loss.backward()
        self.opt.step()
class Masked:
    def __init__(self):
        self.net = Net().to(device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.other = Plain()
    def update(self, x, y):
        loss = LOSS
        grads = torch.autograd.grad(loss, list(self.net.parameters()))
        for param, grad in zip(self.net.parameters(), grads):
            param.grad = grad.sign()
        self.opt.step()
import sys
one = {"plain": Plain, "masked": Masked}[sys.argv[1] if len(sys.argv) > 1 else "plain"]()
for x, y in data:
    one.update(x, y)
"""


def test_gradients_of_a_net_that_runs_in_a_region_elsewhere() -> None:
    own = _OTHER_CLASS.replace("LOSS", "criterion(self.net(x), y)")
    assert "autocast" in migrated(own)
    half = _OTHER_CLASS.replace("LOSS", "self.other.loss")
    assert left_alone(half) == "AMP023"


FED = """\
class Trainer:
    def __init__(self):
        self.net = model
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
    def feed(self, batch):
        self.real = FEED
    def step(self):
        self.opt.zero_grad()
        self.real.requires_grad = True
        out = self.net(self.real)
        gp = penalty(out, self.real)
        loss = gp + self.net(self.real.detach() * 2).mean()
        loss.backward()
        self.opt.step()
def penalty(out, real):
    (g,) = torch.autograd.grad(out.sum(), real, create_graph=True)
    return g.pow(2).sum()
trainer = Trainer()
for x, y in data:
    trainer.feed({"real": x})
    trainer.step()
"""


def test_a_penalty_on_what_an_object_is_fed() -> None:
    """It is none on a parameter."""
    output = migrated(FED.replace("FEED", 'batch["real"].to(device)'))
    assert output.count('with torch.autocast("cuda", enabled=False):') == 1
    assert left_alone(FED.replace("FEED", "self.net[0].weight")) == "AMP023"
