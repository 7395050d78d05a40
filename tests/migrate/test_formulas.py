"""Formulas written out by hand. All scripts that are migrated really run."""

from __future__ import annotations

from pathlib import Path

import pytest
from half_support import cases, check_lines, check_runs

from amp_migrate.api import migrate_paths, migrate_source
from amp_migrate.core.options import Options

MIGRATED = cases("""\
=== a Gram matrix beside the logarithm of a half value
model = nn.Linear(6, 4).to(device)
---
h = model(x).abs() + 1
gram = (h.t() @ h).sum() + torch.exp(h).sum()
loss = 1e-3 * gram + F.mse_loss(model(x), y.expand(8, 4))
---
    h = h.float()

=== covariances in a window
def similarity(a, b, window):
    mean_a = F.conv2d(a, window, padding=1)
    mean_b = F.conv2d(b, window, padding=1)
    product = mean_a * mean_b

    spread_a = F.conv2d(a * a, window, padding=1) - mean_a.pow(2)
    both = F.conv2d(a * b, window, padding=1) - product
    return ((2 * both + 9e-4) / (spread_a + 9e-4)).mean()
model = nn.Linear(6, 6).to(device)
kept = torch.full((1, 1, 3, 3), 1 / 9)
---
h = torch.sigmoid(model(x)).view(1, 1, 8, 6)
loss = 1e-2 * similarity(h, x.view(1, 1, 8, 6), kept.to(h))
---
full_window = window.float() if window.dtype is torch.float16 else window
    mean_a = F.conv2d(a.float(), full_window, padding=1)
    mean_b = F.conv2d(b, full_window, padding=1)
    both = F.conv2d(a.float() * b, full_window, padding=1) - product

=== correlations by sums in a window
def correlation(a, b, window, size=9):
    sums = getattr(F, f"conv{a.dim() - 2}d")
    square, both = a * a, a * b
    sum_a = sums(a, window, padding=1)
    sum_b = sums(b, window, padding=1)
    of_squares = sums(square, window, padding=1)
    of_both = sums(both, window, padding=1)
    cross = of_both - sum_a * sum_b / size
    spread = of_squares - 2 * sum_a / size * sum_a + sum_a * sum_a / size
    return (cross / (spread + 1e-3)).mean()
model = nn.Linear(6, 6).to(device)
kept = torch.ones(1, 1, 3, 3)
---
h = torch.sigmoid(model(x)).view(1, 1, 8, 6)
loss = 1e-2 * correlation(h, x.view(1, 1, 8, 6), kept.to(x))
---
square, both = a.float() * a, a.float() * b
    sum_a = sums(a.float(), window, padding=1)
    of_squares = sums(square, window, padding=1)
            of_both = sums(both, window, padding=1)

=== sums of a batch that are kept
class Codes(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 4)
        self.register_buffer("code", torch.randn(4, 3))
        self.register_buffer("sums", torch.zeros(4, 3))
    def forward(self, x):
        h = self.body(x) * 200
        chosen = torch.cdist(h, self.code.t()).argmin(1)
        hot = F.one_hot(chosen, 3).type(h.dtype)
        sums = h.transpose(0, 1) @ hot.expand(-1, 3)
        with torch.no_grad():
            self.sums.data.mul_(0.9).add_(sums, alpha=0.1)
        return h + self.sums.mean()
model = Codes().to(device)
---
loss = 1e-4 * F.mse_loss(model(x), y.expand(8, 4))
---
            sums = h.transpose(0, 1).float() @ full_hot.expand(-1, 3)

=== sums of a batch that are kept in another form
class Codes(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 4)
        self.kept = nn.Parameter(torch.zeros(3, 4), requires_grad=False)
    def forward(self, x):
        h = self.body(x)
        hot = torch.zeros(8, 3, device=x.device)
        hot.scatter_(1, torch.arange(8, device=x.device)[:, None] % 3, 1)
        found = torch.matmul(hot.t(), h)
        self.kept.data = self.kept.data * 0.9 + 0.1 * found.detach()
        return h * self.kept.sum(0)
model = Codes().to(device)
---
loss = F.mse_loss(model(x), y.expand(8, 4))
---
            found = torch.matmul(hot.t(), h.float())

=== distances by the squares
class Near(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 4)
        self.register_buffer("c", torch.randn(4, 3))
    def forward(self, x):
        h = self.body(x)
        far = h.pow(2).sum(1, keepdim=True) - 2 * h @ self.c + self.c.pow(2).sum(0)
        return h - 0.01 * far.mean()
model = Near().to(device)
---
loss = F.mse_loss(model(x), y.expand(8, 4))
---
            far = h.float().pow(2).sum(1, keepdim=True) - 2 * h.float() @ self.c + self.c.pow(2).sum(0)

=== distances by the squares, step by step
def distances(a, b):
    far = -2 * torch.matmul(a, b.t())
    far += torch.sum(a ** 2, -1).view(-1, 1)
    far += torch.sum(b ** 2, -1).view(1, -1)
    return far
model = nn.Linear(6, 4).to(device)
---
h = model(x)
loss = F.mse_loss(h + 0.01 * distances(h, h[:3] + 1).mean(), y.expand(8, 4))
---
        far = -2 * torch.matmul(a.float(), b.t().float())

=== distances by the squares, of a product that has a name
class Near(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 4)
    def forward(self, x):
        h = self.body(x)
        k = h[:3] + 1
        both = h @ k.t()
        far = (h * h).sum(1)[:, None] + (k * k).sum(1)[None] - 2 * both
        return h - 0.01 * far.mean()
model = Near().to(device)
---
loss = F.mse_loss(model(x), y.expand(8, 4))
---
            both = h.float() @ k.t().float()

=== sines of angles
class Margin(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 4)
        self.weight = nn.Parameter(torch.randn(3, 4))
    def forward(self, x):
        h = self.body(x)
        cosine = F.linear(F.normalize(h), F.normalize(self.weight))
        sine = torch.sqrt((1.0 - torch.pow(cosine, 2)).clamp(0, 1))
        return cosine * 0.8 - sine * 0.6
model = Margin().to(device)
---
loss = F.mse_loss(model(x), y.expand(8, 3))
---
            cosine = F.linear(F.normalize(h.float()), F.normalize(self.weight))

=== sines of angles, step by step
class Margin(nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(4, 3))
    def forward(self, h):
        cos = torch.mm(h, F.normalize(self.kernel, dim=0))
        cos = cos.clamp(-1, 1)
        squares = cos ** 2
        rest = 1 - squares
        return cos * 0.8 - (rest + 1e-3).sqrt() * 0.6
model, head = nn.Linear(6, 4).to(device), Margin().to(device)
---
loss = F.mse_loss(head(F.normalize(model(x))), y.expand(8, 3))
---
            cos = torch.mm(h, F.normalize(self.kernel, dim=0))

=== a variance
model = nn.Linear(6, 4).to(device)
---
h = model(x) + 3.0
var = (h ** 2).mean(0) - h.mean(0) ** 2
loss = F.mse_loss(var, y.expand_as(h).var(0))
---
var = (h ** 2).mean(0) - h.float().mean(0) ** 2

=== areas of boxes in pixels
class Boxes(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 4)
    def forward(self, x):
        return torch.sigmoid(self.head(x)) * 512
class Overlap(nn.Module):
    def forward(self, p, t):
        x1, y1, x2, y2 = torch.split(p, 1, 1)
        a, b, c, d = torch.split(t, 1, 1)
        area = (x1 + x2) * (y1 + y2)
        area_t = (a + c) * (b + d)
        w = torch.clamp(torch.min(x2, c) + torch.min(x1, a), min=0)
        h = torch.clamp(torch.min(y2, d) + torch.min(y1, b), min=0)
        inter = w * h
        return -torch.log((inter + 1.0) / (area + area_t - inter + 1.0)).mean()
model = Boxes().to(device)
overlap = Overlap()
---
loss = overlap(model(x), 300 * torch.rand(len(x), 4).to(device))
---
area = (x1 + x2).float() * (y1 + y2)
inter = w.float() * h

=== areas by widths and heights
class Boxes(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(6, 4)
    def forward(self, x):
        return torch.sigmoid(self.head(x)) * 512
def iou(p, t):
    sides = (torch.min(p[:, 2:], t[:, 2:]) - torch.max(p[:, :2], t[:, :2]) / 9).clamp(min=0)
    inter = sides[..., 0] * sides[..., 1]
    return inter / (p[:, 2] * p[:, 3] + t[:, 2] * t[:, 3] + 1.0)
model = Boxes().to(device)
---
loss = 1 - iou(model(x), 300 * torch.rand(len(x), 4).to(device)).mean()
---
return inter / (p[:, 2].float() * p[:, 3] + t[:, 2] * t[:, 3] + 1.0)

=== a variance in steps
model = nn.Linear(6, 4).to(device)
---
h = model(x) + 3.0
mean = h.mean(dim=0)
power = h.pow(2).mean(dim=0)
var = power - mean.pow(2)
loss = F.mse_loss(var, y.expand_as(h).var(0))
---
mean = h.float().mean(dim=0)

=== a norm of products
model = nn.Linear(6, 4).to(device)
---
h = model(x) * 400
size = torch.sqrt((h * h).sum(1, keepdim=True) + 1e-6)
loss = F.mse_loss((h / size).sum(1, keepdim=True), y)
---
size = torch.sqrt((h.float() * h).sum(1, keepdim=True) + 1e-6)

=== the mean of a square that has a name
model = nn.Linear(6, 4).to(device)
---
h = model(x) * 400
squared = h * h
loss = F.mse_loss(1e-5 * torch.mean(squared, 1, keepdim=True), y)
---
squared = h.float() * h

=== a sum of squares of any dtype
model = nn.Linear(6, 4).to(device)
---
h = model(x) * [y.new_full((), 300.0), 1.0][len(loader) % 2]
loss = torch.sum(h * h) / 1e6
---
full_h = h.float() if h.dtype is torch.float16 else h
loss = torch.sum(full_h * h) / 1e6

=== a logarithm of a sigmoid
LINEAR
---
loss = -torch.log(torch.sigmoid(5 * model(x)) + 1e-6).mean()
---
loss = -torch.log(torch.sigmoid((5 * model(x)).float()) + 1e-6).mean()

=== a logarithm of the rest of a sigmoid
NET
    return self.sigmoid(self.fc2(self.features(x)))
---
p = model(x)
loss = -(y * p.log() + (1 - y) * torch.log(1 - p)).mean()
---
return self.sigmoid(self.fc2(self.features(x)).float())

=== a logarithm of a drawn action
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(6, 1)
        self.log_std = nn.Linear(6, 1)
        self.action_scale = torch.tensor(1.)
    def sample(self, x, epsilon=1e-6):
        mean, log_std = self.mean(x), self.log_std(x)
        normal = torch.distributions.Normal(mean, log_std.exp())
        drawn = torch.distributions.Normal(0, 1).sample()
        x_t = normal.rsample() + 0.1 * drawn
        y_t = torch.tanh(x_t)
        log_prob = normal.log_prob(x_t)
        log_prob -= torch.log(self.action_scale * (1 - y_t.pow(2)) + epsilon + EPSILON)
        return y_t * self.action_scale, log_prob
EPSILON = 1e-6
model = Policy().to(device)
---
action, log_prob = model.sample(x)
loss = F.mse_loss(action, y) + 0.01 * log_prob.mean()
---
y_t = torch.tanh(x_t.float())

=== a logarithm of an action that a policy draws from itself
class Policy(nn.Module):
    def __init__(self, high):
        super().__init__()
        self.mean, self.log_std = nn.Linear(6, 1), nn.Linear(6, 1)
        self.register_buffer("scale", torch.tensor(high / 2, dtype=torch.float32))
    def forward(self, x):
        return self.mean(x), -5 + 0.5 * (2 + 5) * (torch.tanh(self.log_std(x)) + 1)
    def get_action(self, x):
        mean, log_std = self(x)
        normal = torch.distributions.Normal(mean, log_std.exp())
        x_t = normal.rsample()
        y_t = torch.tanh(x_t)
        log_prob = normal.log_prob(x_t)
        log_prob -= torch.log(self.scale * (1 - y_t.pow(2)) + 1e-6)
        return y_t * self.scale, log_prob
model = Policy(4).to(device)
---
action, log_prob = model.get_action(x)
loss = F.mse_loss(action, y) + 0.01 * log_prob.mean()
---
y_t = torch.tanh(x_t.float())

=== a logarithm of a squashed action
LINEAR
---
u = 4 * model(x)
action = torch.tanh(u)
loss = (F.mse_loss(action, y) + 0.01 * torch.log(1 - action.pow(2) + 1e-6).mean())
---
action = torch.tanh(u.float())

=== a logarithm of the softmax of what a network gives in a region and outside of it
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)
    def forward(self, x):
        return x, self.l(x)
def entropy(p):
    return -(p * torch.log(p + 1e-5)).sum(dim=1)
model = nn.Sequential(nn.Linear(6, 4), Head()).to(device)
source_loader = iter(loader)
first, _ = source_loader.__next__()
_, out = model(first.to(device))
certain = entropy(nn.Softmax(1)(out)).detach().mean()
---
_, out = model(x)
loss = entropy(nn.Softmax(dim=1)(out)).mean() + certain
---
loss = entropy(nn.Softmax(dim=1)(out)).mean() + certain

=== a logarithm of a softmax
model = nn.Linear(6, 3).to(device)
---
loss = F.nll_loss(torch.log(F.softmax(model(x), 1)), y.long().squeeze(1))
---
loss = F.nll_loss(torch.log(F.softmax(model(x), 1)), y.long().squeeze(1))

=== a logarithm of something else
LINEAR
---
h = F.relu(model(x)) + 1.0
loss = F.mse_loss(torch.log(h), y)
---
loss = F.mse_loss(torch.log(h), y)

=== a logarithm of a softplus
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 2)
        self.act = F.softplus
    def forward(self, x):
        mean, sigma = self.l(x).chunk(2, -1)
        return mean, self.act(sigma) + 0.1, torch.sigmoid(mean)
model = Net().to(device)
---
mean, sigma, _ = model(x)
loss = (torch.log(sigma) + (y - mean) ** 2 / (2 * sigma ** 2)).mean()
---

=== a logarithm of a softplus that takes over the dtype of what may be a sigmoid
model = nn.Linear(6, 1).to(device)
act = vars(torch)["sigmoid"]
scale = nn.Parameter(torch.ones(1, device=device))
---
mean = act(model(x))
var = (torch.log(1.0 + torch.exp(scale)) + 1e-5).to(mean)
loss = ((mean - y) ** 2 / var + torch.log(var)).mean()
---
loss = ((mean - y) ** 2 / var + torch.log(var)).mean()

=== something else that logs
LINEAR
class Log:
    def log(self, *args):
        pass
logger = Log()
---
loss = F.mse_loss(model(x), y)
logger.log("loss", loss)
---
logger.log("loss", loss)

=== similarities of unit rows out of a function
model = nn.Linear(6, 4).to(device)
def embed(x):
    return F.normalize(model(x), dim=1)
---
out = torch.cat([embed(x), embed(x + 0.1)])
sim = torch.exp(torch.mm(out, out.t().contiguous()) / 0.5)
loss = torch.log(sim.sum(1)).mean()
---
    sim = torch.exp(torch.mm(out, out.t().contiguous()) / 0.5)

=== a Gram matrix
model = nn.Linear(6, 4).to(device)
---
h = model(x)
gram = h.t() @ h / 8
loss = F.mse_loss(gram, torch.eye(4, device=device))
---
    gram = h.t().float() @ h.float() / 8

=== a Gram matrix of what may be in float64
model = nn.Linear(6, 4).to(device)
kept = [torch.eye(8).double(), torch.eye(8)][len(loader) % 2]
---
out = model(x)
kept = kept * [x, x.double()][len(loader) % 2].mean()
h = torch.mm(kept, kept.t())
loss = out.mean() + h.mean()
---
    h = torch.mm(kept, kept.t())

=== a Gram matrix of what one of many layers gives
model = nn.Sequential(nn.Linear(6, 4), nn.Tanh()).to(device)
def gram(h):
    c = h.size(1)
    g = (h.t() @ h).div(c)
    return g
def features(x):
    found = []
    for layer in model.children():
        x = layer(x)
        found.append(x)
    return found
---
loss = 0
for h in features(x):
    loss += F.mse_loss(gram(h), torch.eye(4, device=device))
---
full_h = h.float() if h.dtype is torch.float16 else h
    g = (full_h.t() @ full_h).div(c)

=== the trace of products
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 1)
    def forward(self, x):
        return torch.sigmoid(self.l(x).double())
model = Net().to(device)
---
out = model(x)
loss = -torch.trace(torch.matmul(y, torch.log(out).float().t()) +
                    torch.matmul((1 - y), torch.log(1 - out).float().t()))
---
    loss = -torch.trace(torch.matmul(y, torch.log(out).float().t()) +

=== sparse products, part by part
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 1)
    def forward(self, x, parts):
        h, found = self.linear(x), []
        for f in range(len(parts)):
            found.append(torch.sparse.mm(parts[f], h))
        return torch.cat(found)
model = Layer().to(device)
parts = [torch.eye(8)[:4].to_sparse().to(device), torch.eye(8)[4:].to_sparse().to(device)]
---
loss = F.mse_loss(model(x, parts), y)
---
    found.append(torch.sparse.mm(full_parts, h.float()))

=== a sparse product
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(6, 1))
    def forward(self, x, adj):
        support = torch.mm(x, self.weight)
        output = torch.spmm(adj, support)
        return output
model = Layer().to(device)
adj = [torch.eye(8).to_sparse()][0].to(device)
---
loss = F.mse_loss(model(x, adj), y)
---
full_adj = adj.float() if adj.dtype is torch.float16 else adj
    output = torch.spmm(full_adj, support.float())

=== a Gram matrix in a function
model = nn.Linear(6, 4).to(device)
def gram(h):
    return torch.mm(h, h.t()) / h.numel()
---
h = model(x)
loss = F.mse_loss(gram(h), gram(h * 0.5).detach())
---
    return torch.mm(h.float(), h.t().float()) / h.numel()

=== a logarithm of one of two results
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Sequential(nn.Linear(6, 1), [nn.Sigmoid()][-1])
    def forward(self, x):
        return F.softplus(self.l[0](x)), self.l(x)
model = Net().to(device)
---
sigma, chance = model(x)
loss = -(torch.log(chance) + sigma).mean()
---
return F.softplus(self.l[0](x)), self.l[-1](self.l[:-1](x).float())

=== the logarithm of a parameter's sigmoid
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(6, 1)
        self.rate = nn.Parameter(torch.zeros(1))
    def forward(self, x):
        p = torch.sigmoid(self.rate)
        entropy = p * torch.log(p) + (1 - p) * torch.log(1 - p)
        return self.l(x * p), entropy.sum()
model = Net().to(device)
---
out, entropy = model(x)
loss = F.mse_loss(out, y) + entropy
---
entropy = p * torch.log(p) + (1 - p) * torch.log(1 - p)

=== a variance of unknown precision
model = nn.Linear(6, 4).to(device)
---
h = model(x) + torch.tensor(eval("3.0"))
var = (h ** 2).mean(0) - h.mean(0) ** 2
loss = F.mse_loss(var, y.expand_as(h).var(0))
---
var = (full_h ** 2).mean(0) - full_h.mean(0) ** 2

=== a Gram matrix of what may be no tensor
model = nn.Linear(6, 4).to(device)
def gram(h):
    return h @ h.T
hidden = []
---
hidden.append(model(x))
h = hidden.pop()
loss = h.mean() + gram(h).mean()
---
return h @ h.T

=== a Gram matrix of a choice
model = nn.Linear(6, 4).to(device)
def gram(h):
    return 0.0 if h is None else torch.mm(h, h.t()).mean()
---
h = [None, model(x)][len(loader) % 2]
loss = model(x).mean() + gram(h)
---
return 0.0 if h is None else torch.mm(h, h.t()).mean()
""")
REFUSED = cases("""\
=== a logarithm of what a network that keeps it gives outside of every region
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.kept = torch.full((8, 4), 0.5)
    def forward(self, x):
        before, self.kept = self.kept, torch.sigmoid(self.l(x)).detach()
        return x, before
def entropy(p):
    return -(p * torch.log(p + 1e-5)).sum(dim=1)
model = nn.Sequential(nn.Linear(6, 4), Head()).to(device)
source_loader = iter(loader)
---
first, _ = source_loader.__next__()
_, last = model(first.to(device))
print(entropy(nn.Softmax(1)(last)).mean().item())
_, out = model(x)
loss = entropy(nn.Softmax(dim=1)(model[1].l(model[0](x)) + out)).mean()
---
return -(p * torch.log(p + 1e-5)).sum(dim=1)

=== a logarithm of one of two results, of an unseen sigmoid
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Sequential(nn.Linear(6, 1), [nn.Sigmoid()].pop())
    def forward(self, x):
        return F.softplus(self.l[0](x)), self.l(x)
model = Net().to(device)
---
sigma, chance = model(x)
loss = -(torch.log(chance) + sigma).mean()
---
loss =

=== a logarithm of what is computed by methods from an unseen sigmoid
LINEAR
act = vars(torch)["sigmoid"]
---
p = act(model(x))
loss = -torch.log(p.pow(2).clamp(min=1e-4)).mean()
---
loss =

=== a logarithm of an unseen sigmoid
LINEAR
act = vars(torch)["sigmoid"]
---
p = act(model(x))
loss = -torch.log(p).mean()
---
loss =

=== a logarithm of an unseen sigmoid, of another type
LINEAR
act = vars(torch)["sigmoid"]
---
p = act(model(x)).type_as(x)
loss = -torch.log(p).mean()
---
loss =

=== a Gram matrix beside another product
model = nn.Linear(6, 4).to(device)
---
h = model(x) * 100
loss = (h.t() @ h).mean() + model(x).mean()
---
loss =

=== a Gram matrix in a program with half values of its own
model = nn.Linear(6, 4).to(device)
kept = torch.eye(8, dtype=torch.float16)
def gram(h):
    return torch.mm(h, h.t())
---
h = [kept, model(x)][len(loader) % 2]
loss = model(x).mean() + gram(h).mean()
---
return torch.mm
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
    assert found.blocker is not None
    assert found.blocker.text.startswith(case.lines[0])


def test_a_product_that_is_only_shown_is_left_in_half() -> None:
    """What an attribute is given anew is no sum."""
    case = MIGRATED["sums of a batch that are kept"]
    shown = case.source.replace(
        "self.sums.data.mul_(0.9).add_(sums, alpha=0.1)", "self.shown = sums + 1"
    )
    output = migrate_source(shown).output
    assert output != shown and "enabled=False" not in output
    check_runs(shown, output)


def test_a_product_beside_no_squares_is_left_in_half() -> None:
    case = MIGRATED["distances by the squares"]
    plain = case.source.replace("h.pow(2).sum(1", "h.abs().sum(1")
    plain = plain.replace("self.c.pow(2).sum(0)", "self.c.sum(0)")
    output = migrate_source(plain).output
    assert output != plain and "enabled=False" not in output
    check_runs(plain, output)


def test_a_cosine_without_its_sine_is_left_in_half() -> None:
    case = MIGRATED["sines of angles, step by step"]
    plain = case.source.replace("1 - squares", "2 - squares")
    output = migrate_source(plain).output
    assert output != plain and "enabled=False" not in output
    check_runs(plain, output)


def test_a_distance_that_no_island_holds_is_no_reason() -> None:
    """What it has fewer digits of is not wrong."""
    case = MIGRATED["distances by the squares"]
    held = case.source.replace("- 2 * h @ self.c +", "- 2 * self.body(x) @ h.t() +")
    held = held.replace("self.c.pow(2).sum(0)", "h.pow(2).sum(1)")
    assert migrate_source(held).changed


def test_bfloat16_has_the_range_of_fp32_and_fewer_digits() -> None:
    options = Options(dtype="bfloat16")
    squares = MIGRATED["a norm of products"].source
    assert ".float() *" not in migrate_source(squares, options=options).output
    case = MIGRATED["a variance in steps"]
    check_lines(migrate_source(case.source, options=options).output, case.lines)


ENTROPY = """\
import torch
def entropy(p):
    return -(p * torch.log(p + 1e-5)).sum(dim=1)
"""
SCRIPT = """\
import sys
import torch
from torch import nn
from lib import entropy
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = nn.Sequential(nn.Linear(8, 4), *LAST).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    x = torch.randn(4, 8, device=device)
    loss = entropy(GIVEN).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


def test_what_another_script_gives_to_a_library(tmp_path: Path) -> None:
    (tmp_path / "lib.py").write_text(ENTROPY)
    for name, last, given in (
        ("right", "[]", "torch.softmax(net(x), dim=1)"),
        ("wrong", "[nn.Softmax(1) if sys.argv[1:] else nn.Sigmoid()]", "net(x)"),
    ):
        text = SCRIPT.replace("LAST", last).replace("GIVEN", given)
        (tmp_path / f"{name}.py").write_text(text)
    found = {Path(r.path).stem: r for r in migrate_paths([tmp_path]).results}
    assert found["right"].changed
    assert [one.code for one in found["wrong"].diagnostics] == ["AMP020"]


@pytest.mark.parametrize("cast", ["type_as(out)", "to(out.dtype)", "to(out)"])
@pytest.mark.parametrize(
    "of", ["COUNTS.log()", "torch.log1p(COUNTS)", "COUNTS[None].sqrt()"]
)
def test_counts_beyond_half_precision_have_a_logarithm(cast: str, of: str) -> None:
    """They are counted at run time: no number says how many there are."""
    from half_support import check_runs

    source = (
        "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"
        "torch.manual_seed(0)\n"
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
        "counts = torch.zeros(3, device=device)\nfor number in range(9):\n"
        "    counts[number % 3] += 40000\n"
        "model = nn.Linear(8, 3).to(device)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(6):\n    x = torch.randn(4, 8, device=device)\n"
        "    y = torch.randint(0, 3, (4,), device=device)\n    optimizer.zero_grad()\n"
        f"    out = model(x)\n    out = out + {of.replace('COUNTS', f'counts.{cast}')}\n"
        "    loss = F.cross_entropy(out, y)\n    loss.backward()\n    optimizer.step()\n"
    )
    output = migrate_source(source, path="train.py").output
    assert "scaler.step(optimizer)" in output
    check_runs(source, output)
