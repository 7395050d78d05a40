"""Constants that half precision cannot hold: what is written instead. All scripts really run."""

from __future__ import annotations

import pytest
from half_support import cases, check_lines, check_runs

from amp_migrate.api import migrate_source
from amp_migrate.core.options import Options

MIGRATED = cases("""\
=== a mask that is imported by another name
from torch import masked_fill as fill
LINEAR
---
h = model(x)
loss = F.mse_loss(fill(h, x[:, :1] > 1, -1e9).softmax(0), y)
---
loss = F.mse_loss(fill(h, x[:, :1] > 1, max(-1e9, torch.finfo(h.dtype).min)).softmax(0), y)

=== a mask that is bound beforehand to what is fp32
import functools
fill = functools.partial(torch.masked_fill, value=-1e9)
LINEAR
---
h = model(x)
loss = F.mse_loss(fill(h.float(), x[:, :1] > 1).softmax(0), y)
---
loss = F.mse_loss(fill(h.float(), x[:, :1] > 1).softmax(0), y)

=== a small number that is divided by
LINEAR
tau = 1e-6
---
out = model(x)
loss = F.mse_loss(out / tau, y) * 1e-12 + out.div(1e-5).abs().mean() * 1e-5
---
loss = F.mse_loss(out.float() / tau, y) * 1e-12 + out.float().div(1e-5).abs().float().mean() * 1e-5

=== a large number that is divided by
NET
    h = self.fc2(self.features(x))
    return h + h / 100000 + torch.cat((h, h), 1)[:, :1] / 1e9
---
loss = F.mse_loss(model(x), y)
---
return h + h.float() / 100000 + torch.cat((h, h), 1)[:, :1].float() / 1e9

=== a floor within a choice
LINEAR
---
out = model(x)
loss = -torch.where(y > 0, out * 0, torch.log((out.abs() / 9).clamp(min=1e-12))).mean() * 1e-3
---
loss = -torch.where(y > 0, out * 0, torch.log((out.abs() / 9).float().clamp(min=1e-12))).mean() * 1e-3

=== a tensor in a function of numbers
LINEAR
---
loss = ((abs(model(x)) + 1e-8) ** 2).mean()
---
output = model(x).float()
    loss = ((abs(output) + 1e-8) ** 2).mean()

=== a list of a dtype that may be half
def beyond(h):
    far = torch.tensor([1e10], dtype=h.dtype, device=h.device)
    near = torch.tensor([0.5, 2.0], dtype=h.dtype, device=h.device)
    spread = torch.cat((h, far.expand(h[:, :1].shape)), 1) * near[:1]
    return 1 - torch.exp(-spread.abs())
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(6, 4)
        self.out = nn.Linear(5, 1)
    def forward(self, x, **more):
        parts = [self.scale(x) for _ in range(2)]
        return self.out(sum(beyond(part) for part in parts))
model = Net().to(device)
---
loss = F.mse_loss(model(x), y)
---
full_h = h.float() if h.dtype is torch.float16 else h
far = torch.tensor([1e10], dtype=full_h.dtype, device=h.device)

=== a mask of what a list of tensors is stacked to
LINEAR
---
out = []
for part in x.chunk(2):
    out.append(model(part))
out = torch.stack(out[1:])
more = torch.cat([model(part) for part in x.chunk(2)])
best = out.detach().clone()
best[best > 0] = -9999999
more[more > 9] = -9999999
chosen = best.max(dim=1)[1] + more.argmax(dim=1).max()
loss = F.mse_loss(out[0, : chosen.numel()] * 2, y[: out.size(1)])
---
best[best > 0] = max(-9999999, torch.finfo(best.dtype).min)
more[more > 9] = max(-9999999, torch.finfo(more.dtype).min)

=== a mask that is enlarged, in place and not
LINEAR
---
out = model(x)
scores = out.clone()
scores[x[:, :1] > 0] = -1e7
scores /= 0.1
more = out.clone()
more.masked_fill_(x[:, :1] > 0, -1e7)
more = more / 0.1
loss = F.mse_loss(out * (torch.softmax(scores, 1) + torch.softmax(more, 1)), y)
---
scores = out.clone()
scores = scores.float()
scores[x[:, :1] > 0] = -1e7
more = out.clone()
more = more.float()
more.masked_fill_(x[:, :1] > 0, -1e7)

=== a mask of what may be of any dtype
class Ask(nn.Module):
    def forward(self, h, *more):
        known = torch.stack([h, h]).detach()
        known[known > 0] = -9999999
        return h + known.argmax(dim=0).float().mean() * 0.1
class Net(nn.Module):
    def __init__(self, ask):
        super().__init__()
        self.ask = ask
        self.out = nn.Linear(6, 1)
    def forward(self, x, *more):
        return self.out(x) + self.ask(self.look(x))
    def look(self, x):
        return getattr(self, "out")(x)
model = Net(Ask()).to(device)
---
loss = F.mse_loss(model(x), y)
---
known = torch.stack([h, h]).detach()
known = known.float() if known.dtype is torch.float16 else known
known[known > 0] = -9999999

=== a default that nobody gives
class Attn(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(6, 4)
        self.k = nn.Linear(6, 4)
        self.out = nn.Linear(8, 1)
    def forward(self, x, mask):
        s = torch.matmul(self.q(x), self.k(x).transpose(0, 1)) / 2
        return self.out(masked_softmax(s, mask))
def masked_softmax(s, mask, value=-1e6):
    flat = s.reshape(-1, s.size(-1))
    flat[~mask] = value
    return F.softmax(flat.reshape(s.shape), dim=-1)
model = Attn().to(device)
---
loss = F.mse_loss(model(x, torch.ones(8, 8, device=device) > 0), y)
---
flat[~mask] = max(value, torch.finfo(flat.dtype).min)

=== max is something else
LINEAR
mask = (torch.arange(8, device=device) > 4).unsqueeze(1)
def max(a, b):
    return a
---
scores = model(x)
scores = scores.masked_fill(mask, -1e9)
loss = F.mse_loss(F.softmax(scores, 0), y)
---
scores = scores.float().masked_fill(mask, -1e9)

=== an exponential of a scalar times a half value
def mixture(y_hat, y):
    means = y_hat[:, :3]
    log_scales = torch.clamp(y_hat.mean(), min=-32.0)
    centered = y - means
    inv_stdv = torch.exp(-log_scales)
    plus = torch.sigmoid(inv_stdv * (centered + 0.5))
    minus = torch.sigmoid(inv_stdv * (centered - 0.5))
    delta = plus - minus
    return -torch.mean(torch.log(torch.clamp(delta, min=1e-12)))
model = nn.Linear(6, 6).to(device)
---
loss = mixture(model(x), y)
---
        y_hat = y_hat.float()

=== a mask that is enlarged
LINEAR
mask = (torch.arange(8, device=device) > 4).unsqueeze(1)
---
scores = model(x)
scores = scores.masked_fill(mask, -1e9) / 0.1
loss = F.mse_loss(F.softmax(scores, 0), y)
---
scores = scores.float().masked_fill(mask, -1e9) / 0.1

=== a mask of a product
class Att(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(6, 8)
        self.k = nn.Linear(6, 8)
        self.v = nn.Linear(6, 1)
    def forward(self, x, mask=None):
        scores = torch.matmul(self.q(x), self.k(x).transpose(-2, -1)).masked_fill(mask == 0, -1e9)
        return torch.matmul(F.softmax(scores, dim=-1), self.v(x))
model = Att().to(device)
mask = torch.tril(torch.ones(8, 8)).to(device)
---
loss = F.mse_loss(model(x, mask), y)
---
scores = torch.matmul(self.q(x), self.k(x).transpose(-2, -1)).float().masked_fill(mask == 0, -1e9)

=== a mask that is enlarged later
LINEAR
mask = (torch.arange(8, device=device) > 4).unsqueeze(1)
---
scores = model(x)
scores = scores.masked_fill(mask, -1e9)
loss = F.mse_loss(F.softmax(8 * scores, 0), y)
---
scores = scores.float().masked_fill(mask, -1e9)

=== of unknown precision
model = nn.Linear(6, 8).to(device)
---
h = model(x)
loss = torch.sqrt((h - y).abs() + 1e-12).mean()
---
    loss = torch.sqrt((h.float() - y).abs() + 1e-12).mean()

=== distances, which the squares in them make fp32
class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 8)
    def forward(self, x, hidden=None):
        return torch.empty_like(x[:, :0]) if hidden else self.fc(x)
def distances(x, y):
    m, n = x.size(0), y.size(0)
    found = (
        torch.pow(x, 2).sum(1, keepdim=True).expand(m, n)
        + torch.pow(y, 2).sum(1, keepdim=True).expand(n, m).t()
        - 2 * torch.matmul(x, y.t())
    )
    found = found.clamp(min=1e-12).sqrt()
    return found
model = Deep().to(device)
---
loss = distances(model(x), model(x.flip(0))).mean()
---
found = found.clamp(min=1e-12).sqrt()

=== a mask
class Att(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(6, 8)
        self.k = nn.Linear(6, 8)
        self.v = nn.Linear(6, 1)
    def forward(self, x, mask=None):
        scores = torch.matmul(self.q(x), self.k(x).transpose(-2, -1)) / math.sqrt(8)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        return torch.matmul(F.softmax(scores, dim=-1), self.v(x))
model = Att().to(device)
mask = torch.tril(torch.ones(8, 8)).to(device)
---
loss = F.mse_loss(model(x, mask), y)
---
scores = scores.masked_fill(mask == 0, max(-1e9, torch.finfo(scores.dtype).min))

=== a mask of a quotient
class Att(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(6, 8)
        self.k = nn.Linear(6, 8)
        self.v = nn.Linear(6, 1)
        self.scale = torch.sqrt(torch.FloatTensor([8])).to(device)
    def attend(self, query, key, value, mask):
        energy = torch.matmul(query, key.permute(1, 0)) / self.scale
        energy = energy.masked_fill(mask == 0, -1e10)
        attention = torch.softmax(energy, dim=-1)
        return torch.matmul(attention, value)
    def forward(self, x, mask=None):
        return self.attend(self.q(x), self.k(x), self.v(x), mask)
model = Att().to(device)
mask = torch.tril(torch.ones(8, 8)).to(device)
---
loss = F.mse_loss(model(x, mask), y)
---
energy = energy.masked_fill(mask == 0, max(-1e10, torch.finfo(energy.dtype).min))

=== a constant tensor
class Att(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(6, 8)
        self.v = nn.Linear(6, 1)
    def forward(self, x, adj):
        e = F.leaky_relu(self.q(x))
        zero_vec = -9e15 * torch.ones_like(e)
        attention = torch.where(adj > 0, e, zero_vec)
        attention = F.softmax(attention, dim=1)
        return attention @ self.v(x)
model = Att().to(device)
mask = torch.tril(torch.ones(8, 8)).to(device)
---
loss = F.mse_loss(model(x, mask), y)
---
zero_vec = max(-9e15, torch.finfo(e.dtype).min) * torch.ones_like(e)

=== a mask in fp32 that is added
model = nn.Linear(6, 8).to(device)
mask = torch.eye(8).to(device)
---
scores = model(x)
scores = scores + (1.0 - mask) * -1e9
loss = (F.softmax(scores, -1).mean(1, keepdim=True) - y).abs().sum()
---
scores = scores + (1.0 - mask) * -1e9

=== a mask in fp32 that is made of places
model = nn.Linear(6, 8).to(device)
same = torch.eye(8).to(device)
---
scores = model(x)
places = torch.arange(8, device=device) + 0 * torch.cuda.device_count()
hidden = same * F.one_hot(places, num_classes=8)
scores = scores - 1e9 * hidden
loss = (F.softmax(scores, -1).mean(1, keepdim=True) - y).abs().sum()
---
scores = scores - 1e9 * hidden

=== an epsilon behind a sigmoid
LINEAR
---
p = torch.sigmoid(model(x))
loss = -(y * torch.log(p + 1e-8) + (1 - y) * torch.log(1 - p + 1e-8)).mean()
---
p = torch.sigmoid(model(x).float())

=== the loss of where(c, p, 1 - p)
LINEAR
---
p = torch.sigmoid(model(x))
loss = -torch.log(torch.where(y > 0, p, 1 - p) + 1e-8).mean()
---
p = torch.sigmoid(model(x).float())

=== the larger of a sigmoid and its rest
LINEAR
---
p = torch.sigmoid(model(x))
loss = -torch.log(torch.maximum(p, 1 - p).T + 1e-8).mean()
---
p = torch.sigmoid(model(x).float())

=== chosen from a sigmoid
LINEAR
---
p = torch.sigmoid(model(x))
loss = -torch.log(p.flip(0).amax(1).sqrt() + 1e-8).mean()
---
p = torch.sigmoid(model(x).float())

=== filled in while it is fp32
LINEAR
mask = torch.arange(8, device=device) > 4
---
scores = model(x)
if mask.any():
    scores = scores.float().masked_fill(mask[:, None], -1e30).type_as(scores)
loss = F.mse_loss(F.softmax(scores, 0), y)
---
scores = scores.float().masked_fill(mask[:, None], max(-1e30, torch.finfo(scores.dtype).min)).type_as(scores)

=== filled in while it is fp32, beside what is added
LINEAR
mask = torch.arange(8, device=device) > 4
---
scores = model(x)
scores = (scores.float().masked_fill(mask[:, None], -1e30) + 1e30 * mask[:, None]).type_as(scores)
loss = F.mse_loss(F.softmax(scores, 0), y)
---
    scores = scores.float()

=== added by a method, to what is fp32 and to what is not
LINEAR
def norm(h, alpha=1e-8):
    least = h.pow(2.0).mean(1, keepdim=True).add_(alpha)
    return h / h.pow(2.0).mean(1, keepdim=True).add(alpha).sqrt() + least
---
h = model(x)
loss = F.mse_loss(norm(h), y) + (1 / torch.sub(h.abs(), 1e-9)).mean() * 1e-9
---
least = h.pow(2.0).mean(1, keepdim=True).add_(alpha)
return h / h.pow(2.0).mean(1, keepdim=True).add(alpha).sqrt() + least
loss = F.mse_loss(norm(h), y) + (1 / torch.sub(h.abs().float(), 1e-9)).float().mean() * 1e-9

=== a number of the rays' dtype
LINEAR
def render(field, depths, origins):
    far = torch.tensor([1e10], dtype=origins.dtype, device=origins.device)
    steps = torch.cat((depths[:, 1:] - depths[:, :-1], far.expand(depths[:, :1].shape)), dim=-1)
    return (1.0 - torch.exp(-F.relu(field + 0.5) * steps)).mean(1)
---
depths = torch.rand(8, 3, device=device).sort(1)[0]
loss = F.mse_loss(render(model(x), depths, y), y[:, 0])
---
far = torch.tensor([1e10], dtype=origins.dtype, device=origins.device)

=== boxes of which a part is fp32
model = nn.Linear(6, 4).to(device)
targets = torch.utils.data.DataLoader([torch.rand(4, 8) for _ in range(6)], batch_size=None)
def iou(a, b, whole=True, eps=1e-9):
    w1, h1 = a[2] - a[0], a[3] - a[1] + eps
    w2, h2 = b[2] - b[0], b[3] - b[1] + eps
    union = (w1 * h1 + w2 * h2).abs() + eps + 1
    return w1 * h2 / union if whole else w1 / union
def build(targets):
    found, places = [], []
    for one in targets:
        found.append(one.to(device))
        places.append(one.long())
    return places, found
---
places, found = build(targets)
out = model(x)
boxes = torch.cat((out[:, :2].relu(), (out[:, 2:].sigmoid() * 2) ** 2), 1)
loss = (1 - iou(boxes.T, found[0])).pow(2).mean()
---
loss = (1 - iou(boxes.T, found[0])).pow(2).mean()

=== a sigmoid among others, of which the least is taken in a function
model = nn.Linear(6, 4).to(device)
def overlap(a, b, eps=1e-9):
    b = b.T
    inner = torch.min(a[0] + a[2], b[0]).clamp(0)
    w, h = torch.max(a[1], b[1]).abs(), (a[3] - b[3]).abs() + eps
    return inner / (w * h + 0.1)
---
out = model(x)
boxes = torch.cat((out[:, :2].sigmoid(), torch.exp(out[:, 2:])), 1)
loss = (1 - overlap(boxes.T, x)).mean()
---
boxes = torch.cat((out[:, :2].float().sigmoid(), torch.exp(out[:, 2:])), 1)

=== what is bounded comes from nothing that is near to 1
class Net(nn.Module):
    def __init__(self, hard=False):
        super().__init__()
        self.layer, self.hard = nn.Linear(6, 3), hard
    def forward(self, x, **given):
        outs = [self.layer(x), self.layer(x)]
        return outs, F.gumbel_softmax(self.layer(x), dim=1, hard=self.hard)
def log(t, eps=1e-20):
    return t.clamp(min=eps).log()
def spread(t, given=False):
    p = t.softmax(1) if not given else t
    return -(p * log(p)).sum(1).mean()
model = Net(**eval("{}")).to(device)
---
outs, drawn = model(x, **eval("{}"))
near = outs[0] + outs[0].sigmoid().log()
which = eval("0")
loss = spread(near) + log(torch.cat([h + 8 for h in outs])).mean()
loss = loss + log(drawn).mean() + log(outs[which] + 8).mean()
---
full_t = t.float() if torch.is_tensor(t) and t.dtype is torch.float16 else t

=== the least of what is fp32
LINEAR
---
p = torch.exp(model(x))
q = torch.min(p, torch.exp(y))
loss = (1 / (q + 1e-9)).mean()
---
q = torch.min(p, torch.exp(y))
loss = (1 / (q + 1e-9)).mean()

=== a clamp behind a sigmoid
LINEAR
---
p = torch.sigmoid(model(x)).clamp(1e-6, 1 - 1e-6)
loss = F.binary_cross_entropy(p, y)
---
p = torch.sigmoid(model(x).float()).clamp(1e-6, 1 - 1e-6)

=== a clamp by keywords
LINEAR
---
p = torch.clamp(torch.sigmoid(model(x)), min=1e-8, max=1 - 1e-8)
loss = -(y * p.log() + (1 - y) * (1 - p).log()).mean()
---
p = torch.clamp(torch.sigmoid(model(x).float()), min=1e-8, max=1 - 1e-8)

=== a norm is fp32 anyway
model = nn.Linear(6, 8).to(device)
---
h = model(x)
n = h / (h.norm(dim=1, keepdim=True) + 1e-8)
loss = ((n.mean(1, keepdim=True) - y) ** 2).mean()
---
n = h / (h.norm(dim=1, keepdim=True) + 1e-8)

=== bounds of an object, which may be any number
NET
    return self.fc2(self.features(x))
class Bounds:
    def __init__(self):
        self.low, self.high, self.least = 0, 0, 1e8
bounds = Bounds()
import copy
target = copy.deepcopy(model)
---
with torch.no_grad():
    goal = target(x).min(1, keepdim=True)[0]
    goal = y + 0.5 * goal.clamp(bounds.low, bounds.high)
    bounds.least = min(bounds.least, float(goal.min()))
bounds.low, bounds.high = bounds.least, 1
loss = F.mse_loss(model(x), goal)
---
full_goal = goal.float() if goal.dtype is torch.float16 else goal

=== a place far away, of which only the shape goes on
NET
    h = self.features(x)
    far = torch.cat((x, torch.zeros_like(h[:1, :6]) + 1e6))
    count = h.mean()
    count -= far.shape[0]
    return self.fc2(h) + far.mean() * 1e-6 + count
---
loss = F.mse_loss(model(x), y)
---
far = torch.cat((x, torch.zeros_like(h[:1, :6]).float() + 1e6))

=== a deviation
model = nn.Linear(6, 8).to(device)
---
h = model(x)
n = (h - h.mean(1, keepdim=True)) / (h.std(1, keepdim=True) + 1e-8)
loss = ((n.mean(1, keepdim=True) - y) ** 2).mean()
---
n = (h - h.mean(1, keepdim=True)) / (h.std(1, keepdim=True).float() + 1e-8)

=== a softmax is fp32 anyway
model = nn.Linear(6, 8).to(device)
---
p = F.softmax(model(x), dim=1)
loss = -(p * torch.log(p + 1e-10)).sum(1).mean()
---
loss = -(p * torch.log(p + 1e-10)).sum(1).mean()

=== a square is fp32 anyway
class LN(nn.Module):
    def __init__(self, eps=1e-12):
        super().__init__()
        self.fc = nn.Linear(6, 8)
        self.eps = eps
    def forward(self, x):
        x = self.fc(x)
        u = x.mean(-1, keepdim=True)
        s = (x - u).pow(2).mean(-1, keepdim=True)
        return (x - u) / torch.sqrt(s + self.eps)
model = LN().to(device)
---
loss = ((model(x).mean(1, keepdim=True) - y) ** 2).mean()
---
return (x - u) / torch.sqrt(s + self.eps)

=== numbers
model = nn.Linear(6, 1).to(device)
---
total = 0.5
scale = 1.0 / (total + 1e-8)
loss = scale * F.mse_loss(model(x), y)
---
scale = 1.0 / (total + 1e-8)

=== in place
class Att(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, Q, K, V, attn_mask):
        scores = torch.matmul(Q, K.transpose(-1, -2)) / math.sqrt(6)
        scores.masked_fill_(attn_mask, -1e9)
        attn = nn.Softmax(dim=-1)(scores)
        context = torch.matmul(attn, V)
        return context, attn
class Multi(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 6)
        self.out = nn.Linear(6, 1)
    def forward(self, x, mask=None):
        c, a = Att()(self.l(x), self.l(x), self.l(x), mask)
        return self.out(c)
model = Multi().to(device)
mask = torch.tril(torch.ones(8, 8)).eq(0).to(device)
---
loss = F.mse_loss(model(x, mask), y)
---
scores.masked_fill_(attn_mask, max(-1e9, torch.finfo(scores.dtype).min))

=== operands from callers
class Att(nn.Module):
    def forward(self, query, key, value, mask=None, dropout=None):
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(6)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        p_attn = F.softmax(scores, dim=-1)
        if dropout is not None:
            p_attn = dropout(p_attn)
        return torch.matmul(p_attn, value), p_attn
class Multi(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])
        self.attention = Att()
        self.dropout = nn.Dropout(0.0)
        self.out = nn.Linear(6, 1)
    def forward(self, x, mask=None):
        query, key, value = [l(v).view(8, 1, 6).transpose(0, 1) for l, v in zip(self.layers, (x, x, x))]
        x, attn = self.attention(query, key, value, mask=mask, dropout=self.dropout)
        return self.out(x).squeeze(0)
model = Multi().to(device)
mask = torch.tril(torch.ones(8, 8)).to(device)
---
loss = F.mse_loss(model(x, mask), y)
---
scores = scores.masked_fill(mask == 0, max(-1e9, torch.finfo(scores.dtype).min))

=== made like a result
NET
    h = self.fc1(x)
    dtype = h[0].dtype
    scale = torch.ones(8, dtype=dtype)
    return self.fc2(h / (scale + 1e-8).sqrt() / (torch.ones(8).to(h[0]) + 1e-8))
---
loss = F.mse_loss(model(x), y)
---
full_scale = scale.float() if scale.dtype is torch.float16 else scale

=== a norm of what attention gives
class Norm(nn.Module):
    def __init__(self, eps=1e-12):
        super().__init__()
        self.eps = eps
    def forward(self, x):
        mean = x.mean(-1, keepdim=True)
        var = x.var(-1, unbiased=False, keepdim=True)
        return (x - mean) / torch.sqrt(var + self.eps)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.keys, self.queries = nn.Linear(6, 6), nn.Linear(6, 6)
        self.norm, self.out = Norm(), nn.Linear(6, 1)
    def forward(self, x):
        keys = self.keys(x)
        x = self.norm(x + torch.softmax(self.queries(x) @ keys.t(), -1) @ keys)
        return self.out(self.norm(x + self.keys(x)))
model = Net().to(device)
---
loss = F.mse_loss(model(x), y)
---
full_var = var.float() if var.dtype is torch.float16 else var

=== integers
model = nn.Linear(6, 1).to(device)
---
lengths = (x > 0).long()
lengths = lengths.masked_fill(lengths == 0, -1e9)
loss = F.mse_loss(model(x), y) + 0 * lengths.sum()
---
lengths = lengths.masked_fill(lengths == 0, -1e9)

=== stored
LINEAR
mask = torch.arange(8, device=device) > 4
NEG = -1e20
---
scores = model(x)
scores[mask] = NEG
loss = F.mse_loss(F.softmax(scores, 0), y)
---
scores[mask] = max(NEG, torch.finfo(scores.dtype).min)

=== the limit of fp32
LINEAR
mask = (torch.arange(8, device=device) > 4).unsqueeze(1)
---
scores = model(x)
scores = scores.masked_fill(mask, torch.finfo(torch.float32).min)
loss = F.mse_loss(F.softmax(scores, 0), y)
---
scores = scores.masked_fill(mask, max(torch.finfo(torch.float32).min, torch.finfo(scores.dtype).min))

=== a large number that may be another bounds what nothing says is a tensor
LINEAR
import json, queue
def bounded(target, limit=1e6):
    target = torch.clamp(target, -limit, limit)
    return target
limit, kept = json.loads("2000000.0"), queue.Queue()
---
kept.put(model(x))
out = bounded(kept.get(), limit=limit)
loss = F.mse_loss(bounded(out) + bounded(model(x)), y)
---
full_target = target.float() if target.dtype is torch.float16 else target

=== the limit of fp32, under a name
LINEAR
mask = (torch.arange(8, device=device) > 4).unsqueeze(1)
---
lowest = torch.finfo(torch.float32).min
scores = model(x).masked_fill(mask, 0)
scores = scores.masked_fill(mask, lowest)
loss = F.mse_loss(F.softmax(scores, 0), y)
---
scores = scores.masked_fill(mask, max(lowest, torch.finfo(scores.dtype).min))

=== a part of the limit of fp32
LINEAR
import numpy
mask = (torch.arange(8, device=device) > 4).unsqueeze(1)
---
lowest = torch.finfo(torch.float32).min / 2
scores = model(x).masked_fill(mask, lowest)
scores = scores.masked_fill(mask, 0.5 * numpy.finfo("float32").min)
loss = F.mse_loss(F.softmax(scores, 0), y)
---
scores = model(x).float().masked_fill(mask, lowest)
scores = scores.masked_fill(mask, max(0.5 * numpy.finfo("float32").min, torch.finfo(scores.dtype).min))

=== numbers in a test
LINEAR
mask = (torch.arange(8, device=device) > 4).unsqueeze(1)
seen, limit = 0, 100000
---
seen += 1
scores = model(x)
if seen < limit and len(loader) < 1e6:
    scores = scores.masked_fill(mask, -1e9) / math.sqrt(2)
loss = F.mse_loss(F.softmax(scores * 0.5, 0), y) + (x > 1e6).sum()
---
scores = scores.masked_fill(mask, max(-1e9, torch.finfo(scores.dtype).min)) / math.sqrt(2)

=== a count of what a library in C has
class Graph:
    def edges(self):
        return _edges(self, int(2))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 1)
        self.graph = Graph()
    def forward(self, x):
        h = self.fc(x)
        if x.dim() == 3:
            if self.graph.edges() >= 0x80000000:
                h = h + 1
        return h
model = Net().to(device)
---
loss = F.mse_loss(model(x), y)
---
loss = F.mse_loss(model(x), y)

=== what the machine tells
import resource
LINEAR
used = 0
---
h = model(x)
usage = resource.getrusage(resource.RUSAGE_SELF)
used += usage.ru_maxrss / 1024**3
loss = F.mse_loss(h, y)
---
used += usage.ru_maxrss / 1024**3

=== compared with next to nothing
LINEAR
---
h = F.relu(model(x))
loss = F.mse_loss(h, y) + (h.detach() <= 1e-9).sum()
---
loss = F.mse_loss(h, y) + (h.detach().float() <= 1e-9).sum()

=== the largest integer
LINEAR
import sys
mask = (torch.arange(8, device=device) > 4).unsqueeze(1)
---
scores = model(x)
scores = scores.masked_fill(mask, -sys.maxsize)
loss = F.mse_loss(F.softmax(scores, 0), y)
---
scores = scores.masked_fill(mask, max(-sys.maxsize, torch.finfo(scores.dtype).min))

=== a large fill
LINEAR
---
far = model(x).abs()
far = far.masked_fill(far < 0.1, 1e6)
loss = F.mse_loss(far.min().view(1, 1).expand_as(y), y)
---
far = far.masked_fill(far < 0.1, min(1e6, torch.finfo(far.dtype).max))

=== a large number put into what has a part that is cast
LINEAR
---
pick = vars(torch)["abs"]
far = pick(model(x)) * (y < 9).float()
far[far < 0.1] = 1e6
loss = F.mse_loss(far.min().view(1, 1).expand_as(y), y)
---
far[far < 0.1] = min(1e6, torch.finfo(far.dtype).max)

=== a buffer that is changed in place
NET
    h = self.fc1(x)
    with torch.no_grad():
        self.memory.mul_(0.9).add_(h.detach().abs().mean(0), alpha=0.1)
    return self.fc2(h / (self.memory.diagonal().abs() + 1e-8).sqrt())
---
loss = F.mse_loss(model(x), y)
---
return self.fc2(h / (self.memory.diagonal().abs() + 1e-8).sqrt())

=== a buffer that is given another tensor
NET
    h = self.fc1(x)
    self.memory.data = h.detach().abs() + 1
    return self.fc2(h / (self.memory[0] + 1e-8))
---
loss = F.mse_loss(model(x), y)
---
return self.fc2(h / (self.memory[0].float() + 1e-8))

=== a buffer that is given another tensor by its name
NET
    h = self.fc1(x)
    for name in ["memory"]:
        setattr(self, name, h.detach().abs() + 1)
    return self.fc2(h / (self.memory[0] + 1e-8))
---
loss = F.mse_loss(model(x), y)
---
return self.fc2(h / (self.memory[0].float() + 1e-8))

=== buffers that are given another tensor
NET
    h = self.fc1(x)
    for buffer in self.buffers():
        buffer.data = h.detach().abs() + 1
    return self.fc2(h / (self.memory[0] + 1e-8))
---
loss = F.mse_loss(model(x), y)
---
return self.fc2(h / (self.memory[0].float() + 1e-8))

=== buffers that stay of their precision
NET
    h = self.fc1(x)
    for buffer in self.buffers():
        buffer.data = 0.9 * buffer.data + h.detach().abs() + 1
    return self.fc2(h / (self.memory[0] + 1e-8))
---
loss = F.mse_loss(model(x), y)
---
return self.fc2(h / (self.memory[0] + 1e-8))

=== a variable that is given another tensor
NET
    h = self.fc1(x)
    scale = torch.ones(8, 8, device=x.device)
    scale.data = h.detach().abs() + 1
    return self.fc2(h / (scale[0] + 1e-8))
---
loss = F.mse_loss(model(x), y)
---
return self.fc2(h / (scale[0].float() + 1e-8))

=== the items of a dict
LINEAR
class Scale:
    def __call__(self, values):
        return values / 2
---
batch = {"x": x, "y": y}
kept = {}
for key, value in batch.items():
    kept[key] = value[:4]
scaled = {k: v.abs() for k, v in kept.items()}
scale = Scale()
out = model(kept["x"])
weight = 1 / (scale(scaled["y"]) + 1e-8)
loss = (F.mse_loss(out, kept["y"], reduction="none") / weight).mean()
---
weight = 1 / (scale(scaled["y"]) + 1e-8)

=== parameters in a dict
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 1)
        self.scales = nn.ParameterDict({"a": nn.Parameter(torch.ones(1))})
        self.more = nn.ParameterList([nn.Parameter(torch.ones(1)) for _ in range(2)])
    def forward(self, x):
        h = self.fc(x)
        for scale in self.scales.values():
            h = h / (scale.abs() + 1e-8)
        for i, scale in enumerate(self.more):
            h = h * i + h / (scale.abs() + 1e-8)
        return h
model = Net().to(device)
---
loss = F.mse_loss(model(x), y)
---
h = h / (scale.abs() + 1e-8)

=== a lambda of what is fp32 by itself
LINEAR
rest = lambda raw, scale, act=F.relu: 1. - torch.exp(-act(raw) * scale)
---
alpha = rest(model(x) + 2.0, 2.0)
loss = -torch.log(1. - alpha + 1e-10).mean()
---
loss = -torch.log(1. - alpha + 1e-10).mean()

=== a sum of tensors
LINEAR
---
total = sum([model(x) + 1, model(-x).abs()])
loss = -torch.log(total.abs() + 1e-12).mean()
---
full_total = total.float() if total.dtype is torch.float16 else total
loss = -torch.log(full_total.abs() + 1e-12).mean()

=== a sum with what a lambda keeps half
LINEAR
twice = lambda raw: raw * 2
---
h = twice(model(x).abs() + 1)
loss = F.mse_loss(torch.log(h + 1e-10), y)
---
full_h = h.float() if h.dtype is torch.float16 else h
loss = F.mse_loss(torch.log(full_h + 1e-10), y)

=== a clamp of what may have any dtype
LINEAR
kept = [torch.full((8, 1), 3.0, dtype=torch.float64), torch.full((8, 1), 3)]
def size(area):
    area = torch.clamp(area, min=1e-8)
    return torch.sqrt(area)
---
h = model(x)
loss = size(h.abs()).mean() + size((h - y.double()).abs()).mean()
loss = loss + 0.1 * (h.mean() * size(kept[len(loader) % 2]).mean()) ** 2
---
full_area = area.float() if area.dtype is torch.float16 else area
area = torch.clamp(full_area, min=1e-8)

=== an exponential times a half value
def mixture(y_hat, y):
    means = y_hat[:, :3]
    log_scales = torch.clamp(y_hat[:, 3:], min=-32.0)
    centered = y - means
    inv_stdv = torch.exp(-log_scales)
    plus = torch.sigmoid(inv_stdv * (centered + 0.5))
    minus = torch.sigmoid(inv_stdv * (centered - 0.5))
    delta = plus - minus
    return -torch.mean(torch.log(torch.clamp(delta, min=1e-12)))
model = nn.Linear(6, 6).to(device)
---
loss = mixture(model(x), y)
---
return -torch.mean(torch.log(torch.clamp(delta, min=1e-12)))

=== a clamp of parts that are joined
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 1)
        self.act = nn.Sigmoid()
    def forward(self, x):
        out = self.l(x)
        out = self.act(out)
        return out.view(x.shape[0], -1)
model = Head().to(device)
---
p = torch.cat([model(part) for part in x.chunk(2)], dim=0)
p = torch.clamp(p, 1e-4, 1.0 - 1e-4)
loss = -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()
---
out = self.act(out.float())

=== what an object returns
LINEAR
class Scale:
    def __call__(self, values):
        return values[0]
---
scale = Scale()
loss = (1 / (scale(model(x)).abs() + 1 + 1e-8)).mean()
---
    loss = (1 / (scale(output).abs() + 1 + 1e-8)).mean()

=== a clamp of what may be a number
LINEAR
def least(area):
    return 1 / (area + 1e-8)
---
loss = least([3.0, model(x).abs()][len(loader) % 2]) * model(x).mean()
---
return 1 / (full_area + 1e-8)

=== a parameter of a list that is given another tensor
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 1)
        self.more = nn.ParameterList([nn.Parameter(torch.ones(1)) for _ in range(2)])
    def forward(self, x):
        h = self.fc(x)
        out = h
        for scale in self.more:
            out = out + h / (scale.abs() + 1e-8)
        self.more[0].data = h[0].detach()
        return out
model = Net().to(device)
---
loss = F.mse_loss(model(x), y)
---
out = full_out + h.float() / (full_scale.abs() + 1e-8)

=== a slice is filled
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
    def forward(self, x, t):
        output = self.net(x)
        first = int(t * 2)
        if first > 0:
            output[:, :first].data.fill_(-10e10)
        return output
model = Net().to(device)
---
loss = F.cross_entropy(model(x, 1), y.long().squeeze(1) + 2)
---
output[:, :first].data.fill_(max(-10e10, torch.finfo(output.dtype).min))

=== what a module with its own __call__ returns
LINEAR
class Scale(nn.Module):
    def __call__(self, values):
        return values @ values.T
    def forward(self, values):
        return values / 2
scale = Scale()
---
loss = F.mse_loss(model(x), y) + (1 / (scale(x).abs() + 1e-8)).mean()
---
    loss = F.mse_loss(output, y) + (1 / (scale(x).abs() + 1e-8)).mean()
""")
REFUSED = cases("""\
=== a mask by another name
fill = torch.masked_fill
LINEAR
---
h = model(x)
loss = F.mse_loss(fill(h, x[:, :1] > 1, -1e9).softmax(0), y)
---
loss = F.mse_loss(fill(

=== a method by another name
LINEAR
---
fill = model(x).masked_fill
loss = F.mse_loss(fill(x[:, :1] > 1, -1e9).softmax(0), y)
---
loss = F.mse_loss(fill(

=== a method by its name
LINEAR
name = ["masked_fill"][0]
---
h = model(x)
loss = F.mse_loss(getattr(h, name)(x[:, :1] > 1, -1e9).softmax(0), y)
---
loss = F.mse_loss(getattr(

=== a floor of a function by its name
LINEAR
name = ["clamp"][0]
---
h = model(x)
loss = F.mse_loss(h / getattr(torch, name)(h.abs() * 0, min=1e-9) * 1e-9, y)
---
loss = F.mse_loss(h / getattr(

=== a mask that is bound beforehand
import functools
fill = functools.partial(torch.masked_fill, value=-1e9)
LINEAR
---
h = model(x)
loss = F.mse_loss(fill(h, x[:, :1] > 1).softmax(0), y)
---
loss = F.mse_loss(fill(

=== a factor that is bound beforehand
import functools
scaled = functools.partial(torch.mul, 1e6)
LINEAR
---
h = model(x)
loss = F.mse_loss(scaled(h) / 1e6, y)
---
loss = F.mse_loss(scaled(

=== a method that is called with what is bound beforehand
import operator
fill = operator.methodcaller("masked_fill", torch.zeros(8, 1).bool(), -1e9)
LINEAR
---
h = model(x)
loss = F.mse_loss(fill(h).softmax(0), y)
---
loss = F.mse_loss(fill(

=== a mask that is spread
LINEAR
---
given = (x[:, :1] > 1, -1e9)
h = model(x)
loss = F.mse_loss(h.masked_fill(*given).softmax(0), y)
---
loss = F.mse_loss(h.masked_fill(

=== a mask that is spread by names
LINEAR
---
h, given = model(x), dict(mask=x[:, :1] > 1, value=-1e9)
loss = F.mse_loss(h.masked_fill(**given).softmax(0), y)
---
loss = F.mse_loss(h.masked_fill(

=== in place, a small number that is divided by
LINEAR
---
h = model(x)
h /= 1e-5
loss = F.mse_loss(h, y)
---
h /= 1e-5

=== a method that multiplies in place
LINEAR
---
h = model(x)
h.mul_(1e5)
loss = F.mse_loss(h, y)
---
h.mul_(1e5)

=== what is kept beside what the machine tells
import types
LINEAR
usage = types.SimpleNamespace()
---
usage.peak = model(x)
total = 0
total += usage.peak / 1024**3
loss = F.mse_loss(usage.peak, y) + total.sum()
---
total +=

=== a peak that a library in C gives
LINEAR
---
h = model(x)
if _peak(h[0, 0]) >= 0x80000000:
    break
loss = F.mse_loss(h, y)
---
if _peak(

=== a small number added in place to what is half
LINEAR
---
h = model(x)
h.add_(1e-8)
loss = F.mse_loss(h / h.norm(), y)
---
h.add_(1e-8)

=== a slice of what may be integers is filled
import collections
LINEAR
Info = getattr(collections, "".join(["named", "tuple"]))("Info", ["places"])
def fill(info):
    places = info.places
    places[:, :1].fill_(-100000)
    return places
---
h = model(x)
loss = h.mean() + fill(Info((h > 0).long())).float().mean()
---
places[:, :1].fill_

=== compared with the mask
LINEAR
mask = (torch.arange(8, device=device) > 4).unsqueeze(1)
---
scores = model(x)
scores = scores.masked_fill(mask, -1e9)
hidden = scores == -1e9
loss = F.mse_loss(F.softmax(scores, 0).masked_fill(hidden, 0.0), y)
---
hidden =

=== compared with a part of the mask
LINEAR
mask = (torch.arange(8, device=device) > 4).unsqueeze(1)
NEG = -1e9
---
scores = model(x)
scores = scores.masked_fill(mask, NEG)
hidden = torch.lt(scores, NEG / 2)
loss = F.mse_loss(F.softmax(scores, 0).masked_fill(hidden, 0.0), y)
---
hidden =

=== asked for all of it
LINEAR
mask = (torch.arange(8, device=device) > 4).unsqueeze(1)
---
scores = model(x)
scores = scores.masked_fill(mask, -1e9)
if scores.max().eq(-1e9):
    continue
loss = F.mse_loss(F.softmax(scores, 0), y)
---
if scores.max()

=== a lambda
LINEAR
h = torch.ones(3)
f = lambda h: torch.log(h + 1e-8)
---
loss = f(model(x).abs()).mean()
---
f =

=== a clamp of joined values of a name that another value has, too
SEQ
p = torch.rand(8, 1)
q = torch.cat([p for p in [torch.sigmoid(p)]])
---
parts = [model(x)]
p = torch.ones(8, 1, device=device)
q = torch.cat([p.view(-1, 1) for p in parts], dim=0)
q = torch.clamp(q, 1e-4, 1.0 - 1e-4)
loss = -(y * torch.log(q) + (1 - y) * torch.log(1 - q)).mean()
---
q = torch.clamp

=== a clamp of what comes out of a collection of unseen sigmoids
LINEAR
act = vars(torch)["sigmoid"]
---
kept = {"p": act(model(x))}
loss = sum((p + 1e-8).log().mean() for p, q in zip(kept.values(), [y]))
---
loss =

=== a clamp behind layers with a hook, which end in a sigmoid
SEQ
model[0].register_forward_hook(lambda module, given, output: None)
---
p = torch.clamp(model(x), min=1e-8)
loss = -torch.log(p).mean()
---
p = torch.clamp

=== a lambda of half values
LINEAR
twice = lambda raw: raw * 2
---
loss = -torch.log(twice(model(x).abs() + 1) + 1e-10).mean()
---
loss =

=== a clamp of what comes from out of sight
LINEAR
chosen = vars(torch)["sigmoid"]
---
p = chosen(model(x))
p = torch.clamp(p, min=1e-8)
loss = -torch.log(p).mean()
---
p = torch.clamp

=== the items of a dict of results
LINEAR
class Scale:
    def __call__(self, values):
        return values / 2
---
results = {"x": x}
results["h"] = model(x)
for key, value in results.items():
    if key == "h":
        weight = 1 / (value[0].abs() + 1e-8)
loss = F.mse_loss(weight, y[0])
---
weight = 1

=== a comprehension over results
LINEAR
---
results = {"h": model(x)}
halved = {k: v[0] for k, v in results.items()}
loss = (1 / (halved["h"].abs() + 1e-8)).mean()
---
loss = (1 /

=== the items of dicts of a dict
LINEAR
---
results = {"x": {"x": x}}
for inner in results.values():
    inner["h"] = model(x)
out = model(x)
for last in results.values():
    out = out + 1 / (last["h"][0].abs() + 1e-8)
loss = F.mse_loss(out, y)
---
out = out + 1

=== a list that is an attribute
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 1)
        self.kept = []
    def forward(self, x):
        h = self.fc(x)
        self.kept = [h, h / 2]
        out = h
        for one in self.kept:
            out = out + 1 / (one[0].abs() + 1e-8)
        return out
model = Net().to(device)
---
loss = F.mse_loss(model(x), y)
---
out = out + 1

=== what a module with its own __call__ returns, taken from 1
LINEAR
class Scale(nn.Module):
    def __call__(self, values):
        return values @ values.T
    def forward(self, values):
        return values / 2
scale = Scale()
---
loss = F.mse_loss(model(x), y) + (1 / (1 - scale(x).abs() + 1e-8)).mean()
---
loss = F.mse_loss(model(x), y) + (1 /
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
    assert found.code == "AMP021"
    place = found.blocker or found.place
    line = case.source[: case.source.index(case.lines[0])].count("\n") + 1
    assert place.line == line


@pytest.mark.parametrize("name", ["a mask", "a deviation"])
def test_bfloat16_has_the_range_of_fp32(name: str) -> None:
    source = MIGRATED[name].source
    output = migrate_source(source, options=Options(dtype="bfloat16")).output
    assert output != source
    assert "finfo" not in output and ".float() +" not in output


def test_bfloat16_rounds_to_one() -> None:
    case = MIGRATED["a clamp behind a sigmoid"]
    output = migrate_source(case.source, options=Options(dtype="bfloat16")).output
    check_lines(output, case.lines)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (
            "(out * 1e5 * y).sum(1).abs().mean() * 1e-5",
            "(out.float() * 1e5 * y).sum(1).abs().mean() * 1e-5",
        ),
        (
            "(7e4 / (out.abs() + 1)).mean() * 1e-5",
            "(7e4 / (out.abs() + 1).float()).float().mean() * 1e-5",
        ),
        (
            "((out + 1e5) - 1e5).abs().mean()",
            "((out.float() + 1e5).float() - 1e5).abs().float().mean()",
        ),
    ],
)
def test_a_factor_is_no_mask(loss: str, expected: str) -> None:
    """Held at half precision's largest number, it would be another one."""
    source = FACTOR.replace("LOSS", loss)
    result = migrate_source(source, path="train.py")
    assert f"        loss = {expected}\n" in result.output
    check_runs(source, result.output)


def test_a_factor_of_a_product_is_left_alone() -> None:
    """Autocast makes it half again."""
    source = FACTOR.replace("LOSS", "torch.mm(out + 1e5, y.t()).mean()")
    result = migrate_source(source, path="train.py")
    assert result.output == source
    assert [found.code for found in result.diagnostics] == ["AMP021"]
    assert "beyond half precision's largest number" in result.diagnostics[0].message


FACTOR = """\
import torch
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(4, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    x, y = torch.randn(6, 4, device=device), torch.rand(6, 4, device=device)
    optimizer.zero_grad()
    out = model(x)
    loss = LOSS
    loss.backward()
    optimizer.step()
"""


OPTION = """\
def distance(p, q, is_logit=True):
    if is_logit:
        p = F.softmax(p, dim=1)
        q = F.softmax(q, dim=1)
    return -(p * torch.log(q + 1e-8)).sum(1).mean()
"""


@pytest.mark.parametrize(
    ("given", "known"),
    [("", True), (", is_logit=True", True), (", len(x) > 2", False), (", 0", False)],
)
def test_an_option_that_is_always_taken(given: str, known: bool) -> None:
    (case,) = cases(
        f"=== one\nLINEAR\n{OPTION}---\nh = model(x).abs()\n"
        f"loss = distance(h.detach(), h{given}) + h.mean()\n---\n"
    ).values()
    result = migrate_source(case.source, path="train.py")
    assert (
        "torch.log(q + 1e-8)" if known else "log(q.float() + 1e-8)"
    ) in result.output
    check_runs(case.source, result.output)


@pytest.mark.parametrize(
    "cast", ["mask.type_as(h)", "mask.to(h.dtype)", "mask.to(dtype=h.dtype)"]
)
@pytest.mark.parametrize(
    "made",
    [
        "torch.zeros(8, 1, device=device).masked_fill(seen, -1e9)",
        "(1.0 - seen.float()) * -1e9",
        "torch.ones(8, 1, device=device) * -1e9",
    ],
)
def test_a_mask_that_is_cast_to_half_overflows(made: str, cast: str) -> None:
    case = cases(f"""\
=== one
LINEAR
seen = torch.zeros(8, 1, dtype=torch.bool, device=device)
---
mask = {made}
h = model(x)
loss = F.mse_loss(torch.softmax(h + {cast}, 0), y)
---
""")["one"]
    output = migrate_source(case.source).output
    assert output == case.source or "enabled=False" in output


def test_a_probability_that_was_made_in_half_is_named() -> None:
    """To compute with the small number in fp32 comes too late for it."""
    source = """\
import torch
from torch import nn
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
def log(t, eps=1e-20):
    return t.clamp(min=eps).log()
class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        self.out, self.drop = nn.Linear(8, 3), nn.Dropout(0.1)
    def forward(self, x, raw=False):
        h = self.out(x)
        if raw:
            return h, x
        return torch.sigmoid(self.drop(torch.sigmoid(h))), x
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = Attend()
    def forward(self, x):
        out, _ = self.attend(x)
        return log(out)
net = Net().to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    net(torch.randn(4, 8, device=device)).mean().backward()
    opt.step()
"""
    (found,) = migrate_source(source).diagnostics
    assert "may be a probability made in half" in found.message


@pytest.mark.parametrize(
    ("held", "cast"),
    [
        ("class Split:\n    def __init__(self):\n        self.data = train\n", False),
        ("from yacs.config import CfgNode\nc = CfgNode()\nc.data = CfgNode()\n", False),
        ("def put(x, y):\n    x.data = y\nput(train, train)\n", True),
    ],
)
def test_data_that_no_tensor_has(held: str, cast: bool) -> None:
    source = f"""\
import torch
from torch import nn
from sets import train
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
{held}class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(3, 3)
        self.weights = nn.Parameter(torch.ones(3))
    def forward(self, x):
        noise = torch.rand_like(self.weights)
        return self.net(x) - torch.log(noise + 1e-12)
net = Block().to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    net(torch.randn(4, 3, device=device)).mean().backward()
    opt.step()
"""
    output = migrate_source(source).output
    assert ("noise.float()" in output) is cast and "autocast" in output
