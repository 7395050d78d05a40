"""Several optimizers: which of them share a scaler, where it goes, and what is left alone."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from exactness import check_off, check_scaled
from half_support import check_runs
from programs import HEAD, before_and_after, left_alone, migrated, trains_as_before
from shorthand import before, written_out

from amp_migrate.api import Options, migrate_paths, migrate_source

TWO = """\
 other = make().to(device)
 opt_a = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler_a = BORN
 opt_b = torch.optim.Adam(other.parameters())
+scaler_b = BORN
"""
SHARED = """\
 other = make().to(device)
 opt_a = torch.optim.SGD(model.parameters(), lr=0.1)
 opt_b = torch.optim.Adam(other.parameters())
+scaler = BORN
"""
BOTH = """\
     opt_a.zero_grad()
     opt_b.zero_grad()
-    loss = criterion(model(x), y) + criterion(other(x), y)
-    loss.backward()
+    AUTOCAST
+        loss = criterion(model(x), y) + criterion(other(x), y)
+    scaler.scale(loss).backward()
"""
NONE_WITHOUT_BOTH = """\
+    if scaler.is_enabled() and not norm.isfinite():
+        opt_a.zero_grad()
+        opt_b.zero_grad()
"""
STEP_BOTH = """\
-    opt_a.step()
-    opt_b.step()
+    scaler.step(opt_a)
+    scaler.step(opt_b)
+    scaler.update()
"""

JOINT = """\
 class Joint(nn.Module):
     def __init__(self, trunk):
         super().__init__()
         self.trunk = trunk
         self.head = nn.Linear(3, 3)
     def forward(self, x):
         return self.head(self.trunk(x))
 joint = Joint(model).to(device)
"""

PROGRAMS = {
    "one of two may not be there, and both are clipped": """\
 other = make().to(device)
 opt_a = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 opt_b = None
 if len(data) > 3:
     opt_b = torch.optim.Adam(other.parameters())
 most = 1.0
 for x, y in data:
     opt_a.zero_grad()
     if opt_b is not None:
         opt_b.zero_grad()
-    loss = criterion(model(x), y) + criterion(other(x), y)
-    loss.backward()
+    AUTOCAST
+        loss = criterion(model(x), y) + criterion(other(x), y)
+    scaler.scale(loss).backward()
+    scaler.unscale_(opt_a)
     if most is not None:
         torch.nn.utils.clip_grad_norm_(model.parameters(), most)
         if opt_b is not None:
+            scaler.unscale_(opt_b)
             torch.nn.utils.clip_grad_norm_(other.parameters(), most)
-    opt_a.step()
+    scaler.step(opt_a)
     if opt_b is not None:
-        opt_b.step()
+        scaler.step(opt_b)
+    scaler.update()
""",
    "a function clips the groups of each": f"""\
 def clip(optimizer, most):
     for group in optimizer.param_groups:
         for p in group["params"]:
             if p.grad is not None:
                 p.grad.data.clamp_(-most, most)
 def clip_both(opt, most):
     clip(opt, most)
{TWO} for x, y in data:
-    loss = criterion(model(x), y)
+    AUTOCAST scaler=scaler_a
+        loss = criterion(model(x), y)
     opt_a.zero_grad()
-    loss.backward()
+    scaler_a.scale(loss).backward()
+    scaler_a.unscale_(opt_a)
     clip(opt_a, 0.1)
-    opt_a.step()
+    scaler_a.step(opt_a)
+    scaler_a.update()
-    loss = criterion(other(x), y)
+    AUTOCAST scaler=scaler_b
+        loss = criterion(other(x), y)
     opt_b.zero_grad()
-    loss.backward()
+    scaler_b.scale(loss).backward()
+    scaler_b.unscale_(opt_b)
     clip_both(opt_b, 0.1)
-    opt_b.step()
+    scaler_b.step(opt_b)
+    scaler_b.update()
""",
    "a part of what another one's module is in": f"""\
{JOINT} opt_a = torch.optim.SGD(model.parameters(), lr=0.1)
 opt_b = torch.optim.Adam(joint.head.parameters())
+scaler = BORN
 for x, y in data:
     opt_a.zero_grad()
     opt_b.zero_grad()
-    loss = criterion(joint(x), y)
-    loss.backward()
+    AUTOCAST
+        loss = criterion(joint(x), y)
+    scaler.scale(loss).backward()
{STEP_BOTH}""",
    "parameters added later": f"""\
 other = make().to(device)
 head = nn.Linear(3, 3).to(device)
 opt_a = torch.optim.SGD(model.parameters(), lr=0.1)
 opt_a.add_param_group({{"params": head.parameters(), "lr": 0.01}})
 opt_b = torch.optim.Adam(other.parameters())
+scaler = BORN
 for x, y in data:
     opt_a.zero_grad()
     opt_b.zero_grad()
-    loss = criterion(head(model(x)), y) + criterion(other(x), y)
-    loss.backward()
+    AUTOCAST
+        loss = criterion(head(model(x)), y) + criterion(other(x), y)
+    scaler.scale(loss).backward()
{STEP_BOTH}""",
    "a list that a loop fills": """\
 nets = [make().to(device) for _ in range(2)]
 opts = []
 for net in nets:
     opts.append(torch.optim.SGD(net.parameters(), lr=0.1))
+scaler = BORN
 for x, y in data:
     for net, opt in zip(nets, opts):
         STEPS net=net
""",
    "pairs of a model and its optimizer": """\
 pairs = []
 for _ in range(2):
     net = make().to(device)
     pairs.append((net, torch.optim.SGD(net.parameters(), lr=0.1)))
+scaler = BORN
 for x, y in data:
     for i, (net, opt) in enumerate(pairs):
         STEPS net=net
""",
    "agents by their names, each with its parts": """\
 agents = {}
 for name in ("a", "b"):
     net = make().to(device)
     agents[name] = {"net": net, "opt": torch.optim.SGD(net.parameters(), lr=0.1)}
+scaler = BORN
 for x, y in data:
     for name, agent in agents.items():
         net, opt = agent["net"], agent["opt"]
         STEPS net=net
""",
    "one of several classes with a base is made": """\
 class Base:
     def __init__(self):
         self.optimizers = []
     def show(self):
         for o in self.optimizers:
             print(o.param_groups[0]["lr"])
 class Plain(Base):
     def begin(self, net):
         self.net = net
         self.optimizers = []
         self.opt = torch.optim.SGD(net.parameters(), lr=0.1)
+        self.scaler = BORN
         self.optimizers.append(self.opt)
     def step(self, x, y):
         STEPS net=self.net opt=self.opt scaler=self.scaler
 class Other(Base):
     def begin(self, net):
         self.net = net
         self.optimizers = []
         self.main_opt = torch.optim.Adam(net.parameters())
+        self.scaler = BORN
         self.optimizers.append(self.main_opt)
     def step(self, x, y):
         STEPS net=self.net opt=self.main_opt scaler=self.scaler
 def make_model(kind):
     if kind == "plain":
         made = Plain()
     else:
         made = Other()
     made.begin(model)
     return made
 import sys
 trainer = make_model(sys.argv[-1])
 for x, y in data:
     trainer.step(x, y)
 trainer.show()
""",
    "a list by which nobody steps, made anew with another optimizer": """\
 class Base:
     def __init__(self, net):
         self.net = net
         self.optimizers = []
         self.turns = 0
         self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
+        self.scaler = BORN
         self.optimizers.append(self.opt)
     def slower(self):
         for o in self.optimizers:
             for group in o.param_groups:
                 group["lr"] *= 0.9
     def step(self, x, y):
         STEPS net=self.net opt=self.opt scaler=self.scaler
 class Tuned(Base):
     def again(self):
         self.opt = torch.optim.Adam(self.net.parameters(), lr=0.01)
         self.optimizers = [self.opt]
     def step(self, x, y):
         self.turns += 1
         if self.turns == 3:
             self.again()
         super().step(x, y)
 trainer = Tuned(model)
 for x, y in data:
     trainer.step(x, y)
     trainer.slower()
""",
    "groups by the kind of their modules": """\
 def groups_of(net):
     decay, no_decay = [], []
     for m in net.modules():
         if isinstance(m, nn.Linear):
             decay.append(m.weight)
             no_decay.append(m.bias)
     return [dict(params=decay), dict(params=no_decay, weight_decay=0.0)]
 other = make().to(device)
 def optimizers_of(one, two):
     a = torch.optim.SGD(groups_of(one), lr=0.1)
     b = torch.optim.SGD(groups_of(two), lr=0.1)
     return a, b
 opt_a, opt_b = optimizers_of(model, other)
+scaler_a = BORN
+scaler_b = BORN
 for x, y in data:
     STEPS opt=opt_a scaler=scaler_a
     STEPS net=other opt=opt_b scaler=scaler_b
""",
    "one of a class and one of what derives from it": """\
 class Base:
     def __init__(self):
         self.net = make().to(device)
         self.opt_a = torch.optim.SGD(self.net.parameters(), lr=0.1)
+        self.scaler_a = BORN
     def turn(self, x, y):
         STEPS net=self.net opt=self.opt_a scaler=self.scaler_a
 class More(Base):
     def __init__(self):
         super().__init__()
         self.other = make().to(device)
         self.opt_b = torch.optim.Adam(self.other.parameters())
+        self.scaler_b = BORN
     def turn(self, x, y):
         STEPS net=self.net opt=self.opt_a scaler=self.scaler_a
         STEPS net=self.other opt=self.opt_b scaler=self.scaler_b
 for one in (Base(), More()):
     for x, y in data:
         one.turn(x, y)
""",
    "one of a class and one of what derives from it, each by itself": """\
 class Base:
     def __init__(self):
         self.net = make().to(device)
         self.opt_a = torch.optim.SGD(self.net.parameters(), lr=0.1)
+        self.scaler = BORN
     def turn(self, x, y):
         STEPS net=self.net opt=self.opt_a scaler=self.scaler
 class More(Base):
     def __init__(self):
         super().__init__()
         self.other = make().to(device)
         self.opt_b = torch.optim.Adam(self.other.parameters())
+        self.grad_scaler = BORN
     def again(self, x, y):
         STEPS net=self.other opt=self.opt_b scaler=self.grad_scaler
 one = More()
 one.turn(*data[0])
 one.again(*data[0])
""",
    "a backward each": f"""\
{TWO} for x, y in data:
     STEPS opt=opt_a scaler=scaler_a
     STEPS net=other opt=opt_b scaler=scaler_b
""",
    "one now and then": f"""\
{TWO} for i, (x, y) in enumerate(data):
     STEPS opt=opt_a scaler=scaler_a
     if i % 2 == 0:
         STEPS net=other opt=opt_b scaler=scaler_b
""",
    "one more often": f"""\
{TWO} for x, y in data:
     for _ in range(3):
         STEPS opt=opt_a scaler=scaler_a
     STEPS net=other opt=opt_b scaler=scaler_b
""",
    "a turn that ends early": f"""\
{TWO} for i, (x, y) in enumerate(data):
     STEPS opt=opt_a scaler=scaler_a
     if i == 1:
         continue
     STEPS net=other opt=opt_b scaler=scaler_b
""",
    "one backward for both": f"""\
{SHARED} for x, y in data:
{BOTH}{STEP_BOTH}""",
    "one backward for both, clipped apart": f"""\
{SHARED} for x, y in data:
{BOTH}+    scaler.unscale_(opt_a)
     torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
+    scaler.unscale_(opt_b)
     torch.nn.utils.clip_grad_norm_(other.parameters(), 1.0)
{STEP_BOTH}""",
    "one backward for both, clipped together": f"""\
{SHARED} for x, y in data:
{BOTH}     both = [*model.parameters(), *other.parameters()]
+    scaler.unscale_(opt_a)
+    scaler.unscale_(opt_b)
-    torch.nn.utils.clip_grad_norm_(both, 1.0)
+    norm = torch.nn.utils.clip_grad_norm_(both, 1.0)
{NONE_WITHOUT_BOTH}{STEP_BOTH}""",
    "the norm over both is kept": f"""\
{SHARED} for x, y in data:
{BOTH}+    scaler.unscale_(opt_a)
+    scaler.unscale_(opt_b)
     norm = nn.utils.clip_grad_norm_([*model.parameters(), *other.parameters()], 1.0)
{NONE_WITHOUT_BOTH}{STEP_BOTH}     print(norm.isfinite())
""",
    "the norm over both is told, and its name is taken": f"""\
 norm = nn.LayerNorm
{SHARED} for x, y in data:
{BOTH}     both = list(model.parameters()) + list(other.parameters())
+    scaler.unscale_(opt_a)
+    scaler.unscale_(opt_b)
-    told = nn.utils.clip_grad_norm_(both, 1.0).item()
+    grad_norm = nn.utils.clip_grad_norm_(both, 1.0)
+    told = grad_norm.item()
{NONE_WITHOUT_BOTH.replace("norm", "grad_norm")}{STEP_BOTH}     print(told < 1e9)
""",
    "the norms over both are added up": f"""\
 norm = 0.0
{SHARED} for x, y in data:
{BOTH}+    scaler.unscale_(opt_a)
+    scaler.unscale_(opt_b)
-    norm += nn.utils.clip_grad_norm_([*model.parameters(), *other.parameters()], 1.0)
+    grad_norm = nn.utils.clip_grad_norm_([*model.parameters(), *other.parameters()], 1.0)
+    norm += grad_norm
{NONE_WITHOUT_BOTH.replace("norm", "grad_norm")}{STEP_BOTH}""",
    "a batch is left out where the norm over both is large": f"""\
{SHARED} for x, y in data:
{BOTH}+    scaler.unscale_(opt_a)
+    scaler.unscale_(opt_b)
     norm = nn.utils.clip_grad_norm_([*model.parameters(), *other.parameters()], 1.0)
{NONE_WITHOUT_BOTH}     if norm > 1.5:
+        scaler.update()
         continue
{STEP_BOTH}""",
    "both are clipped number by number": f"""\
{SHARED} for x, y in data:
{BOTH}     both = list(model.parameters()) + list(other.parameters())
+    scaler.unscale_(opt_a)
+    scaler.unscale_(opt_b)
     nn.utils.clip_grad_value_(both, 0.1)
     for p in both:
         p.grad.clamp_(-0.05, 0.05)
{STEP_BOTH}""",
    "a whole model is clipped that two optimizers have in parts": """\
 class Net(nn.Module):
     def __init__(self):
         super().__init__()
         self.width = 16
         self.body = nn.Linear(8, self.width)
         self.relu = nn.ReLU()
         self.head = nn.Linear(16, 3)
     def forward(self, x):
         return self.head(self.relu(self.body(x)))
 net = Net().to(device)
 opt_a = torch.optim.SGD(net.body.parameters(), lr=0.1)
 opt_b = torch.optim.Adam(net.head.parameters())
+scaler = BORN
 for x, y in data:
     opt_a.zero_grad()
     opt_b.zero_grad()
-    loss = criterion(net(x), y)
-    loss.backward()
+    AUTOCAST
+        loss = criterion(net(x), y)
+    scaler.scale(loss).backward()
+    scaler.unscale_(opt_a)
+    scaler.unscale_(opt_b)
-    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
+    norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
+    if scaler.is_enabled() and not norm.isfinite():
+        opt_a.zero_grad()
+        opt_b.zero_grad()
-    opt_a.step()
-    opt_b.step()
+    scaler.step(opt_a)
+    scaler.step(opt_b)
+    scaler.update()
""",
    "one backward for both, one of them not always": f"""\
{SHARED} for i, (x, y) in enumerate(data):
{BOTH}-    opt_a.step()
+    scaler.step(opt_a)
     if i > 1:
-        opt_b.step()
+        scaler.step(opt_b)
+    scaler.update()
""",
    "gradients that need not be there": f"""\
{SHARED} for x, y in data:
     opt_a.zero_grad()
     opt_b.zero_grad()
-    loss = criterion(model(x), y)
-    loss.backward()
-    opt_a.step()
-    opt_b.step()
+    AUTOCAST
+        loss = criterion(model(x), y)
+    scaler.scale(loss).backward()
+    scaler.step(opt_a)
+    if any(p.grad is not None for group in opt_b.param_groups for p in group["params"]):
+        scaler.step(opt_b)
+    scaler.update()
""",
    "cleared first, for what the first loss may leave to the second": f"""\
{SHARED} for x, y in data:
     opt_a.zero_grad()
     opt_b.zero_grad()
-    loss = criterion(model(x), y)
-    loss.backward()
-    opt_a.step()
-    loss = criterion(other(x), y)
-    loss.backward()
-    opt_b.step()
+    AUTOCAST
+        loss = criterion(model(x), y)
+    scaler.scale(loss).backward()
+    scaler.step(opt_a)
+    AUTOCAST
+        loss = criterion(other(x), y)
+    scaler.scale(loss).backward()
+    scaler.step(opt_b)
+    scaler.update()
""",
    "a tuple stepped in a loop": f"""\
{SHARED} for x, y in data:
     for opt in (opt_a, opt_b):
         opt.zero_grad()
-    loss = criterion(model(x), y) + criterion(other(x), y)
-    loss.backward()
+    AUTOCAST
+        loss = criterion(model(x), y) + criterion(other(x), y)
+    scaler.scale(loss).backward()
     for opt in (opt_a, opt_b):
-        opt.step()
+        scaler.step(opt)
+    scaler.update()
""",
    "a dict stepped in a loop": """\
 other = make().to(device)
 opts = {
     "a": torch.optim.SGD(model.parameters(), lr=0.1),
     "b": torch.optim.Adam(other.parameters()),
 }
+scaler = BORN
 for x, y in data:
     for opt in opts.values():
         opt.zero_grad()
-    loss = criterion(model(x), y) + criterion(other(x), y)
-    loss.backward()
+    AUTOCAST
+        loss = criterion(model(x), y) + criterion(other(x), y)
+    scaler.scale(loss).backward()
     for name, opt in opts.items():
-        opt.step()
+        scaler.step(opt)
+    scaler.update()
""",
    "a dict stepped by its keys": """\
 other = make().to(device)
 opts = {
     "a": torch.optim.SGD(model.parameters(), lr=0.1),
     "b": torch.optim.Adam(other.parameters()),
 }
+scaler = BORN
 for x, y in data:
     for key in opts:
         opts[key].zero_grad()
-    loss = criterion(model(x), y) + criterion(other(x), y)
-    loss.backward()
+    AUTOCAST
+        loss = criterion(model(x), y) + criterion(other(x), y)
+    scaler.scale(loss).backward()
     for name, opt in opts.items():
-        opts[name].step()
+        scaler.step(opts[name])
+    scaler.update()
""",
    "a list stepped by its positions": """\
 other = make().to(device)
 opts = [
     torch.optim.SGD(model.parameters(), lr=0.1),
     torch.optim.Adam(other.parameters()),
 ]
+scaler = BORN
 for x, y in data:
     [opts[i].zero_grad() for i in range(len(opts))]
-    loss = criterion(model(x), y) + criterion(other(x), y)
-    loss.backward()
+    AUTOCAST
+        loss = criterion(model(x), y) + criterion(other(x), y)
+    scaler.scale(loss).backward()
     for i in range(len(opts)):
-        opts[i].step()
+        scaler.step(opts[i])
+    scaler.update()
""",
    "a list of steps": f"""\
{SHARED} for x, y in data:
     [opt.zero_grad() for opt in (opt_a, opt_b)]  # both
-    loss = criterion(model(x), y) + criterion(other(x), y)
-    loss.backward()
-    [opt.step() for opt in (opt_a, opt_b)]  # both
+    AUTOCAST
+        loss = criterion(model(x), y) + criterion(other(x), y)
+    scaler.scale(loss).backward()
+    [scaler.step(opt) for opt in (opt_a, opt_b)]  # both
+    scaler.update()
""",
    "a list of steps whose variable has the scaler's name": f"""\
{SHARED.replace("scaler =", "grad_scaler =")} for x, y in data:
     [scaler.zero_grad() for scaler in (opt_a, opt_b)]
-    loss = criterion(model(x), y) + criterion(other(x), y)
-    loss.backward()
-    [scaler.step() for scaler in (opt_a, opt_b)]
+    AUTOCAST scaler=grad_scaler
+        loss = criterion(model(x), y) + criterion(other(x), y)
+    grad_scaler.scale(loss).backward()
+    [grad_scaler.step(scaler) for scaler in (opt_a, opt_b)]
+    grad_scaler.update()
""",
    "a list that is filled by append, and schedulers for all of it": f"""\
{SHARED} opts = []
 opts.append(opt_a)
 opts.append(opt_b)
 schedulers = [torch.optim.lr_scheduler.StepLR(opt, 2) for opt in opts]
 for x, y in data:
     for opt in opts:
         opt.zero_grad()
-    loss = criterion(model(x), y) + criterion(other(x), y)
-    loss.backward()
-    [opt.step() for opt in opts]
+    AUTOCAST
+        loss = criterion(model(x), y) + criterion(other(x), y)
+    scaler.scale(loss).backward()
+    [scaler.step(opt) for opt in opts]
+    scaler.update()
     [scheduler.step() for scheduler in schedulers]
     print([opt.param_groups[0]["lr"] for opt in opts])
""",
    "optimizers that are made to be appended": """\
 other = make().to(device)
 class Trainer:
     def __init__(self):
         self.opts = []
         self.opts.append(torch.optim.SGD(model.parameters(), lr=0.1))
         self.opts.append(torch.optim.Adam(other.parameters()))
+        self.scaler = BORN
     def update(self, x, y):
         for i in range(len(self.opts)):
             self.opts[i].zero_grad()
-        loss = criterion(model(x), y) + criterion(other(x), y)
-        loss.backward()
-        self.opts[0].step()
-        self.opts[1].step()
+        AUTOCAST scaler=self.scaler
+            loss = criterion(model(x), y) + criterion(other(x), y)
+        self.scaler.scale(loss).backward()
+        self.scaler.step(self.opts[0])
+        self.scaler.step(self.opts[1])
+        self.scaler.update()
 trainer = Trainer()
 for x, y in data:
     trainer.update(x, y)
""",
    "a list that is gone through from its end, and a copy of it": """\
 other = make().to(device)
 opts = [torch.optim.SGD(model.parameters(), 0.1), torch.optim.SGD(other.parameters(), 0.1)]
+scaler = BORN
 for x, y in data:
     for opt in list(opts):
         opt.zero_grad()
-    loss = criterion(model(x), y) + criterion(other(x), y)
-    loss.backward()
+    AUTOCAST
+        loss = criterion(model(x), y) + criterion(other(x), y)
+    scaler.scale(loss).backward()
     for opt in reversed(opts):
-        opt.step()
+        scaler.step(opt)
+    scaler.update()
""",
    "as many optimizers as there are models": """\
 other = make().to(device)
 opts = {k: torch.optim.SGD(m.parameters(), 0.1) for k, m in enumerate([model, other])}
+scaler = BORN
 for i, (x, y) in enumerate(data):
     for opt in opts.values():
         opt.zero_grad()
-    loss = criterion(model(x), y)
-    if i > 1:
-        loss = loss + criterion(other(x), y)
-    loss.backward()
+    AUTOCAST
+        loss = criterion(model(x), y)
+        if i > 1:
+            loss = loss + criterion(other(x), y)
+    scaler.scale(loss).backward()
     for k in opts:
-        opts[k].step()
+        if any(
+            p.grad is not None
+            for group in opts[k].param_groups
+            for p in group["params"]
+        ):
+            scaler.step(opts[k])
+    scaler.update()
""",
    "one that is clipped, and may have been frozen": """\
 import sys
 other = make().to(device)
 opt_a = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler_a = BORN
 opt_b = torch.optim.Adam(other.parameters())
+scaler_b = BORN
 if "--frozen" not in sys.argv:
     for p in other.parameters():
         p.requires_grad = False
 for x, y in data:
     STEPS opt=opt_a scaler=scaler_a
     opt_b.zero_grad()
-    loss = criterion(other(x), y) + criterion(model(x), y)
-    loss.backward()
+    AUTOCAST scaler=scaler_b
+        loss = criterion(other(x), y) + criterion(model(x), y)
+    scaler_b.scale(loss).backward()
+    if any(p.grad is not None for group in opt_b.param_groups for p in group["params"]):
+        scaler_b.unscale_(opt_b)
     torch.nn.utils.clip_grad_norm_(other.parameters(), 0.1)
     if loss.item() < 1e3:
-        opt_b.step()
+        if any(
+            p.grad is not None for group in opt_b.param_groups for p in group["params"]
+        ):
+            scaler_b.step(opt_b)
+    if any(p.grad is not None for group in opt_b.param_groups for p in group["params"]):
+        scaler_b.update()
""",
    "a dict by its keys": """\
 other = make().to(device)
 opts = dict(
     a=torch.optim.SGD(model.parameters(), lr=0.1),
     b=torch.optim.Adam(other.parameters()),
 )
+a_scaler = BORN
+b_scaler = BORN
 for x, y in data:
     opts["a"].zero_grad()
-    loss = criterion(model(x), y)
-    loss.backward()
-    opts["a"].step()
+    AUTOCAST scaler=a_scaler
+        loss = criterion(model(x), y)
+    a_scaler.scale(loss).backward()
+    a_scaler.step(opts["a"])
+    a_scaler.update()
     opts["b"].zero_grad()
-    loss = criterion(other(x), y)
-    loss.backward()
-    opts["b"].step()
+    AUTOCAST scaler=b_scaler
+        loss = criterion(other(x), y)
+    b_scaler.scale(loss).backward()
+    b_scaler.step(opts["b"])
+    b_scaler.update()
""",
    "a list and its models side by side": """\
 models = [model, make().to(device)]
 opts = [torch.optim.SGD(one.parameters(), lr=0.1) for one in models]
+scaler = BORN
 for x, y in data:
     for net, opt in zip(models, opts):
         STEPS net=net
""",
    "an optimizer that is put into a dict": """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 state = {"model": model, "step": 0}
 state["optimizer"] = opt
-def train(state, x, y):
+def train(state, x, y, scaler):
     state["optimizer"].zero_grad()
-    loss = criterion(state["model"](x), y)
-    loss.backward()
-    state["optimizer"].step()
+    AUTOCAST
+        loss = criterion(state["model"](x), y)
+    scaler.scale(loss).backward()
+    scaler.step(state["optimizer"])
+    scaler.update()
     state["step"] += 1
 for x, y in data:
-    train(state, x, y)
+    train(state, x, y, scaler=scaler)
""",
    "one trains before the other is made": """\
 other = make().to(device)
 opt_a = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 for x, y in data:
     opt_a.zero_grad()
-    loss = criterion(model(x), y)
-    loss.backward()
-    opt_a.step()
+    AUTOCAST
+        loss = criterion(model(x), y)
+    scaler.scale(loss).backward()
+    scaler.step(opt_a)
+    scaler.update()
 opt_b = torch.optim.Adam(other.parameters())
 for x, y in data:
     opt_a.zero_grad()
     opt_b.zero_grad()
-    loss = criterion(model(x), y) + criterion(other(x), y)
-    loss.backward()
-    opt_a.step()
-    opt_b.step()
+    AUTOCAST
+        loss = criterion(model(x), y) + criterion(other(x), y)
+    scaler.scale(loss).backward()
+    scaler.step(opt_a)
+    scaler.step(opt_b)
+    scaler.update()
""",
    "parameters that are frozen for a while": f"""\
{SHARED} for i, (x, y) in enumerate(data):
     for p in other.parameters():
         p.requires_grad_(i > 2)
     opt_a.zero_grad()
     opt_b.zero_grad()
-    loss = criterion(model(x), y) + criterion(other(x), y)
-    loss.backward()
-    opt_a.step()
-    opt_b.step()
+    AUTOCAST
+        loss = criterion(model(x), y) + criterion(other(x), y)
+    scaler.scale(loss).backward()
+    scaler.step(opt_a)
+    if any(p.grad is not None for group in opt_b.param_groups for p in group["params"]):
+        scaler.step(opt_b)
+    scaler.update()
""",
    "one function makes both": """\
 def make_optimizer(net):
     return torch.optim.SGD(net.parameters(), lr=0.1)
 other = make().to(device)
 opt_a = make_optimizer(model)
 opt_b = make_optimizer(other)
+scaler = BORN
 for x, y in data:
     opt_a.zero_grad()
     opt_b.zero_grad()
-    loss = criterion(model(x), y) + criterion(other(x), y)
-    loss.backward()
+    AUTOCAST
+        loss = criterion(model(x), y) + criterion(other(x), y)
+    scaler.scale(loss).backward()
+    scaler.unscale_(opt_b)
     torch.nn.utils.clip_grad_norm_(other.parameters(), 0.1)
-    opt_a.step()
-    opt_b.step()
+    scaler.step(opt_a)
+    scaler.step(opt_b)
+    scaler.update()
""",
    "two handed to one function": f"""\
-def train(x, y, first, second):
+def train(x, y, first, second, first_scaler, second_scaler):
     STEPS opt=first scaler=first_scaler
     STEPS net=other opt=second scaler=second_scaler
{TWO} for x, y in data:
-    train(x, y, opt_a, opt_b)
+    train(x, y, opt_a, opt_b, first_scaler=scaler_a, second_scaler=scaler_b)
""",
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    source, expected = before_and_after(written_out(PROGRAMS[name]))
    assert migrated(source) == expected


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_trains_as_before(name: str) -> None:
    trains_as_before(written_out(PROGRAMS[name]))


MADE = (
    "other = make().to(device)\n"
    "opt_a = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "opt_b = torch.optim.Adam(other.parameters())\n"
)
WHOLE = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 16)
        self.head = nn.Linear(16, 3)
    def forward(self, x):
        return self.head(torch.relu(self.body(x)))
net = Net().to(device)
opt_a = torch.optim.SGD(net.body.parameters(), lr=0.1)
opt_b = torch.optim.Adam(net.head.parameters())
for x, y in data:
    opt_a.zero_grad()
    opt_b.zero_grad()
    loss = criterion(net(x), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 0.1)
    opt_a.step()
    opt_b.step()
"""
FILLED = (
    "opts = []\nfor net in [model, make().to(device)]:\n"
    "    opts.append(torch.optim.SGD(net.parameters(), lr=0.1))\n"
)
EACH = "for x, y in data:\n    for opt in opts:\n        STEPS\n"
CLIPPED_BY_HAND = """\
other = make().to(device)
opt_a = torch.optim.SGD(model.parameters(), lr=0.1)
opt_b = torch.optim.Adam(other.parameters())
def clip(parameters, most):
    return torch.nn.utils.clip_grad_norm_(parameters, most)
for x, y in data:
    opt_a.zero_grad()
    opt_b.zero_grad()
    loss = criterion(model(x), y) + criterion(other(x), y)
    loss.backward()
    both = [*model.parameters(), *other.parameters()]
    CLIP
    opt_a.step()
    opt_b.step()
"""
NORM_BY_HAND = """\
total = sum(p.grad.norm() ** 2 for p in both).sqrt()
    for p in both:
        p.grad.mul_(1.0 / (total + 1e-6))
"""
TOLD_BEHIND = """\
torch.nn.utils.clip_grad_norm_(both, 1.0)
    print(sum(p.grad.abs().sum() for p in both))
"""
NORM_OF_A_LIST = """\
grads = [p.grad for p in both]
    total = torch.stack(torch._foreach_norm(grads)).norm()
    torch._foreach_mul_(grads, 1.0 / (total + 1e-6))
"""
LEFT = {
    "both are clipped by a norm that is taken by hand": (
        CLIPPED_BY_HAND.replace("CLIP", NORM_BY_HAND),
        "AMP030",
    ),
    "both are clipped by the norm of a list of their gradients": (
        CLIPPED_BY_HAND.replace("CLIP", NORM_OF_A_LIST),
        "AMP030",
    ),
    "both are clipped where neither optimizer can be named": (
        CLIPPED_BY_HAND.replace("CLIP", "clip(both, 1.0)"),
        "AMP030",
    ),
    "gradients are read behind the clip over both, where there may be none": (
        CLIPPED_BY_HAND.replace("CLIP", TOLD_BEHIND),
        "AMP030",
    ),
    "optimizers that are loaded where a loop makes them": (
        f"{FILLED}    opts[-1].load_state_dict(torch.load('last.pt'))\n{EACH}",
        "AMP012",
    ),
    "optimizers that train where a loop makes them": (
        f"{FILLED}    opt = opts[-1]\n    for x, y in data:\n        STEPS net=net\n",
        "AMP010",
    ),
    "one of a list that a loop fills": (
        f"{FILLED}opt = opts[0]\nfor x, y in data:\n    STEPS\n",
        "AMP010",
    ),
    "one of a dict that is filled under names that are not in sight": (
        "opts = {'a': torch.optim.SGD(model.parameters(), lr=0.1)}\n"
        "for name in kinds:\n"
        "    opts[name] = torch.optim.SGD(model.parameters(), lr=0.2)\n"
        "opt = opts['a']\nfor x, y in data:\n    STEPS\n",
        "AMP010",
    ),
    "a part of a model that is clipped is nobody's": (
        WHOLE.replace(
            "        self.head =",
            "        self.scale = nn.Parameter(torch.ones(1))\n        self.head =",
        ),
        "AMP030",
    ),
    "a part of a model that is clipped comes from outside": (
        WHOLE.replace("opt_a = ", "net.more = nn.Linear(2, 2)\nopt_a = ", 1),
        "AMP030",
    ),
    "a part of a model that is clipped is registered": (
        WHOLE.replace("opt_a = ", 'net.register_module("more", make())\nopt_a = ', 1),
        "AMP030",
    ),
    "the module that another one's part is": (
        f"""\
{before_and_after(JOINT)[0]}opt_a = torch.optim.SGD(model.parameters(), lr=0.1)
opt_b = torch.optim.Adam(joint.trunk.parameters())
for x, y in data:
    opt_a.zero_grad()
    opt_b.zero_grad()
    loss = criterion(joint(x), y)
    loss.backward()
    opt_a.step()
    opt_b.step()
""",
        "AMP012",
    ),
    "the same parameters twice": (
        "opt_a = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "opt_b = torch.optim.Adam(model.parameters())\n"
        "for x, y in data:\n    opt_a.zero_grad()\n    opt_b.zero_grad()\n"
        "    loss = criterion(model(x), y)\n    loss.backward()\n"
        "    opt_a.step()\n    opt_b.step()\n",
        "AMP012",
    ),
    "one or the other": (
        f"{MADE}for i, (x, y) in enumerate(data):\n"
        "    opt = opt_a if i % 2 else opt_b\n    STEPS\n",
        "AMP012",
    ),
    "one of a list, chosen as it comes": (
        f"{MADE}opts = [opt_a, opt_b]\nfor i, (x, y) in enumerate(data):\n"
        "    opt = opts[i % 2]\n    STEPS\n",
        "AMP012",
    ),
    "not each of a loop's turns": (
        f"{MADE}for x, y in data:\n    opt_a.zero_grad()\n    opt_b.zero_grad()\n"
        "    loss = criterion(model(x), y) + criterion(other(x), y)\n    loss.backward()\n"
        "    for i, opt in enumerate([opt_a, opt_b]):\n"
        "        if i != 1:\n            opt.step()\n",
        "AMP012",
    ),
    "one of a loop's optimizers twice": (
        f"{MADE}opts = [opt_a, opt_b, opt_a]\nfor x, y in data:\n"
        "    for opt in opts:\n        opt.zero_grad()\n"
        "    loss = criterion(model(x), y) + criterion(other(x), y)\n    loss.backward()\n"
        "    for opt in opts:\n        opt.step()\n",
        "AMP012",
    ),
    "one of a dict, behind the loop over it": (
        f"{MADE}opts = {{'a': opt_a, 'b': opt_b}}\nfor x, y in data:\n"
        "    for k in opts:\n        opts[k].zero_grad()\n"
        "    loss = criterion(model(x), y) + criterion(other(x), y)\n    loss.backward()\n"
        "    opts[k].step()\n",
        "AMP012",
    ),
    "a list of steps that nobody sees all of": (
        f"{MADE}opts = [opt_a, opt_b]\nfor x, y in data:\n"
        "    for opt in opts:\n        opt.zero_grad()\n"
        "    loss = criterion(model(x), y) + criterion(other(x), y)\n    loss.backward()\n"
        "    [opt.step() for opt in opts[:1]]\n",
        "AMP010",
    ),
    "a list of steps, one of which may find no gradients": (
        f"{MADE}for x, y in data:\n    opt_a.zero_grad()\n    opt_b.zero_grad()\n"
        "    loss = criterion(model(x), y)\n    loss.backward()\n"
        "    [opt.step() for opt in (opt_a, opt_b)]\n",
        "AMP016",
    ),
    "as many optimizers as there are models, with a part in common": (
        "common, other = make().to(device), make().to(device)\n"
        "def both(net):\n    return [*net.parameters(), *common.parameters()]\n"
        "opts = [torch.optim.SGD([*m.parameters(), *common.parameters()], 0.1)"
        " for m in (model, other)]\n"
        "for x, y in data:\n    for opt in opts:\n        opt.zero_grad()\n"
        "    loss = criterion(model(x) + other(x) + common(x), y)\n    loss.backward()\n"
        "    for opt in opts:\n        opt.step()\n",
        "AMP012",
    ),
    "a list to which only some are appended": (
        f"{MADE}opts = [opt_a]\nopts = []\nopts.append(opt_a)\n"
        "if len(data) > 9:\n    opts.append(opt_b)\n"
        "for x, y in data:\n    for opt in opts:\n        opt.zero_grad()\n"
        "    loss = criterion(model(x), y) + criterion(other(x), y)\n    loss.backward()\n"
        "    opt_a.step()\n    opt_b.step()\n",
        "AMP012",
    ),
    "a list whose optimizers come and go": (
        f"{MADE}opts = []\nopts.append(opt_a)\nopts.append(opt_b)\n"
        "for x, y in data:\n    for opt in opts:\n        opt.zero_grad()\n"
        "    loss = criterion(model(x), y) + criterion(other(x), y)\n    loss.backward()\n"
        "    opt_a.step()\n    opt_b.step()\n    opts.pop()\n",
        "AMP012",
    ),
    "a list whose steps are kept": (
        f"{MADE}opts = [opt_a, opt_b]\nsteps = [opt.step for opt in opts]\n"
        "for x, y in data:\n    for opt in opts:\n        opt.zero_grad()\n"
        "    loss = criterion(model(x), y) + criterion(other(x), y)\n    loss.backward()\n"
        "    for opt in opts:\n        opt.step()\n",
        "AMP012",
    ),
    "what makes schedulers of a list steps its optimizers": (
        f"{MADE}def scheduler(opt):\n    opt.step()\n"
        "    return torch.optim.lr_scheduler.StepLR(opt, 2)\n"
        "opts = [opt_a, opt_b]\nall_of_them = [scheduler(opt) for opt in opts]\n"
        "for x, y in data:\n    for opt in opts:\n        opt.zero_grad()\n"
        "    loss = criterion(model(x), y) + criterion(other(x), y)\n    loss.backward()\n"
        "    for opt in opts:\n        opt.step()\n",
        "AMP012",
    ),
    "the whole dict is saved": (
        'state = {"opt": torch.optim.SGD(model.parameters(), lr=0.1)}\n'
        'for x, y in data:\n    state["opt"].zero_grad()\n'
        '    loss = criterion(model(x), y)\n    loss.backward()\n    state["opt"].step()\n'
        'torch.save(state, "/dev/null")\n',
        "AMP012",
    ),
    "made in different functions": (
        "other = make().to(device)\n"
        "class A:\n    def __init__(self):\n"
        "        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "class B:\n    def __init__(self):\n"
        "        self.opt = torch.optim.SGD(other.parameters(), lr=0.1)\n"
        "a, b = A(), B()\n"
        "for x, y in data:\n    a.opt.zero_grad()\n    b.opt.zero_grad()\n"
        "    loss = criterion(model(x), y) + criterion(other(x), y)\n    loss.backward()\n"
        "    a.opt.step()\n    b.opt.step()\n",
        "AMP012",
    ),
    "a step in the caller of the helper that goes backward": (
        f"{MADE}def train(x, y):\n    opt_b.zero_grad()\n"
        "    loss = criterion(model(x), y) + criterion(other(x), y)\n    loss.backward()\n"
        "    opt_b.step()\n"
        "for x, y in data:\n    opt_a.zero_grad()\n    train(x, y)\n    opt_a.step()\n",
        "AMP031",
    ),
    "tied weights": (
        f"{MADE}other[0].weight = model[0].weight\n"
        "for x, y in data:\n    opt_a.zero_grad()\n    opt_b.zero_grad()\n"
        "    loss = criterion(model(x), y) + criterion(other(x), y)\n    loss.backward()\n"
        "    opt_a.step()\n    opt_b.step()\n",
        "AMP012",
    ),
    "one module inside the other": (
        "other = nn.Sequential(model, nn.Linear(3, 3)).to(device)\n"
        "opt_a = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "opt_b = torch.optim.Adam(other.parameters())\n"
        "for x, y in data:\n    opt_a.zero_grad()\n    opt_b.zero_grad()\n"
        "    loss = criterion(model(x), y) + criterion(other(x), y)\n    loss.backward()\n"
        "    opt_a.step()\n    opt_b.step()\n",
        "AMP012",
    ),
    "parameters added later": (
        f'{MADE}opt_b.add_param_group({{"params": model.parameters()}})\n'
        "for x, y in data:\n    opt_a.zero_grad()\n    opt_b.zero_grad()\n"
        "    loss = criterion(model(x), y) + criterion(other(x), y)\n    loss.backward()\n"
        "    opt_a.step()\n    opt_b.step()\n",
        "AMP012",
    ),
    "parameters added later to what is not known": (
        f"{MADE}def more(opt, part):\n"
        '    opt.add_param_group({"params": part.parameters()})\n'
        "for opt in (opt_a, opt_b):\n    more(opt, nn.Linear(3, 3).to(device))\n"
        "for x, y in data:\n    opt_a.zero_grad()\n    opt_b.zero_grad()\n"
        "    loss = criterion(model(x), y) + criterion(other(x), y)\n    loss.backward()\n"
        "    opt_a.step()\n    opt_b.step()\n",
        "AMP012",
    ),
    "instances of one class, cleared from outside": (
        "class Part:\n    def __init__(self, net):\n        self.net = net\n"
        "        self.opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "a, b = Part(model), Part(make().to(device))\n"
        "def first(x, y):\n    a.opt.zero_grad()\n    loss = criterion(a.net(x), y)\n"
        "    loss.backward()\n    a.opt.step()\n"
        "def second(x, y):\n    b.opt.zero_grad()\n    loss = criterion(b.net(a.net(x)), y)\n"
        "    loss.backward()\n    b.opt.step()\n"
        "for x, y in data:\n    first(x, y)\n",
        "AMP012",
    ),
    "instances of one class, whose methods are given their optimizers": (
        "class Part:\n    def __init__(self):\n        self.net = make().to(device)\n"
        "        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)\n"
        "    def one(self, opt, x, y):\n        opt.zero_grad()\n"
        "        loss = criterion(self.net(x), y)\n        loss.backward()\n        opt.step()\n"
        "    def fit(self, x, y):\n        self.one(self.opt, x, y)\n"
        "a, b = Part(), Part()\nfor x, y in data:\n    a.fit(x, y)\n    b.fit(x, y)\n",
        "AMP012",
    ),
    "gradients of another instance, clipped": (
        "class Part:\n    def __init__(self):\n        self.net = make().to(device)\n"
        "        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)\n"
        "    def fit(self, x, y, peer):\n        self.opt.zero_grad()\n"
        "        loss = criterion(self.net(x) + peer.net(x), y)\n        loss.backward()\n"
        "        nn.utils.clip_grad_norm_(peer.net.parameters(), 1.0)\n        self.opt.step()\n"
        "a, b = Part(), Part()\nfor x, y in data:\n    a.fit(x, y, b)\n    b.fit(x, y, a)\n",
        "AMP012",
    ),
    "gradients of another instance, read": (
        "class Part:\n    def __init__(self):\n        self.net = make().to(device)\n"
        "        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)\n"
        "    def fit(self, x, y, peer):\n        self.opt.zero_grad()\n"
        "        loss = criterion(self.net(x) + peer.net(x), y)\n        loss.backward()\n"
        "        print(sum(p.grad.norm() for p in peer.net.parameters()))\n        self.opt.step()\n"
        "a, b = Part(), Part()\nfor x, y in data:\n    a.fit(x, y, b)\n    b.fit(x, y, a)\n",
        "AMP012",
    ),
    "an update between a backward and its step": (
        f"{MADE}for x, y in data:\n    opt_a.zero_grad()\n    opt_b.zero_grad()\n"
        "    loss = criterion(model(x), y) + criterion(other(x), y)\n    loss.backward()\n"
        "    for _ in range(2):\n        opt_a.step()\n"
        "        opt_a.zero_grad()\n"
        "        loss = criterion(model(x), y)\n        loss.backward()\n"
        "    opt_b.step()\n",
        "AMP031",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_left_alone(name: str) -> None:
    text, code = LEFT[name]
    assert left_alone(before(text)) == code


def test_without_a_scaler_all_have_one_switch() -> None:
    source, _ = before_and_after(written_out(PROGRAMS["a backward each"]))
    output = migrated(source, Options(dtype="bfloat16"))
    assert output.count("use_amp = ") == 1
    assert output.count("enabled=use_amp)") == 2
    assert "scaler" not in output


def test_a_dtype_chosen_as_the_program_runs() -> None:
    source, _ = before_and_after(written_out(PROGRAMS["a backward each"]))
    output = migrated(source, Options(dtype="auto", torch_version=(2, 4)))
    chosen = """\
amp_dtype = None
if device.type == "cuda":
    amp_dtype = torch.float16
    if torch.cuda.is_bf16_supported(including_emulation=False):
        amp_dtype = torch.bfloat16
scaler_a = torch.amp.GradScaler("cuda", enabled=amp_dtype is torch.float16)
"""
    region = 'torch.autocast("cuda", dtype=amp_dtype, enabled=amp_dtype is not None)'
    assert chosen in output
    assert output.count(region) == 2
    assert "scaler_b.step(opt_b)\n    scaler_b.update()\n" in output


def test_parameters_given_twice() -> None:
    text = (
        "both = list(model.parameters()) + list(model.parameters())\n"
        "opt = torch.optim.SGD(both, lr=0.1)\nfor x, y in data:\n    STEPS\n"
    )
    assert left_alone(before(text)) == "AMP012"


_NESTED = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.head = nn.Linear(8, 3)
    def forward(self, x):
        return self.head(self.body(x))
    def slow(self):
        for layer in [self.body]:
            for module in layer.modules():
                for p in module.parameters():
                    if p.requires_grad:
                        yield p
    def groups(self):
        return [{"params": self.slow(), "lr": 0.01}, {"params": self.head.parameters()}]
    def all(self):
        found = []
        for m in self.modules():
            found.extend(list(m.parameters()))
        return found
model = Net().to(device)
opt = torch.optim.SGD(model.groups(), lr=0.1)
for x, y in data:
    STEPS
"""


@pytest.mark.parametrize(
    ("old", "new"),
    (
        ("", ""),
        ("model = Net()", 'model = globals()["Net"]()'),
        ("model.groups()", "model.all()"),
        ("model.groups()", "[p for m in model.modules() for p in m.parameters()]"),
    ),
)
def test_parameters_of_modules_come_again_with_those_of_their_parts(
    old: str, new: str
) -> None:
    """A scaler divides a gradient each time that its parameter is listed."""
    assert left_alone(before(_NESTED.replace(old, new))) == "AMP012"


@pytest.mark.parametrize(
    ("old", "new"),
    (
        (".modules():", ".children():"),
        ("module.parameters()", "module.parameters(recurse=False)"),
        (
            "                for p in",
            "                if not isinstance(module, nn.Linear):\n"
            "                    continue\n                for p in",
        ),
        ("model.groups()", "[p for m in model.children() for p in m.parameters()]"),
        (
            "model.groups()",
            "[p for m in model.modules() if isinstance(m, nn.Linear) for p in m.parameters()]",
        ),
    ),
)
def test_parameters_of_modules_that_are_taken_once(old: str, new: str) -> None:
    source = before(_NESTED.replace(old, new))
    assert check_off(HEAD + source, HEAD + migrated(source)) == []


CHECKPOINTS = {
    "keys without a word in common": (
        "a backward each",
        'torch.save({"a": opt_a.state_dict(), "b": opt_b.state_dict()}, "/dev/null")\n',
        '"a": opt_a.state_dict(), "a_scaler": scaler_a.state_dict(), '
        '"b": opt_b.state_dict(), "b_scaler": scaler_b.state_dict()',
    ),
    "keys with different words for an optimizer": (
        "a backward each",
        'torch.save({"opt": opt_a.state_dict(), "optim": opt_b.state_dict()}, "/dev/null")\n',
        '"opt": opt_a.state_dict(), "opt_scaler": scaler_a.state_dict(), '
        '"optim": opt_b.state_dict(), "optim_scaler": scaler_b.state_dict()',
    ),
    "one scaler is saved once": (
        "one backward for both",
        'torch.save(dict(a=opt_a.state_dict(), b=opt_b.state_dict()), "/dev/null")\n',
        "a=opt_a.state_dict(), scaler=scaler.state_dict(), b=opt_b.state_dict()",
    ),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoint(name: str) -> None:
    program, saved, expected = CHECKPOINTS[name]
    source, _ = before_and_after(written_out(PROGRAMS[program]))
    assert expected in migrated(source + saved)


WITHOUT_A_SCALER = {
    "a closure that is called again and again": """\
 opt = torch.optim.LBFGS(model.parameters(), lr=0.1)
+use_amp = device.type == "cuda"
 for x, y in data:
     def closure():
         opt.zero_grad()
-        loss = criterion(model(x), y)
+        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=use_amp):
+            loss = criterion(model(x), y)
         loss.backward()
         return loss
     opt.step(closure)
""",
    "gradients that must be finite": """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+use_amp = device.type == "cuda"
 for x, y in data:
     opt.zero_grad()
-    loss = criterion(model(x), y)
+    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=use_amp):
+        loss = criterion(model(x), y)
     loss.backward()
     torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
     opt.step()
     opt.step()
""",
}


@pytest.mark.parametrize("name", WITHOUT_A_SCALER)
def test_what_only_a_scaler_forbids(name: str) -> None:
    source, expected = before_and_after(WITHOUT_A_SCALER[name])
    assert migrated(source, Options(dtype="bfloat16")) == expected
    assert left_alone(source)


SHARED_NAMES = {
    "a word in common": (["optimizer_D_A", "optimizer_D_B"], "optimizer_G", "scaler_D"),
    "nothing in common": (["optimizer_E", "optimizer_G"], "optimizer_D", "scaler_E_G"),
    "names that run on": (["optimE", "optimG"], "optimD", "scalerEG"),
    "the word behind": (["e_opt", "g_opt"], "d_opt", "scaler"),
}


@pytest.mark.parametrize("name", SHARED_NAMES)
def test_a_scaler_that_optimizers_share_is_called_as_the_others_are(name: str) -> None:
    (one, other), alone, shared = SHARED_NAMES[name]
    body = (
        "first, second, third = make(), make(), make()\n"
        "for net in (first, second, third):\n    net.to(device)\n"
        f"{one} = torch.optim.SGD(first.parameters(), lr=0.1)\n"
        f"{other} = torch.optim.SGD(second.parameters(), lr=0.1)\n"
        f"{alone} = torch.optim.SGD(third.parameters(), lr=0.1)\n"
        "for x, y in data:\n"
        f"    {one}.zero_grad()\n    {other}.zero_grad()\n"
        "    loss = criterion(first(x), y) + criterion(second(x), y)\n"
        f"    loss.backward()\n    {one}.step()\n    {other}.step()\n"
        f"    {alone}.zero_grad()\n    loss = criterion(third(x), y)\n"
        f"    loss.backward()\n    {alone}.step()\n"
    )
    output = migrated(body)
    assert f"    {shared}.step({one})\n    {shared}.step({other})\n" in output


ACTOR = """\
import torch
from torch import nn
from torch.distributions import Normal
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(8, 2)
        self.bound = torch.tensor(2.0)
    def forward(self, x):
        return torch.tanh(self.mean(x)) * self.bound
    def sample(self, x):
        return Normal(self.forward(x), 0.1).rsample()
    def to(self, device):
        self.bound = self.bound.to(device)
        return super().to(device)
class Agent:
    def __init__(self):
        self.actor = Actor().to(device)
        self.critic = nn.Linear(2, 1).to(device)
        self.opt_a = torch.optim.SGD(self.actor.parameters(), lr=0.1)
        self.opt_c = torch.optim.SGD(self.critic.parameters(), lr=0.1)
    def update(self, x, y):
        self.opt_c.zero_grad()
        wrong = nn.functional.mse_loss(self.critic(x[:, :2]), y)
        wrong.backward()
        self.opt_c.step()
        action = self.actor.sample(x)
        loss = nn.functional.mse_loss(self.critic(action), y)
        self.opt_a.zero_grad()
        loss.backward()
        self.opt_a.step()
agent = Agent()
for _ in range(3):
    agent.update(torch.randn(4, 8).to(device), torch.randn(4, 1).to(device))
"""


_KIND = """\
class NAME:
    def __init__(self):
        self.net = nn.Linear(8, 1).to(device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
    def update(self, x, y):
        loss = nn.functional.mse_loss(self.net(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
"""
_FIT = """\
def fit(agent):
    for _ in range(3):
        agent.update(torch.randn(4, 8).to(device), torch.randn(4, 1).to(device))
first, second, other = First(), First(), Other()
fit(first)
fit(second)
fit(other)
"""


def test_objects_of_two_classes_that_share_a_loop_step_by_themselves() -> None:
    """Of one class there are several, and no other method than theirs trains them."""
    kinds = "".join(_KIND.replace("NAME", name) for name in ("First", "Other"))
    source = ACTOR[: ACTOR.index("class Actor")] + kinds + _FIT
    output = migrate_source(source).output
    assert output.count("self.scaler.step(self.opt)") == 2
    assert check_off(source, output) == []
    outside = (
        "def once(one):\n    loss = one.net(torch.ones(8).to(device)).sum()\n"
        "    loss.backward()\n    one.opt.step()\nonce(first)\nonce(second)\n"
    )
    (found,) = {d.code for d in migrate_source(source + outside).diagnostics}
    assert found == "AMP012"


def test_steps_that_are_come_to_on_two_ways() -> None:
    """Each finds the gradients of the same backward()."""
    both = ACTOR.replace(
        "        wrong.backward()\n        self.opt_c.step()\n", ""
    ).replace(
        "        loss.backward()\n        self.opt_a.step()\n",
        "        self.opt_c.zero_grad()\n        wrong.backward()\n"
        "        loss.backward()\n        self.opt_a.step()\n        self.opt_c.step()\n",
    )
    both = both.replace(".actor.sample(x)", ".actor(x)")
    twice = both + both[both.index("for _ in range(3)") :]
    output = migrate_source(twice).output
    assert output.count(".step(self.opt_") == 2 and "grad is not None" not in output


def test_a_module_with_a_method_of_torch_is_followed() -> None:
    output = migrate_source(ACTOR).output
    assert "            action = self.actor.sample(x)\n" in output
    assert output.count(".step(self.opt_") == 2 and "grad is not None" not in output


OTHERS = """\
import torch
import torch.nn as nn
from torch import optim
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
x = torch.randn(4, 8).to(device)
"""
CURVATURE = OTHERS + """\
class Curvature(optim.Optimizer):
    def __init__(self, model):
        super().__init__(model.parameters(), {})
        self.optim = optim.SGD(model.parameters(), lr=0.1)
    def step(self):
        for p in self.param_groups[0]["params"]:
            p.grad.mul_(2)
        self.optim.step()
class Agent:
    def __init__(self, model):
        self.model = model
        self.optimizer = Curvature(model)
    def update(self, x):
        self.optimizer.zero_grad()
        self.model(x).mean().backward()
        self.optimizer.step()
class Judge:
    def __init__(self):
        self.trunk = nn.Linear(8, 1).to(device)
        self.optimizer = optim.Adam(self.trunk.parameters())
    def update(self, x):
        self.optimizer.zero_grad()
        self.trunk(x).mean().backward()
        self.optimizer.step()
agent, judge = Agent(nn.Linear(8, 1).to(device)), Judge()
for _ in range(3):
    judge.update(x)
    agent.update(x)
"""
ANEW = OTHERS + """\
net = nn.Linear(8, 1).to(device)
out = net(x[:1])
out.backward(torch.ones(1, 1, device=device))
optimizer = optim.SGD(net.parameters(), lr=0.01)
optimizer.zero_grad()
loss = net(x).mean()
loss.backward()
optimizer.step()
net = nn.Linear(8, 1).to(device)
optimizer = optim.SGD(net.parameters(), lr=0.001)
for _ in range(3):
    optimizer.zero_grad()
    loss = net(x).mean()
    loss.backward()
    optimizer.step()
"""


def test_another_optimizer_that_may_step_is_named() -> None:
    agent, judge = (loop.diagnostic for loop in migrate_source(CURVATURE).loops)
    assert agent is not None and judge is not None
    assert (
        agent.message == "Curvature steps in its own way, which a scaler would not see"
    )
    assert judge.message.startswith("Curvature may step on these gradients, too")


def test_a_step_on_what_another_loop_left_is_no_second_step() -> None:
    first, second = (loop.diagnostic for loop in migrate_source(ANEW).loops)
    assert first is not None and first.code == "AMP032"
    assert second is not None and "a backward() that is left alone" in second.message


def _many_ways(model: str, given: str) -> str:
    """A worker with more ways to its two optimizers than are followed, and a method that trains."""
    levels = "".join(
        f"    def level{i + 1}(self):\n" + f"        self.level{i}()\n" * 8
        for i in range(5)
    )
    return f"""\
{OTHERS}class Worker:
    def __init__(self):
        self.a, self.b = nn.Linear(8, 8).to(device), nn.Linear(8, 1).to(device)
        self.opt_a = optim.SGD(self.a.parameters(), lr=0.1)
        self.opt_b = optim.SGD(self.b.parameters(), lr=0.1)
    def level0(self):
        self.opt_a.zero_grad()
        self.opt_b.zero_grad()
        self.b(self.a(x)).mean().backward()
        self.opt_a.step()
        self.opt_b.step()
    def classify(self):
        model = {model}
        optimizer = optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = model({given}).pow(2).mean()
            loss.backward()
            optimizer.step()
{levels}worker = Worker()
worker.level5()
worker.classify()
"""


@pytest.mark.parametrize(
    ("model", "given"),
    (
        ("nn.Linear(8, 1).to(device)", "x"),
        ("self.a", "x"),
        ("nn.Linear(8, 1).to(device)", "self.a(x)"),
    ),
)
def test_more_ways_than_are_followed_are_those_of_other_loops(
    model: str, given: str
) -> None:
    result = migrate_source(_many_ways(model, given))
    assert [found.code for found in result.diagnostics] == ["AMP012"]
    assert "scaler.step(optimizer)" in result.output


ON = "    for p in model.parameters():\n        p.requires_grad = True\n"
OFF = "    for p in model.parameters():\n        p.requires_grad = False\n"
SWITCHED = {
    # name: (before the first step, behind it, whether the first step is guarded)
    "by loops": (ON, OFF, False),
    "at once": ("    model.requires_grad_()\n", OFF, False),
    "at once, said": ("    model.requires_grad_(True)\n", OFF, False),
    "in one of the rounds": (f"    if i:\n{indent(ON, '    ')}", OFF, True),
    "a part": ("    model[0].requires_grad_(True)\n", OFF, False),
    "and off again": (ON + OFF, "", True),
    "behind the step": ("", OFF + ON, False),
    "behind the step, in one of the rounds": (
        "",
        f"{OFF}    if i:\n{indent(ON, '    ')}",
        True,
    ),
    "never": ("", OFF, True),
    "by a number": (ON.replace("True", "i < 2"), OFF, True),
}


@pytest.mark.parametrize("name", SWITCHED)
def test_gradients_that_are_switched_off_and_on(name: str) -> None:
    first, then, is_guarded = SWITCHED[name]
    source = (
        "other = nn.Linear(8, 8).to(device)\n"
        "opt_a = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "opt_b = torch.optim.Adam(other.parameters())\n"
        f"for i, (x, y) in enumerate(data):\n    x, y = x.to(device), y.to(device)\n{first}"
        "    model.zero_grad()\n    loss = F.cross_entropy(model(x), y)\n"
        f"    loss.backward()\n    opt_a.step()\n{then}"
        "    opt_b.zero_grad()\n    loss = F.cross_entropy(model(other(x)), y)\n"
        "    loss.backward()\n    opt_b.step()\n"
    )
    assert ("if any(" in migrated(source)) is is_guarded


AGENT = """\
class Agent:
    def __init__(self):
        self.model = nn.Linear(8, 3).to(device)
        self.actor = nn.Linear(8, 8).to(device)
        self.opt_model = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.opt_actor = torch.optim.Adam(self.actor.parameters())
    def freeze(self):
        pass
    def update(self, x, y):
        self.opt_model.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.opt_model.step()
        for p in self.model.parameters():
            p.requires_grad = False
        self.opt_actor.zero_grad()
        loss = F.cross_entropy(self.model(self.actor(x)), y)
        loss.backward()
        self.opt_actor.step()
        for p in self.model.parameters():
            p.requires_grad = True
agent = Agent()
for x, y in data:
    agent.update(x.to(device), y.to(device))
"""
AGENTS = {
    # name: (what stands there, what stands there instead, whether the step is guarded)
    "and on again": ("", "", False),
    "and on again in some calls": (
        "        for p in self.model.parameters():\n            p.requires_grad = True\n",
        "        if len(x) > 2:\n            self.model.requires_grad_(True)\n",
        True,
    ),
    "and returns before": (
        "        self.opt_actor.step()\n",
        "        self.opt_actor.step()\n        if len(x) > 2:\n            return\n",
        True,
    ),
    "and by somebody else": (
        "        pass\n",
        "        self.model.requires_grad_(False)\n",
        True,
    ),
}


@pytest.mark.parametrize("name", AGENTS)
def test_gradients_that_each_call_switches_off_and_on(name: str) -> None:
    old, new, is_guarded = AGENTS[name]
    assert ("if any(" in migrated(AGENT.replace(old, new))) is is_guarded


APPENDED = """\
nets = [make().to(device), make().to(device)]
opts = []
for net in nets:
    opts.append(torch.optim.SGD(PARAMETERS, lr=0.1))
for x, y in data:
    for opt in opts:
        opt.zero_grad()
    loss = criterion(sum(net(x) for net in nets), y)
    loss.backward()
    for opt in opts:
        opt.step()
"""


def test_a_loop_makes_an_optimizer_of_each_net() -> None:
    result = migrated(APPENDED.replace("PARAMETERS", "net.parameters()"))
    assert "scaler.step(opt)" in result


@pytest.mark.parametrize("given", ["model.parameters()", "nets[0].parameters()"])
def test_a_loop_makes_optimizers_of_one_net(given: str) -> None:
    assert left_alone(APPENDED.replace("PARAMETERS", given)) == "AMP012"


def test_a_loop_whose_variable_is_bound_anew() -> None:
    rebound = APPENDED.replace(
        "for net in nets:\n", "for i, net in enumerate(nets):\n    net = model\n", 1
    )
    assert left_alone(rebound.replace("PARAMETERS", "net.parameters()")) == "AMP012"


EACH_BY_NAME = """\
agents = {}
for name in ["red", "blue"]:
    net = make().to(device)
    agents[name] = {"net": net, "opt": torch.optim.SGD(net.parameters(), lr=0.1)}
for x, y in data:
    for name, agent in agents.items():
        agent["opt"].zero_grad()
        loss = criterion(NET(x), y)
        loss.backward()
        agent["opt"].step()
"""


def test_a_loop_over_optimizers_trains_the_net_of_each() -> None:
    result = migrated(EACH_BY_NAME.replace("NET", 'agent["net"]'))
    assert 'scaler.step(agent["opt"])' in result


def test_a_loop_over_optimizers_trains_the_net_of_one() -> None:
    # The step of another does nothing, and with a scaler it would raise.
    source = EACH_BY_NAME.replace("NET", 'agents["red"]["net"]')
    assert left_alone(source) == "AMP012"


RECORD = """\
import dataclasses
@dataclasses.dataclass
class Holder:
    optimizer: torch.optim.Optimizer
holder = Holder(optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
for x, y in data:
    loss = criterion(model(x), y)
    loss.backward()
    for one in (holder.optimizer,):
        one.step()
    holder.optimizer.zero_grad()
"""
OBJECT = """\
class Holder:
    def __init__(self, parameters):
        self.optimizer = torch.optim.SGD(parameters, lr=0.1)
class Trainer:
    def __init__(self):
        self.holder = Holder(model.parameters())
    def fit(self):
        for x, y in data:
            loss = criterion(model(x), y)
            loss.backward()
            [one.step() for one in [self.holder.optimizer]]
            self.holder.optimizer.zero_grad()
Trainer().fit()
"""


@pytest.mark.parametrize("text", [RECORD, OBJECT])
def test_a_loop_over_an_attribute_of_an_object_of_another_class(text: str) -> None:
    output = migrate_source(HEAD + text, path="train.py").output
    assert "holder.scaler.update()" in output
    assert check_off(HEAD + text, output) == []


def test_a_loop_over_attributes_of_two_objects() -> None:
    text = OBJECT.replace("[self.holder.optimizer]", "[self.holder.optimizer, other]")
    text = text.replace("    def fit(self):\n", TWO_HELD)
    assert left_alone(text) == "AMP012"


TWO_HELD = """\
        self.rest = Holder(make().parameters())
    def fit(self):
        other = self.rest.optimizer
"""


CLIPPED = """\
 class Agent:
     def __init__(self):
         self.actor = nn.Linear(8, 8).to(device)
         self.critic = nn.Linear(8, 3).to(device)
         self.first = torch.optim.SGD(self.critic.parameters(), lr=0.1)
         self.second = torch.optim.SGD(self.actor.parameters(), lr=0.1)
     def back(self, opt, loss, other=None):
         opt.zero_grad()
         loss.backward()
         CLIP
         opt.step()
     def fit(self):
         for x, y in data:
             loss = criterion(self.critic(x), y)
             self.back(self.first, loss)
             loss = criterion(self.critic(self.actor(x)), y)
             self.back(self.second, loss, self.first)
 agent = Agent()
 agent.fit()
 print([p.sum().item() for m in (agent.actor, agent.critic) for p in m.parameters()])
"""
CLIPS = {
    'nn.utils.clip_grad_norm_(opt.param_groups[0]["params"], 0.1)': True,
    'for g in opt.param_groups: nn.utils.clip_grad_norm_(g["params"], 0.1)': True,
    'nn.utils.clip_grad_norm_(self.first.param_groups[0]["params"], 0.1)': False,
    'nn.utils.clip_grad_norm_((other or opt).param_groups[0]["params"], 0.1)': False,
}


@pytest.mark.parametrize("clip", CLIPS)
def test_a_helper_clips_what_the_optimizer_holds_that_it_is_given(clip: str) -> None:
    source, _ = before_and_after(CLIPPED.replace("CLIP", clip))
    if not CLIPS[clip]:
        assert left_alone(source) == "AMP030"
        return
    output = migrated(source)
    assert "scaler.unscale_(opt)" in output
    diff = "".join(f"-{line}\n" for line in source.splitlines())
    trains_as_before(diff + "".join(f"+{line}\n" for line in output.splitlines()))


_PAIR = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from nets import make
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
one, other = make().to(device), make().to(device)
opt_a = torch.optim.SGD(one.parameters(), lr=0.1)
opt_b = torch.optim.SGD(other.parameters(), lr=0.1)
for _ in range(4):
    x = torch.randn(4, 8, device=device)
    a, b = one(x), other(x)
    opt_a.zero_grad()
    F.mse_loss(a, b.detach()).backward()
    opt_a.step()
    opt_b.zero_grad()
    F.mse_loss(b, a.detach()).backward()
    opt_b.step()
"""
_FREEZES = """\
from nets import make
teacher = make()
for p in teacher.parameters():
    p.requires_grad = False
"""


def test_what_another_script_freezes_is_a_model_of_its_own(tmp_path: Path) -> None:
    nets = "import torch.nn as nn\ndef make():\n    return nn.Linear(8, 3)\n"
    files = {"nets.py": nets, "pair.py": _PAIR, "freezes.py": _FREEZES}
    for name, text in files.items():
        (tmp_path / name).write_text(text)

    def written() -> str:
        (changed,) = migrate_paths([tmp_path]).changed
        return changed.output.decode()

    assert "    scaler_a.step(opt_a)\n    scaler_a.update()\n" in written()
    # What runs in the same script may be the same.
    (tmp_path / "pair.py").write_text("import freezes\n" + _PAIR)
    assert "is not None" in written()


BESIDE = """\
class Gen(nn.Module):
    def __init__(self, body=None):
        super().__init__()
        self.body = body or nn.Linear(8, 8)
    def forward(self, x):
        return self.body(x)
gen, critic = Gen().to(device), nn.Linear(8, 3).to(device)
FROZEN
for p in frozen.parameters():
    p.requires_grad = False
opt_a = torch.optim.SGD(gen.parameters(), lr=0.1)
opt_b = torch.optim.Adam(critic.parameters())
for x, y in data:
    opt_a.zero_grad()
    loss = criterion(critic(gen(x)), y)
    loss.backward()
    opt_a.step()
    opt_b.zero_grad()
    loss = criterion(critic(x), y)
    loss.backward()
    opt_b.step()
"""
WHOLE = """\
class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.gen = Gen()
frozen = Whole().to(device)
gen = frozen.gen
"""
FROZEN = {
    # name: (what is frozen, whether the steps are guarded)
    "made beside": ("frozen = nn.Sequential(*list(make().children())[:1])", False),
    "made in a function": ("def load():\n    return make()\nfrozen = load()", False),
    "made out of sight": ("from nets import load\nfrozen = load()", False),
    "both made out of sight": (
        "from nets import load\ngen = load().to(device)\nfrozen = load()",
        True,
    ),
    "made by the same call": (
        "def load():\n    return Gen()\ngen, frozen = load().to(device), load()",
        True,
    ),
    "a copy": ("import copy\nfrozen = copy.deepcopy(gen).eval()", False),
    "the same under a copy": ("import copy\nfrozen = copy.copy(gen)", True),
    "a part": ("def part(net):\n    return net.body\nfrozen = part(gen)", True),
    "a part, out of sight": ("from nets import part\nfrozen = part(gen)", True),
    "what holds it": (WHOLE, True),
    "what it was given": ("frozen = nn.Linear(8, 8)\ngen = Gen(frozen)", True),
    "around it": ("frozen = nn.Sequential(gen)", True),
    "out of a list": ("frozen = [gen][0]", True),
}


@pytest.mark.parametrize("name", FROZEN)
def test_what_is_frozen_beside(name: str) -> None:
    frozen, is_guarded = FROZEN[name]
    found = migrated(BESIDE.replace("FROZEN", frozen))
    assert ("if any(" in found) is is_guarded


LATER = """\
critic, fixed = nn.Linear(3, 3).to(device), nn.Linear(3, 3).to(device)
opt_a = torch.optim.SGD(model.parameters(), lr=0.1)
opt_b = torch.optim.Adam(critic.parameters())
def against(out):
    return critic(fixed(out)).pow(2).mean() * out.detach().abs().mean()
for i, (x, y) in enumerate(data):
    opt_a.zero_grad()
    opt_b.zero_grad()
    out = model(x)
    loss = FIRST
    if i > 1:
        loss OP against(out)
    loss.backward()
    opt_a.step()
    if i > 1:
        opt_b.step()
"""


@pytest.mark.parametrize(
    ("first", "op", "code"),
    [
        ("criterion(out, y)", "+=", ""),
        ("criterion(out, y)", "-=", ""),
        ("criterion(out, y)", "= loss +", ""),
        ("criterion(out, y)", "= loss *", "AMP012"),
        ("criterion(out, y)", "= ", "AMP012"),
        ("criterion(out, y)", "*=", "AMP012"),
        ("criterion(out.detach(), y)", "+=", "AMP012"),
        ("against(out)", "+=", "AMP012"),
    ],
)
def test_what_a_sum_begins_with_gets_gradients(first: str, op: str, code: str) -> None:
    source = LATER.replace("FIRST", first).replace("OP", op)
    if code:
        assert left_alone(source) == code
    else:
        assert "for group in opt_b.param_groups" in migrated(source)


@pytest.mark.parametrize(
    "number", ("out.size(0)", "len(out)", "out.shape[0]", "x[out.sum(1) > 9].sum()")
)
def test_a_number_of_a_tensor_gets_no_gradients(number: str) -> None:
    first = f"criterion(critic(x[:, :3]), y) * {number}"
    source = LATER.replace("FIRST", first).replace("OP", "+=")
    for given in (source, source.replace(" * out.detach().abs().mean()", "")):
        assert "for group in opt_a.param_groups" in migrated(given)


EITHER = LATER.replace(
    "    out = model(x)\n",
    "    if i % 2:\n        out = FIRST\n    else:\n        out = OTHER\n",
).replace(
    "    loss = FIRST\n", "    loss = criterion(out, y) / y.max().add(1).item()\n"
)


@pytest.mark.parametrize(
    ("first", "other", "code"),
    [
        ("model(x)", "model(x * 2)", ""),
        ("wrapped(x)", "wrapped(x * 2)", ""),
        ("model(x)", "torch.eye(4, 3, device=device, requires_grad=True)", "AMP012"),
        ("model(x)", "torch.argmax(model(x), 1)[:, None] * x[:, :3]", "AMP012"),
    ],
)
def test_what_both_arms_of_an_if_read_gets_gradients(
    first: str, other: str, code: str
) -> None:
    source = "tail = nn.Identity()\nwrapped = nn.Sequential(model, tail)\n" + EITHER
    source = source.replace("FIRST", first).replace("OTHER", other).replace("OP", "+=")
    if code:
        assert left_alone(source) == code
    else:
        result = migrated(source)
        assert "for group in opt_b.param_groups" in result
        assert "for group in opt_a.param_groups" not in result


def test_a_number_that_two_models_are_made_with_is_none_of_their_parameters() -> None:
    source = """\
class Both:
    def __init__(self, encoder_num_hidden, encoder_size):
        self.enc = nn.Linear(encoder_size, encoder_num_hidden).to(device)
        self.dec = nn.Linear(encoder_num_hidden, encoder_size).to(device)
        self.enc_opt = torch.optim.SGD(self.enc.parameters(), lr=0.1)
        self.dec_opt = torch.optim.SGD(self.dec.parameters(), lr=0.1)
    def turn(self, x):
        self.enc_opt.zero_grad()
        self.dec_opt.zero_grad()
        loss = F.mse_loss(self.dec(self.enc(x)), x)
        loss.backward()
        self.enc_opt.step()
        self.dec_opt.step()
import sys
both = Both(len(sys.argv) + 3, len(data[0][0][0]))
for x, y in data:
    both.turn(x)
"""
    assert "self.scaler.step(self.dec_opt)" in migrated(source)


STAGES = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 3)
    def forward(self, x):
        return self.head(self.body(x))
class Learner:
    def __init__(self):
        self.net, self.small = Net().to(device), Net().to(device)
    def boost(self):
        opt = torch.optim.SGD(HELD, lr=0.1)
        for x, y in data:
            FIRST
            opt.zero_grad()
            loss = criterion(self.net(x), y)
            loss.backward()
            for p in EDITED:
                p.grad[0] = 0.0
            opt.step()
    def compress(self):
        opt = torch.optim.SGD([*self.small.parameters(), *self.net.parameters()], lr=0.1)
        for x, y in data:
            opt.zero_grad()
            loss = criterion(self.small(x), y) + criterion(self.net(x), y)
            loss.backward()
            opt.step()
learner = Learner()
for _ in range(2):
    learner.boost()
    learner.compress()
"""
READS = "print(sum(p.grad.norm() for p in self.net.parameters() if p.grad is not None))"


@pytest.mark.parametrize(
    ("held", "first", "edited", "code"),
    [
        ("self.net.parameters()", "pass", "self.net.head.parameters()", ""),
        ("self.net.parameters()", READS, "self.net.head.parameters()", "AMP030"),
        ("self.net.head.parameters()", "pass", "self.net.parameters()", "AMP030"),
    ],
)
def test_an_optimizer_of_another_call_is_not_there(
    held: str, first: str, edited: str, code: str
) -> None:
    source = STAGES.replace("HELD", held).replace("FIRST", first)
    source = source.replace("EDITED", edited)
    if code:
        assert left_alone(source) == code
    else:
        result = HEAD + source
        assert migrated(source).count("scaler.unscale_(opt)\n            for p") == 1
        check_runs(result, migrate_source(result).output)


CUT_OFF = """\
class Rows(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.layers = nn.ModuleList([])
        for a, b in zip(sizes, sizes[1:]):
            self.layers.append(nn.Linear(a, b))
    def forward(self, x):
        for layer in self.layers:
            x = x.data if len(x) > 99 else x
            x = layer(x)[:, :8]
        return x
one, two = Rows([8, 8]).to(device), Rows([8, 4, 3]).to(device)
cost = COST
first = torch.optim.SGD(one.parameters(), lr=0.1)
second = torch.optim.SGD(two.parameters(), lr=0.1)
for x, y in data:
    loss = cost(two(one(x)), y)
    first.zero_grad()
    second.zero_grad()
    loss.backward()
    first.step()
    second.step()
"""


@pytest.mark.parametrize(
    ("cost", "known"), [("nn.CrossEntropyLoss()", True), ("pickle.load(file)", False)]
)
def test_a_loss_of_torch_has_no_parameters(cost: str, known: bool) -> None:
    source = CUT_OFF.replace("COST", cost)
    if not known:
        assert left_alone(source) == "AMP012"
        return
    pytest.importorskip("torch")
    output = migrated(source)
    assert check_off(HEAD + source, HEAD + output) == []
    assert check_scaled(HEAD + source, HEAD + output) == []


def test_before_torch_2_gradients_are_dropped_and_not_zeroed() -> None:
    source, expected = before_and_after(
        written_out(PROGRAMS["the norm over both is kept"])
    )
    old = migrated(source, Options(torch_version=(1, 13)))
    assert "        opt_b.zero_grad()\n" in expected
    assert "        opt_b.zero_grad(set_to_none=True)\n" in old


POOLS = """\
import json


class Pool:
    def __init__(self):
        self.kept = []

    def query(self, batch):
        self.kept.append(batch)
        return self.kept.pop(0) if len(self.kept) > 3 else batch


class Scaled(nn.Module):
    def __init__(self, by):
        super().__init__()
        self.body, self.by = make(), by

    def forward(self, x):
        return self.body(x) * self.by


class Judge(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 3), norm(3), nn.Linear(3, 3))

    def forward(self, x):
        return self.body(x)


class One:
    def __init__(self, by):
        self.net, self.judge, self.pool = Scaled(by).to(device), Judge(nn.BatchNorm1d).to(device), Pool()
        self.opt = torch.optim.SGD([*self.net.parameters(), *self.judge.parameters()], lr=0.1)

    def learn(self, x, y):
        self.made = self.net(x)
        self.step(self.judge, self.pool.query(self.made.detach()), y)

    def step(self, judge, kept, y):
        self.opt.zero_grad()
        seen = judge(kept)
        loss = criterion(seen, y) + self.made.pow(2).mean()
        loss.backward()
        self.opt.step()


class Two:
    def __init__(self, by):
        self.net, self.judge, self.pool = Scaled(by).to(device), Judge(nn.BatchNorm1d).to(device), Pool()
        self.opt = torch.optim.SGD([*self.net.parameters(), *self.judge.parameters()], lr=0.1)

    def learn(self, x, y):
        self.made = self.net(x * 2)
        self.step(self.judge, self.pool.query(self.made.detach()), y)

    def step(self, judge, kept, y):
        self.opt.zero_grad()
        seen = judge(kept)
        loss = criterion(seen, y) + self.made.pow(2).sum()
        loss.backward()
        self.opt.step()


by = json.loads("0.5")
first, second = One(by), Two(by)
for x, y in data:
    first.learn(x, y)
for x, y in data:
    second.learn(x, y)
"""


def test_what_leaves_one_optimizers_regions_may_be_used_in_anothers() -> None:
    output = migrated(POOLS)
    assert output.count("with torch.autocast(") == 4
    check_runs(HEAD + POOLS, HEAD + output)
    outside = POOLS + "    print(second.judge(first.pool.query(first.made)).sum())\n"
    assert left_alone(outside) == "AMP020"
