"""BCELoss under autocast: its island, and the sigmoids before it in fp32. All scripts really run."""

from __future__ import annotations

from pathlib import Path

import pytest
from half_support import cases, check_lines, check_runs

from amp_migrate.api import migrate_paths, migrate_source
from amp_migrate.core.options import Options

MIGRATED = cases("""\
=== sequences of probabilities, packed and padded again
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
LINEAR
---
p = torch.sigmoid(model(x))
p = pack_padded_sequence(p, [1] * len(p), batch_first=True)
p = pad_packed_sequence(p, batch_first=True)[0]
loss = F.binary_cross_entropy(p, y)
---
p = torch.sigmoid(model(x).float())
p = pack_padded_sequence(p, [1] * len(p), batch_first=True)

=== a sigmoid of the products of what is of unknown precision
model = nn.Linear(6, 4).to(device)
def decode(z):
    pairs = torch.sigmoid(torch.matmul(z, z.t()))
    return pairs
---
z = model(x) + torch.tensor(eval("0.3"))
loss = F.binary_cross_entropy(decode(z), y * y.t())
---
full_z = z.float() if z.dtype is torch.float16 else z
    pairs = torch.sigmoid(torch.matmul(full_z, full_z.t()))

=== how alike two distributions are
class Alike(nn.Module):
    def __init__(self):
        super().__init__()
        self.softmax, self.bce = nn.Softmax(dim=1), nn.BCELoss()
    def forward(self, a, b):
        n, k = a.size()
        p, q = self.softmax(a), self.softmax(b)
        same = torch.bmm(p.view(n, 1, k), q.view(n, k, 1)).squeeze()
        return self.bce(same, torch.ones_like(same))
model, criterion = nn.Linear(6, 3).to(device), Alike()
---
loss = criterion(model(x), model(x + 1))
---
with torch.autocast("cuda", enabled=False):
            same = torch.bmm(p.view(n, 1, k), q.view(n, k, 1)).squeeze()

=== a dict out of a model in a dict of models
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.sigmoid = nn.Linear(6, 1), nn.Sigmoid()
        self.outputs = {}
    def forward(self, x):
        for i in range(2):
            self.outputs[("disp", i)] = self.sigmoid(self.layer(x))
        return self.outputs
models = {}
models["depth"] = Head().to(device)
models["mask"] = Head().to(device)
model = nn.ModuleList([models["depth"], models["mask"]])
def shown(x):
    found = {}
    found["x"] = x
    return found
---
outputs = models["depth"](x)
outputs["mask"] = models["mask"](x)
outputs.update(shown(x))
outputs["seen/{}".format(len(outputs))] = 1
mask = outputs["mask"]["disp", 0]
loss = nn.BCELoss()(mask, y) + outputs["disp", 0].mean()
---
self.outputs[("disp", i)] = self.sigmoid(self.layer(x).float())

=== a parameter beside what another object calls its data
class Report:
    def __init__(self):
        self.data = {"train": {}}
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 1)
        self.gain = nn.Parameter(torch.full((1,), 0.9))
    def forward(self, x):
        return torch.sigmoid(self.layer(x)) * self.gain
report = Report()
model = Net().to(device)
BCE
---
loss = criterion(model(x), y)
report.data["train"]["loss"] = loss.item()
---
return torch.sigmoid(self.layer(x).float()) * self.gain

=== an entropy of a layer of softmax, and an epsilon of the command line
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--eps", type=float, default=1e-5)
args, _ = parser.parse_known_args()
args.name = str(args.eps)
def entropy(p):
    return torch.sum(-p * torch.log(p + 1e-5), dim=1)
import pickle
class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 3)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 6)
        whole = pickle.loads(pickle.dumps(Whole()))
        self.head = whole.fc
    def forward(self, x):
        h = self.body(x)
        return h, self.head(h)
model = Net().to(device)
---
_, out = model(x)
p = nn.Softmax(dim=1)(out)
m = p.mean(dim=0)
loss = entropy(p).mean() - torch.sum(-m * torch.log(m + args.eps))
with torch.no_grad():
    known = nn.Softmax(dim=1)(model(x)[1].float().cpu())
    print(entropy(nn.Softmax(dim=1)(known)).mean())
---
loss = entropy(p).mean() - torch.sum(-m * torch.log(m + args.eps))

=== a class of layers behind others and what turns their gradient, and names that are no loss's
JUDGE
class Turn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1
    @staticmethod
    def backward(ctx, grad):
        return -grad
class Turned(nn.Module):
    def forward(self, x):
        return Turn.apply(x)
class Adverse(nn.Module):
    def __init__(self, judge):
        super().__init__()
        self.judge, self.turned = judge, Turned()
        self.bce = lambda p, t: F.binary_cross_entropy(p, t)
    def forward(self, f_s, f_t, t):
        f = torch.cat((f_s, f_t))
        h = self.turned(f)
        p = self.judge(h)
        return F.binary_cross_entropy(p, t)
def read(layer, path):
    for name in path.split("."):
        layer = getattr(layer, name)
    return layer
model = nn.Linear(6, 8).to(device)
adverse = Adverse(Judge(8)).to(device)
print(read(adverse, "judge.0.weight").shape)
---
loss = adverse(model(x), model(x + 1), torch.cat((y, y)))
---
full_h = h.float() if h.dtype is torch.float16 else h
    p = self.judge(full_h)
    return F.binary_cross_entropy(p, t)

=== a list that becomes a tensor, in a model whose wrapper takes its name
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 3)
    def forward(self, x):
        parts = []
        for part in x.split(2):
            parts.append(self.body(part))
        parts = torch.cat(parts, dim=0)
        parts = parts.sigmoid()
        return x, x, parts
class Focal(nn.Module):
    def forward(self, ps):
        found = []
        for i in range(ps.shape[0]):
            p = ps[i, :]
            p = torch.clamp(p, 1e-4, 1.0 - 1e-4)
            found.append(-torch.log(1.0 - p).sum())
        return torch.stack(found)
class Both(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, self.focal = model, Focal()
    def forward(self, x):
        _, _, ps = self.model(x)
        return self.focal(ps), ps
model = Net()
model = Both(model).to(device)
---
losses, _ = model(x)
loss = losses.mean()
---
parts = parts.float().sigmoid()

=== a class of layers behind others, and a loss that nothing calls
JUDGE
class Adverse(nn.Module):
    def __init__(self, judge):
        super().__init__()
        self.judge = judge
        self.bce = lambda p, t: F.binary_cross_entropy(p, t)
    def forward(self, f, t):
        p = self.judge(f)
        return F.binary_cross_entropy(p, t)
model = nn.Linear(6, 8).to(device)
adverse = Adverse(Judge(8)).to(device)
---
loss = adverse(model(x).relu(), y)
---
    p = self.judge(f.float())
    return F.binary_cross_entropy(p, t)

=== a mixture of two distributions, put together by index
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.gate = nn.Linear(6, 8), nn.Linear(6, 1)
    def forward(self, x, index):
        gate = torch.sigmoid(self.gate(x))
        known = gate * F.softmax(self.body(x), dim=1)
        copied = (1 - gate) * F.softmax(x, dim=1)
        return known.scatter_add(1, index, copied)
model = Net().to(device)
index = torch.arange(48, device=device).view(8, 6) % 8
---
p = model(x, index)
loss = -torch.log(p.gather(1, index[:, :1]) + 1e-12).mean()
---
gate = torch.sigmoid(self.gate(x).float())
loss = -torch.log(p.gather(1, index[:, :1]) + 1e-12).mean()

=== activation chosen
BCE
class Net(nn.Module):
    def __init__(self, act="sigmoid"):
        super().__init__()
        self.fc = nn.Linear(6, 1)
        if act == "sigmoid":
            self.act = nn.Sigmoid()
        else:
            self.act = nn.Softmax(dim=1)
    def forward(self, x):
        return self.act(self.fc(x))
model = Net().to(device)
---
loss = criterion(model(x), y)
---
return self.act(self.fc(x).float())

=== dict output
BCE
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 1)
    def forward(self, x):
        out = {}
        out["p"] = torch.sigmoid(self.fc(x))
        return out
model = Net().to(device)
---
loss = criterion(model(x)["p"], y)
---
out["p"] = torch.sigmoid(self.fc(x).float())

=== list of outputs
BCE
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 1)
        self.b = nn.Linear(6, 1)
    def forward(self, x):
        m1 = torch.sigmoid(self.a(x))
        m2 = torch.sigmoid(self.b(x))
        if self.training:
            return [m1, m2], x
        return m1, x
def expl(mask):
    if type(mask) not in [tuple, list]:
        mask = [mask]
    loss = 0
    for m in mask:
        ones = torch.ones_like(m)
        loss += nn.functional.binary_cross_entropy(m, ones)
    return loss
model = Net().to(device)
---
mask, other = model(x)
loss = expl(mask)
---
m1 = torch.sigmoid(self.a(x).float())
m2 = torch.sigmoid(self.b(x).float())

=== dict literal
BCE
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 1)
        self.b = nn.Linear(6, 1)
    def forward(self, x):
        return {"p": torch.sigmoid(self.a(x)), "v": self.b(x)}
model = Net().to(device)
---
out = model(x)
loss = criterion(out["p"], y) + out["v"].pow(2).mean()
---
return {"p": torch.sigmoid(self.a(x).float()), "v": self.b(x)}

=== unknown width first
class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.bce = nn.BCELoss()
    def forward(self, *inputs):
        pred, aux, target = tuple(inputs)
        t = (target > 0).type_as(aux)
        loss = self.bce(torch.sigmoid(aux), t)
        return F.mse_loss(pred, target) + loss
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 1)
        self.b = nn.Linear(6, 1)
    def forward(self, x):
        return self.a(x), self.b(x)
model = Net().to(device)
crit = Loss()
---
out = model(x)
loss = crit(*out, y)
---
    loss = self.bce(output, full_t)

=== layers inside of layers
def make(last):
    layers = [nn.Linear(6, 1), nn.Sigmoid()]
    layers = [nn.Sequential(*layers)]
    return nn.Sequential(*layers)
model = make(len(loader) > 2).to(device)
BCE
---
loss = criterion(model(x), y)
---
output = model[-1][-1](model[-1][:-1](model[:-1](x)).float())

=== a list of layers
SEQ
BCE
---
loss = criterion(model(x), y)
---
output = model[-1](model[:-1](x).float())

=== other lists and modules
SEQ
BCE
class Args:
    pass
args, seen, table = Args(), [], {}
for key, value in dict(rate=0.1).items():
    setattr(args, key, value)
model.name = 'D'
other = nn.Sequential(nn.Linear(2, 2))
def block(size):
    layers = [nn.Linear(size, size)]
    layers.append(nn.BatchNorm1d(size))
    return layers
class Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList()
        self.blocks.append(nn.Linear(2, 2))
other.append(nn.ReLU())
other.add_module('end', nn.Identity())
---
loss = criterion(model(x), y)
seen.append(loss.item())
table['loss'] = loss.item()
---
output = model[-1](model[:-1](x).float())

=== layers of a list that grows
class Net(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        layers = []
        width = 6
        for _ in range(depth):
            layers.append(nn.Linear(width, 8))
            layers += [nn.ReLU()]
            width = 8
        self.features = nn.Sequential(*layers)
        layers.extend([nn.Linear(8, 1)])
        layers.append(nn.Sigmoid())
        self.layers = nn.Sequential(*layers)
    def forward(self, x):
        return self.layers(x)
model = Net().to(device)
BCE
---
loss = criterion(model(x), y)
---
return self.layers[-1](self.layers[:-1](x).float())

=== layers behind those of a function
def block(width):
    return [nn.Linear(6, width), nn.ReLU()]
model = nn.Sequential(*block(8), nn.Linear(8, 1), nn.Sigmoid()).to(device)
BCE
---
loss = criterion(model(x), y)
---
output = model[-1](model[:-1](x).float())

=== a sigmoid that an option adds
class Net(nn.Module):
    def __init__(self, last):
        super().__init__()
        layers = [nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1)]
        if last:
            layers += [nn.Sigmoid()]
        self.layers = nn.Sequential(*layers)
    def forward(self, x):
        return self.layers(x)
model = Net(len(loader) > 2).to(device)
BCE
---
loss = criterion(model(x), y)
---
return self.layers[-1](self.layers[:-1](x).float()).float()

=== a list under the name of the layers that are made of it
def norm(width):
    return eval("nn.LayerNorm")(width)
class Net(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.net = [nn.Linear(6, 8), norm(8), nn.Linear(8, 1)]
        if last:
            self.net.append(nn.Sigmoid())
        self.net = nn.Sequential(*self.net)
    def forward(self, x):
        return self.net(x)
model = Net(len(loader) > 2).to(device)
BCE
---
loss = criterion(model(x), y)
---
return self.net[-1](self.net[:-1](x).float()).float()

=== layers that are added by their names
model = nn.Sequential()
for i in range(2):
    model.add_module(f"fc{i}", nn.Linear(6, 6))
model.add_module("out", nn.Linear(6, 1))
model.add_module("end", nn.Sigmoid())
model = model.to(device)
other = nn.Sequential()
other.add_module("end", nn.Hardtanh(0.0, 1.0))
BCE
---
loss = criterion(model(x), y)
---
output = model[-1](model[:-1](x).float())

=== a model that is wrapped again and again
import sys
class Parallel(nn.DataParallel):
    pass
class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.gate = nn.Linear(6, 1), nn.Sigmoid()
    def forward(self, x):
        h = self.l(x)
        size = torch.from_numpy(x.cpu().numpy() ** 2 + 1).to(x.dtype)
        return h, self.gate(h), size.to(h.device)
class Loss(nn.Module):
    def forward(self, h, size, y):
        total = F.mse_loss(h, y)
        for j in range(len(y)):
            wide = y[j][y[j] != -1] + 1
            total = total + torch.log(wide / size[j][: len(wide)]).mean()
        return total
class WithLoss(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model, self.loss = model, Loss()
    def forward(self, x, y):
        h, gate, size = self.model(x)
        return self.loss(h, size, y), gate
model = Inner().to(device)
model = WithLoss(model)
if len(sys.argv) > 5:
    model = Parallel(model)
---
loss, _ = model(x, y)
---
loss, _ = model(x, y)

=== layers with names
from collections import OrderedDict
model = nn.Sequential(OrderedDict([('a', nn.Linear(6, 1)), ('s', nn.Sigmoid())])).to(device)
BCE
---
loss = criterion(model(x), y)
---

=== reshaped
SEQ
BCE
---
out = model(x)
loss = criterion(out.squeeze(1), y.squeeze(1))
---
out = model[-1](model[:-1](x).float())

=== a function
NET
    return torch.sigmoid(self.fc2(self.features(x)))
BCE
---
loss = criterion(model(x), y)
---
return torch.sigmoid(self.fc2(self.features(x)).float())

=== a layer
NET
    x = self.features(x)
    x = self.fc2(x)
    x = self.sigmoid(x)
    return x
BCE
---
loss = criterion(model(x), y)
---
x = self.sigmoid(x.float())

=== a method
NET
    return self.fc2(self.features(x)).sigmoid()
BCE
---
loss = criterion(model(x), y)
---
return self.fc2(self.features(x)).float().sigmoid()

=== a method of a sum
NET
    h = self.fc2(self.features(x))
    return (h * self.scale + 1.0).sigmoid()
BCE
---
loss = criterion(model(x), y)
---
return (h * self.scale + 1.0).float().sigmoid()

=== made and called
NET
    return nn.Sigmoid()(self.fc2(self.features(x)))
BCE
---
loss = criterion(model(x), y)
---

=== layers of a module
NET
    out = self.main(x)
    return out.view(-1, 1).squeeze(1)
BCE
---
loss = criterion(model(x), y.squeeze(1))
---
out = self.main[-1](self.main[:-1](x).float())

=== one of several results
NET
    h = self.features(x)
    return torch.sigmoid(self.fc2(h)), h
BCE
---
out, h = model(x)
loss = criterion(out, y) + 0.1 * h.mean()
---

=== an item of the results
NET
    h = self.features(x)
    return torch.sigmoid(self.fc2(h)), h
BCE
---
loss = criterion(model(x)[0], y)
---

=== either way
NET
    h = self.features(x)
    if self.training:
        return torch.sigmoid(self.fc2(h))
    return torch.sigmoid(self.fc2(h) * 2)
BCE
---
loss = criterion(model(x), y)
---

=== in the script
LINEAR
---
loss = F.binary_cross_entropy(torch.sigmoid(model(x)), y)
---
output = torch.sigmoid(model(x).float())
loss = F.binary_cross_entropy(output, y)

=== tanh
LINEAR
BCE
---
p = (torch.tanh(model(x)) + 1) / 2
loss = criterion(p, y)
---
p = (torch.tanh(model(x).float()) + 1) / 2

=== softmax is fp32 anyway
model = nn.Linear(6, 2).to(device)
BCE
---
p = F.softmax(model(x), dim=1)[:, :1]
loss = criterion(p, y)
---
p = F.softmax(model(x), dim=1)[:, :1]

=== two losses in a sum
SEQ
BCE
---
loss = (criterion(model(x), y) + criterion(model(x.detach() + 1), 1 - y)) / 2
---
output_2 = model[-1](model[:-1](x.detach() + 1).float())
    loss = (criterion(output, y) + criterion(output_2, 1 - y)) / 2

=== or another that runs in fp32
SEQ
import sys
criterion = nn.BCELoss() if len(sys.argv) < 5 else nn.MSELoss()
---
loss = criterion(model(x), y)
---
output = model[-1](model[:-1](x).float())
            loss = criterion(output, y)

=== beside another loss
SEQ
BCE
---
loss = criterion(model(x), y) + 0.5 * criterion(model(-x), 1 - y) + 0.1 * F.mse_loss(model(x), y)
---
    bce_2 = criterion(output_2, 1 - y)
loss = bce + 0.5 * bce_2 + 0.1 * F.mse_loss(model(x), y)

=== one after the other
SEQ
BCE
---
a = criterion(model(x), torch.ones_like(y))
b = criterion(model(-x), torch.zeros(x.size(0), 1, device=device))
loss = a + b
---

=== a target like the output
SEQ
BCE
---
out = model(x)
loss = criterion(out, torch.ones_like(out))
---
    loss = criterion(out, torch.ones_like(out))

=== a target that a model makes
SEQ
BCE
teacher = nn.Sequential(nn.Linear(6, 1), nn.Sigmoid()).to(device)
---
loss = criterion(model(x), teacher(x).detach())
---
output_2 = teacher(x).detach().float()

=== added up
SEQ
BCE
---
loss = 0
loss += criterion(model(x), y)
---
    loss += criterion(output, y)

=== in a list
SEQ
BCE
---
parts = []
parts.append(criterion(model(x), y))
loss = sum(parts)
---

=== moved
SEQ
criterion = nn.BCELoss().to(device)
---
loss = criterion(model(x), y)
---

=== summed
SEQ
criterion = nn.BCELoss(reduction='sum')
---
loss = criterion(model(x), y)
---

=== not reduced
SEQ
criterion = nn.BCELoss(reduction='none')
---
loss = criterion(model(x), y).mean()
---
    loss = criterion(output, y).mean()

=== weighted
SEQ
---
loss = F.binary_cross_entropy(model(x), y, weight=torch.full_like(y, 2.0))
---

=== by keywords
SEQ
---
loss = F.binary_cross_entropy(input=model(x), target=y)
---
    loss = F.binary_cross_entropy(input=output, target=y)

=== made where it is called
SEQ
---
loss = nn.BCELoss(reduction='sum')(model(x), y)
---

=== under another name
SEQ
criterion = F.binary_cross_entropy
---
loss = criterion(model(x), y)
---

=== a helper
SEQ
def compute(p, t):
    return F.binary_cross_entropy(p, t)
---
loss = compute(model(x), y)
---
    return F.binary_cross_entropy(p, t)

=== a helper that runs the model
SEQ
BCE
def compute(net, a, t):
    out = net(a)
    return criterion(out, t)
---
loss = compute(model, x, y)
---
out = net[-1](net[:-1](a).float())

=== given to a function
SEQ
BCE
def run(crit, net, a, t):
    return crit(net(a), t)
---
loss = run(criterion, model, x, y)
---

=== a function in a function
SEQ
BCE
def step(a, b):
    def inner():
        return criterion(model(a), b)
    return inner()
---
loss = step(x, y)
---

=== a loss of one's own
SEQ
class Loss(nn.Module):
    def __init__(self):
        super().__init__()
        self.bce = nn.BCELoss()
    def forward(self, p, t):
        return self.bce(p, t) + ((p - t) ** 2).mean()
criterion = Loss()
---
loss = criterion(model(x), y)
---
    return self.bce(p, t) + ((p - t) ** 2).mean()

=== a subclass
class Loss(nn.BCELoss):
    pass
criterion = Loss()
SEQ
---
loss = criterion(model(x), y)
---

=== with a divergence
model = nn.Linear(6, 12).to(device)
def vae_loss(r, t, mu, logvar):
    return F.binary_cross_entropy(r, t) - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
---
h = model(x)
loss = vae_loss(torch.sigmoid(h[:, :1]), y, h[:, 2:7], h[:, 7:])
---
    bce = F.binary_cross_entropy(r, t)

=== data parallel
NET
    return torch.sigmoid(self.fc2(self.features(x)))
BCE
model = nn.DataParallel(model)
---
loss = criterion(model(x), y)
---

=== layers beside which others are wrapped, and a list is filled anew
class Net(nn.Module):
    def __init__(self, wide=6):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(wide, 8), nn.ReLU())
        self.classifier = nn.Sequential(nn.Linear(8, 1), nn.Sigmoid())
        self.seen = 0.0
    def forward(self, x):
        out = (x - 0.1) / 1.1
        parts = self.features(out)
        out = [parts, parts * 2]
        for k in range(len(out)):
            out[k] = F.relu(out[k])
        return self.classifier(out[0])
model = Net()
BCE
if len(loader) > 2:
    model.features = nn.DataParallel(model.features)
    model.to(device)
else:
    model = nn.DataParallel(model).to(device)
---
loss = criterion(model(x), y)
---
return self.classifier[-1](self.classifier[:-1](out[0]).float())

=== layers in parallel
NET
    if x.is_cuda and self.training:
        out = nn.parallel.data_parallel(self.main, x, range(2))
    else:
        out = self.main(x)
    return out
BCE
---
loss = criterion(model(x), y)
---
out = self.main[-1](nn.parallel.data_parallel(self.main[:-1], x, range(2)).float())
out = self.main[-1](self.main[:-1](x).float())

=== computed again afterwards
SEQ
BCE
---
out = model(x)
loss = criterion(out, y)
with torch.no_grad():
    seen = criterion(out, (out > 0.5).float())
---
seen = criterion(out, (out > 0.5).float())

=== computed before
SEQ
BCE
with torch.no_grad():
    print(criterion(model(torch.zeros(1, 6)), torch.ones(1, 1)).item())
---
loss = criterion(model(x), y)
---

=== a default that no call takes
LINEAR
class Bound(nn.Module):
    def __init__(self, net, measure=F.binary_cross_entropy):
        super().__init__()
        self.net = net
        self.measure = measure
    def forward(self, x, y):
        return self.measure(self.net(x), y)
bound = Bound(model, F.mse_loss)
---
loss = bound(x, y)
---
loss = bound(x, y)

=== weighted in a sum
SEQ
def weighted(p, y, w):
    return torch.sum(w.view(-1, 1) * nn.BCELoss(reduction="none")(p, y)) / torch.sum(w).detach().item()
---
w = 1.0 + torch.exp(-x.mean(1))
loss = weighted(model(x), y, w / w.sum())
---
    return torch.sum(w.view(-1, 1) * nn.BCELoss(reduction="none")(p, y)) / torch.sum(w).detach().item()

=== layers that are run by their forward, the last by an option
class Logit(nn.Module):
    def __init__(self, width=4, squash=True, shift=False):
        super().__init__()
        layers = [nn.Linear(6, width)]
        layers += [nn.ReLU(), nn.Linear(width, 1)]
        if squash:
            layers += [nn.Sigmoid()]
        if shift:
            layers.append(nn.Hardtanh(0.0, 1.0))
        self.layers = nn.Sequential(*layers)
    def forward(self, x):
        return self.layers.forward(x)
model = Logit(3).to(device)
BCE
---
loss = criterion(model.forward(x), y)
---
return self.layers[-1](self.layers[:-1](x).float())
    loss = criterion(output, y)
""")
REFUSED = cases("""\
=== a class of layers that are all there is
JUDGE
class Adverse(nn.Module):
    def __init__(self, judge):
        super().__init__()
        self.judge = judge
        self.bce = lambda p, t: F.binary_cross_entropy(p, t)
    def forward(self, f, t):
        p = self.judge(f)
        return F.binary_cross_entropy(p, t)
model = Adverse(Judge(6)).to(device)
---
loss = model(x, y)
---
        p = self.judge(f)

=== a loss in a lambda that is called
JUDGE
class Adverse(nn.Module):
    def __init__(self, judge):
        super().__init__()
        self.judge = judge
        self.bce = lambda p, t: F.binary_cross_entropy(p, t)
    def forward(self, f, t):
        p = self.judge(f)
        return self.bce(p, t)
model = nn.Linear(6, 8).to(device)
adverse = Adverse(Judge(8)).to(device)
---
loss = adverse(model(x).relu(), y)
---
        self.bce = lambda

=== a loss in a lambda that is called by a name
JUDGE
class Adverse(nn.Module):
    def __init__(self, judge):
        super().__init__()
        self.judge = judge
        self.bce = lambda p, t: F.binary_cross_entropy(p, t)
    def forward(self, f, t, kind):
        return getattr(self, kind)(self.judge(f), t)
model = nn.Linear(6, 8).to(device)
adverse = Adverse(Judge(8)).to(device)
---
loss = adverse(model(x).relu(), y, "bce")
---
        self.bce = lambda

=== a loss in a lambda that is found among all
JUDGE
class Adverse(nn.Module):
    def __init__(self, judge):
        super().__init__()
        self.judge = judge
        self.bce = lambda p, t: F.binary_cross_entropy(p, t)
    def forward(self, f, t):
        (found,) = [one for name, one in vars(self).items() if name[0] == "b" and name[2:] == "e"]
        return found(self.judge(f), t)
model = nn.Linear(6, 8).to(device)
adverse = Adverse(Judge(8)).to(device)
---
loss = adverse(model(x).relu(), y)
---
        self.bce = lambda

=== a default that one call takes
LINEAR
class Bound(nn.Module):
    def __init__(self, net, measure=F.binary_cross_entropy):
        super().__init__()
        self.net = net
        self.measure = measure
    def forward(self, x, y):
        return self.measure(self.net(x).sigmoid(), y)
bounds = [Bound(model, F.mse_loss), Bound(model)]
---
loss = bounds[0](x, y) + bounds[1](x, y)
---
def __init__(self, net, measure=F.binary_cross_entropy):

=== a sigmoid of the products of what is of unknown precision, beside others
model = nn.Linear(6, 4).to(device)
def decode(z):
    pairs = torch.sigmoid(torch.matmul(z, z.t())) * torch.matmul(z, z.t()).sign().abs()
    return pairs
---
z = model(x) + torch.tensor(eval("0.3"))
loss = F.binary_cross_entropy(decode(z), y * y.t())
---
    pairs = torch.sigmoid

=== no sigmoid
LINEAR
BCE
---
p = model(x).clamp(0, 1)
loss = criterion(p, y)
---
p = model

=== a table of losses
SEQ
losses = {'a': nn.BCELoss()}
---
loss = losses['a'](model(x), y)
---
losses =

=== a sigmoid that is added by its name under a condition
model = nn.Sequential()
for i in range(2):
    model.add_module(f"fc{i}", nn.Linear(6, 6))
model.add_module("out", nn.Linear(6, 1))
if len(loader) > 2:
    model.add_module("end", nn.Sigmoid())
model = model.to(device)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== a sigmoid that is added by its name in the place of another
model = nn.Sequential()
for i in range(2):
    model.add_module(f"fc{i}", nn.Linear(6, 6))
model.add_module("out", nn.Linear(6, 1))
model.add_module("end", nn.Linear(1, 1))
model.add_module("more", nn.Hardtanh(0.0, 1.0))
model.add_module("end", nn.Sigmoid())
model = model.to(device)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== a sigmoid that is added by its name beside one under a name of a loop
model = nn.Sequential()
for i in range(2):
    model.add_module(f"fc{i}", nn.Linear(6, 6))
model.add_module("out", nn.Linear(6, 1))
for name in ("end", "more"):
    model.add_module(name, nn.Hardtanh(0.0, 1.0))
model.add_module("end", nn.Sigmoid())
model = model.to(device)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== a sigmoid that is added by its name before another one
model = nn.Sequential()
for i in range(2):
    model.add_module(f"fc{i}", nn.Linear(6, 6))
model.add_module("out", nn.Linear(6, 1))
model.add_module("end", nn.Sigmoid())
model.append(nn.Hardtanh(0.0, 1.0))
model = model.to(device)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== a sigmoid that is added by its name before one by another name
model = nn.Sequential()
for i in range(2):
    model.add_module(f"fc{i}", nn.Linear(6, 6))
model.add_module("out", nn.Linear(6, 1))
model.add_module("end", nn.Sigmoid())
net = model
net.add_module("more", nn.Hardtanh(0.0, 1.0))
model = model.to(device)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== a sigmoid that is added by its name before one in a function
model = nn.Sequential()
for i in range(2):
    model.add_module(f"fc{i}", nn.Linear(6, 6))
model.add_module("out", nn.Linear(6, 1))
model.add_module("end", nn.Sigmoid())
def more(net):
    net.add_module("more", nn.Hardtanh(0.0, 1.0))
more(model)
model = model.to(device)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== a sigmoid that is added by its name and replaced
model = nn.Sequential()
for i in range(2):
    model.add_module(f"fc{i}", nn.Linear(6, 6))
model.add_module("out", nn.Linear(6, 1))
model.add_module("end", nn.Sigmoid())
model.end = nn.Hardtanh(0.0, 1.0)
model = model.to(device)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== a sigmoid that is added by its name and replaced by its place
model = nn.Sequential()
for i in range(2):
    model.add_module(f"fc{i}", nn.Linear(6, 6))
model.add_module("out", nn.Linear(6, 1))
model.add_module("end", nn.Sigmoid())
model[-1] = nn.Hardtanh(0.0, 1.0)
model = model.to(device)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== a sigmoid that is added by its name of what is made again
model = nn.Sequential()
for i in range(2):
    model.add_module(f"fc{i}", nn.Linear(6, 6))
model.add_module("out", nn.Linear(6, 1))
model.add_module("end", nn.Sigmoid())
if len(loader) > 5:
    model = nn.Sequential()
    model.add_module("end", nn.Sigmoid())
model = model.to(device)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== a sigmoid under a condition
def make(last):
    layers = [nn.Linear(6, 1), nn.Sigmoid()]
    layers.pop()
    if last:
        layers.append(nn.Sigmoid())
    return nn.Sequential(*layers)
model = make(len(loader) > 2).to(device)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== a list of an object that a method fills
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = [nn.Linear(6, 1), nn.Sigmoid()]
        self.fill()
        self.net = nn.Sequential(*self.net)
    def fill(self):
        self.net.append(nn.Hardtanh(0.0, 1.0))
    def forward(self, x):
        return self.net(x)
model = Net().to(device)
BCE
---
loss = criterion(model(x), y)
---
return self.net(x)

=== a sigmoid that an option adds to what gives any precision
model = [nn.Linear(6, 1), nn.Sigmoid()]
class Any(nn.Module):
    def forward(self, x):
        return x + eval("torch.tensor(1.0, device=x.device)")
def make(last):
    layers = [nn.Linear(6, 1), Any()]
    if last:
        layers.append(nn.Sigmoid())
    return nn.Sequential(*layers)
model = make(len(loader) > 2).to(device)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== an option that adds another layer
def make(last):
    layers = [nn.Linear(6, 1)]
    if last:
        layers.append(nn.Sigmoid())
    else:
        layers.append(nn.Hardtanh(0.0, 1.0))
    return nn.Sequential(*layers)
model = make(len(loader) > 2).to(device)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== a layer under a condition behind the sigmoid
def make(last):
    layers = [nn.Linear(6, 1), nn.Sigmoid()]
    if not last:
        layers.append(nn.Identity())
    return nn.Sequential(*layers)
model = make(len(loader) > 2).to(device)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== a list from which a layer is taken
def make(last):
    layers = [nn.Linear(6, 1), nn.Sigmoid()]
    layers.append(nn.Sigmoid())
    layers.pop(1)
    return nn.Sequential(*layers)
model = make(len(loader) > 2).to(device)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== a list with another layer
def make(last):
    layers = [nn.Linear(6, 1), nn.Sigmoid()]
    layers[1] = nn.Hardtanh(0.0, 1.0)
    return nn.Sequential(*layers)
model = make(len(loader) > 2).to(device)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== layers that get a name of their own
SEQ
BCE
model.last = nn.DataParallel(model[2])
---
loss = criterion(model(x), y)
---
loss = criterion

=== a list with two names
def make(last):
    layers = [nn.Linear(6, 1), nn.Sigmoid()]
    other = layers
    other.append(nn.Hardtanh(0.0, 1.0))
    return nn.Sequential(*layers)
model = make(len(loader) > 2).to(device)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== a list that a function fills
def make(last):
    layers = [nn.Linear(6, 1), nn.Sigmoid()]
    def add():
        layers.append(nn.Hardtanh(0.0, 1.0))
    add()
    return nn.Sequential(*layers)
model = make(len(loader) > 2).to(device)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== a list that is turned
def make(last):
    layers = [nn.Linear(6, 1), nn.Sigmoid()]
    layers.reverse()
    layers = [*layers[1:], *layers[:1]]
    return nn.Sequential(*layers)
model = make(len(loader) > 2).to(device)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== a hook on the layers
SEQ
BCE
model.register_forward_hook(lambda *a: None)
---
loss = criterion(model(x), y)
---
loss =

=== layers that are added
SEQ
BCE
model.append(nn.Identity())
---
loss = criterion(model(x), y)
---
loss =

=== a hook on all modules
SEQ
BCE
nn.modules.module.register_module_forward_hook(lambda *a: None)
---
loss = criterion(model(x), y)
---
loss =

=== an imported hook on all modules
SEQ
BCE
from torch.nn.modules.module import register_module_forward_pre_hook as on_all
on_all(lambda *a: None)
---
loss = criterion(model(x), y)
---
loss =

=== a hook on the layers, by its name
SEQ
BCE
getattr(model, 'register_forward_hook')(lambda *a: None)
---
loss = criterion(model(x), y)
---
loss =

=== layers that are added under another name
SEQ
BCE
layers = model
layers.append(nn.Identity())
---
loss = criterion(model(x), y)
---
loss =

=== layers that are added in a loop
SEQ
BCE
for each in (model,):
    each.append(nn.Tanh())
---
loss = criterion(model(x), y)
---
loss =

=== layers that are added by a helper
SEQ
BCE
def closed(net):
    net.extend([nn.Identity()])
    return net
closed(model)
---
loss = criterion(model(x), y)
---
loss =

=== layers that are set in the table
SEQ
BCE
layers = model
layers._modules['3'] = nn.Sigmoid()
---
loss = criterion(model(x), y)
---
loss =

=== a table that is filled
SEQ
BCE
model._modules.update({'3': nn.Sigmoid()})
---
loss = criterion(model(x), y)
---
loss =

=== a layer that is set by its name
SEQ
BCE
setattr(model, '3', nn.Sigmoid())
---
loss = criterion(model(x), y)
---
loss =

=== layers that are swapped by a helper
SEQ
BCE
def swap(parent, name, new):
    setattr(parent, name, new)
swap(model, '3', nn.Sigmoid())
---
loss = criterion(model(x), y)
---
loss =

=== a module that is added
SEQ
BCE
layers = model
layers.add_module('end', nn.Identity())
---
loss = criterion(model(x), y)
---
loss =

=== layers that are deleted
SEQ
BCE
layers = model
del layers[0:0]
---
loss = criterion(model(x), y)
---
loss =

=== another forward
SEQ
BCE
layers = model
layers.forward = lambda x: torch.sigmoid(nn.Sequential.forward(layers, x))
---
loss = criterion(model(x), y)
---
loss =

=== layers that are put behind
SEQ
BCE
model += nn.Sequential(nn.Identity())
---
loss = criterion(model(x), y)
---
loss =

=== layers that are found and changed
SEQ
BCE
next(iter([model])).insert(4, nn.Identity())
---
loss = criterion(model(x), y)
---
loss =

=== a forward of all layers
SEQ
BCE
nn.Sequential.forward = lambda self, x: x.sigmoid()
---
loss = criterion(model(x), y)
---
loss =

=== a part that is set by its name
NET
    return self.main(x)
setattr(model, 'main', nn.Sequential(nn.Linear(6, 1), nn.Sigmoid(), nn.Identity()))
BCE
---
loss = criterion(model(x), y)
---
    return self.main(x)

=== a part that is set in the table
NET
    return self.main(x)
model._modules['main'] = nn.Sequential(nn.Linear(6, 1), nn.Sigmoid(), nn.Identity())
BCE
---
loss = criterion(model(x), y)
---
    return self.main(x)

=== layers in a wrapper
SEQ
model = nn.DataParallel(model)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== behind another loss
SEQ
BCE
---
loss = F.mse_loss(model(x), y) + criterion(model(x), y)
---
loss =

=== a lambda
SEQ
criterion = lambda p, t: F.binary_cross_entropy(p, t)
---
loss = criterion(model(x), y)
---
criterion =

=== a comprehension
SEQ
BCE
---
loss = sum([criterion(model(a), b) for a, b in [(x, y)]])
---
loss =

=== a default
SEQ
BCE
def compute(p, t, crit=criterion):
    return crit(p, t)
---
loss = compute(model(x), y)
---
def compute

=== a model out of sight
import segmenter
model = segmenter.build().to(device)
BCE
---
loss = criterion(model(x), y)
---
loss =

=== doubles
w = torch.randn(6, 1, dtype=torch.float64)
LINEAR
BCE
---
loss = criterion(torch.sigmoid(x.double() @ w), y.double()) + 0 * model(x).mean()
---
loss =

=== or another loss
SEQ
import sys
criterion = nn.BCELoss() if len(sys.argv) < 5 else nn.PoissonNLLLoss()
---
loss = criterion(model(x), y)
---
loss =

=== a caller out of sight
SEQ
BCE
def compute(p, t):
    return criterion(p, t)
calls = {'bce': compute}
others = [calls]
---
loss = calls['bce'](model(x), y)
---
return criterion
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


def test_bfloat16() -> None:
    source = MIGRATED["a list of layers"].source
    output = migrate_source(source, options=Options(dtype="bfloat16")).output
    check_lines(output, ("    loss = criterion(output, y)",))


EVALUATION = """\
with torch.no_grad():
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        seen = criterion(model(x), y)
    print(seen.item())
"""


def test_evaluation() -> None:
    source = MIGRATED["a list of layers"].source + EVALUATION
    output = migrate_source(source, options=Options(evaluation=True)).output
    check_lines(output, ("    seen = criterion(output, y)",))
    check_runs(source, output)


def test_without_evaluation_it_stays() -> None:
    source = MIGRATED["a list of layers"].source + EVALUATION
    output = migrate_source(source).output
    assert output.endswith(EVALUATION)
    check_runs(source, output)


JUDGE = """\
class Judge(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.fc = nn.Linear(size, 1)
    def forward(self, x):
        return torch.sigmoid(self.fc(x))
judge = Judge(output.shape[1] + 5).to(device)
for x, y in loader:
    with torch.no_grad():
        print(F.binary_cross_entropy(judge(x.to(device)), y.to(device)).item())
"""


def test_evaluation_of_what_no_region_computes() -> None:
    text = (
        cases(
            "=== a\nLINEAR\n---\noutput = model(x)\nloss = F.mse_loss(output, y)\n---\n"
        )["a"].source
        + JUDGE
    )
    output = migrate_source(text).output
    assert output != text and output.endswith(JUDGE)
    check_runs(text, output)


NET = """\
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 1)

    def forward(self, x):
        return torch.sigmoid(self.fc(x))
"""
LOSSES = """\
from torch.nn import functional

def compute(p, t):
    return functional.binary_cross_entropy(p, t)
"""


def test_a_model_and_a_loss_in_files_of_their_own(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "losses.py").write_text(LOSSES)
    source = MIGRATED["a helper"].source
    start, end = source.index("model = "), source.index("optimizer = ")
    setup = (
        "from net import Net\nfrom losses import compute\nmodel = Net().to(device)\n"
    )
    (tmp_path / "main.py").write_text(source[:start] + setup + source[end:])
    report = migrate_paths([str(tmp_path)])
    texts = {Path(m.result.path).name: m.result.output for m in report.changed}
    assert "        return torch.sigmoid(self.fc(x).float())\n" in texts["net.py"]
    assert texts["losses.py"].startswith("import torch\n")
    check_lines(
        texts["losses.py"], ("    return functional.binary_cross_entropy(p, t)",)
    )
    check_lines(texts["main.py"], ("loss = compute(model(x), y)",))


def test_an_epsilon_of_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "settings.py").write_text("eps = 1e-12\n")
    model, loss = "LINEAR\n", "p = torch.sigmoid(model(x))"
    text = (
        f"=== a\n{model}---\n{loss}\nloss = -torch.log(p + settings.eps).mean()\n---\n"
    )
    source = cases(text)["a"].source
    (tmp_path / "main.py").write_text("import settings\n" + source)
    (found,) = migrate_paths([str(tmp_path)]).changed
    check_lines(found.result.output, ("p = torch.sigmoid(model(x).float())",))
    # Who sets it may set it to anything.
    other = "import settings\nsettings.eps = torch.rand(1).half()\n"
    (tmp_path / "main.py").write_text(other + source)
    assert not migrate_paths([str(tmp_path)]).changed


LAYERS = """\
import torch
from torch import nn

def build():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())
"""
LOOK = """\
from net import build

model = build()
model[0].register_forward_hook(lambda module, args, output: print(output.shape))
model(torch.zeros(1, 6))
"""


@pytest.mark.parametrize("runs", (False, True))
def test_a_hook_in_another_script(tmp_path: Path, runs: bool) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "net.py").write_text(LAYERS)
    (tmp_path / "look.py").write_text("import torch\n" + LOOK)
    source = MIGRATED["a list of layers"].source
    start, end = source.index("model = "), source.index("optimizer = ")
    setup = "from net import build\n" + "import look\n" * runs
    setup += "model = build().to(device)\ncriterion = nn.BCELoss()\n"
    (tmp_path / "main.py").write_text(source[:start] + setup + source[end:])
    report = migrate_paths([str(tmp_path)])
    assert bool(report.changed) is not runs


@pytest.mark.parametrize("runs", (False, True))
def test_a_half_model_in_another_script(tmp_path: Path, runs: bool) -> None:
    """What is half there does not keep a value of unknown width from being cast here."""
    (tmp_path / ".git").mkdir()
    half = "import torch\ndef half(x):\n    return x.to(torch.float16)\nprint(half(torch.ones(1)))\n"
    (tmp_path / "look.py").write_text(half)
    source = MIGRATED[
        "a list that becomes a tensor, in a model whose wrapper takes its name"
    ].source.replace("self.body(part)", "getattr(self, 'body')(part)")
    (tmp_path / "main.py").write_text("import look\n" * runs + source)
    report = migrate_paths([str(tmp_path)])
    assert bool(report.changed) is not runs


ONE_OF_TWO = """\
if len(sys.argv) < 9:
    from net import Net
else:
    from other import Net
from losses import compute
model = Net().to(device)
"""


@pytest.mark.parametrize("is_in_sight", [True, False])
def test_a_model_that_one_of_two_imports_gives(
    is_in_sight: bool, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "net.py").write_text(NET)
    other = NET if is_in_sight else "from nowhere import Net\n"
    (tmp_path / "other.py").write_text(other)
    (tmp_path / "losses.py").write_text(LOSSES)
    source = MIGRATED["a helper"].source
    start, end = source.index("model = "), source.index("optimizer = ")
    text = "import sys\n" + source[:start] + ONE_OF_TWO + source[end:]
    (tmp_path / "main.py").write_text(text)
    changed = {
        Path(m.result.path).name: m.result.output
        for m in migrate_paths([str(tmp_path)]).changed
    }
    assert bool(changed) is is_in_sight
    for file in ("net.py", "other.py") if is_in_sight else ():
        assert "return torch.sigmoid(self.fc(x).float())\n" in changed[file]


METER = """\
class Meter:
    def __init__(self, loss):
        self.loss = loss
        self.total = 0.0
    def update(self, out, y):
        self.total += self.loss(out, y).item()
"""
METERED = """\
import torch
from torch import nn
from meter import Meter
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Linear(6, 1), LAST).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.MSELoss()
meter = Meter(METERS)
for x in torch.randn(3, 8, 6, device=device):
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, torch.zeros_like(out))
    loss.backward()
    optimizer.step()
    meter.update(out.detach(), torch.zeros_like(out))
"""


@pytest.mark.parametrize(
    ("given", "is_seen"),
    (("criterion", True), ("[nn.BCELoss(), criterion][1]", False)),
)
def test_a_loss_that_another_script_gives(
    given: str, is_seen: bool, tmp_path: Path
) -> None:
    """It is none of this one, where all that is given here is in sight."""
    (tmp_path / ".git").mkdir()
    (tmp_path / "meter.py").write_text(METER)
    other = METERED.replace("LAST", "nn.Sigmoid()").replace("METERS", "nn.BCELoss()")
    (tmp_path / "other.py").write_text(other)
    source = METERED.replace("LAST", "nn.Tanh()").replace("METERS", given)
    (tmp_path / "main.py").write_text(source)
    results = {Path(r.path).name: r for r in migrate_paths([str(tmp_path)]).results}
    found = results["main.py"]
    assert bool(found.changed) is is_seen, found.diagnostics
    if is_seen:
        assert "criterion(out, torch.zeros_like(out))" in found.output


_WRAPPED = """\
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self, plain):
        super().__init__()
        self.rows = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
        if not plain:
            self.rows = nn.Sequential(self.rows, nn.Sigmoid())
    def forward(self, x):
        return self.rows(x)
model = Net(False).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = nn.BCELoss()(model(x), y)
    loss.backward()
    optimizer.step()
"""


def test_layers_that_are_put_into_a_row_with_themselves() -> None:
    """What is asked of them was asked without an end."""
    result = migrate_source(_WRAPPED)
    assert result.changed or [d.code for d in result.diagnostics] == ["AMP020"]
