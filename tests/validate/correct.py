"""Correct scripts under AMP in the styles of well-known training code, written for these tests."""

from __future__ import annotations

_NET = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
data = [(torch.randn(8, 4), torch.randint(3, (8,))) for _ in range(8)]
"""

CORRECT = {
    "single-file GPT": _NET
    + """\
from contextlib import nullcontext
dtype = "float16"
ptdtype = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[dtype]
ctx = nullcontext() if dtype == "float32" else torch.amp.autocast(device_type="cuda", dtype=ptdtype)
scaler = torch.cuda.amp.GradScaler(enabled=(dtype == "float16"))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
grad_clip = 1.0

@torch.no_grad()
def estimate_loss():
    model.eval()
    losses = []
    for x, y in data[:2]:
        with ctx:
            losses.append(F.cross_entropy(model(x), y).item())
    model.train()
    return sum(losses)

for it in range(6):
    if it % 2 == 0:
        estimate_loss()
    for micro_step in range(2):
        x, y = data[it]
        with ctx:
            loss = F.cross_entropy(model(x), y) / 2
        scaler.scale(loss).backward()
    if grad_clip != 0.0:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
""",
    "vision reference": _NET
    + """\
def train_one_epoch(model, criterion, optimizer, loader, scaler=None, clip=None):
    model.train()
    for image, target in loader:
        with torch.cuda.amp.autocast(enabled=scaler is not None):
            output = model(image)
            loss = criterion(output, target)
        optimizer.zero_grad()
        if scaler is not None:
            scaler.scale(loss).backward()
            if clip is not None:
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()

criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for amp in (True, False):
    scaler = torch.cuda.amp.GradScaler() if amp else None
    for epoch in range(2):
        train_one_epoch(model, criterion, optimizer, data, scaler, clip=epoch or None)
        checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        if scaler:
            checkpoint["scaler"] = scaler.state_dict()
        torch.save(checkpoint, "checkpoint.pth")
checkpoint = torch.load("checkpoint.pth", weights_only=False)
model.load_state_dict(checkpoint["model"])
with torch.inference_mode():
    for image, target in data:
        criterion(model(image), target)
""",
    "scaler that is called": _NET
    + """\
class NativeScaler:
    def __init__(self):
        self._scaler = torch.amp.GradScaler(device="cuda")
    def __call__(
        self, loss, optimizer, clip_grad=None, parameters=None, create_graph=False, need_update=True
    ):
        self._scaler.scale(loss).backward(create_graph=create_graph)
        if need_update:
            if clip_grad is not None:
                self._scaler.unscale_(optimizer)
                norm = torch.nn.utils.clip_grad_norm_(parameters, clip_grad)
            self._scaler.step(optimizer)
            self._scaler.update()
    def state_dict(self):
        return self._scaler.state_dict()

loss_scaler = NativeScaler()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)
for step, (x, y) in enumerate(data):
    with torch.autocast("cuda"):
        loss = F.cross_entropy(model(x), y) / 2
    loss_scaler(loss, optimizer, 1.0, model.parameters(), need_update=step % 2 == 1)
    if step % 2 == 1:
        optimizer.zero_grad()
torch.save({"opt": optimizer.state_dict()}, "opt.pt"); torch.save(loss_scaler.state_dict(), "scaler.pt")
""",
    "detector with warm-up": _NET
    + """\
import copy
ema = copy.deepcopy(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: 0.9 ** e)
scaler = torch.amp.GradScaler("cuda")
last, accumulate = -1, 2
optimizer.zero_grad()
for epoch in range(2):
    for i, (x, y) in enumerate(data):
        ni = i + len(data) * epoch
        with torch.autocast("cuda", enabled=True):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        if ni - last >= accumulate:
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=10.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            for e, p in zip(ema.parameters(), model.parameters()):
                e.data.mul_(0.9).add_(p.data, alpha=0.1)
            last = ni
    scheduler.step()
""",
    "GAN with one scaler": _NET
    + """\
G, D = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(), nn.Linear(8, 1))
opt_g, opt_d = (torch.optim.Adam(m.parameters(), lr=1e-3) for m in (G, D))
scaler = torch.amp.GradScaler("cuda")
bce = nn.BCEWithLogitsLoss()
one, zero = torch.ones(8, 1), torch.zeros(8, 1)
for x, _ in data:
    with torch.autocast("cuda"):
        fake = G(torch.randn(8, 4))
        loss_g = bce(D(fake), one)
    opt_g.zero_grad()
    scaler.scale(loss_g).backward()
    scaler.step(opt_g)
    scaler.update()
    with torch.autocast("cuda"):
        loss_d = (bce(D(x), one) + bce(D(fake.detach()), zero)) / 2
    opt_d.zero_grad(set_to_none=False)
    scaler.scale(loss_d).backward()
    scaler.step(opt_d)
    scaler.update()
""",
    "several losses and optimizers": _NET
    + """\
head = nn.Linear(3, 3)
opt0 = torch.optim.Adam(model.parameters()); opt1 = torch.optim.Adam(head.parameters(), fused=True)
scaler = torch.amp.GradScaler("cuda")
for x, y in data:
    opt0.zero_grad(); opt1.zero_grad()
    with torch.autocast("cuda"):
        out = model(x)
        loss0, loss1 = F.cross_entropy(out, y), F.cross_entropy(head(out), y)
    scaler.scale(loss0).backward(retain_graph=True)
    torch.autograd.backward(scaler.scale([loss1, loss0 * 2]))
    total = scaler.scale(loss0 * 0.5) + scaler.scale(loss0.detach() * 2)
    scaler.unscale_(opt0); scaler.unscale_(opt1)
    norm = nn.utils.clip_grad_norm_([*model.parameters(), *head.parameters()], 1.0)
    print([p.grad.norm().item() for p in model.parameters()])
    if not norm.isfinite():
        opt0.zero_grad(); opt1.zero_grad()
    scaler.step(opt0)
    scaler.step(opt1)
    scaler.update()
""",
    "zeroing by hand": _NET
    + """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for step, (x, y) in enumerate(data):
    for p in model.parameters():
        if p.grad is not None and step % 3 == 0:
            p.grad.detach_()
            p.grad.zero_()
        elif p.grad is not None and step % 3 == 1:
            p.grad.data.fill_(0)
        else:
            p.grad = None
    with torch.autocast("cuda"):
        loss = F.cross_entropy(model(x), y)
    if step == 2:
        scaler.scale(loss).backward(retain_graph=True)
        for p in model.parameters():
            p.grad = torch.zeros_like(p.grad)
    scaler.scale(loss).backward()
    if step == 3:
        torch._foreach_zero_([p.grad for p in model.parameters()])
        continue
    scaler.step(optimizer)
    scaler.update()
""",
    "what scales commute with": _NET
    + """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for step, (x, y) in enumerate(data):
    optimizer.zero_grad()
    with torch.autocast("cuda"):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    bucket = torch.cat([p.grad.view(-1) for p in model.parameters()])
    bucket /= 2
    for p, flat in zip(model.parameters(), bucket.split([p.numel() for p in model.parameters()])):
        p.grad.copy_(flat.view_as(p))
    for p in model.parameters():
        p.grad = p.grad * 2.0
        p.grad.mul_(torch.ones_like(p))
        assert torch.isfinite(p.grad).all() and not torch.isnan(p.grad).any()
        assert p.grad.shape == p.shape and p.grad.dtype == torch.float32
    model[0].weight.grad[0] = 0
    scaler.step(optimizer)
    scaler.update()
""",
    "clipping at a scaled bound": _NET
    + """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
scaler = torch.amp.GradScaler("cuda")
for step, (x, y) in enumerate(data):
    optimizer.zero_grad()
    with torch.autocast("cuda"):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0 * scaler.get_scale())
    before = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    if scaler.get_scale() >= before:
        scheduler.step()
""",
    "penalties": _NET
    + """\
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cuda")
for x, y in data:
    optimizer.zero_grad()
    x.requires_grad_()
    with torch.autocast("cuda"):
        loss = F.cross_entropy(model(x), y)
    scaled = torch.autograd.grad(scaler.scale(loss), model.parameters(), create_graph=True)
    inverse = 1.0 / scaler.get_scale()
    grads = [g * inverse for g in scaled]
    with torch.autocast("cuda"):
        loss = loss + sum(g.pow(2).sum() for g in grads).sqrt()
    with torch.autocast("cuda", enabled=False):
        loss = loss + torch.autograd.grad(model(x.float()).sum(), x, create_graph=True)[0].norm()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "activation checkpoints": _NET
    + """\
from torch.utils.checkpoint import checkpoint
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cuda")
for step, (x, y) in enumerate(data):
    optimizer.zero_grad()
    x.requires_grad_()
    with torch.autocast("cuda"):
        h = checkpoint(model[:2], x, use_reentrant=step % 2 == 0)
        loss = F.cross_entropy(model[2](h), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "regions in other ways": _NET
    + """\
import contextlib
class Net(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
    @torch.autocast("cuda")
    def forward(self, x):
        return self.inner(x)

@contextlib.contextmanager
def amp():
    with torch.autocast("cuda"):
        yield

net = Net(model)
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cuda")
for step, (x, y) in enumerate(data):
    optimizer.zero_grad()
    if step % 3 == 0:
        loss = F.cross_entropy(net(x).float(), y)
    elif step % 3 == 1:
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.autocast("cuda"))
            loss = F.cross_entropy(model(x), y)
    else:
        with amp():
            loss = F.cross_entropy(model(x), y)
        region = torch.autocast("cuda")
        region.__enter__()
        loss = loss + F.cross_entropy(model(x), y)
        region.__exit__(None, None, None)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
    "another, plain loop": _NET
    + """\
other = nn.Linear(4, 3)
optimizer, plain = torch.optim.Adam(model.parameters()), torch.optim.Adam(other.parameters())
scaler = torch.amp.GradScaler("cuda")
for x, y in data:
    optimizer.zero_grad()
    with torch.autocast("cuda"):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    plain.zero_grad()
    F.cross_entropy(other(x), y).backward()
    nn.utils.clip_grad_norm_(other.parameters(), 1.0)
    print(other.weight.grad)
    plain.step()
    torch.save(plain.state_dict(), "plain.pt")
""",
    "optimizer in a wrapper": _NET
    + """\
class Wrapped(torch.optim.Optimizer):
    def __init__(self, optimizer, scaler):
        self.optimizer, self.scaler = optimizer, scaler
    @property
    def param_groups(self):
        return self.optimizer.param_groups
    @property
    def state(self):
        return self.optimizer.state
    @property
    def defaults(self):
        return self.optimizer.defaults
    def zero_grad(self, set_to_none=True):
        self.optimizer.zero_grad(set_to_none)
    def state_dict(self):
        return self.optimizer.state_dict()
    def step(self, closure=None):
        self.scaler.step(self.optimizer, closure)
        self.scaler.update()

scaler = torch.amp.GradScaler("cuda")
optimizer = Wrapped(torch.optim.AdamW(model.parameters()), scaler)
model.forward = torch.autocast(device_type="cuda", dtype=torch.float16)(model.forward)
for step, (x, y) in enumerate(data):
    loss = F.cross_entropy(model(x).float(), y)
    scaler.scale(loss).backward()
    if step % 2:
        scaler.unscale_(optimizer.optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
torch.save([scaler.state_dict(), optimizer.state_dict()], "state.pt")
""",
    "modes of others": _NET
    + """\
from torch.utils.flop_counter import FlopCounterMode
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cuda")
for x, y in data:
    optimizer.zero_grad()
    counter = FlopCounterMode(display=False)
    with torch.autocast("cuda"), counter:
        loss = F.cross_entropy(model(x), y)
        scaled = scaler.scale(loss)
    with FlopCounterMode(display=False) as second:
        scaled.backward()
        model[0].weight.grad.mul_(1.0)
    with FlopCounterMode(display=False):
        scaler.step(optimizer)
        scaler.update()
    assert counter.get_total_flops() and second.get_total_flops()
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
assert not [m for m in _get_current_dispatch_mode_stack() if isinstance(m, FlopCounterMode)]
""",
    "sparse gradients": """\
import torch
import torch.nn as nn
torch.manual_seed(0)
emb = nn.Embedding(20, 4, sparse=True)
out = nn.Linear(4, 2)
sparse, dense = torch.optim.SparseAdam(emb.parameters()), torch.optim.Adam(out.parameters())
scaler = torch.amp.GradScaler("cuda")
for _ in range(5):
    sparse.zero_grad(); dense.zero_grad()
    with torch.autocast("cuda"):
        loss = out(emb(torch.randint(20, (8,)))).float().pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(sparse); scaler.step(dense)
    scaler.update()
""",
    "folds": _NET
    + """\
import copy
for fold in range(3):
    net = copy.deepcopy(model)
    optimizer = torch.optim.Adam(net.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for x, y in data:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = F.cross_entropy(net(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
""",
    "BCE outside": _NET
    + """\
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cuda")
for x, _ in data:
    optimizer.zero_grad()
    with torch.autocast("cuda"):
        logits = model(x)
        with torch.autocast("cuda", enabled=False):
            loss = F.binary_cross_entropy(logits.float().sigmoid(), torch.ones(8, 3))
    loss = loss + nn.BCELoss()(logits.float().sigmoid(), torch.ones(8, 3))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
""",
}
"""By name. A monitor has nothing to say about any of them."""

ON_THE_CPU = {
    "compiled": _NET
    + """\
compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
optimizer = torch.optim.Adam(model.parameters())
scaler = torch.amp.GradScaler("cpu")
for x, y in data:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = F.cross_entropy(compiled(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    print(model[0].weight.grad.norm())
    scaler.step(optimizer)
    scaler.update()
""",
}
"""The same, for torch's own autocast on the CPU: where graphs are compiled, nothing may replace it."""
