"""Casts of operands that half precision does not suit. All scripts that are migrated really run."""

from __future__ import annotations

import pytest
from half_support import cases, check_lines, check_runs

from amp_migrate.api import migrate_source

MIGRATED = cases("""\
=== a product of its own
LINEAR
---
h = model(x)
loss = torch.linalg.slogdet(h.T @ h + torch.eye(1, device=device))[1]
---
    loss = torch.linalg.slogdet(h.T.float() @ h.float() + torch.eye(1, device=device))[1]

=== computed on the CPU, which no autocast of CUDA reaches
LINEAR
def distances(h, kind):
    kept = h.to(torch.device(kind))
    sums = h.to("cpu").unsqueeze(1) - h.cpu()
    print(h.detach().cpu().sum(), h.cpu().data.sum(), kept.shape)
    return sums.pow(2).sum(-1)
---
h = model(x)
loss = distances(h, "cuda" if torch.cuda.is_available() else "cpu").mean()
---
sums = h.float().to("cpu").unsqueeze(1) - h.float().cpu()
print(h.detach().cpu().sum(), h.cpu().data.sum(), kept.shape)

=== of unknown precision
LINEAR
---
loss = torch.quantile((model(x) - y).squeeze(1), 0.5)
---
output = model(x).float()
    loss = torch.quantile((output - y).squeeze(1), 0.5)

=== scattered into what is made like it
NET
    h = self.features(x)
    rows = torch.zeros(8, 8, dtype=torch.long, device=x.device)
    return self.fc2(h.new_zeros([8, 8]).scatter_add(1, rows, h))
---
loss = F.mse_loss(model(x), y)
---
return self.fc2(h.new_zeros([8, 8]).scatter_add(1, rows, h))

=== counted like what may be half
LINEAR
def grid(n, like):
    rows = torch.arange(n, device=like.device)
    return torch.meshgrid(
        rows.to(like.dtype), torch.arange(2, dtype=like.dtype, device=like.device)
    )
---
h = model(x)
places = grid(x.shape[1], h)[0] + h.new_full((2,), 4097)
loss = F.mse_loss(h + places.sum() * 0, y)
---
rows.to(like.float().dtype), torch.arange(2, dtype=like.float().dtype, device=like.device)
places = grid(x.shape[1], h)[0] + h.float().new_full((2,), 4097)

=== counted first, and taken over to what may be half
NET
    h = self.features(x)
    rows = torch.arange(0, 8 * x.shape[1]).unfold(0, 2, 1)
    rows = h.new_tensor(rows).long()
    kind = h.dtype
    places = torch.arange(x.shape[1], dtype=kind, device=x.device)
    more = torch.arange(x.shape[1], **{"dtype": h.dtype}, device=x.device)
    return self.fc2(h) + (places + more).sum() * rows.sum() * 0
---
loss = F.mse_loss(model(x), y)
---
rows = h.float().new_tensor(rows).long()
kind = h.float().dtype
more = torch.arange(x.shape[1], **{"dtype": h.float().dtype}, device=x.device)

=== counted first, for what need not be a float
NET
    return self.fc2(self.features(x)) * count(self.features(x)).sum() * 0
def count(signal):
    rows = torch.arange(0, 8 * signal.size(1))
    return signal.new_tensor(rows).long()
print(count(torch.randint(5, (2, 3))))
---
loss = F.mse_loss(model(x), y)
---
full_signal = signal.float() if signal.dtype is torch.float16 else signal
return full_signal.new_tensor(rows).long()

=== counts beyond the largest half number
LINEAR
counts = [100000.0, 200000.0]
---
h = model(x)
w = h.new_tensor(counts)
loss = (h * (w / w.sum())[0] - y).pow(2).mean()
---
w = h.float().new_tensor(counts)
=== counted as far as half precision has each
LINEAR
---
h = model(x)
loss = F.mse_loss(h + torch.arange(8, device=device).type_as(h).mean(), y)
---
loss = F.mse_loss(h + torch.arange(8, device=device).type_as(h).mean(), y)

=== how often there is each
LINEAR
---
h = model(x)
counts = torch.bincount(torch.randint(8, (9,), device=device), minlength=8)
loss = F.mse_loss(h + counts.type_as(h).log1p().mean(), y)
---
loss = F.mse_loss(h + counts.type_as(h.float()).log1p().mean(), y)

=== no number, and one that ends nowhere
LINEAR
---
h = model(x)
print(torch.tensor(float("nan")), torch.tensor(float("inf")), h.new_full((2,), float("nan")))
loss = F.mse_loss(h, y)
---
loss = F.mse_loss(h, y)

=== scattered into what is made of its dtype
LINEAR
---
h = model(x)
at = torch.zeros(8, 1, dtype=torch.long, device=device)
sums = torch.zeros(8, 1, dtype=h.dtype, device=device).scatter_add(0, at, y.to(h.dtype))
loss = F.mse_loss(h + sums, y)
---
    sums = torch.zeros(8, 1, dtype=h.float().dtype, device=device).scatter_add(0, at, y.to(h.float().dtype))

=== asked for where it is, by its type
NET
    h = self.features(x)
    pads = torch.zeros(8, 1)
    if isinstance(h.data, torch.cuda.FloatTensor):
        pads = pads.cuda()
    return self.fc2(h) + pads
---
loss = F.mse_loss(model(x), y)
---
if isinstance(h.data.float(), torch.cuda.FloatTensor):

=== asked for where it is, to compute there
NET
    h = self.features(x)
    if isinstance(h.data, torch.cuda.FloatTensor) and self.memory is not None:
        h = nn.parallel.data_parallel(self.fc2, h, range(2))
    else:
        h = self.fc2(h)
    return h
---
loss = F.mse_loss(model(x), y)
---
if isinstance(h.data.float(), torch.cuda.FloatTensor) and self.memory is not None:

=== asked whether it is of one type with what is kept
NET
    h = self.features(x)
    if self.training and self.memory.data.type() == h.data.type():
        kept = self.memory
    else:
        kept = torch.ones(8, 8, device=x.device).type_as(h)
        self.memory = kept
    return self.fc2(h * kept)
---
loss = F.mse_loss(model(x), y)
---
if self.training and full_memory.data.type() == h.data.float().type():

=== a matrix made in the place of another
NET
    h = self.features(x)
    unit = h.new(3, 3)
    torch.eye(3, out=unit)
    return self.fc2(h) + unit.mean()
---
loss = F.mse_loss(model(x), y)
---
torch.eye(3, out=unit)

=== a part of a tensor, scattered
NET
    h = self.features(x)
    kept = h.float().new_zeros(8, 5)
    place = torch.zeros(8, 2, dtype=torch.long, device=x.device)
    kept = kept.scatter_(dim=1, index=place, src=h[:, :2])
    return self.fc2(h) + kept.mean()
---
loss = F.mse_loss(model(x), y)
---
kept = kept.scatter_(dim=1, index=place, src=h[:, :2].to(kept.dtype))

=== a parameter made like what may be half
model = nn.Linear(6, 1).to(device)
def pick(kept, one):
    return kept.setdefault("one", one)
---
out = model(x)
out = pick({} if len(loader) else {"one": x.double()}, out)
loss = F.mse_loss(out, y)
# the first
one = nn.Parameter(out.data.new(3).normal_(0, 1), requires_grad=False)
# the other
other = nn.Parameter(out.data.new(3).normal_(0, 1), requires_grad=False)
print((one + other).dtype)
---
full_out = out.float() if out.dtype is torch.float16 else out
one = nn.Parameter(full_out.data.new(3).normal_(0, 1), requires_grad=False)
# the other
other = nn.Parameter(full_out.data.new(3).normal_(0, 1), requires_grad=False)

=== beside what is half where something else is
NET
    h = self.features(x)
    kept = [anchors(h.shape[0], h.dtype), h][1]
    return torch.quantile(self.fc2(kept).squeeze(1), 0.5)
def anchors(n, dtype):
    kind = np.float32
    if dtype == torch.float16:
        kind = np.float16
    return torch.from_numpy(np.zeros(n, dtype=kind))
import numpy as np
---
loss = model(x) ** 2
---
return torch.quantile(self.fc2(kept).squeeze(1).float(), 0.5)

=== one of several by its number
LINEAR
import numpy as np
def errors(a, b):
    return [F.mse_loss(a, b), (a - b).abs().mean(), 0.5 * b]
kept = {}
---
out = model(x)
found = errors(y * 1, out)
for i, name in enumerate(("square", "absolute", "half")):
    kept[name] = np.array(found[i].detach().cpu())
loss = F.mse_loss(out, y)
---
full_found = found[i].float() if found[i].dtype is torch.float16 else found[i]
kept[name] = np.array(full_found.detach().cpu())

=== one of several of several
LINEAR
import numpy as np
def show(codes):
    for i in range(len(codes)):
        for j in range(len(codes[i])):
            print(codes[i][j].cpu().numpy().mean() < 9)
---
out = model(x)
show([[y * 1, out.detach()], [0.5 * y]])
loss = F.mse_loss(out, y)
---
if codes[i][j].dtype is torch.float16
print(full_codes.cpu().numpy().mean() < 9)

=== an attribute of unknown precision
kind = getattr(torch, "float" + "32")
class Flow(nn.Module):
    def __init__(self, split):
        super().__init__()
        self.split = split
        self.a = nn.Parameter(torch.eye(6, dtype=kind))
        self.b = nn.Parameter(torch.eye(6, dtype=kind) * 2)
    def forward(self, x):
        self.w = self.a @ self.b if self.split else self.a * 1
        return x @ self.w, torch.slogdet(self.w)[-1]
model = Flow(len(loader) > 1).to(device)
---
out, logdet = model(x)
loss = F.mse_loss(out.mean(1, keepdim=True), y) - 0.01 * logdet
---
full_w = self.w.float() if self.w.dtype is torch.float16 else self.w

=== a store by a mask of what is not shown to be a tensor
NET
    rows = (x > 0).long()[:, :1].expand(8, 8)
    return self.fc2(put(self.features(x), rows, x.device))
def put(h, mask, device):
    kept = torch.zeros(8, 8).to(device)
    kept[mask == 0] = h[mask == 0]
    return kept
if len(loader) > 9:
    print(put(*torch.load("kept.pt"), device))
---
loss = F.mse_loss(model(x), y)
---
full_h = h.float() if torch.is_tensor(h) and h.dtype is torch.float16 else h
kept[mask == 0] = full_h[mask == 0]

=== a store into what an object is given
LINEAR
class Store:
    def __init__(self, kept):
        self.kept = kept
    def put(self, index, value):
        self.kept[index] = value * 2
store = Store(loader[0][0].clone())
---
out = model(x)
store.put(y[:, 0] > 0, out.expand(8, 6)[y[:, 0] > 0])
loss = F.mse_loss(out, y)
---
self.kept[index] = (value * 2).to(self.kept.dtype)

=== a default of a dict
LINEAR
---
out = model(x)
cache = {}
cache.setdefault("b", out)
loss = torch.quantile(cache["b"].squeeze(1), 0.5) ** 2
---
    cache = {}

=== a product of what becomes double, the other way round
wide = torch.full((8, 8), 0.1, dtype=torch.float64)
model = nn.Linear(6, 8)
---
out = model(x)
p = q = torch.zeros(8, 8)
for _ in range(3):
    p = q + wide
    q = p * 1
loss = out.mean() * torch.quantile(q @ p, 0.5)
---
    loss = out.float().mean() * torch.quantile(q @ p, 0.5)

=== a product of what becomes double
wide = torch.full((8, 8), 0.1, dtype=torch.float64)
model = nn.Linear(6, 8)
---
out = model(x)
p = q = torch.zeros(8, 8)
for _ in range(3):
    p = q + wide
    q = p * 1
loss = out.mean() * torch.quantile(p @ q, 0.5)
---
    loss = out.float().mean() * torch.quantile(p @ q, 0.5)

=== a flow that is inverted, which is no matrix
class Shift(nn.Module):
    def __init__(self):
        super().__init__()
        self.by = nn.Linear(1, 1)
    def inverse(self, u, y):
        return u - self.by(y)
class Flow(nn.Sequential):
    def inverse(self, u, y):
        for module in reversed(self):
            u = module.inverse(u, y)
        return u
model = Flow(Shift(), Shift()).to(device)
---
loss = F.mse_loss(model.inverse(x[:, :1], y), y)
---
u = module.inverse(u, y)

=== a normal distribution of several dimensions
model = nn.Linear(6, 4).to(device)
variance = torch.full((4,), 0.36).to(device)
---
mean = model(x)
dist = torch.distributions.MultivariateNormal(mean, torch.diag_embed(variance.expand_as(mean)))
loss = -(dist.log_prob(y.expand(8, 4)) + dist.entropy()).mean()
---
dist = torch.distributions.MultivariateNormal(mean.float(), torch.diag_embed(variance.expand_as(mean)))

=== the inverse of what an outer function is given
NET
    h = self.features(x)
    return self.fc2(h) * warp(h, torch.eye(3, device=x.device) + 0.1 * x[:3, :3])
def warp(h, intrinsics):
    def scaled(h):
        _, width = h.size()
        matrix = torch.cat((intrinsics[:, :2] / width, intrinsics[:, 2:]), dim=1)
        return invert(matrix).sum()
    return scaled(h)
def invert(matrix):
    return matrix.inverse()
---
loss = F.mse_loss(model(x), y) * 1e-3
---
return matrix.inverse()

=== an inverse
model = nn.Linear(6, 9).to(device)
---
matrix = model(x).view(8, 3, 3) + 3 * torch.eye(3, device=device)
loss = torch.inverse(matrix).mean() + torch.linalg.slogdet(matrix)[1].mean()
---
loss = torch.inverse(matrix.float()).mean() + torch.linalg.slogdet(matrix.float())[1].mean()

=== the norm of a matrix, which CUDA's autocast does not cast
model = nn.Linear(6, 9).to(device)
---
loss = F.mse_loss(model(x)[:, :1], y) + 0.01 * torch.linalg.matrix_norm(model(x))
---
loss = F.mse_loss(model(x)[:, :1], y) + 0.01 * torch.linalg.matrix_norm(model(x).float())

=== the norm of a matrix by its order
model = nn.Linear(6, 9).to(device)
---
size = torch.linalg.norm(model(x), 2, dim=-1).mean() + torch.linalg.norm(model(x))
loss = F.mse_loss(model(x)[:, :1], y) + 0.01 * (size + torch.linalg.norm(model(x), "fro"))
---
size = torch.linalg.norm(model(x), 2, dim=-1).mean() + torch.linalg.norm(model(x))
loss = F.mse_loss(model(x)[:, :1], y) + 0.01 * (size + torch.linalg.norm(model(x).float(), "fro"))

=== a method
model = nn.Linear(6, 9).to(device)
---
matrix = model(x).view(8, 3, 3) + 3 * torch.eye(3, device=device)
loss = 0.01 * matrix.det().mean()
---
loss = 0.01 * matrix.float().det().mean()

=== a quantile
LINEAR
---
loss = torch.quantile((model(x) * 2).squeeze(1), 0.5) ** 2
---
loss = torch.quantile((model(x) * 2).squeeze(1).float(), 0.5) ** 2

=== of data
LINEAR
---
scale = torch.quantile(x, 0.9)
loss = F.mse_loss(model(x) * scale, y)
---
scale = torch.quantile(x, 0.9)

=== a spectrum
LINEAR
---
spectrum = torch.fft.rfft(model(x), dim=0)
loss = spectrum.abs().mean()
---
spectrum = torch.fft.rfft(model(x).float(), dim=0)

=== complex numbers out of two parts
LINEAR
def turned(h):
    return torch.view_as_complex(torch.stack([h, h], dim=-1))
---
loss = torch.fft.irfft(turned(model(x).expand(8, 5)), n=8, dim=1).mean()
---
return torch.view_as_complex(torch.stack([h, h], dim=-1).float())
loss = torch.fft.irfft(turned(model(x).expand(8, 5)), n=8, dim=1).mean()

=== the last of a list
LINEAR
---
history = []
history.append(model(x))
loss = torch.quantile(history[-1].squeeze(1), 0.5) ** 2
---
loss = torch.quantile(history[-1].squeeze(1).float(), 0.5) ** 2

=== the last of a list that begins with another
LINEAR
---
history = [torch.zeros(8, 1, device=device)]
history.append(model(x))
loss = torch.quantile(history[-1].squeeze(1), 0.5) ** 2
---
loss = torch.quantile(history[-1].squeeze(1).float(), 0.5) ** 2

=== the last of a list that is extended
LINEAR
---
history = [torch.ones(8, 1, device=device)]
history.extend([torch.ones(8, 1, device=device), model(x)])
loss = torch.quantile(history[-1].squeeze(1), 0.5) ** 2
---
loss = torch.quantile(history[-1].squeeze(1).float(), 0.5) ** 2

=== the last of a list that is added to
LINEAR
---
history = [torch.zeros(8, 1, device=device)]
history += [model(x)]
loss = torch.quantile(history[-1].squeeze(1), 0.5) ** 2
---
loss = torch.quantile(history[-1].squeeze(1).float(), 0.5) ** 2

=== the last of a list that a name of its own fills
LINEAR
---
out = model(x)
history = []
kept = history
kept.append(out)
loss = torch.quantile(history[-1].squeeze(1), 0.5) ** 2 + out.mean()
---
loss = torch.quantile(history[-1].squeeze(1).float(), 0.5) ** 2 + out.float().mean()

=== the last of a list that a function fills
LINEAR
def keep(held, value):
    held.insert(0, value)
---
out = model(x)
history = []
keep(history, out)
loss = torch.quantile(history[-1].squeeze(1), 0.5) ** 2 + out.mean()
---
loss = torch.quantile(history[-1].squeeze(1).float(), 0.5) ** 2 + out.float().mean()

=== the last of an attribute's list
NET
    self.seen = []
    self.seen.append(self.fc2(self.features(x)))
    return torch.quantile(self.seen[-1].squeeze(1), 0.5)
---
loss = model(x) ** 2
---
return torch.quantile(self.seen[-1].squeeze(1).float(), 0.5)

=== the last of a list of data
LINEAR
---
history = []
history.append(x)
scale = torch.quantile(history[-1], 0.9)
loss = F.mse_loss(model(x) * scale, y)
---
scale = torch.quantile(history[-1], 0.9)

=== a store into a copy
NET
    h = self.features(x)
    out = self.memory.clone()
    out[x.argmax(1)] = h
    return self.fc2(out)
---
loss = F.mse_loss(model(x), y)
---
out[x.argmax(1)] = h.to(out.dtype)

=== a store of data into a result
NET
    h = self.fc1(x)
    out = h.clone()
    out[x.argmax(1)] = torch.cat([x, x], 1)[:, :8].clone()
    return self.fc2(out)
---
loss = F.mse_loss(model(x), y)
---
out[x.argmax(1)] = torch.cat([x, x], 1)[:, :8].clone().to(out.dtype)

=== a store of fp32 into a result
NET
    h = self.fc1(x)
    out = h.clone()
    out[x.argmax(1)] = self.features(x).float()
    return self.fc2(out)
---
loss = F.mse_loss(model(x), y)
---
out[x.argmax(1)] = self.features(x).float().to(out.dtype)

=== a function that stores
NET
    h = self.features(x)
    to = x.argmax(1, keepdim=True).expand(-1, 8)
    base = torch.zeros(8, 8, device=x.device)
    return self.fc2(torch.scatter_reduce(base, 0, to, h, "sum"))
---
loss = F.mse_loss(model(x), y)
---
return self.fc2(torch.scatter_reduce(base, 0, to, h.to(base.dtype), "sum"))

=== a store of a number that is declared to be one
class Smoothed(nn.Module):
    def __init__(self, smoothing: float):
        super().__init__()
        self.smoothing = smoothing
        self.confidence = 1.0 - smoothing
    def forward(self, out, y):
        wanted = torch.zeros_like(out).fill_(self.smoothing)
        wanted.scatter_(1, y.long(), self.confidence)
        return F.kl_div(torch.log_softmax(out, 1), wanted, reduction="batchmean")
class Net(nn.Module):
    def __init__(self, weight: float = 0.0):
        super().__init__()
        self.fc = nn.Linear(6, 2)
        self.criterion = Smoothed(smoothing=weight)
    def forward(self, x, y):
        return self.criterion(self.fc(x), y)
model = Net(**{"weight": 0.25}).to(device)
---
loss = model(x, y)
---
wanted.scatter_(1, y.long(), self.confidence)

=== a test that half precision passes as well
NET
    h = self.features(x)
    if h.dtype not in (torch.uint8, torch.float16, torch.float32):
        raise TypeError(h.dtype)
    return self.fc2(h)
---
loss = F.mse_loss(model(x), y)
---

=== tests of other dtypes
NET
    mask = x > 0
    if mask.dtype == torch.bool and self.fc1.weight.dtype == torch.float32:
        mask = mask.float()
    assert x.dtype == torch.float32
    return self.fc2(self.features(x * mask))
---
loss = F.mse_loss(model(x), y)
---
assert x.dtype == torch.float32

=== a store by a mask
LINEAR
---
buffer = torch.zeros(8, 1, device=device)
buffer[y > 0.5] = model(x)[y > 0.5].clone()
loss = buffer.pow(2).mean()
---
buffer[y > 0.5] = model(x)[y > 0.5].clone().to(buffer.dtype)

=== a store into a buffer
NET
    h = self.features(x)
    index = torch.arange(8, device=x.device)
    self.memory[index] = h.detach()
    return self.fc2(h)
---
loss = F.mse_loss(model(x), y)
---
self.memory[index] = h.detach().to(self.memory.dtype)

=== into a buffer
NET
    h = self.fc1(x)
    with torch.no_grad():
        rows = torch.index_select(self.memory, 0, torch.arange(8))
        rows.mul_(0.5)
        rows.add_(h.mul(0.5))
        norm = rows.pow(2).sum(1, keepdim=True).pow(0.5)
        self.memory.index_copy_(0, torch.arange(8), rows.div(norm))
    return self.fc2(h * self.memory.mean())
---
loss = F.mse_loss(model(x), y)
---
self.memory.index_copy_(0, torch.arange(8), rows.div(norm))

=== rows at unseen places into a buffer
NET
    h = self.fc1(x)
    with torch.no_grad():
        at = places.pop()
        rows = torch.index_select(self.memory, 0, at)
        rows.mul_(0.5).add_(h.mul(0.5))
        self.memory.index_copy_(0, at, rows.div(rows.pow(2).sum(1, keepdim=True).pow(0.5)))
    return self.fc2(h * self.memory.mean())
places = []
---
places.append(torch.arange(8))
loss = F.mse_loss(model(x), y)
---
self.memory.index_copy_(0, at, rows.div(rows.pow(2).sum(1, keepdim=True).pow(0.5)))

=== what is not followed, added by an index
LINEAR
kept = []
---
out = model(x)
kept.append(out)
total = torch.zeros(4, 1, device=device)
total.index_add_(0, torch.arange(8, device=device) % 4, kept.pop())
loss = total.pow(2).mean()
---
total.index_add_(0, torch.arange(8, device=device) % 4, kept.pop().to(total.dtype))

=== added by an index
LINEAR
---
out = model(x)
total = torch.zeros(4, 1, device=device)
total.index_add_(0, torch.arange(8, device=device) % 4, out)
loss = total.pow(2).mean()
---
total.index_add_(0, torch.arange(8, device=device) % 4, out.to(total.dtype))

=== scattered by a keyword
LINEAR
---
out = model(x)
total = torch.zeros(8, 1, device=device)
total = total.scatter(0, torch.zeros_like(y, dtype=torch.long), src=out)
loss = total.pow(2).mean()
---
total = total.scatter(0, torch.zeros_like(y, dtype=torch.long), src=out.to(total.dtype))

=== data added to zeros
LINEAR
---
out = model(x)
total = torch.zeros(8, 1, device=device)
total.index_add_(0, torch.arange(8), y)
loss = F.mse_loss(out, total)
---
total.index_add_(0, torch.arange(8), y)

=== a result added to what has no name
LINEAR
---
out = model(x)
total = torch.zeros(8, 1, device=device).index_add_(0, torch.arange(8), out)
loss = F.mse_loss(total, y)
---
total = torch.zeros(8, 1, device=device).index_add_(0, torch.arange(8), out.float())

=== targets stored by a mask
LINEAR
class Anchors:
    def __init__(self):
        self.boxes = torch.rand(8, 1)
    def match(self, t):
        kept = torch.zeros(8, 1)
        kept[t > 0] = t[t > 0] * 2 + self.boxes[t > 0]
        return kept
anchors = Anchors()
---
out = model(x)
loss = F.smooth_l1_loss(out, anchors.match(y))
---
kept[t > 0] = t[t > 0] * 2 + self.boxes[t > 0]

=== CTC after log_softmax
model = nn.Linear(6, 5).to(device)
ctc = nn.CTCLoss()
---
log_probs = F.log_softmax(model(x)[:, None, :], dim=2).transpose(0, 1).transpose(0, 1)
loss = ctc(log_probs, torch.ones(1, 3, dtype=torch.long), torch.tensor([8]), torch.tensor([3]))
---
loss = ctc(log_probs, torch.ones(1, 3, dtype=torch.long), torch.tensor([8]), torch.tensor([3]))

=== a critic
LINEAR
---
loss = -model(x).mean() + torch.mean(model(-x))
---
loss = -model(x).float().mean() + torch.mean(model(-x).float())

=== a hinge
LINEAR
---
out = model(x)
loss = F.relu(1 - out).mean()
---
loss = F.relu(1 - out).float().mean()

=== a mean that is fp32 anyway
LINEAR
---
loss = ((model(x) - y) ** 2).mean()
---
loss = ((model(x) - y) ** 2).mean()

=== a mean of what may be double
LINEAR
---
loss = (model(x) - y).abs().mean()
---
loss = (model(x) - y).abs().mean()

=== an element of a list of single and double
LINEAR
---
history = [torch.zeros(8, 1)]
history.append(y.double())
history.append(model(x))
loss = torch.quantile(history[0].squeeze(1), 0.5) ** 2 + F.mse_loss(history[2], y)
---
history[0].float() if history[0].dtype is torch.float16 else history[0]
loss = torch.quantile(full_history.squeeze(1), 0.5) ** 2 + F.mse_loss(history[2], y)

=== a spectrum
LINEAR
def spectrum(signal, size):
    window = torch.hann_window(size)
    return torch.view_as_real(torch.stft(signal, size, 2, size, window, return_complex=True))
---
loss = spectrum(model(x).squeeze(1), 4).pow(2).mean()
---
return torch.view_as_real(torch.stft(signal.float(), size, 2, size, window, return_complex=True))

=== a sum by einsum over an image
LINEAR
---
p = torch.sigmoid(model(x)).view(-1, 1, 2, 4)
t = y.view(-1, 1, 2, 4)
both = torch.einsum("bchw,bchw->bc", p, t)
loss = 1 - (2 * both / (p.sum((2, 3)) + t.sum((2, 3)) + 1)).mean()
---
both = torch.einsum("bchw,bchw->bc", p.float(), t)

=== a sum by einsum of one operand
LINEAR
---
p = torch.sigmoid(model(x))
both = torch.einsum("ij->", p)
loss = F.mse_loss(both, y.sum())
---
both = torch.einsum("ij->", p.float())

=== a number for half precision
NET
    h = self.features(x)
    eps = 1e-6 if h.dtype == torch.float16 else 1e-12
    return self.fc2(F.normalize(h, dim=-1, eps=eps))
---
loss = F.mse_loss(model(x), y)
---
eps = 1e-6 if h.dtype == torch.float16 else 1e-12
""")
REFUSED = cases("""\
=== a test of the dtype
NET
    h = self.features(x)
    assert h.dtype == torch.float32
    return self.fc2(h)
---
loss = F.mse_loss(model(x), y)
---
assert

=== a sum in place
NET
    h = self.features(x)
    h.addmm_(h, self.memory)
    return self.fc2(h)
---
loss = F.mse_loss(model(x), y)
---
h.addmm_

=== a distribution whose class an attribute holds
from torch.distributions import MultivariateNormal
class Output:
    kind: type
    def distr(self, out):
        return self.kind(*self.split(out))
class Several(Output):
    def __init__(self):
        self.kind = MultivariateNormal
    def split(self, out):
        scale = 0.1 * out[:, 3:].view(-1, 3, 3).tril(-1) + torch.eye(3).to(out)
        return out[:, :3], None, None, scale
output = Several()
model = nn.Linear(6, 12).to(device)
---
dist = output.distr(model(x))
loss = -dist.log_prob(x[:, :3]).mean()
---
return self.kind

=== a distribution that factorizes what it multiplies
model = nn.Linear(6, 12).to(device)
---
out = model(x)
dist = torch.distributions.LowRankMultivariateNormal(
    out[:, :3], out[:, 3:9].view(8, 3, 2), out[:, 9:].exp()
)
loss = -dist.log_prob(x[:, :3]).mean()
---
dist = torch

=== a distribution that a class out of sight makes
LINEAR
from torch.distributions import LowRankMultivariateNormal
from library import Output
class Low(Output):
    def __init__(self):
        self.kind = LowRankMultivariateNormal
output = Low()
---
loss = F.mse_loss(model(x), y) - output.distr(x).log_prob(x).mean()
---
self.kind =

=== a dot product by einsum
NET
    h = self.features(x)
    return self.fc2(h) + torch.einsum("bi,bi->b", h, h).unsqueeze(1)
---
loss = F.mse_loss(model(x), y)
---
return self.fc2

=== another value for single precision
NET
    h = self.features(x)
    h = h * 2 if h.dtype == torch.float32 else h
    return self.fc2(h)
---
loss = F.mse_loss(model(x), y)
---
h = h * 2

=== scattered what may be a number
LINEAR
kept = []
---
out = model(x)
kept.append([1.0, out][len(kept)])
total = torch.zeros(8, 1, device=device)
total.scatter_(0, torch.zeros_like(y, dtype=torch.long), kept.pop())
loss = F.mse_loss(out, y) + total.sum()
---
total.scatter_

=== added to what may be anything
LINEAR
---
out = model(x)
total = (eval("torch.zeros(8, 1)") if len(loader) else out).index_add_(0, torch.arange(8), out)
loss = F.mse_loss(out, y) + total.sum()
---
total =

=== an entry of a dict
LINEAR
---
cache = {"a": torch.zeros(8, 1)}
cache["b"] = model(x)
loss = torch.quantile(cache["b"].squeeze(1), 0.5) ** 2
---
loss =

=== products inside
model = nn.Linear(6, 9).to(device)
---
loss = torch.linalg.pinv(model(x).view(8, 3, 3)).mean()
---
loss =
""")


@pytest.mark.parametrize("name", MIGRATED)
def test_migrated(name: str) -> None:
    case = MIGRATED[name]
    result = migrate_source(case.source)
    assert result.changed, result.diagnostics
    check_lines(result.output, case.lines)
    check_runs(case.source, result.output)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    case = REFUSED[name]
    result = migrate_source(case.source)
    assert result.output == case.source
    (found,) = result.diagnostics
    assert found.code == "AMP020"
    place = found.blocker or found.place
    line = case.source[: case.source.index(case.lines[0])].count("\n") + 1
    assert place.line == line
