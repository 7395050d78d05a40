"""What leaves a region in half precision and is used outside of it. All scripts really run."""

from __future__ import annotations

import re

import pytest
from exactness import MOVING_SCALES, check_mixed, check_off, check_scaled
from programs import HEAD as SCRIPT
from programs import before_and_after, migrated

from amp_migrate.api import migrate_source

HEAD = """\
import copy
import random
from collections import deque, namedtuple
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
random.seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = [(torch.randn(16, 4), torch.randn(16, 8)) for _ in range(3)]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.out = nn.Linear(8, 8)

    def features(self, x):
        return torch.relu(self.body(x))

    def forward(self, x):
        h = self.features(x)
        self.last = h
        return self.out(h)


model = Net().to(device)
probe = nn.Linear(8, 1).to(device)
optimizer = torch.optim.Adam(model.parameters())
"""
STEP = """\
 for x, y in loader:
     x, y = x.to(device), y.to(device)
-    h = model(x)
-    loss = F.mse_loss(h, y)
+    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
+        h = model(x)
+        loss = F.mse_loss(h, y)
     optimizer.zero_grad()
-    loss.backward()
-    optimizer.step()
+    scaler.scale(loss).backward()
+    scaler.step(optimizer)
+    scaler.update()
"""
BIRTH = """\
scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")
"""
# Each is a diff of what stands around a training step, which is put where it says STEP.
CASES = """\
=== what is next to 0
 far = torch.linspace(0, 42, 8).to(device)
 def entropy(out):
-    probs = (out.detach() * 16).softmax(1)
+    probs = (out.detach() * 16).float().softmax(1)
     return -(probs * torch.log(probs)).sum(1)
 STEP
     logits = h.detach() * 16
-    one = -(logits.softmax(1) * torch.log(logits.softmax(1) + 1e-12)).sum(1)
-    p = logits.softmax(dim=-1)
+    one = -(logits.softmax(1) * torch.log(logits.float().softmax(1) + 1e-12)).sum(1)
+    p = logits.float().softmax(dim=-1)
     two = -(p * p.clamp(min=1e-12).log()).sum(1)
-    s = torch.sigmoid(logits)
+    s = torch.sigmoid(logits.float())
     three = -(s * torch.log(s + 1e-9)).sum(1)
-    ratio = y / (h.detach() * 0 + 1e-9)
+    ratio = y / ((h.detach() * 0).float() + 1e-9)
     q = (y * far).softmax(1)
     four = -(q * torch.log(q + 1e-12)).sum(1)
     for value in one, two, three, four, entropy(h), ratio:
         assert value.isfinite().all()
-    masked = h.detach().masked_fill(y > 0, -1e9).argmax(1)
+    masked = h.detach().float().masked_fill(y > 0, -1e9).argmax(1)
=== a histogram, and what no half value goes into
 import time
 class Meter:
     def __init__(self):
         self.val, self.sum = 0, 0
     def update(self, val):
         self.val = val
         self.sum = self.sum + val
 took, right = Meter(), Meter()
 def counts(out, bins):
     out = out.view(-1)
-    return torch.histc(out, bins=bins, min=0, max=1)
+    return torch.histc(out.float(), bins=bins, min=0, max=1)
 start = time.time()
 STEP
     right.update(counts(h.detach(), 4).cpu().numpy())
     took.update(time.time() - start)
     print(sum(right.val) / (sum(right.sum) + 1e-10))
=== a method by its name
 STEP
     kept = getattr(h, "detach")()
-    similar = kept @ y.t()
+    similar = kept.float() @ y.t()
=== sums and powers
 seen, area, last = 0, 0.0, None
 STEP
-    seen += F.softmax(h, dim=1).max(1)[0].mean().detach()
-    area += h.detach().sigmoid().sum().item()
-    print((h.detach() ** 2).mean().item(), h.exp().mean().item())
-    print(torch.pow(h, 2).max().item(), torch.sum(h.detach()).item())
+    seen += F.softmax(h, dim=1).max(1)[0].mean().detach().float()
+    area += h.detach().sigmoid().float().sum().item()
+    print((h.detach().float() ** 2).mean().item(), h.float().exp().mean().item())
+    print(torch.pow(h.float(), 2).max().item(), torch.sum(h.detach().float()).item())
     last = loss.detach() if last is None else 0.9 * last + 0.1 * loss.detach()
 print(float(seen) > 0, area > 0)
=== sums of lists in a dict
 kept = {"h": [], "none": []}
 STEP
-    kept["h"].append(h.detach())
+    kept["h"].append(h.detach().float())
 means = {key: sum(rows) / len(rows) for key, rows in kept.items() if rows}
 print(sorted(means))
=== a meter that is asked later
 class Meter:
     def __init__(self):
         self.total, self.count = 0.0, 0
     def update(self, value):
-        self.total += value
+        self.total += value.float()
         self.count += 1
 meter = Meter()
 STEP
     meter.update(h.detach().mean())
 print(float(meter.total) < 99)
=== sums in other forms
 import itertools, types
 class Meter:
     def __init__(self): self.total = 0
     def update(self, value):
-        self.total += value
+        full_value = (
+            value.float()
+            if torch.is_tensor(value) and value.dtype is torch.float16
+            else value
+        )
+        self.total += full_value
 meters, kept, seen, rows, tally = {"m": Meter()}, {}, types.SimpleNamespace(all=0), [], 0
 def summing():
     total = 0
     def add(value):
         nonlocal total
-        total = total + value
+        full_value = (
+            value.float()
+            if torch.is_tensor(value) and value.dtype is torch.float16
+            else value
+        )
+        total = total + full_value
         return total
     return add
 add = summing()
 def plus(one, other):
-    return one + other
+    return one + other.float()
 STEP
     out = h.detach() * 0 + 3e4
     meters["m"].update(out)
     add(out)
-    kept.update(all=kept.get("all", 0) - out)
+    kept.update(all=kept.get("all", 0) - out.float())
-    setattr(seen, "all", getattr(seen, "all") + out)
+    setattr(seen, "all", getattr(seen, "all") + out.float())
-    rows.append(out)
+    rows.append(out.float())
     tally = plus(tally, out)
 *_, last = itertools.accumulate(rows)
 for value in meters["m"].total, add(0), kept["all"], seen.all, last, tally:
     assert value.isfinite().all()
=== a sum under a lambda's weight
 turned = lambda rows, by=torch.eye(8, device=device): rows @ by
 STEP
-    turned(h.detach())
+    turned(h.detach().float())
=== in a list by another name for its method
 kept, more = [], []
 add = kept.append
 STEP
     add(h.detach())
     list.append(more, h.detach())
-    print(probe(kept[-1]).mean().item(), probe(more[-1]).mean().item())
+    print(probe(kept[-1].float()).mean().item(), probe(more[-1].float()).mean().item())
=== by the name of a variable, and as parameters
 STEP
-    similar = locals()["h"].detach() @ y.t()
+    similar = locals()["h"].detach().float() @ y.t()
-    nn.utils.vector_to_parameters(h.detach()[0], [probe.weight])
+    nn.utils.vector_to_parameters(h.detach()[0].float(), [probe.weight])
     weight = {"weight": h.detach()[:1]}
+    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
-    torch.func.functional_call(probe, weight, (y,))
+        torch.func.functional_call(probe, weight, (y,))
     torch.func.functional_call(probe, {"weight": y[:1]}, (y,))
=== a loss with weights
 weights = torch.rand(8).to(device)
 weighed = nn.CrossEntropyLoss(weight=weights)
 plain = nn.CrossEntropyLoss()
 STEP
     labels = y.argmax(1)
-    print(F.cross_entropy(h, labels, weights).isfinite().item())
+    print(F.cross_entropy(h.float(), labels, weights).isfinite().item())
-    print(weighed(h, labels).item() < 1e9)
+    print(weighed(h.float(), labels).item() < 1e9)
     print(plain(h, labels).item() < 1e9)
=== what processes gather
 import torch.distributed as dist
 dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
 every = [torch.zeros(16, 8)]
 STEP
-    dist.all_gather(every, h.detach())
+    dist.all_gather(every, h.detach().to(every[0].dtype))
     like = [torch.zeros_like(h)]
     dist.all_gather(like, h.detach())
=== running sums of tensors
 total, per_class, by_name, outs, last = None, {}, {}, [], {}
 kept = {0: [], 1: []}
 def mean_of(kept):
     for k, rows in kept.items():
-        row = 0 * rows[0].data
+        row = (0 * rows[0].data).float()
         for r in rows:
             row += r.data
         print(row.isfinite().all().item())
 STEP
     out = h.detach() * 0 + 3e4
-    total = out if total is None else total + out
+    total = out if total is None else total + out.float()
     if 0 in per_class:
         per_class[0] += out
     else:
-        per_class[0] = out
+        per_class[0] = out.float()
-    by_name["a"] = by_name.get("a", 0) + out
+    by_name["a"] = by_name.get("a", 0) + out.float()
-    outs.append(out)
-    last = sum(o for o in (out, out, out))
+    outs.append(out.float())
+    last = sum(o.float() for o in (out, out, out))
     for i in 0, 1:
         kept[i].append(out[0].data)
     for value in total, per_class[0], by_name["a"], sum(outs), last:
         assert value.isfinite().all()
 mean_of(kept)
=== files
 kept = {}
 STEP
     kept["h"] = h.detach()
     torch.save({"kept": kept, "model": model.state_dict()}, "kept.pt")
 loaded = torch.load("kept.pt")
 model.load_state_dict(loaded["model"])
-print(probe(loaded["kept"]["h"]).mean().item() < 1e9)
+with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
+    print(probe(loaded["kept"]["h"]).float().mean().item() < 1e9)
=== what any number of arguments hold
 class Memory:
     def __init__(self):
         self.items = deque(maxlen=9)

     def push(self, *item):
         self.items.append(item)

     def sample(self, k):
         return [torch.stack(c) for c in zip(*random.sample(self.items, k))]


 memory = Memory()
 STEP
     memory.push(h.detach(), y)
     hs, ys = memory.sample(1)
-    print(probe(hs).shape, probe(ys).shape)
+    print(probe(hs.float()).shape, probe(ys.float()).shape)
=== a module
 memory = []
 head = nn.Sequential(nn.ReLU(), nn.Linear(8, 2), nn.Softmax(1)).to(device)
 act = nn.Sequential(nn.ReLU(), nn.Softmax(1))
 STEP
-    print(probe(h.detach()).mean().item())
+    print(probe(h.detach().float()).mean().item())
+    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
-    print(f"{probe(h.detach()).mean().item():.3f}")
+        print(f"{probe(h.detach()).mean().item():.3f}")
     memory.append(h.detach())
-    print([probe(m).mean().item() for m in memory])
+    print([probe(m.float()).mean().item() for m in memory])
-    print(head(h.detach()).sum().item())
+    print(head(h.detach().float()).sum().item())
-    print(act(h.detach()).sum().item())
+    print(act(h.detach()).float().sum().item())

=== after the loop
 STEP
-print(probe(h.detach()).mean().item())
+print(probe(h.detach().float()).mean().item())

=== a function of several callers
 def show(v):
-    return probe(v).mean().item()
+    return probe(v.float()).mean().item()
 def evaluate(v, target):
     with torch.no_grad():
-        s = probe(v)
+        s = probe(v.float())
         return (s.mean() - target.mean()).item()
 STEP
     print(show(h.detach()), show(y))
     print(evaluate(h, y))
     with torch.no_grad():
-        print(probe(h).mean().item())
+        print(probe(h.float()).mean().item())

=== a list
 memory = []
 memory1 = []
 memory2 = []
 memory3 = []
 memory4 = deque(maxlen=3)
 STEP
     memory.append(h.detach())
-    print(probe(torch.cat(memory)).mean().item())
+    print(probe(torch.cat(memory).float()).mean().item())
     memory1.append(h.detach())
     for m in memory1:
-        print(probe(m).mean().item())
+        print(probe(m.float()).mean().item())
     memory2.append(h.detach())
-    print(probe(memory2[-1]).mean().item())
+    print(probe(memory2[-1].float()).mean().item())
     memory3.extend([h.detach(), h.detach()])
     memory3 += [h.detach()]
-    print(probe(torch.stack(memory3)).mean().item())
+    print(probe(torch.stack(memory3).float()).mean().item())
     memory4.append(h.detach())
-    print(probe(random.choice(memory4)).mean().item())
+    print(probe(random.choice(memory4).float()).mean().item())

=== a list of tuples
 memory = []
 memory1 = []
 memory2 = []
 STEP
     memory.append((x, h.detach(), 1))
     for a, b, c in memory:
-        print(probe(b).mean().item(), model(a).mean().item())
+        print(probe(b.float()).mean().item(), model(a).mean().item())
     memory1.append((y, h.detach(), 1))
     for a, b, c in memory1:
         print(probe(a).mean().item())
     memory2.append((h.detach(), y))
     a, b = zip(*random.sample(memory2, 1))
-    print(probe(torch.cat(a)).mean().item(), probe(torch.cat(b)).mean().item())
+    print(probe(torch.cat(a).float()).mean().item(), probe(torch.cat(b)).mean().item())

=== a replay buffer
 class Replay:
     def __init__(self):
         self.items = []
     def push(self, a, b):
         self.items.append((a, b))
     def sample(self):
         batch = random.sample(self.items, 1)
         a, b = zip(*batch)
         return torch.cat(a), torch.cat(b)
 replay = Replay()
 STEP
     replay.push(h.detach(), y)
     a, b = replay.sample()
-    print(probe(a).mean().item(), probe(b).mean().item())
+    print(probe(a.float()).mean().item(), probe(b).mean().item())

=== a dict
 memory = {}
 cache3 = {}
 STEP
     memory["h"] = h.detach()
     memory["y"] = y
-    print(probe(memory["h"]).mean().item(), probe(memory["y"]).mean().item())
+    print(probe(memory["h"].float()).mean().item(), probe(memory["y"]).mean().item())
     outs = {"h": h.detach(), "y": y}
-    print(probe(outs["h"]).mean().item(), probe(outs["y"]).mean().item())
+    print(probe(outs["h"].float()).mean().item(), probe(outs["y"]).mean().item())
     outs = {"h": h.detach(), "g": h.detach() * 2}
     for k, v in outs.items():
-        print(k, probe(v).mean().item())
+        print(k, probe(v.float()).mean().item())
     cache3[len(cache3)] = h.detach()
     for v in cache3.values():
-        print(probe(v).mean().item())
+        print(probe(v.float()).mean().item())

=== a dict that is updated
 memory, last = {}, dict(n=0)
 STEP
     memory.update(h=h.detach(), y=y)
-    print(probe(memory["h"]).mean().item(), probe(memory["y"]).mean().item())
+    print(probe(memory["h"].float()).mean().item(), probe(memory["y"]).mean().item())
     last.update({"h": h.detach(), "n": 3})
-    print(probe(last["h"]).mean().item() * last["n"])
+    print(probe(last["h"].float()).mean().item() * last["n"])

=== a record
 @dataclass
 class Out:
     h: torch.Tensor
     y: torch.Tensor
 @dataclass
 class Out3:
     h: torch.Tensor
     y: torch.Tensor
 Out1 = namedtuple("Out1", "h y")
 Out2 = namedtuple("Out2", "h y")
 memory2 = []
 STEP
     o = Out(h.detach(), y)
-    print(probe(o.h).mean().item(), probe(o.y).mean().item())
+    print(probe(o.h.float()).mean().item(), probe(o.y).mean().item())
     o1 = Out1(h.detach(), y)
-    print(probe(o1.h).mean().item(), probe(o1.y).mean().item())
+    print(probe(o1.h.float()).mean().item(), probe(o1.y).mean().item())
     memory2.append(Out2(h.detach(), y))
     b = Out2(*zip(*memory2))
-    print(probe(torch.cat(b.h)).mean().item(), probe(torch.cat(b.y)).mean().item())
+    print(probe(torch.cat(b.h).float()).mean().item(), probe(torch.cat(b.y)).mean().item())
     c = Out3(*zip(*memory2))
-    print(probe(torch.cat(c.h)).mean().item(), probe(torch.cat(c.y)).mean().item())
+    print(probe(torch.cat(c.h).float()).mean().item(), probe(torch.cat(c.y)).mean().item())

=== a generator and a lambda
 def outs():
     yield h.detach()
 score = lambda v: probe(v).mean().item()
 STEP
     for v in outs():
-        print(probe(v).mean().item())
+        print(probe(v.float()).mean().item())
-    print(score(h.detach()))
+    print(score(h.detach().float()))

=== an attribute
 ema = copy.deepcopy(model)
 STEP
-    print(probe(model.last.detach()).mean().item())
+    print(probe(model.last.detach().float()).mean().item())
     print(probe(model.features(x)).mean().item())
-    print(ema(x).mean().item(), ema.out(model.last).mean().item())
+    print(ema(x).mean().item(), ema.out(model.last.float()).mean().item())
-    print(model.out(model.last).mean().item())
+    print(model.out(model.last.float()).mean().item())

=== a global
 kept = None
 def keep(v):
     global kept
     kept = v
 def both(v):
     return v, v * 2
 STEP
     keep(h.detach())
-    print(probe(kept).mean().item())
+    print(probe(kept.float()).mean().item())
     a, b = both(h.detach())
-    print(probe(b).mean().item())
+    print(probe(b.float()).mean().item())

=== products
 w = torch.ones(8, 1, device=device)
 w1 = torch.ones(8, 1, device=device)
 STEP
-    print(torch.matmul(h.detach(), w).sum().item(), (h.detach() @ w).sum().item())
-    print(h.detach().mm(w).sum().item())
+    print(torch.matmul(h.detach().float(), w).sum().item(), (h.detach().float() @ w).sum().item())
+    print(h.detach().float().mm(w).sum().item())
-    print(torch.einsum("ij,jk->ik", h.detach(), w1).sum().item())
+    print(torch.einsum("ij,jk->ik", h.detach().float(), w1).sum().item())
-    print((h.detach() @ y.t()).sum().item())
+    print((h.detach().float() @ y.t()).sum().item())
     g = h.detach().t() @ h.detach()
-    print(g.sum().item() < 1e9)
+    print(g.float().sum().item() < 1e9)
-    print((h.detach() @ model.out.weight).sum().item() < 1e9)
+    print((h.detach().float() @ model.out.weight).sum().item() < 1e9)
-    print(F.linear(h.detach(), probe.weight, probe.bias).sum().item())
+    print(F.linear(h.detach().float(), probe.weight, probe.bias).sum().item())

=== what is not there in half
 STEP
-    print(torch.linalg.svd(h.detach()).S.sum().item())
-    print(torch.linalg.svdvals(h.detach()).sum().item())
+    print(torch.linalg.svd(h.detach().float()).S.sum().item())
+    print(torch.linalg.svdvals(h.detach().float()).sum().item())
-    print(torch.quantile(h.detach(), 0.5).item(), h.detach().quantile(0.5).item())
+    print(torch.quantile(h.detach().float(), 0.5).item(), h.detach().float().quantile(0.5).item())
-    print(torch.cdist(h.detach(), y).mean().item())
-    print(torch.linalg.pinv(h.detach()).sum().item())
-    print(torch.linalg.matrix_rank(h.detach()).sum().item())
-    print(torch.pca_lowrank(h.detach(), 2)[1].sum().item())
-    print(torch.linalg.vecdot(h.detach(), y).sum().item())
-    print(torch.histogram(h.detach(), 4)[0].sum().item())
-    print(torch.polar(h.detach(), y).abs().sum().item())
+    print(torch.cdist(h.detach().float(), y).mean().item())
+    print(torch.linalg.pinv(h.detach().float()).sum().item())
+    print(torch.linalg.matrix_rank(h.detach().float()).sum().item())
+    print(torch.pca_lowrank(h.detach().float(), 2)[1].sum().item())
+    print(torch.linalg.vecdot(h.detach().float(), y).sum().item())
+    print(torch.histogram(h.detach().float(), 4)[0].sum().item())
+    print(torch.polar(h.detach().float(), y).abs().sum().item())
     print(torch.inverse(h.detach()[:8] + 3 * torch.eye(8, device=device)).sum().item())

=== stores
 buf = torch.zeros(16, 8, device=device)
 buf1 = torch.zeros(16, 8, device=device)
 buf2 = torch.zeros(16, 8, device=device)
 buf3 = torch.zeros(16, 8, device=device)
 buf4 = torch.zeros(16, 8, device=device)
 buf5 = torch.zeros(16, 8, device=device)
 STEP
     mask = y > 0
-    buf[mask] = h.detach()[mask]
+    buf[mask] = h.detach()[mask].to(buf.dtype)
     print(buf.sum().item())
     idx1 = torch.randperm(16, device=device)[:4]
-    buf1[idx1] = h.detach()[:4]
+    buf1[idx1] = h.detach()[:4].to(buf1.dtype)
     print(buf1.sum().item())
     buf2[2:4] = h.detach()[:2]
     print(buf2.sum().item())
-    buf3.index_add_(0, torch.arange(16, device=device), h.detach())
+    buf3.index_add_(0, torch.arange(16, device=device), h.detach().to(buf3.dtype))
     print(buf3.sum().item())
     at = torch.zeros(16, 8, dtype=torch.long, device=device)
-    buf4.scatter_(0, at, h.detach())
+    buf4.scatter_(0, at, h.detach().to(buf4.dtype))
     print(buf4.sum().item() < 1e9)
-    print(buf5.masked_scatter(y > 0, h.detach()).sum().item())
+    print(buf5.masked_scatter(y > 0, h.detach().to(buf5.dtype)).sum().item())

=== stores at the places of a list, and of an array
 buf = torch.zeros(16, 8, device=device)
 class Choice:
     def __init__(self, size):
         self.size = size
     def __call__(self, seen):
         return seen if seen < 4 else np.random.choice(self.size, size=1)
 class Memory:
     def __init__(self):
         self.choice, self.seen = Choice(16), 0
     def make(self, rows):
         for name in ["rows", "more"]:
             if not hasattr(self, name):
                 setattr(self, name, torch.zeros(16, 8, dtype=torch.float32, device=device))
     def add(self, rows):
         self.make(rows)
         for i in range(len(rows)):
             index = self.choice(self.seen)
             self.seen += 1
-            self.rows[index] = rows[i].to(device)
+            self.rows[index] = rows[i].to(device).to(self.rows.dtype)
 memory = Memory()
 STEP
     at1 = [3, 5]
-    buf[at1] = h.detach()[:2]
+    buf[at1] = h.detach()[:2].to(buf.dtype)
     at2 = np.random.permutation(16)[:2]
-    buf[at2] = h.detach()[:2]
+    buf[at2] = h.detach()[:2].to(buf.dtype)
     at3 = [i for i in range(2)]
-    buf[at3] = h.detach()[:2]
+    buf[at3] = h.detach()[:2].to(buf.dtype)
     at4 = np.random.choice(16)
     buf[at4] = h.detach()[0]
     for at5 in sorted({2, 1}):
         buf[at5] = h.detach()[0]
     memory.add(h.detach())
     print(buf.sum().item(), memory.rows.sum().item())

=== operands alike
 buf = torch.zeros(16, 8, device=device)
 STEP
-    buf = buf.lerp(h.detach(), 0.5)
+    buf = buf.lerp(h.detach().float(), 0.5)
-    buf.lerp_(h.detach(), 0.5)
+    buf.lerp_(h.detach().float(), 0.5)
     print(buf.sum().item())
-    print(torch.allclose(h.detach(), y))
+    print(torch.allclose(h.detach().float(), y))
-    print(torch.isclose(h.detach(), y).sum().item())
+    print(torch.isclose(h.detach().float(), y).sum().item())
-    print(torch.cdist(h.detach(), y).sum().item() < 1e9)
+    print(torch.cdist(h.detach().float(), y).sum().item() < 1e9)

=== losses
 bce = nn.BCELoss()
 STEP
-    p = torch.sigmoid(h.detach())
+    p = torch.sigmoid(h.detach().float())
     print(F.binary_cross_entropy(p, torch.sigmoid(y)).item())
-    print(bce(torch.sigmoid(h.detach()), torch.sigmoid(y)).item())
+    print(bce(torch.sigmoid(h.detach().float()), torch.sigmoid(y)).item())

=== layers
 norm = nn.LayerNorm(8).to(device)
 norm = nn.BatchNorm1d(8).to(device)
 rnn = nn.LSTM(8, 4).to(device)
 STEP
-    print(norm(h.detach()).sum().item() < 1e9)
+    print(norm(h.detach().float()).sum().item() < 1e9)
-    print(probe(norm(h.detach())).sum().item() < 1e9)
+    print(probe(norm(h.detach().float())).sum().item() < 1e9)
-    out, (hn, cn) = rnn(h.detach())
+    out, (hn, cn) = rnn(h.detach().float())
     print(out.sum().item())
-    print(probe(F.softmax(h.detach(), dim=1)).sum().item() < 1e9)
+    print(probe(F.softmax(h.detach(), dim=1).float()).sum().item() < 1e9)

=== what is promoted
 acc = torch.zeros(16, 8, device=device)
 emb = nn.Embedding(8, 3).to(device)
 losses = []
 STEP
     acc += h.detach()
     print(probe(acc).mean().item())
     print(probe((h - y).detach()).mean().item())
     both = torch.cat([h.detach(), y])
     print(probe(both).mean().item())
     print(h.argmax(1).sum().item() < 1e9, loss.item() < 1e9, (h > 0).sum().item() >= 0)
     print(((h - y) ** 2).mean().item() < 1e9, h.detach().cpu().shape, (h.max(1)[1] == 3).sum() >= 0)
     print(emb(h.argmax(1)).sum().item(), emb(h.max(1)[1]).sum().item() < 1e9)
     losses.append(loss.detach())
     print(torch.stack(losses).mean().item() < 1e9)

=== what is not
 STEP
     acc = h.detach().clone()
     acc += 1
-    print(probe(acc).mean().item())
+    print(probe(acc.float()).mean().item())
     z = h.detach() if x.shape[0] > 1 else y
-    print(probe(z).mean().item())
+    print(probe(z.float()).mean().item())
     both = torch.stack([h.detach(), h.detach()])
-    print(probe(both).mean().item())
+    print(probe(both.float()).mean().item())
     z = torch.zeros_like(h)
-    print(probe(z).mean().item())
+    print(probe(z.float()).mean().item())

=== what it was
 mean = None
 STEP
-    mean = h.detach() if mean is None else 0.9 * mean + 0.1 * h.detach()
+    mean = h.detach() if mean is None else 0.9 * mean + (0.1 * h.detach()).float()
-    print(probe(mean).mean().item())
+    print(probe(mean.float()).mean().item())

=== cast already
 STEP
     print(probe(h.detach().float()).sum().item() < 1e9)
     print(probe(h.detach().to(torch.float32)).sum().item() < 1e9)
     print(probe(h.detach().to(y)).sum().item() < 1e9, probe(h.type_as(y)).mean().item() < 1e9)
-    print(np.linalg.svd(h.detach().cpu().numpy())[1].sum() < 1e9)
+    print(np.linalg.svd(h.detach().cpu().float().numpy())[1].sum() < 1e9)
-    z = torch.from_numpy(h.detach().cpu().numpy()).to(device)
+    z = torch.from_numpy(h.detach().cpu().float().numpy()).to(device)
     print(probe(z).mean().item())

=== parameters
 proto = nn.Parameter(torch.zeros(16, 8, device=device))
 STEP
-    proto.data = h.detach()
+    proto.data = h.detach().float()
     print(probe(proto).mean().item())
-    z = nn.Parameter(h.detach().clone())
+    z = nn.Parameter(h.detach().clone().float())
     print(probe(z).mean().item())

=== data
 memory = []
 STEP
     memory.append(h.detach())
-ds = torch.utils.data.TensorDataset(torch.cat(memory))
+ds = torch.utils.data.TensorDataset(torch.cat(memory).float())
 for (v,) in torch.utils.data.DataLoader(ds, batch_size=8):
     print(probe(v).mean().item())

=== a model given to a function
 def show(net, v):
-    return net(v).mean().item()
+    return net(v.float()).mean().item()
 vgg = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).to(device)
 def distance(a, b):
-    return F.mse_loss(vgg(a), vgg(b))
+    return F.mse_loss(vgg(a.float()), vgg(b))
 STEP
     print(show(probe, h.detach()), show(model, x))
     with torch.no_grad():
         print(distance(h, y).item())

=== accounts
 class Meter:
     def __init__(self):
         self.sum, self.n = 0.0, 0
         self.all = []
     def update(self, v, n):
-        self.sum += v.sum().item()
+        self.sum += v.float().sum().item()
         self.n += n
         self.all.append(v)
     def corr(self):
         a = torch.cat(self.all)
         return (a.t() @ a).diagonal().mean().item()
 meter = Meter()
 class Meter1:
     def __init__(self, head):
         self.head = head
         self.all = []
     def update(self, v):
         self.all.append(v)
     def value(self):
-        return self.head(torch.cat(self.all)).mean().item()
+        return self.head(torch.cat(self.all).float()).mean().item()
 meter1 = Meter1(probe)
 best = None
 STEP
     meter.update(h.detach(), len(x))
     print(meter.n, meter.corr() < 1e9)
     meter1.update(h.detach())
     print(meter1.value())
     if best is None or loss.item() < 1e9:
         best = {"h": h.detach().clone(), "loss": loss.item()}
-print(probe(best["h"]).mean().item(), best["loss"] < 1e9)
+print(probe(best["h"].float()).mean().item(), best["loss"] < 1e9)

=== in a function of its own
 state = {}
 def remember(v):
     state["v"] = v
 def recall():
-    return probe(state["v"]).mean().item()
+    return probe(state["v"].float()).mean().item()
 class Holder:
     def __init__(self):
         self.kept = []
     @property
     def last(self):
         return self.kept[-1]
 holder = Holder()
 class Bag: pass
 bag = Bag()
 STEP
     remember(h.detach())
     print(recall())
     holder.kept.append(h.detach())
-    print(probe(holder.last).mean().item())
+    print(probe(holder.last.float()).mean().item())
     bag.h = h.detach()
-    print(probe(bag.h).mean().item())
+    print(probe(bag.h.float()).mean().item())

=== hooks
 seen = []
 model.body.register_forward_hook(lambda m, i, o: seen.append(o.detach()))
 seen1 = {}
 def hook1(m, i, o):
     seen1["o"] = o.detach()
 model.body.register_forward_hook(hook1)
 STEP
+    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):
-    print(probe(seen[-1]).mean().item())
+        print(probe(seen[-1]).float().mean().item())
-    print(probe(seen1["o"]).mean().item())
+        print(probe(seen1["o"]).float().mean().item())

=== parts
 STEP
     v, i = h.detach().topk(8, dim=1)
-    print(probe(v).mean().item(), i.sum().item() >= 0)
+    print(probe(v.float()).mean().item(), i.sum().item() >= 0)
     a, b = h.detach().repeat(1, 2).chunk(2, dim=1)
-    print(probe(a).mean().item(), probe(b).mean().item())
+    print(probe(a.float()).mean().item(), probe(b.float()).mean().item())
     for row in h.detach():
-        print(probe(row).item())
+        print(probe(row.float()).item())
         break
-    print(sum(probe(p).sum().item() for p in h.detach().split(4)))
+    print(sum(probe(p.float()).sum().item() for p in h.detach().split(4)))
     z = h.detach().masked_fill(y > 0, 0.0)
-    print(probe(z).mean().item())
+    print(probe(z.float()).mean().item())
     z = torch.where(y > 0, h.detach(), 0.0)
-    print(probe(z).mean().item())
+    print(probe(z.float()).mean().item())
     z = torch.where(y > 0, h.detach(), torch.zeros_like(y))
     print(probe(z).mean().item())

=== a store into half
 STEP
     z = h.detach()
-    z[y > 0] = y[y > 0]
+    z[y > 0] = y[y > 0].to(z.dtype)
-    print(z.sum().item() < 1e9)
+    print(z.float().sum().item() < 1e9)

=== collections in collections
 memory = [[], []]
 from collections import defaultdict
 memory1 = defaultdict(list)
 STEP
     memory[0].append(h.detach())
     memory[1].append(y)
-    print(probe(memory[0][-1]).mean().item(), probe(memory[1][-1]).mean().item())
+    print(probe(memory[0][-1].float()).mean().item(), probe(memory[1][-1].float()).mean().item())
     memory1["h"].append(h.detach())
-    print(probe(torch.cat(memory1["h"])).mean().item())
+    print(probe(torch.cat(memory1["h"]).float()).mean().item())

=== modules in collections
 heads = nn.ModuleList([nn.Linear(8, 1), nn.Linear(8, 1)]).to(device)
 nets = {"p": probe}
 STEP
     for head in heads:
-        print(head(h.detach()).mean().item())
+        print(head(h.detach().float()).mean().item())
-    print(heads[0](h.detach()).mean().item())
+    print(heads[0](h.detach().float()).mean().item())
-    print(nets["p"](h.detach()).mean().item())
+    print(nets["p"](h.detach().float()).mean().item())

=== numbers, copies and a loss to be shown
 outs = []
 class Args:
     scale = 2.0
 args = Args()
 centers = torch.zeros(3, 8, device=device)
 D = nn.Sequential(nn.Linear(8, 1)).to(device)
 STEP
     outs += h.detach().mean(1).tolist()
     t = torch.tensor(outs, device=device)
     print(probe(t[:8].view(1, 8)).mean().item())
-    print(probe(h.detach() * args.scale).mean().item())
+    print(probe((h.detach() * args.scale).float()).mean().item())
     label = y.argmax(1) % 3
     for c in range(3):
         if (label == c).any():
             centers[c] = 0.9 * centers[c] + 0.1 * h.detach()[label == c].mean(0)
     print(centers.sum().item() < 1e9, torch.cdist(y, centers).sum().item() < 1e9)
     with torch.no_grad():
-        print(F.softplus(D(h.detach())).mean().item())
+        print(F.softplus(D(h.detach().float())).mean().item())

=== a teacher
 teacher = copy.deepcopy(model)
 STEP
     with torch.no_grad():
         t = teacher(x)
     print(F.mse_loss(t, h).item() < 1e9, F.kl_div(F.log_softmax(h, 1), F.softmax(t, 1)).item() < 1e9)
     for p, q in zip(model.parameters(), teacher.parameters()):
         q.data.mul_(0.9).add_(p.data, alpha=0.1)
"""


def cases(text: str) -> dict[str, str]:
    return dict(
        part.split("\n", 1) for part in re.split(r"(?m)^=== ", text) if part.strip()
    )


MIGRATED = cases(CASES)


@pytest.mark.parametrize("name", MIGRATED)
def test_it_is_cast_where_it_is_used(name: str) -> None:
    before, after = before_and_after(MIGRATED[name].replace(" STEP\n", STEP))
    before, after = HEAD + before, HEAD + BIRTH + after
    assert migrate_source(before, path="train.py").output == after
    assert check_off(before, after) == []
    assert check_scaled(before, after, MOVING_SCALES[1]) == []
    assert check_mixed(before, after) == []


KEPT = """\
class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 8), nn.Linear(8, 8)
        self.kept = []

    def forward(self, x):
        self.kept = []
        self.kept.append(self.one(x))
        self.kept.append(self.two(self.kept[-1]))
        return self.kept


model = Stack().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    loss = F.mse_loss(model(x)[-1], y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        kept = model(x)
        print(probe(kept[-1]).mean().item())
"""


@pytest.mark.parametrize("begins", ("kept = []", "kept.clear()", "kept"))
def test_a_list_that_each_call_makes_anew(begins: str) -> None:
    before = HEAD + KEPT.replace(
        "self.kept = []\n        self.kept.append",
        f"self.{begins}\n        self.kept.append",
    )
    after = migrate_source(before, path="train.py").output
    assert after != before
    use = "probe(kept[-1])" if begins == "kept = []" else "probe(kept[-1].float())"
    assert use in after
    assert check_mixed(before, after) == []


def test_a_half_default() -> None:
    step = before_and_after(STEP)[0]
    late = "    def late(h=h.detach()):\n        return h @ y.t()\n    print(late().shape)\n"
    result = migrate_source(HEAD + step + late, path="train.py")
    assert [found.code for found in result.diagnostics] == ["AMP020"]
    full = late.replace("h=h.detach()", "h=y")
    assert migrate_source(HEAD + step + full, path="train.py").changed


LISTS = """\
class Lists(nn.Module):
    def __init__(self):
        super().__init__()
        self.cells = nn.ModuleList([nn.RNNCell(4, 8), nn.RNNCell(8, 8)])

    def forward(self, x, hidden):
        new_hidden = []
        for number, cell in enumerate(self.cells):
            x = cell(x, hidden[number])
            new_hidden.append(x)
        hidden = new_hidden
        return x, hidden


def start():
    return [torch.zeros(16, 8, device=device) for _ in range(2)]


model = Lists().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    out, hidden = model(x, start())
    loss = F.mse_loss(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    states = start()
    for x, y in loader:
        out, states = model(x.to(device), states)
    print(out.mean().item())
"""


def test_a_list_of_one_call_is_not_that_of_another() -> None:
    before = HEAD + LISTS
    result = migrate_source(before, path="train.py")
    assert result.changed, result.diagnostics
    assert ".float()" not in result.output
    assert check_off(before, result.output) == []
    assert check_mixed(before, result.output) == []


GIVEN_ON = """\
class Propagating(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.ways = nn.ModuleDict({"there": nn.Linear(8, 8), "back": nn.Linear(16, 8)})

    def propagate(self, kept, name):
        for i in range(len(kept["first"])):
            each = [kept[k][i] for k in kept if k != name]
            kept[name].append(self.ways[name](torch.cat(each, 1)))
        return kept

    def forward(self, x):
        kept = START
        kept["first"] = [self.first(x), self.first(x * 2)]
        for name in ("there", "back"):
            kept[name] = []
            kept = self.propagate(kept, name)
        return kept["back"][-1]


KEPT = {}
model = Propagating().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    print(model(x).mean().item())
"""


def test_a_dict_that_a_call_hands_to_others() -> None:
    """What training puts into its own is not in that of an evaluation, but for one that stays."""
    source = HEAD + GIVEN_ON.replace("START", "{}")
    result = migrate_source(source, path="train.py")
    assert "scaler.step(optimizer)" in result.output, result.diagnostics
    assert result.output.count(".float()") == source.count(".float()")
    assert check_mixed(source, result.output) == []
    for start in ("KEPT", "self.__dict__.setdefault('kept', {})"):
        stays = HEAD + GIVEN_ON.replace("START", start)
        (found,) = migrate_source(stays, path="train.py").diagnostics
        assert found.code == "AMP020"


RECURRENT = """\
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 8)
        self.h = torch.zeros(16, 8, device=device)

    def reset(self):
        self.h = torch.zeros(16, 8, device=device)

    def forward(self, x):
        RESET
        self.h = self.cell(x, self.h)
        return self.h


model = Recurrent().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    BEFORE
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    AFTER
    print(model(x).mean().item())
"""


def recurrent(**lines: str) -> str:
    source = HEAD + RECURRENT
    for word in ("RESET", "BEFORE", "AFTER"):
        source = source.replace(word, lines.get(word.lower(), "pass"))
    return source


@pytest.mark.parametrize(
    "lines",
    [
        {"reset": "self.h = torch.zeros(16, 8, device=device)"},
        {"before": "model.reset()", "after": "model.reset()"},
    ],
    ids=["in-forward", "by-a-method"],
)
def test_a_state_that_begins_anew_is_left_as_it_is(lines: dict[str, str]) -> None:
    source = recurrent(**lines)
    output = migrate_source(source, path="train.py").output
    assert "self.h = self.cell(x, self.h)\n" in output
    assert "scaler.step(optimizer)" in output
    assert check_mixed(source, output) == []


def test_a_state_that_begins_anew_in_training_only() -> None:
    source = recurrent(before="model.reset()")
    result = migrate_source(source, path="train.py")
    assert not result.changed or check_mixed(source, result.output) == []


AGENTS = """\
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(4, 8)
        self.out = nn.Linear(8, 8)

    def forward(self, x, h):
        h = self.cell(x, h)
        return self.out(h), h


class Policy:
    def __init__(self):
        self.net = Recurrent().to(device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.hidden = None

    def init_hidden(self, size):
        INIT

    def learn(self, x, y):
        self.init_hidden(len(x))
        for _ in range(2):
            out, self.hidden = self.net(x, self.hidden)
        loss = F.mse_loss(out, y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


class Agents:
    def __init__(self, policy):
        self.policy = policy

    def act(self, x):
        out, self.policy.hidden = self.policy.net(x, self.policy.hidden)
        return out

    def train(self, x, y):
        self.policy.learn(x, y)


class Worker:
    def __init__(self, agents):
        self.agents = agents

    @torch.no_grad()
    def roll(self, x, y):
        BEGIN
        total = 0.0
        for _ in range(2):
            total += self.agents.act(x).sum().item()
            AFTER
        return total


agents = Agents(Policy())
worker = Worker(agents)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    print(worker.roll(x, y))
    agents.train(x, y)
"""
ZEROS = "self.hidden = torch.zeros(size, 8, device=device)"
ZEROS_MADE = """\
def zeros():
            h = torch.zeros(size, 8, device=device)
            return h
        self.hidden = zeros()"""
ZEROS_KEPT = """\
def zeros(kept=[torch.zeros(9, 8, device=device)]):
            return kept
        self.hidden = zeros()"""
FIRST = "self.agents.policy.init_hidden(len(x))"


def with_agents(init: str = ZEROS, begin: str = FIRST, after: str = "pass") -> str:
    source = HEAD + AGENTS.replace("INIT", init).replace("BEGIN", begin)
    return source.replace("AFTER", after)


@pytest.mark.parametrize(
    "lines",
    [
        {},
        {"begin": f"if len(x):\n            pass\n        {FIRST}"},
        {"begin": f"with torch.no_grad():\n            {FIRST}"},
        {"init": f"if size:\n            {ZEROS}\n        else:\n            {ZEROS}"},
        {"init": ZEROS_MADE},
    ],
    ids=["at-once", "behind-others", "in-a-block", "in-both-arms", "by-a-function"],
)
def test_a_state_that_begins_anew_before_a_rollout(lines: dict[str, str]) -> None:
    source = with_agents(**lines)
    result = migrate_source(source, path="train.py")
    assert "self.policy.net(x, self.policy.hidden)\n" in result.output
    assert "self.scaler.step(self.optimizer)" in result.output, result.diagnostics
    assert check_mixed(source, result.output) == []


@pytest.mark.parametrize(
    "lines",
    [
        {"begin": f"if not self.agents.policy.hidden:\n            {FIRST}"},
        {"init": f"if self.hidden is None:\n            {ZEROS}"},
        {"init": ZEROS_KEPT},
        {"after": "self.agents.train(x, y)"},
        {"begin": f"{FIRST}\n        self.agents.train(x, y)"},
        {"begin": f"{FIRST}\n        self.agents = Agents(KEPT)"},
        {"begin": "Policy().init_hidden(len(x))"},
        {"begin": "agents.policy.init_hidden(len(x))"},
    ],
    ids=[
        "perhaps",
        "once",
        "by-a-function-that-keeps-it",
        "trained-between",
        "trained-behind",
        "of-another",
        "of-a-new-one",
        "by-another-name",
    ],
)
def test_a_state_that_may_not_begin_anew(lines: dict[str, str]) -> None:
    source = with_agents(**lines)
    result = migrate_source(source, path="train.py")
    assert result.output == source
    assert {one.code for one in result.diagnostics} == {"AMP020"}


OWN_LIST = """\
class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 8)])

    def forward(self, x):
        states = [x]
        for i, layer in enumerate(self.layers):
            states.append(layer(states[i]))
        return states[-1]


deep = Deep().to(device)
optimizer = torch.optim.SGD(deep.parameters(), lr=0.1)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = F.mse_loss(deep(x), y)
    loss.backward()
    optimizer.step()
with torch.no_grad():
    print(deep(x).mean().item())
"""


def test_a_list_that_each_call_makes_holds_nothing_of_others() -> None:
    source = HEAD + OWN_LIST
    result = migrate_source(source, path="train.py")
    assert "scaler.step(optimizer)" in result.output
    assert result.output.count("with torch.autocast(") == 1
    assert result.output.count(".float()") == source.count(".float()")
    assert check_mixed(source, result.output) == []


STAGES = """\
class Stage(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        self.branches = nn.ModuleList([nn.Linear(4, 4) for _ in range(inputs)])

    def forward(self, xs):
        found = [branch(x) for branch, x in zip(self.branches, xs)]
        return found


class Staged(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(*[Stage(1) for _ in range(2)])
        self.between = nn.Linear(4, 4)
        self.second = nn.Sequential(*[Stage(2) for _ in range(2)])
        self.head = nn.Linear(8, 8)

    def forward(self, x):
        x = self.first([x])
        x.append(self.between(x[-1]))
        x = self.second(x)
        return self.head(torch.cat(x, 1))


deep = Staged().to(device)
"""
RETURNS = "        return found\n"


def test_a_list_that_a_module_makes_holds_nothing_of_other_calls() -> None:
    source = HEAD + STAGES + OWN_LIST[OWN_LIST.index("optimizer =") :]
    result = migrate_source(source, path="train.py")
    assert "scaler.step(optimizer)" in result.output
    assert result.output.count(".float()") == source.count(".float()")
    assert check_mixed(source, result.output) == []


@pytest.mark.parametrize(
    "returns",
    [
        "        self.found = getattr(self, 'found', found)\n        return self.found\n",
        "        self.found = getattr(self, 'found', found)\n        kept = self.found\n"
        "        kept += found\n        return kept\n",
        "        global FOUND\n        FOUND = found\n        return FOUND\n",
        "        return {'x': FOUND}['x'] if len(FOUND) > 2 else FOUND\n",
    ],
)
def test_a_list_that_a_module_keeps_may_hold_what_others_put_there(
    returns: str,
) -> None:
    rest = OWN_LIST[OWN_LIST.index("optimizer =") :]
    source = "FOUND = []\n" + STAGES.replace(RETURNS, returns) + rest
    (found,) = migrate_source(HEAD + source, path="train.py").diagnostics
    assert found.code == "AMP020"


def test_a_list_that_a_module_is_given_and_gives_back() -> None:
    rest = OWN_LIST[OWN_LIST.index("optimizer =") :]
    source = STAGES.replace(RETURNS, "        return xs\n").replace(
        "self.first([x])", "self.first(FOUND)"
    )
    (found,) = migrate_source(HEAD + "FOUND = []\n" + source + rest).diagnostics
    assert found.code == "AMP020"


UNKNOWN = """\
def show(value):
    kept.append(value)
    value = kept.pop()
    print(probe(value).shape)


kept = []
for x, y in loader:
    x, y = x.to(device), y.to(device)
    h = model(x) * [1.0, y.new_ones(())][len(kept)]
    loss = F.mse_loss(h, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    show(h.detach())
"""


UNHELPED = """\
def show(value):
    while probe(value).mean().item() > 100:
        break


for x, y in loader:
    x, y = x.to(device), y.to(device)
    h = model(x)
    loss = F.mse_loss(h, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    show(h.detach())
"""


def test_what_may_have_any_dtype_is_cast_where_it_is_half() -> None:
    source = HEAD + UNKNOWN
    result = migrate_source(source, path="train.py")
    assert (
        "    full_value = value.float() if value.dtype is torch.float16 else value\n"
        "    print(probe(full_value).shape)\n"
    ) in result.output
    assert check_off(source, result.output) == []
    assert check_scaled(source, result.output, MOVING_SCALES[1]) == []
    assert check_mixed(source, result.output) == []


def test_a_use_that_cannot_be_helped_is_told() -> None:
    (found,) = migrate_source(HEAD + UNHELPED, path="train.py").diagnostics
    assert found.code == "AMP020"
    assert "outside of it by a module" in found.message
    assert found.blocker is not None
    assert found.blocker.text.startswith("while probe(value)")


ASKED = """\
def compute(x, y):
    h = model(x)
    return PACKED


for x, y in loader:
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    got = compute(x, y)
    got_loss = LOSS
    got_loss.backward()
    optimizer.step()
    h = OUT
    USE
"""
PACKED = {
    "a namespace": (
        "types.SimpleNamespace(loss=F.mse_loss(h, y), out=h)",
        "got.loss",
        "got.out",
    ),
    "a dict of keywords": (
        "dict(loss=F.mse_loss(h, y), out=h)",
        'got["loss"]',
        'got["out"]',
    ),
    "a pair": ("(F.mse_loss(h, y), h)", "got[0]", "got[1]"),
}


def _asked(packed: str, use: str) -> str:
    words = zip(("PACKED", "LOSS", "OUT"), PACKED[packed], strict=True)
    body = ASKED.replace("USE", use)
    for word, text in words:
        body = re.sub(rf"\b{word}\b", text, body)
    return "import types\n" + HEAD + body


@pytest.mark.parametrize("packed", PACKED)
def test_the_dtype_of_what_leaves_a_region_is_asked(packed: str) -> None:
    source = _asked(packed, "assert h.dtype is torch.float32")
    (found,) = migrate_source(source, path="train.py").diagnostics
    assert found.code == "AMP020"
    assert found.message.endswith("used outside of it by a test of its dtype")
    for harmless in ("h.dtype is torch.int64", "loss.dtype is torch.float32"):
        use = f"loss = got_loss; print({harmless})"
        result = migrate_source(_asked(packed, use), path="train.py")
        assert result.changed and not result.diagnostics


@pytest.mark.parametrize("packed", PACKED)
def test_what_leaves_a_region_in_a_container_is_cast(packed: str) -> None:
    source = _asked(packed, "print((h.detach() @ y.t()).shape)")
    result = migrate_source(source, path="train.py")
    assert "h.detach().float() @ y.t()" in result.output
    assert check_mixed(source, result.output) == []


REFILLED = """\
import torch
from torch import nn
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = [(torch.randn(4, 8), torch.randn(4, 3))]
class Wrapper(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.hidden = {}
        self.projector = nn.Linear(4, 2)
        net[0].register_forward_hook(self._hook)
    def _hook(self, _, given, output):
        self.hidden[0] = output.flatten(1)
    def forward(self, x):
        self.hidden.clear()
        _ = self.net(x)
        embed = self.hidden[0]
        return self.projector(embed)
class Learner(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.encoder = Wrapper(net).to(device)
        self.forward(torch.randn(2, 8, device=device))
    def forward(self, x):
        return self.encoder(x).pow(2).mean()
learner = Learner(nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 4)).to(device)).to(device)
optimizer = torch.optim.SGD(learner.parameters(), lr=0.1)
images = torch.randn(8, 8, device=device)
loss = learner(images)
optimizer.zero_grad()
loss.backward()
optimizer.step()
"""


def test_a_store_of_a_hook_that_is_filled_before_each_reading() -> None:
    """In what order methods run is not followed: what may be half is cast, and nothing is refused."""
    result = migrate_source(REFILLED, path="train.py")
    assert result.changed and not result.diagnostics
    assert check_off(REFILLED, result.output, "train.py") == []
    assert check_mixed(REFILLED, result.output, "train.py") == []


LISTED = """\
class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])
    def forward(self, x):
        for ROUND in ITERABLE:
            x = layer(x)
        return x
stack = Stack().to(device)
optimizer = torch.optim.SGD(stack.parameters(), lr=0.1)
for x, y in data:
    optimizer.zero_grad()
    out = stack(x)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
    assert out.dtype is torch.float32
"""


@pytest.mark.parametrize(
    ("variables", "iterable"),
    [
        ("layer", "self.layers"),
        ("_, layer", "enumerate(self.layers)"),
        ("layer", "reversed(self.layers)"),
        ("layer", "self.layers[1:]"),
    ],
)
def test_a_layer_that_a_loop_takes_out_of_a_list(variables: str, iterable: str) -> None:
    body = LISTED.replace("ROUND", variables).replace("ITERABLE", iterable)
    (found,) = migrate_source(SCRIPT + body, path="train.py").diagnostics
    assert found.code == "AMP020"
    assert found.message.endswith("used outside of it by a test of its dtype")


NOISY = """\
class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)
    def forward(self, x):
        h = self.fc(x)
        return h + 0.1 * NOISE
noisy = Noisy().to(device)
bank = torch.zeros(6, 8, device=device)
optimizer = torch.optim.SGD(noisy.parameters(), lr=0.1)
for x, y in data:
    optimizer.zero_grad()
    out = noisy(x)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
    bank.index_add_(0, y, out.detach())
"""


@pytest.mark.parametrize(
    "noise",
    [
        "torch.empty_like(h).normal_()",
        "torch.zeros_like(h).uniform_(0, 1)",
        "h.new_zeros(8).normal_()",
        "h.data.new(h.size()).normal_()",
        "h.new_empty(h.shape).fill_(1)",
        "h.clone().abs_()",
        "h.sigmoid().bernoulli()",
        "torch.bernoulli(h.sigmoid())",
        "torch.full_like(h, 2)",
    ],
)
def test_what_is_drawn_for_a_half_value_is_half(noise: str) -> None:
    source = SCRIPT + NOISY.replace("NOISE", noise)
    result = migrate_source(source, path="train.py")
    assert "bank.index_add_(0, y, out.detach().to(bank.dtype))" in result.output
    assert check_off(source, result.output) == []
    assert check_mixed(source, result.output) == []


@pytest.mark.parametrize(
    "made",
    (
        "torch.tensor(2.0).to(device).requires_grad_()",
        "torch.tensor(2.0).float().to(device)",
        "torch.tensor(2.0).to(device).to(torch.float32)",
        "x.norm()",
        "x.sum().float()",
    ),
)
def test_a_number_of_fp32_makes_no_half_tensor_wide(made: str) -> None:
    """It has no dimensions: what is half stays half."""
    body = f"""\
opt = torch.optim.SGD(model.parameters(), lr=0.1)
weight = torch.eye(3, device=device)
for x, y in data:
    opt.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    opt.step()
    seen = torch.mm(out.detach() * {made}, weight)
    print(seen.sum().item())
"""
    output = migrated(body)
    assert "torch.mm(out.detach() *" not in output


def test_what_is_half_is_found_behind_values_that_are_made_of_each_other() -> None:
    """There are more ways through them than can be gone one by one."""
    names = [f"old{number}" for number in range(9)]
    choice = f"random.choice([{', '.join(names)}])"
    mixing = "".join(f"    {one} = {choice}\n" for one in names)
    body = f"""\
import random
{" = ".join(names)} = torch.zeros(4, 3, device=device)
for x, y in data:
    opt.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    opt.step()
    last = {choice} if random.random() < 0.0 else out.detach()
    print(torch.mm(last, torch.eye(3, device=device)).shape)
{mixing}"""
    output = migrated("opt = torch.optim.SGD(model.parameters(), lr=0.1)\n" + body)
    assert "torch.mm(last.float(), torch.eye(3, device=device))" in output


HANDED = """\
=== a dict with another spread in it
NET {"out": self.out(h), **{"h": h}}
out["out"]
probe(out["h"])
=== a dict of pairs
NET dict(zip(["out", "h"], [self.out(h), h]))
out["out"]
probe(out["h"])
=== the rest of what is unpacked
NET (self.out(h), h)
first
probe(rest[0])
=== a function within another
NET self.out(h)
out
probe(make(out)())
=== a lambda
NET self.out(h)
out
probe(get())
=== what a call spreads
NET self.out(h)
out
probe(*[out])
=== a map
NET self.out(h)
out
list(map(probe, [out]))[0]
=== what a lambda calls that is mapped
NET self.out(h)
out
list(map(lambda t: probe(t), [out]))[0]
=== forward by its name
NET self.out(h)
out
probe.forward(out)
=== named arguments of any name
NET self.out(h)
out
take(h=out)
=== a tensor of a tensor
NET self.out(h)
out
probe(torch.as_tensor(out))
=== a record whose field is set later
NET record(self.out(h), h)
out.out
probe(out.h)
=== the attributes of a record
NET Record(self.out(h), h)
out.out
probe(vars(out)["h"])
=== an attribute set by its name
NET (setattr(self, "kept", h), self.out(h))[1]
out
probe(model.kept)
"""
HANDING = """\
@dataclass
class Record:
    out: object
    h: object = None


def record(out, h):
    made = Record(out)
    made.h = h
    return made


def make(value):
    def inner():
        return value
    return inner


def take(**given):
    return probe(given["h"])


"""


@pytest.mark.parametrize("name", cases(HANDED))
def test_whatever_it_is_handed_on_by(name: str) -> None:
    net, out, use = cases(HANDED)[name].splitlines()
    head = HEAD.replace("return self.out(h)", net.replace("NET", "return"))
    source = head.replace("class Net", HANDING + "class Net")
    source += f"""\
for x, y in loader:
    optimizer.zero_grad()
    out = model(x.to(device))
    {"first, *rest = out" if out == "first" else ""}
    get = lambda: out
    loss = F.mse_loss({out}, y.to(device))
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        v = {use}
    print(v.shape)
"""
    output = migrate_source(source, path="train.py").output
    assert output != source
    assert check_off(source, output) == []
    assert check_mixed(source, output) == []


@pytest.mark.parametrize(
    "use",
    [
        "bank[[0, 1]] = out[:2]",
        "import operator\n    operator.setitem(bank, [0, 1], out[:2])",
        "bank = bank.index_put((torch.tensor([0, 1], device=device),), out[:2])",
    ],
)
def test_a_store_by_a_list_of_places(use: str) -> None:
    source = f"""\
{HEAD}
bank = torch.zeros(16, 8, device=device)
for x, y in loader:
    optimizer.zero_grad()
    out = model(x.to(device))
    loss = F.mse_loss(out, y.to(device))
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        {use}
    print(bank.shape)
"""
    output = migrate_source(source, path="train.py").output
    assert output != source
    assert check_off(source, output) == []
    assert check_mixed(source, output) == []


@pytest.mark.parametrize(
    "test",
    [
        'assert str(h.dtype) == "torch.float32"',
        "d = h.dtype; assert d == torch.float32",
        "assert h.type() == x.type()",
        "assert h.element_size() == 4",
    ],
)
def test_a_question_for_a_dtype_that_is_kept_or_written_out(test: str) -> None:
    source = f"""\
{HEAD.replace("self.last = h", test)}
for x, y in loader:
    optimizer.zero_grad()
    loss = F.mse_loss(model(x.to(device)), y.to(device))
    loss.backward()
    optimizer.step()
"""
    result = migrate_source(source, path="train.py")
    assert result.output == source
    assert [found.code for found in result.diagnostics] == ["AMP020"]


@pytest.mark.parametrize("run", ["model", "model.forward", "compute"])
def test_what_a_checkpoint_computes_leaves_the_region(run: str) -> None:
    source = f"""\
{HEAD}
from torch.utils.checkpoint import checkpoint

def compute(x):
    return model(x)

for x, y in loader:
    optimizer.zero_grad()
    out = checkpoint({run}, x.to(device), use_reentrant=False)
    loss = F.mse_loss(out, y.to(device))
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        print(torch.mm(out, probe.weight.t()).shape)
"""
    output = migrate_source(source, path="train.py").output
    assert output != source
    assert check_off(source, output) == []
    assert check_mixed(source, output) == []


def test_what_a_model_gives_by_the_name_of_its_call() -> None:
    source = f"""\
{HEAD}
for x, y in loader:
    optimizer.zero_grad()
    out = model.__call__(x.to(device))
    loss = F.mse_loss(out, y.to(device))
    similar = out.detach() @ probe.weight.t()
    loss.backward()
    optimizer.step()
    print(similar.shape)
"""
    output = migrate_source(source, path="train.py").output
    assert output != source
    assert check_mixed(source, output) == []


@pytest.mark.parametrize("run", ["self.net(x)", "self.net.forward(x)"])
def test_what_a_model_of_anybody_gives_may_be_half(run: str) -> None:
    source = f"""\
import torch
class Learner:
    def __init__(self, net):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.net = net.to(self.device)
        self.optimizer = torch.optim.Adam(net.parameters())
    def train(self, x, mask):
        scores = {run}
        with torch.no_grad():
            others = scores.clone().detach()
            others[mask == 0] = -9999999
            best = others.max(dim=1)[1]
        loss = scores.gather(1, best[:, None]).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
"""
    cast = "others = others.float() if others.dtype is torch.float16 else others\n"
    assert cast in migrate_source(source, path="train.py").output


HIDDEN = """\
=== a loss that is bound on its way to backward()
USE
CALL torch.mm(out.detach(), torch.eye(8, device=device))
=== a function out of a list
USE def measure(h): return torch.linalg.svdvals(h)
CALL [m(out.detach()) for m in [measure, measure]][0]
=== a function out of a dict
USE def measure(h): return torch.linalg.svdvals(h)
USE METRICS = {"rank": measure}
CALL sum(m(out.detach()) for m in METRICS.values())
=== a partial
USE from functools import partial
USE def measure(h, k): return torch.linalg.svdvals(h)[:k]
USE run = partial(measure, k=2)
CALL run(out.detach())
=== a partial that is called at once
USE from functools import partial
USE def measure(h, k): return torch.linalg.svdvals(h)[:k]
CALL partial(measure, k=2)(out.detach())
=== a model in a partial that is called at once
USE from functools import partial
CALL torch.mm(partial(model)(x.to(device)).detach(), torch.eye(8, device=device))
=== an object that can be called
USE class Rank:
USE     def __call__(self, h): return torch.linalg.svdvals(h)
USE ranks = [Rank()]
CALL sum(rank(out.detach()) for rank in ranks)
=== a callback
USE class Callback:
USE     def told(self, h): pass
USE class Rank(Callback):
USE     def told(self, h): return torch.linalg.svdvals(h)
USE callbacks = [Rank()]
CALL sum(one.told(out.detach()) for one in callbacks)
=== a function that an event runs
USE class Bus:
USE     def __init__(self): self.run = {"out": []}
USE     def on(self, name, function): self.run[name].append(function)
USE     def emit(self, name, *given): return sum(f(*given) for f in self.run[name])
USE def measure(h): return torch.linalg.svdvals(h)
USE bus = Bus()
USE bus.on("out", measure)
CALL bus.emit("out", out.detach())
=== a function of torch that is given
USE def apply(f, h): return f(h)
CALL apply(torch.linalg.svdvals, out.detach())
=== a lambda that multiplies
USE project = lambda h: h @ torch.eye(8, device=device)
CALL project(out.detach())
=== a dict whose lists are begun where they are filled
USE kept = {}
USE def keep(h): kept.setdefault("h", []).append(h)
CALL (keep(out.detach()), torch.linalg.svdvals(kept["h"][0]))[1]
=== a buffer of a layer of torch
USE
CALL (probe.register_buffer("kept", out.detach()), torch.linalg.svdvals(probe.kept))[1]
=== what is written elsewhere
USE target = torch.empty(16, 8, device=device)
CALL torch.abs(out.detach(), out=target)
=== a function of torch out of a list
USE def apply(h):
USE     for f in [torch.linalg.svdvals]: return f(h)
CALL apply(out.detach())
=== an array of a list
USE kept = []
CALL (kept.append(out.detach().cpu()), np.linalg.pinv(np.concatenate(kept)))[1]
=== a list that a function sees
USE kept = []
USE def show(): return torch.linalg.svdvals(kept[0])
CALL (kept.append(out.detach()), show())[1]
=== an array of each element
USE kept = []
CALL (kept.append(out.detach()), np.linalg.pinv(np.concatenate([k.cpu().numpy() for k in kept])))[1]
=== an attribute of a function
USE def keep(h): keep.last = h
CALL (keep(out.detach()), torch.linalg.svdvals(keep.last))[1]
=== a list of a function
USE def keep(h): keep.all.append(h)
USE keep.all = []
CALL (keep(out.detach()), torch.linalg.svdvals(keep.all[0]))[1]
=== an attribute of a class
USE class Seen:
USE     @classmethod
USE     def keep(cls, h): cls.last = h
USE     def show(self): return torch.linalg.svdvals(self.last)
CALL (Seen.keep(out.detach()), Seen().show())[1]
=== a list of a class
USE class Seen:
USE     all = []
USE     @classmethod
USE     def keep(cls, h): cls.all.append(h)
CALL (Seen.keep(out.detach()), torch.linalg.svdvals(Seen.all[0]))[1]
=== an attribute of a layer of torch
USE def keep(h): model.last = h
USE def show(): return torch.linalg.svdvals(model.last)
CALL (keep(out.detach()), show())[1]
=== a list that is added to
USE class Seen:
USE     def __init__(self): self.all = []
USE     def keep(self, h): self.all += [h]
USE     def show(self): return [torch.linalg.svdvals(h) for h in self.all][0]
USE seen = Seen()
CALL (seen.keep(out.detach()), seen.show())[1]
=== a queue
USE import queue
USE waiting = queue.Queue()
USE def take(): return torch.linalg.svdvals(waiting.get())
CALL (waiting.put(out.detach()), take())[1]
=== a heap
USE import heapq
USE best = []
CALL (heapq.heappush(best, (len(best), out.detach())), torch.linalg.svdvals(heapq.heappop(best)[1]))[1]
=== a pool of threads
USE from concurrent.futures import ThreadPoolExecutor
USE pool = ThreadPoolExecutor(1)
USE def measure(k, h): return torch.linalg.svdvals(h)
CALL pool.submit(measure, 1, h=out.detach()).result()
=== a pool that is given a tuple
USE from multiprocessing.pool import ThreadPool
USE pool = ThreadPool(1)
USE def measure(h): return torch.linalg.svdvals(h)
CALL (pool.apply_async(measure, (out.detach(),)).get(), pool.map(measure, [out.detach()])[0])[1]
=== a thread
USE import threading
USE done = []
USE def measure(h): done.append(torch.linalg.svdvals(h))
USE def run(h):
USE     one = threading.Thread(target=measure, args=(h,))
USE     one.start()
USE     one.join()
USE     return done.pop()
CALL run(out.detach())
=== a list in a dict that is added to
USE log = {"h": []}
USE def keep(h): log["h"] += [h]
CALL (keep(out.detach()), torch.linalg.svdvals(log["h"][0]))[1]
=== a dict of a class
USE class Seen:
USE     all = {}
USE     def keep(self, h): self.all["h"] = h
CALL (Seen().keep(out.detach()), torch.linalg.svdvals(Seen.all["h"]))[1]
=== an object with items
USE class Seen:
USE     def __init__(self): self.all = {}
USE     def __setitem__(self, key, h): self.all[key] = h
USE     def __getitem__(self, key): return self.all[key]
USE seen = Seen()
CALL (seen.__setitem__("h", out.detach()), torch.linalg.svdvals(seen["h"]))[1]
=== an object that is gone through
USE class Seen:
USE     def __init__(self): self.all = []
USE     def __iter__(self): return iter(self.all)
USE seen = Seen()
CALL (seen.all.append(out.detach()), [torch.linalg.svdvals(h) for h in seen][0])[1]
=== what is in the __dict__ of an object
USE class Seen: pass
USE seen = Seen()
USE def keep(h):
USE     seen.__dict__["a"] = h
USE     vars(seen)["b"] = h
USE     seen.__dict__.update(c=h)
CALL (keep(out.detach()), sum(torch.linalg.svdvals(h) for h in (seen.a, seen.b, seen.c)))[1]
=== a name that is put together
USE class Seen: pass
USE seen = Seen()
USE def keep(name, h): setattr(seen, name, h)
CALL (keep("h", out.detach()), torch.linalg.svdvals(getattr(seen, "h")))[1]
=== a dict that makes its lists
USE import collections
USE kept = collections.defaultdict(list)
CALL (kept["h"].append(out.detach()), [np.linalg.pinv(h.cpu().numpy()) for h in kept["h"]][0])[1]
=== the values of a dict
USE kept = {}
CALL (kept.update(h=out.detach()), torch.linalg.svdvals(list(kept.values())[0]))[1]
=== objects in a list
USE class Seen:
USE     def keep(self, h): self.last = h
USE all = [Seen()]
USE def show():
USE     h = all[0].last
USE     return torch.linalg.svdvals(h)
CALL ([one.keep(out.detach()) for one in all], show())[1]
=== an attribute that a hook sets
USE def hook(m, given, h): m.seen = h.detach()
USE model.out.register_forward_hook(hook)
USE def show():
USE     h = model.out.seen
USE     return torch.linalg.svdvals(h)
CALL show()
=== named arguments that are handed on
USE def show(h, k): return torch.linalg.svdvals(h)
USE def run(**given):
USE     given.update(k=1)
USE     return show(**given)
CALL run(h=out.detach())
=== the largest singular value
USE
CALL torch.linalg.matrix_norm(out.detach(), 2)
=== a table of embeddings
USE
CALL nn.Embedding.from_pretrained(out.detach()).weight @ torch.eye(8, device=device)
"""


@pytest.mark.parametrize("name", cases(HIDDEN))
def test_whatever_calls_what_wants_fp32(name: str) -> None:
    lines = cases(HIDDEN)[name].splitlines()
    head = "\n".join(line[4:] for line in lines if line.startswith("USE"))
    (use,) = (line[5:] for line in lines if line.startswith("CALL "))
    source = f"""\
{HEAD}
{head}
for x, y in loader:
    optimizer.zero_grad()
    (loss := F.mse_loss(out := model(x.to(device)), y.to(device))).backward()
    optimizer.step()
    print(({use}).shape)
"""
    output = migrate_source(source, path="train.py").output
    assert output != source
    assert check_off(source, output) == []
    assert check_mixed(source, output) == []


def test_it_is_followed_as_far_as_it_goes() -> None:
    steps = "".join(f"        h = torch.tanh(h + {i / 64})\n" for i in range(60))
    source = f"""\
{HEAD}
for x, y in loader:
    optimizer.zero_grad()
    out = model(x.to(device))
    loss = F.mse_loss(out, y.to(device))
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        h = out
{steps}        print(torch.linalg.det(h[:8]))
"""
    output = migrate_source(source, path="train.py").output
    assert "torch.linalg.det(h[:8].float())" in output
    assert check_off(source, output) == []
    assert check_mixed(source, output) == []


@pytest.mark.parametrize(
    "used, named",
    [
        ("print(torch.linalg.svdvals(CALL).shape)", True),
        ("norm = np.asarray(CALL.cpu()).sum()\n    print(norm.shape)", True),
        (
            "kept = CALL\n    seen[0].append(torch.linalg.svdvals((kept * kept).detach()))",
            True,
        ),
        ("print(len(seen), torch.linalg.svdvals(CALL).shape)", False),
        ("print(torch.linalg.svdvals(CALL).shape if len(x) else 0)", False),
        ("seen[0].append(torch.linalg.svdvals(CALL))", False),
        ("print([torch.linalg.svdvals(CALL).shape for _ in range(2)])", False),
    ],
)
def test_what_a_call_gives_has_a_name_where_it_is_cast(used: str, named: bool) -> None:
    source = f"""\
{HEAD}
def apply(f, h):
    return f(h)

seen = [[]]
for x, y in loader:
    optimizer.zero_grad()
    out = model(x.to(device))
    loss = F.mse_loss(out, y.to(device))
    loss.backward()
    optimizer.step()
    {used.replace("CALL", "apply(lambda t: t.detach(), out)")}
"""
    result = migrate_source(source, path="train.py")
    assert ("full_value.float()" in result.output) is named
    assert [loop.diagnostic is None for loop in result.loops] == [named]
    if named:
        assert check_off(source, result.output) == []
        assert check_mixed(source, result.output) == []


LATER = [
    ("run = functools.partial(torch.mm, out.detach())", "run(eye)"),
    ("run = functools.partial(model.out, out.detach())", "run()"),
    ("run = out.detach().mm", "run(eye)"),
    ("run = (row @ eye for row in out.detach())", "next(run)"),
    ("run = lambda: out.detach() @ eye", "run()"),
    ("kept.run = lambda: out.detach() @ eye", "kept.run()"),
    ("run = multiply(out.detach())", "run(eye)"),
]


@pytest.mark.parametrize(("made", "used"), LATER)
def test_what_a_region_makes_to_be_computed_later(made: str, used: str) -> None:
    source = f"""\
{HEAD}
import functools, types
eye, kept = torch.eye(8, device=device), types.SimpleNamespace()

def multiply(h):
    return lambda other: h @ other

for x, y in loader:
    optimizer.zero_grad()
    out = model(x.to(device))
    {made}
    loss = F.mse_loss(out, y.to(device))
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        print({used}.shape)
"""
    output = migrate_source(source, path="train.py").output
    assert output != source
    assert check_off(source, output) == []
    assert check_scaled(source, output, MOVING_SCALES[1]) == []
    assert check_mixed(source, output) == []


def test_a_sum_in_a_region_that_is_shown_outside() -> None:
    source = f"""\
{HEAD}
total = 0
for x, y in loader:
    optimizer.zero_grad()
    out = model(x.to(device))
    for row in out:
        total = total + row.detach().abs() * 0 + 3e4
    loss = F.mse_loss(out, y.to(device))
    loss.backward()
    optimizer.step()
    assert total.isfinite().all()
"""
    output = migrate_source(source, path="train.py").output
    assert output != source
    assert check_off(source, output) == []
    assert check_mixed(source, output) == []


def test_what_a_generator_computes_that_a_region_made() -> None:
    source = f"""\
{HEAD}
eye = torch.eye(8, device=device)

def products(h):
    while True:
        yield h @ eye

for x, y in loader:
    optimizer.zero_grad()
    out = model(x.to(device))
    run = products(out.detach())
    loss = F.mse_loss(out, y.to(device))
    loss.backward()
    optimizer.step()
    print(next(run).shape)
"""
    result = migrate_source(source, path="train.py")
    assert result.output == source
    assert [found.code for found in result.diagnostics] == ["AMP020"]


SPREAD = ["inv(*[h[:4]])", "inv(*kept)", "inv(**{'A': h[:4]})", "inv(**named)"]


@pytest.mark.parametrize("call", SPREAD)
def test_half_values_that_are_spread_over_the_arguments(call: str) -> None:
    step = before_and_after(STEP)[0]
    use = f"    kept, named = [h[:4]], dict(A=h[:4])\n    print(torch.linalg.{call})\n"
    result = migrate_source(HEAD + step + use, path="train.py")
    assert [found.code for found in result.diagnostics] == ["AMP020"]
    full = use.replace("h[:4]", "torch.eye(4)")
    assert migrate_source(HEAD + step + full, path="train.py").changed


def test_a_product_of_what_is_spread() -> None:
    step = before_and_after(STEP)[0]
    use = "    kept = [h, y.t()]\n    print(torch.mm(*kept).shape)\n"
    before = HEAD + step + use
    after = migrate_source(before, path="train.py").output
    assert after != before
    assert check_mixed(before, after) == []


FAR = "out.detach().abs().max() * 0 + 3e4"
UNFOLLOWED = {
    "a default": ("def f(h=None): return h + h + h", "f.__defaults__ = (FAR,)", "f()"),
    "a global variable": ("", "globals()['kept'] = FAR", "kept + kept + kept"),
    "an attribute by its name": (
        "class R: total = 0\nr = R()\nr.total = 0",
        "for k in ['total']: vars(r)[k] += FAR",
        "r.total",
    ),
    "a counter": (
        "from collections import Counter\nc = Counter()",
        "c.update({'h': FAR})",
        "c['h']",
    ),
    "a generator": (
        "def run():\n    total = 0\n    while True:\n        total = total + (yield total)\n"
        "g = run()\nnext(g)",
        "sums = g.send(FAR)",
        "sums",
    ),
    "a lambda": (
        "kept = [0]\nadd = lambda h: kept.__setitem__(0, kept[0] + h)",
        "add(FAR)",
        "kept[0]",
    ),
}


@pytest.mark.parametrize("name", UNFOLLOWED)
def test_what_goes_where_nobody_follows_it_goes_in_fp32(name: str) -> None:
    setup, keep, shown = UNFOLLOWED[name]
    source = f"""\
{HEAD}
{setup}
for x, y in loader:
    optimizer.zero_grad()
    out = model(x.to(device))
    loss = F.mse_loss(out, y.to(device))
    loss.backward()
    optimizer.step()
    {keep.replace("FAR", FAR)}
assert torch.isfinite({shown})
"""
    output = migrate_source(source, path="train.py").output
    assert output != source
    assert check_off(source, output) == []
    assert check_mixed(source, output) == []


def test_a_meter_that_a_region_calls_keeps_a_sum_of_fp32() -> None:
    source = f"""\
{HEAD}
class Meter:
    def __init__(self):
        self.total = 0
    def update(self, h):
        self.total = self.total + h

meter = Meter()

def step(x, y):
    out = model(x)
    meter.update({FAR})
    return F.mse_loss(out, y)

for x, y in loader:
    optimizer.zero_grad()
    loss = step(x.to(device), y.to(device))
    loss.backward()
    optimizer.step()
assert torch.isfinite(meter.total)
"""
    output = migrate_source(source, path="train.py").output
    assert output != source
    assert check_off(source, output) == []
    assert check_mixed(source, output) == []


def test_a_weak_reference_to_a_half_value_is_told() -> None:
    source = f"""\
{HEAD}
import weakref
for x, y in loader:
    optimizer.zero_grad()
    out = model(x.to(device))
    loss = F.mse_loss(out, y.to(device))
    loss.backward()
    optimizer.step()
    print(torch.linalg.svdvals(weakref.ref(out)()).sum())
"""
    result = migrate_source(source, path="train.py")
    assert result.output == source
    assert [found.code for found in result.diagnostics] == ["AMP020"]


PARTS = """\
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.ModuleDict({"a": nn.Linear(4, 8), "b": nn.Linear(4, 8)})
        self.kept = {}

    def forward(self, parts):
        RETURN


class Mix(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(8, 8)

    def forward(self, h):
        for _ in range(2):
            h = {key: self.one(part) for key, part in h.items()}
        return h


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.mix = Mix()

    def forward(self, batch):
        h = self.encoder(batch.parts)
        for key in ["a", "b"]:
            h[key] = h[key] + h["a"].mean()
        h = self.mix(h)
        return h["a"] + h["b"]


class Batch:
    def __init__(self, x):
        self.parts = {"a": x, "b": 2 * x}


model = Whole().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    loss = F.mse_loss(model(Batch(x.to(device))), y.to(device))
    loss.backward()
    optimizer.step()
found = []
with torch.no_grad():
    for x, _ in loader:
        found.append(model(Batch(x.to(device))).detach().cpu())
print(torch.cat(found).numpy().mean())
"""
ANEW = "return {key: self.one[key](part) for key, part in parts.items()}"
KEEPS = f"{ANEW.replace('return', 'self.kept |=')}\n        return self.kept"


@pytest.mark.parametrize("name", ["h", "found"])
def test_a_dict_that_each_call_of_a_module_makes_anew(name: str) -> None:
    parts = PARTS.replace("RETURN", ANEW).replace("h = self.enc", f"{name} = self.enc")
    before = HEAD + parts.replace(
        "        for key in", f"        h = {name}\n        for key in"
    )
    after = migrate_source(before, path="train.py").output
    assert "print(torch.cat(found).numpy().mean())" in after != before
    assert check_off(before, after) == []
    assert check_mixed(before, after) == []


def test_a_dict_that_a_module_keeps() -> None:
    result = migrate_source(HEAD + PARTS.replace("RETURN", KEEPS), path="train.py")
    assert [one.code for one in result.diagnostics] == ["AMP020"]


OF_ROWS = """\
class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x) * torch.randn_like(x)


noisy = Noisy().to(device)


def loss_of(one, two, y):
    one, two = [each.transpose(1, 0).t() for each in (one, two)]
    return F.mse_loss(model(one) + model(two), y)


def run(x, y, train):
    with torch.no_grad():
        one, two = noisy(x), noisy(2 * x)
    if not train:
        with torch.no_grad():
            return loss_of(one, two, y).item()
    loss = loss_of(one, two, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


for x, y in pickle.loads(pickle.dumps(loader)):
    print(run(x.to(device), y.to(device), True))
    print(run(x.to(device), y.to(device), False))
"""


def test_tensors_that_come_out_of_a_comprehension() -> None:
    before = f"import pickle\n{HEAD}{OF_ROWS}"
    after = migrate_source(before, path="train.py").output
    assert "full_two = two.float() if two.dtype is torch.float16 else two" in after
    assert check_off(before, after) == []
    assert check_mixed(before, after) == []


@pytest.mark.parametrize("other", ["Voice()", "pickle.loads(pickle.dumps(Voice()))"])
def test_a_module_that_need_not_be_given(other: str) -> None:
    before = f"""\
import pickle
{HEAD}
class Voice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.utils.weight_norm(nn.Linear(8, 8))

    def forward(self, x):
        return self.layer(x)


def build(name):
    if name == "own":
        voice = Voice()
    else:
        voice = {other}
    voice.to(device)
    return voice


def shown(h, voice=None):
    with torch.no_grad():
        return h.mean().item() if voice is None else voice(h).mean().item()


voice = build("own")
for x, y in loader:
    x, y = x.to(device), y.to(device)
    h = model(x)
    loss = F.mse_loss(h, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(shown(h), shown(h, voice))
"""
    after = migrate_source(before, path="train.py").output
    assert "voice(h.float()).mean().item()" in after
    assert check_off(before, after) == []
    assert check_mixed(before, after) == []
