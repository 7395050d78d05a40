"""Autocast regions: the smallest runs of whole statements that hold the forward of a loss."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest
from half_support import check_runs
from programs import HEAD, before_and_after, left_alone, migrated, trains_as_before
from shorthand import before, written_out

from amp_migrate.api import Options, Outcome, migrate_paths, migrate_source
from amp_migrate.sources.cells import cell_mark

BORN = """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
"""
TURN = """\
 for i, (x, y) in enumerate(data):
     opt.zero_grad()
"""
BACK = "     BACK\n"

# What stands between zero_grad() and backward().
FORWARD = {
    "one line": """\
-    loss = criterion(model(x), y)
+    AUTOCAST
+        loss = criterion(model(x), y)
""",
    "data before and a print behind stay outside": """\
     x = x * 2 - 1
-    out = model(x)
-    right = (out.argmax(1) == y).sum().item()
-    loss = criterion(out, y)
+    AUTOCAST
+        out = model(x)
+        right = (out.argmax(1) == y).sum().item()
+        loss = criterion(out, y)
     print(right)
""",
    "branches": """\
-    out = model(x)
-    if i % 2:
-        loss = criterion(out, y)
-    else:
-        loss = out.pow(2).mean()
+    AUTOCAST
+        out = model(x)
+        if i % 2:
+            loss = criterion(out, y)
+        else:
+            loss = out.pow(2).mean()
""",
    "a lone branch is entered": """\
     loss = 0
     if i != 20:
-        loss = loss + criterion(model(x), y)
+        AUTOCAST
+            loss = loss + criterion(model(x), y)
""",
    "a time loop": """\
     h = x
     loss = 0
-    for t in range(3):
-        h = model(x + h.mean())
-        loss = loss + criterion(h, y)
+    AUTOCAST
+        for t in range(3):
+            h = model(x + h.mean())
+            loss = loss + criterion(h, y)
""",
    "a continue": """\
-    out = model(x)
-    if out.isnan().any():
-        continue
-    loss = criterion(out, y)
+    AUTOCAST
+        out = model(x)
+        if out.isnan().any():
+            continue
+        loss = criterion(out, y)
""",
    "a dict of losses": """\
-    out = model(x)
-    losses = {"ce": criterion(out, y), "l2": out.pow(2).mean()}
-    loss = sum(losses.values())
+    AUTOCAST
+        out = model(x)
+        losses = {"ce": criterion(out, y), "l2": out.pow(2).mean()}
+        loss = sum(losses.values())
""",
    "a list that is appended to": """\
     losses = []
-    for part in (x[:2], x[2:]):
-        losses.append(model(part).mean())
-    loss = torch.stack(losses).mean()
+    AUTOCAST
+        for part in (x[:2], x[2:]):
+            losses.append(model(part).float().mean())
+        loss = torch.stack(losses).mean()
""",
    "a loss that is added to": """\
-    loss = criterion(model(x), y)
-    print(loss.item())
-    loss += 0.01 * sum(p.pow(2).sum() for p in model.parameters())
+    AUTOCAST
+        loss = criterion(model(x), y)
+        print(loss.item())
+        loss += 0.01 * sum(p.pow(2).sum() for p in model.parameters())
""",
    "parameters clamped in between": """\
-    old = model(x).detach()
+    AUTOCAST
+        old = model(x).detach()
     model[0].weight.data.clamp_(-0.1, 0.1)
-    loss = criterion(old + model(x), y)
+    AUTOCAST
+        loss = criterion(old + model(x), y)
""",
    "parameters changed under no_grad in between": """\
-    old = model(x).detach()
+    AUTOCAST
+        old = model(x).detach()
     with torch.no_grad():
         for p in model.parameters():
             p.mul_(0.99)
-    loss = criterion(old + model(x), y)
+    AUTOCAST
+        loss = criterion(old + model(x), y)
""",
    "parameters loaded in between": """\
-    old = model(x).detach()
+    AUTOCAST
+        old = model(x).detach()
     model.load_state_dict(model.state_dict())
-    loss = criterion(old + model(x), y)
+    AUTOCAST
+        loss = criterion(old + model(x), y)
""",
    "a with around it": """\
     with torch.set_grad_enabled(True):
-        out = model(x)
-        loss = criterion(out, y)
+        AUTOCAST
+            out = model(x)
+            loss = criterion(out, y)
""",
    "a matrix product by hand": """\
-    h = x @ model[0].weight.t()
-    loss = h.log_softmax(1)[:, 0].mean()
+    AUTOCAST
+        h = x @ model[0].weight.t()
+        loss = h.log_softmax(1)[:, 0].mean()
""",
    "data made by a product stay outside": """\
     def turned(x, turn):
         return torch.matmul(x, turn)
     parts = []
     for part in (x[:2], x[2:]):
         parts.append(turned(part, torch.eye(x.shape[1], device=x.device)))
     x = torch.cat(parts)
-    out = model(x)
-    loss = criterion(out, y)
+    AUTOCAST
+        out = model(x)
+        loss = criterion(out, y)
""",
    "a product with what is trained, before a model": """\
     def turned(x, turn):
         return torch.matmul(x, turn)
     turn = torch.eye(x.shape[1], device=x.device)
     turn.requires_grad_()
-    x = turned(x, turn)
-    loss = criterion(model(x), y)
+    AUTOCAST
+        x = turned(x, turn)
+        loss = criterion(model(x), y)
""",
}  # fmt: skip


@pytest.mark.parametrize("name", FORWARD)
def test_forward(name: str) -> None:
    diff = written_out(BORN + TURN + FORWARD[name] + BACK)
    source, expected = before_and_after(diff)
    assert migrated(source) == expected


@pytest.mark.parametrize(
    "name",
    [
        "parameters clamped in between",
        "a time loop",
        "data made by a product stay outside",
    ],
)
def test_forward_computes_the_same(name: str) -> None:
    trains_as_before(written_out(BORN + TURN + FORWARD[name] + BACK))


# A loss that is computed inside the backward() statement itself.
HOISTED = {
    "a call": ("criterion(model(x), y)", "loss"),
    "a sum": ("(criterion(model(x), y) + model(x).sum())", "loss"),
    "a stack": ("torch.stack([model(-x).sum(), model(x).sum()]).mean()", "loss"),
    "a call where loss means something": ("criterion(model(x), y * int(loss))", "total_loss"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOISTED)
def test_hoisted(name: str) -> None:
    expression, variable = HOISTED[name]
    bare = expression[1:-1] if expression.startswith("(") else expression
    first = " loss = 1\n" if variable != "loss" else ""
    diff = f"""\
{first}{BORN}{TURN}-    {expression}.backward()
-    opt.step()
+    AUTOCAST
+        {variable} = {bare}
+    scaler.scale({variable}).backward()
+    scaler.step(opt)
+    scaler.update()
"""
    source, expected = before_and_after(written_out(diff))
    assert migrated(source) == expected


def test_arithmetic_is_not_hoisted() -> None:
    diff = f"""\
{BORN}{TURN}-    loss = criterion(model(x), y)
-    (loss / 2).backward()
-    opt.step()
+    AUTOCAST
+        loss = criterion(model(x), y)
+    scaler.scale(loss / 2).backward()
+    scaler.step(opt)
+    scaler.update()
"""
    source, expected = before_and_after(written_out(diff))
    assert migrated(source) == expected


KEPT = """\
 class Agent:
     def __init__(self):
         self.net = make().to(device)
         self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
+        self.scaler = BORN
         self.saved = []
     def act(self, x):
-        scores = self.net(x).log_softmax(1)
-        self.saved.append(scores[:, 0])
+        AUTOCAST scaler=self.scaler
+            scores = self.net(x).log_softmax(1)
+            self.saved.append(scores[:, 0])
         return int(scores.argmax())
"""
LEARN = """\
     def learn(self):
         losses = []
         for score in self.saved:
             losses.append(-score.mean())
         self.opt.zero_grad()
         loss = torch.stack(losses).sum()
-        loss.backward()
-        self.opt.step()
+        self.scaler.scale(loss).backward()
+        self.scaler.step(self.opt)
+        self.scaler.update()
         self.saved = []
 agent = Agent()
 for x, y in data:
     agent.act(x)
     agent.learn()
"""
PROGRAMS = {
    "what another method adds to a list": KEPT + LEARN,
    "two steps of one turn": f"""\
{BORN} for x, y in data:
     STEPS
     STEPS
""",
    "a loss carried from turn to turn": f"""\
{BORN} loss = 0
 for i, (x, y) in enumerate(data):
-    loss = loss + criterion(model(x), y)
+    AUTOCAST
+        loss = loss + criterion(model(x), y)
     if i % 2:
         opt.zero_grad()
         BACK
         loss = 0
""",
    "a loss made in the turn before": f"""\
{BORN}-new = criterion(model(data[0][0]), data[0][1])
+AUTOCAST
+    new = criterion(model(data[0][0]), data[0][1])
 for x, y in data:
     opt.zero_grad()
     loss = new
     BACK
-    new = criterion(model(x), y)
+    AUTOCAST
+        new = criterion(model(x), y)
""",
    "a loss made in the turn before, if there was one": f"""\
{BORN} loss = None
 for x, y in data:
     if loss is not None:
         opt.zero_grad()
         BACK
-    loss = criterion(model(x), y)
+    AUTOCAST
+        loss = criterion(model(x), y)
""",
    "a part of the loss made in the turn before": f"""\
{BORN}-out = model(data[0][0])
+AUTOCAST
+    out = model(data[0][0])
 for epoch in range(2):
     for x, y in data:
         opt.zero_grad()
-        loss = criterion(out, y) + criterion(model(x), y)
+        AUTOCAST
+            loss = criterion(out, y) + criterion(model(x), y)
         BACK
-        out = model(x)
+        AUTOCAST
+            out = model(x)
         print(out.mean())
""",
    "a loss that an object keeps for its next call": """\
 class Trainer:
     def __init__(self):
         self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
+        self.scaler = BORN
         self.loss = None
     def turn(self, x, y):
         if self.loss is not None:
             self.opt.zero_grad()
-            self.loss.backward()
-            self.opt.step()
-        self.loss = criterion(model(x), y)
+            self.scaler.scale(self.loss).backward()
+            self.scaler.step(self.opt)
+            self.scaler.update()
+        with torch.autocast(
+            "cuda", dtype=torch.float16, enabled=self.scaler.is_enabled()
+        ):
+            self.loss = criterion(model(x), y)
 trainer = Trainer()
 for x, y in data:
     trainer.turn(x, y)
""",
    "losses and data that other methods give to attributes": """\
 LOSSES = {}
 def build(name):
     return LOSSES.get(name)(reduction="mean")
 def register(name):
     return lambda one: LOSSES.setdefault(name, one)
 register("ce")(nn.CrossEntropyLoss)
 class Trainer:
     def __init__(self):
         self.net = make().to(device)
         self.mix = nn.Linear(8, 8).to(device)
         self.losses()
         self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
+        self.scaler = BORN
     def losses(self):
         self.first = build("ce").to(device)
         self.second = build("ce").to(device)
     @torch.no_grad()
     def feed(self, x, y):
         self.x, self.y = self.mix(x), y
     def turn(self, flag):
         self.opt.zero_grad()
-        out = self.net(self.x)
+        AUTOCAST scaler=self.scaler
+            out = self.net(self.x)
         total = 0
         if flag:
-            total = total + self.first(out, self.y)
-            total = total + self.second(out, self.y)
-            total.backward()
-            self.opt.step()
+            AUTOCAST scaler=self.scaler
+                total = total + self.first(out, self.y)
+                total = total + self.second(out, self.y)
+            self.scaler.scale(total).backward()
+            self.scaler.step(self.opt)
+            self.scaler.update()
 trainer = Trainer()
 for x, y in data:
     trainer.feed(x, y)
     trainer.turn(True)
""",
    "methods that hand results on as attributes": """\
 class Engine:
     def __init__(self, net, loss_fn):
         self.net = net
         self.loss_fn = loss_fn
         self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
+        self.scaler = BORN
     def take(self, x, y):
         self.x, self.y = x, y
     def compute(self):
-        self.model_out = self.net(self.x)
+        AUTOCAST scaler=self.scaler
+            self.model_out = self.net(self.x)
         return self.model_out.detach()
     def measure(self):
-        self.loss = self.loss_fn(self.model_out, self.y)
+        AUTOCAST scaler=self.scaler
+            self.loss = self.loss_fn(self.model_out, self.y)
         return self.loss.item()
     def backward(self):
         self.opt.zero_grad()
-        self.loss.backward()
-        self.opt.step()
+        self.scaler.scale(self.loss).backward()
+        self.scaler.step(self.opt)
+        self.scaler.update()
 engine = Engine(*[model, criterion])
 for x, y in data:
     engine.take(x, y)
     engine.compute()
     engine.measure()
     engine.backward()
""",
    "criteria out of a list, behind a teacher": f"""\
 teacher = make().to(device)
{BORN} def train(criteria):
     for x, y in data:
         criterion_hard, criterion_soft = criteria[0], criteria[1]
         opt.zero_grad()
-        out = model(x)
+        AUTOCAST
+            out = model(x)
         with torch.no_grad():
-            wanted = teacher(x)
+            AUTOCAST
+                wanted = teacher(x)
-        hard = criterion_hard(out, y)
-        soft = criterion_soft(out, wanted)
-        loss = hard + soft
+        AUTOCAST
+            hard = criterion_hard(out, y)
+            soft = criterion_soft(out, wanted)
+            loss = hard + soft
         BACK
 train([nn.CrossEntropyLoss(), nn.MSELoss()])
""",
    "losses that a function gathers in a dict": f"""\
 class Two(nn.Module):
     def __init__(self):
         super().__init__()
         self.body = make()
     def forward(self, x):
         found = {{}}
         found["out"] = self.body(x)
         found["aux"] = found["out"] * 2
         return found
 def total(found, y):
     losses = {{}}
     for name, scores in found.items():
         losses[name] = F.cross_entropy(scores, y)
     if len(losses) == 1:
         return losses["out"]
     return losses["out"] + 0.5 * losses["aux"]
 model = Two().to(device)
{BORN}{TURN}-    found = model(x)
-    loss = total(found, y)
+    AUTOCAST
+        found = model(x)
+        loss = total(found, y)
{BACK}""",
    "a generator that is used up": f"""\
 def losses(x, y):
     for part, wanted in zip(x, y):
         yield criterion(model(part), wanted)
{BORN}{TURN}-    parts = losses(x, y)
-    loss = sum(parts)
-    for part in losses(x, y):
-        loss = loss + part
+    AUTOCAST
+        parts = losses(x, y)
+        loss = sum(parts)
+        for part in losses(x, y):
+            loss = loss + part
{BACK}""",
    "a generator of batches": f"""\
 teacher = make().to(device)
 def batches():
     for x, y in data:
         with torch.no_grad():
             wanted = teacher(x)
         yield x, wanted
{BORN} for x, y in batches():
     opt.zero_grad()
-    loss = F.mse_loss(model(x), y)
+    AUTOCAST
+        loss = F.mse_loss(model(x), y)
{BACK}""",
    "a yield": f"""\
{BORN} def losses():
     for x, y in data:
         opt.zero_grad()
-        out = model(x)
+        AUTOCAST
+            out = model(x)
         yield out
-        loss = criterion(out, y)
+        AUTOCAST
+            loss = criterion(out, y)
         BACK
 print(len(list(losses())))
""",
    "a forward in a helper": f"""\
 def loss_of(net, x, y):
     return criterion(net(x), y)
{BORN}{TURN}-    loss = loss_of(model, x, y)
+    AUTOCAST
+        loss = loss_of(model, x, y)
{BACK}""",
    "a forward in a lambda": f"""\
 run = lambda x: model(x)
{BORN}{TURN}-    loss = criterion(run(x), y)
+    AUTOCAST
+        loss = criterion(run(x), y)
{BACK}""",
    "the model's own loss": f"""\
 class Net(nn.Module):
     def __init__(self):
         super().__init__()
         self.net = make()
     def forward(self, x, y):
         return {{"ce": F.cross_entropy(self.net(x), y)}}
 model = Net().to(device)
{BORN}{TURN}-    losses = model(x, y)
-    loss = losses["ce"]
+    AUTOCAST
+        losses = model(x, y)
+        loss = losses["ce"]
{BACK}""",
    "a forward that is taken apart twice": f"""\
 class Both(nn.Module):
     def __init__(self):
         super().__init__()
         self.net = make()
     def forward(self, x):
         return [self.net(x), x], (x, x, x)
 model = Both().to(device)
{BORN}{TURN}-    [out, _], (_, *rest) = model(x)
-    out = out.view(-1, out.shape[1])
-    loss = criterion(out, y) + rest[0].mean()
+    AUTOCAST
+        [out, _], (_, *rest) = model(x)
+        out = out.view(-1, out.shape[1])
+        loss = criterion(out, y) + rest[0].mean()
{BACK}""",
    "a loop over layers": f"""\
 model = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 3)]).to(device)
{BORN}{TURN}     h = x
-    for layer in model:
-        h = torch.relu(layer(h))
-    loss = criterion(h, y)
+    AUTOCAST
+        for layer in model:
+            h = torch.relu(layer(h))
+        loss = criterion(h, y)
{BACK}""",
    "parameters by hand": """\
 w = torch.zeros(8, 3, device=device, requires_grad=True)
 opt = torch.optim.SGD([w], lr=0.1)
+scaler = BORN
 for x, y in data:
     opt.zero_grad()
-    loss = F.cross_entropy(x @ w, y)
+    AUTOCAST
+        loss = F.cross_entropy(x @ w, y)
     BACK
""",
    "a teacher under no_grad": f"""\
 teacher = make().to(device)
{BORN}{TURN}     with torch.no_grad():
-        wanted = teacher(x)
-    loss = F.mse_loss(model(x), wanted)
+        AUTOCAST
+            wanted = teacher(x)
+    AUTOCAST
+        loss = F.mse_loss(model(x), wanted)
{BACK}""",
    "a teacher that is no module, and what is made under a name": """\
 class Teacher:
     def __init__(self, net):
         self.net = net
     def __call__(self, x):
         return self.net(x)
     def update(self, net):
         for mine, other in zip(self.net.parameters(), net.parameters()):
             mine.data = 0.9 * mine + 0.1 * other
 def build(name):
     net = globals()[name]().to(device)
     print(net.get_submodule("2"))
     return net
 def batches(name):
     return list(globals()[name]())
 def stream():
     return data
-def train(batches, model, teacher, opt):
+def train(batches, model, teacher, opt, scaler):
     for x, y in batches:
         opt.zero_grad()
         with torch.no_grad():
             wanted = teacher(x)
-        loss = F.mse_loss(model(x), wanted)
+        AUTOCAST
+            loss = F.mse_loss(model(x), wanted)
         BACK
         teacher.update(model)
 def main():
     loader = batches("stream")
     model = build("make")
     teacher = Teacher(build("make"))
     for x, _ in loader:
         print(model(x).mean().item())
     opt = torch.optim.SGD(model.parameters(), lr=0.1)
+    scaler = BORN
-    train(loader, model, teacher, opt)
+    train(loader, model, teacher, opt, scaler=scaler)
 main()
""",
    "a helper that changes parameters in between": f"""\
 def shrink(net):
     for p in net.parameters():
         p.data.mul_(0.9)
{BORN}{TURN}-    old = model(x).detach()
+    AUTOCAST
+        old = model(x).detach()
     shrink(model)
-    loss = criterion(old + model(x), y)
+    AUTOCAST
+        loss = criterion(old + model(x), y)
{BACK}""",
    "what is made of what it was before behind each step": """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 def spread(near, outputs, weight):
     near = 0.9 * near
     return near - 0.01 * (outputs.mean() * torch.eye(len(near), device=device)) @ near * weight
 near, y = data[0]
 for _ in range(5):
     opt.zero_grad()
-    loss = criterion(model(near), y)
-    loss.backward()
-    opt.step()
+    AUTOCAST
+        loss = criterion(model(near), y)
+    scaler.scale(loss).backward()
+    scaler.step(opt)
+    scaler.update()
     near = spread(near, model(near).data, model[0].weight.data.mean())
 print(loss.item())
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    diff = written_out(PROGRAMS[name])
    source, expected = before_and_after(diff)
    assert migrated(source) == expected
    trains_as_before(diff)


SGD = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
HIDDEN = {
    "a loss from an imported function": (
        "from helpers import loss_of\n",
        "loss = loss_of(x, y)",
        "AMP033",
    ),
    "a model from a file": (
        'net = torch.load("net.pt")\n',
        "out = net(x)\n    loss = out.mean()",
        "AMP033",
    ),
    "a loss that is no scalar": (
        "",
        "loss = model(x)\n    loss.backward(torch.ones_like(loss))\n    loss = loss.sum()",
        "AMP032",
    ),
}


OFF_FIRST = {
    "in a method": (
        True,
        "    with torch.no_grad():\n        v = self.critic(x)\n    return v + 1\n",
    ),
    "in what a method calls": (
        True,
        "    with torch.no_grad():\n        return self.value(x)\n",
    ),
    "of another module": (
        False,
        "    with torch.no_grad():\n        return self.target(x)\n",
    ),
    "of what is changed alone": (
        False,
        "    with torch.no_grad():\n"
        "        for p, q in zip(self.target.parameters(), self.critic.parameters()):\n"
        "            p.copy_(q)\n"
        "    return self.target(x).detach()\n",
    ),
    "with gradients": (False, "    return self.critic(x).detach()\n"),
}


@pytest.mark.parametrize("name", OFF_FIRST)
def test_weights_that_run_without_gradients_first(name: str) -> None:
    """Before torch 2.13, a cast that is kept of them there gives them none later in the region."""
    uncached, goal = OFF_FIRST[name]
    source = f"""\
class Agent:
    def __init__(self):
        self.critic = make().to(device)
        self.target = make().to(device)
        self.opt = torch.optim.SGD(self.critic.parameters(), lr=0.1)
    def value(self, x):
        return self.critic(x)
    def goal(self, x):
{indent(goal, "    ")}\
    def learn(self, x):
        self.opt.zero_grad()
        loss = F.mse_loss(self.critic(x), self.goal(x))
        loss.backward()
        self.opt.step()
agent = Agent()
for x, y in data:
    agent.learn(x)
"""
    output = migrated(source)
    assert ("cache_enabled=False," in output) == uncached
    if uncached:
        check_runs(HEAD + source, HEAD + output)
        since, before = (
            migrate_source(HEAD + source, options=Options(torch_version=v))
            for v in ((2, 13), (1, 9))
        )
        assert "cache_enabled" not in since.output
        assert [found.code for found in before.diagnostics] == ["AMP009"]


OFF_INSIDE = {
    "the part that is trained": (True, "self.net(x)"),
    "another part": (False, "self.slow(x)"),
    "what runs the part": (True, "self.once(x)"),
}


@pytest.mark.parametrize("name", OFF_INSIDE)
def test_a_part_that_runs_without_gradients_first(name: str) -> None:
    uncached, call = OFF_INSIDE[name]
    source = f"""\
class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.slow = nn.Linear(8, 8), nn.Linear(8, 8)
    def once(self, x):
        return self.net(x)
    def forward(self, x):
        with torch.no_grad():
            old = {call}
        return F.mse_loss(self.net(x + old), x)
model = Twice().to(device)
{SGD}for x, y in data:
    opt.zero_grad()
    loss = model(x)
    loss.backward()
    opt.step()
"""
    assert ("cache_enabled=False" in migrated(source)) == uncached


@pytest.mark.parametrize("name", HIDDEN)
def test_forward_out_of_sight(name: str) -> None:
    first, forward, code = HIDDEN[name]
    turn = TURN.replace("\n ", "\n")[1:]
    source = f"{first}{SGD}{turn}    {forward}\n    loss.backward()\n    opt.step()\n"
    assert left_alone(source) == code


def test_a_model_that_is_read_from_where_it_was_written() -> None:
    source = """\
import sys
net = eval(sys.argv[1])().to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in data:
    opt.zero_grad()
    loss = criterion(net(x), y)
    loss.backward()
    opt.step()
    torch.save(net, "net.pt")
net = torch.load("net.pt")
"""
    assert migrated(source)
    assert left_alone(source.replace("torch.save(net", "print(net")) == "AMP033"


MADE_BEFORE = {
    "by the same statements": (
        "def losses():\n    for x, y in data:\n        yield criterion(model(x), y)\nstream = losses()\n",
        "next(stream)",
    ),
    "in a method": (
        "class Task:\n"
        "    def losses(self):\n        for x, y in data:\n            yield criterion(model(x), y)\n"
        "stream = Task().losses()\n",
        "next(stream)",
    ),
    "by a function that returns one": (
        "def losses():\n    for x, y in data:\n        yield criterion(model(x), y)\n"
        "def start():\n    return losses()\nstream = enumerate(start())\n",
        "next(stream)[1]",
    ),
    "in an expression": (
        "stream = (criterion(model(x), y) for x, y in data)\n",
        "next(stream)",
    ),
    "features for a head": (
        "head = nn.Linear(3, 3).to(device)\n"
        "def features():\n    for x, y in data:\n        yield model(x)\nstream = features()\n",
        "criterion(head(next(stream)), y)",
    ),
}


@pytest.mark.parametrize("name", MADE_BEFORE)
def test_a_generator_computes_when_it_is_advanced(name: str) -> None:
    first, loss = MADE_BEFORE[name]
    turn = TURN.replace("\n ", "\n")[1:]
    source = (
        f"{SGD}{first}{turn}    loss = {loss}\n    loss.backward()\n    opt.step()\n"
    )
    assert left_alone(source) == "AMP033"


def test_a_loop_over_a_generator_that_computes() -> None:
    source = f"""\
{SGD}head = nn.Linear(3, 3).to(device)
def features():
    for x, y in data:
        yield model(x), y
for out, y in features():
    opt.zero_grad()
    loss = criterion(head(out), y)
    loss.backward()
    opt.step()
"""
    assert left_alone(source) == "AMP033"


def test_each_of_a_list_of_modules_computes() -> None:
    output = migrated("""\
heads = nn.ModuleList(nn.Linear(8, 3) for _ in range(2)).to(device)
opt = torch.optim.SGD(heads.parameters(), lr=0.1)
for x, y in data:
    opt.zero_grad()
    outs = [n(x) for n in heads]
    loss = criterion(torch.stack(outs).mean(0), y)
    loss.backward()
    opt.step()
""")
    assert "        outs = [n(x) for n in heads]\n        loss = criterion(" in output


def test_a_forward_before_the_optimizer_is_made_stays_as_it_is() -> None:
    first = "new = criterion(model(data[0][0]), data[0][1])\n"
    source = f"""\
{first}{SGD}for x, y in data:
    opt.zero_grad()
    loss = new
    loss.backward()
    opt.step()
    new = criterion(model(x), y)
"""
    output = migrated(source)
    assert output.startswith(first)
    assert output.count("torch.autocast(") == 1


def test_a_forward_before_the_call_that_makes_the_optimizer_stays_as_it_is() -> None:
    first = """\
def normalizer(name):
    return {"mean": nn.LayerNorm(8)}.get(name, "no such")
def load(name):
    normalize = normalizer(name)
    return normalize(data[0][0]).detach(), data[0][1]
features, y = load("mean")
"""
    source = f"""\
{first}def train(net, x, y):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(4):
        opt.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        opt.step()
        print(loss.item())
train(model, features, y)
"""
    output = migrated(source)
    assert output.startswith(first)
    assert output.count("torch.autocast(") == 1
    check_runs(HEAD + source, HEAD + output)


def test_an_evaluation_in_the_training_loop_stays() -> None:
    source = f"""\
{SGD}for x, y in data:
    opt.zero_grad()
    out = model(x)
    loss = criterion(out, y)
    loss.backward()
    opt.step()
    with torch.no_grad():
        for x, y in data:
            out = model(x)
            loss = criterion(out, y)
            print(loss.item())
"""
    output = migrated(source)
    assert output.count("torch.autocast(") == 1
    assert output.endswith(source[source.index("    with torch.no_grad():") :])


def test_a_region_ends_with_its_cell() -> None:
    source = f"""\
{SGD}{cell_mark(2)}
x, y = data[0]
outputs = model(x)
{cell_mark(3)}
loss = criterion(outputs, y)
{cell_mark(4)}
loss.backward()
opt.step()
"""
    region = (
        'with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):'
    )
    output = migrated(source)
    assert f"{region}\n    outputs = model(x)\n{cell_mark(3)}\n" in output
    assert f"{region}\n    loss = criterion(outputs, y)\n{cell_mark(4)}\n" in output


def test_no_forward_after_the_optimizer_is_made() -> None:
    source = f"""\
losses = [criterion(model(x), y) for x, y in data]
{SGD}for loss in losses:
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
    assert left_alone(source) == "AMP033"


def test_a_call_that_makes_the_next_loss_and_trains() -> None:
    source = f"""\
{SGD}def turn(loss, x, y):
    opt.zero_grad()
    loss.backward()
    opt.step()
    return criterion(model(x), y)
loss = criterion(model(data[0][0]), data[0][1])
for x, y in data:
    loss = turn(loss, x, y)
"""
    assert left_alone(source) == "AMP033"


MADE_AT_TIMES = """\
 class Trainer:
     def __init__(self, training):
         "Makes what there is."
+        self.scaler = torch.amp.GradScaler("cuda", enabled=False)
         self.net = make().to(device)
         if training:
             self.setup()
     def setup(self):
         self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
+        self.scaler = BORN
     def ahead(self, x):
+        AUTOCAST scaler=self.scaler
+            self.out = self.net(x)
-        self.out = self.net(x)
     def turn(self, y):
         self.opt.zero_grad()
-        loss = criterion(self.out, y)
-        loss.backward()
-        self.opt.step()
+        AUTOCAST scaler=self.scaler
+            loss = criterion(self.out, y)
+        self.scaler.scale(loss).backward()
+        self.scaler.step(self.opt)
+        self.scaler.update()
 trainer = Trainer(True)
 for x, y in data:
     trainer.ahead(x)
     trainer.turn(y)
 Trainer(False).ahead(data[0][0])
"""


def test_a_forward_for_an_object_that_may_have_no_optimizer() -> None:
    diff = written_out(MADE_AT_TIMES)
    source, expected = before_and_after(diff)
    assert migrated(source) == expected
    trains_as_before(diff)
    always = source.replace("if training:", "if True:").replace(
        "        if True:\n            self.setup()", "        self.setup()"
    )
    assert "enabled=False" not in migrated(always)


def test_a_model_from_elsewhere_is_no_method_that_trains() -> None:
    """Of all that something unknown may run, only what touches gradients is taken to be called."""
    source = """\
from zoo import build
act = getattr(torch, "relu")
class Other:
    def __init__(self):
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
    def norm(self, kind):
        print([p.grad.norm(kind) for p in model.parameters()])
    def turn(self, x):
        self.opt.zero_grad()
        criterion(model(x), data[0][1]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        self.opt.step()
def main():
    net = build().to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in data:
        opt.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        opt.step()
main()
other = Other()
other.turn(data[0][0])
other.norm(2)
"""
    assert migrated(source).count("with torch.autocast(") == 2


def test_forward_inside_the_call_that_passes_the_loss_on() -> None:
    source = f"""\
{SGD}def update(loss):
    opt.zero_grad()
    loss.backward()
    opt.step()
for x, y in data:
    update(criterion(model(x), y))
"""
    assert left_alone(source) == "AMP033"


UNDER_AMP = {
    "autocast": "with torch.autocast(device.type):\n        loss = criterion(model(x), y)",
    "a scaler": "loss = scaler.scale(criterion(model(x), y))",
    "cuda.amp": "with torch.cuda.amp.autocast():\n        loss = criterion(model(x), y)",
}


@pytest.mark.parametrize("name", UNDER_AMP)
def test_under_amp_already(name: str) -> None:
    first = "scaler = torch.amp.GradScaler()\n" if name == "a scaler" else ""
    source = before(f"{first}{SGD}for x, y in data:\n    STEPS\n")
    forward = "loss = criterion(model(x), y)"
    assert left_alone(source.replace(forward, UNDER_AMP[name])) == "AMP001"


IN_CLASS = """\
class Trained:
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in data:
        opt.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        opt.step()
"""


def test_what_is_kept_under_amp_already() -> None:
    _, text = before_and_after(written_out(KEPT + LEARN))
    half = text.replace("self.scaler.scale(loss).backward()", "loss.backward()")
    half = half.replace("self.scaler.step(self.opt)", "self.opt.step()")
    half = half.replace("        self.scaler.update()\n", "")
    assert left_alone(half) == "AMP001"


def test_a_loop_in_the_body_of_a_class() -> None:
    assert left_alone(IN_CLASS) == "AMP016"
    nested = "def run():\n" + indent(IN_CLASS, "    ") + "run()\n"
    assert left_alone(nested) == "AMP016"


def test_a_loop_in_the_body_of_a_class_shares_its_optimizer() -> None:
    """Another loop with the same optimizer is not migrated by itself."""
    lines = IN_CLASS.splitlines(keepends=True)
    loop = dedent("".join(lines[2:]))
    shared = SGD + lines[0] + "".join(lines[2:]) + loop
    assert left_alone(shared) == "AMP016"
    apart = SGD + IN_CLASS + loop
    result = migrate_source(HEAD + apart, path="train.py")
    assert [found.code for found in result.diagnostics] == ["AMP016"]
    assert result.output.count("scaler.step(opt)") == 1
    assert IN_CLASS in result.output


def test_a_loop_in_the_body_of_a_class_that_is_marked() -> None:
    marked = IN_CLASS.replace("data:", "data:  # amp: off")
    result = migrate_source(HEAD + marked, path="train.py")
    assert result.output == HEAD + marked
    assert not result.diagnostics


AT_TOP_LEVEL = {
    "a helper that does the step": """\
def step(opt, loss):
    opt.zero_grad()
    loss.backward()
    opt.step()


opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    loss = criterion(model(x), y)
    step(opt, loss)
""",
    "a loss of saved values": """\
opt = torch.optim.SGD(model.parameters(), lr=0.1)
values = []


def learn(y):
    loss = 0
    for value in values:
        loss = loss + criterion(value, y)
    opt.zero_grad()
    loss.backward()
    opt.step()


for x, y in data:
    values.clear()
    for _ in range(2):
        values.append(model(x))
    learn(y)
""",
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "auto"])
@pytest.mark.parametrize("name", AT_TOP_LEVEL)
def test_a_second_run_changes_nothing(name: str, dtype: str) -> None:
    """The region stands in the script itself, the backward in a function."""
    output = migrated(AT_TOP_LEVEL[name], Options(dtype=dtype))
    again = migrate_source(HEAD + output, options=Options(dtype=dtype))
    assert not again.changed


def test_no_region_before_the_object_that_has_its_switch() -> None:
    diff = """\
 def measure(size):
     return make()(torch.ones(1, size, device=device)).shape[-1]
 def make():
     return nn.Linear(8, 3).to(device)
 class Trainer:
     def __init__(self):
         self.net = make()
         self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
+        self.scaler = BORN
     def learn(self, x, y):
         STEPS net=self.net opt=self.opt scaler=self.scaler
 size = measure(8)
 loader = [(x, y) for x, y in data][:size]
 trainer = Trainer()
 for x, y in loader:
     trainer.learn(x, y)
"""
    source, expected = before_and_after(written_out(diff))
    assert migrated(source) == expected
    trains_as_before(written_out(diff))


_BESIDE = """\
import elsewhere
class Gan:
    def __init__(self):
        self.body = nn.Linear(8, 8).to(device)
        self.head = nn.Linear(8, 3).to(device)
        self.judge = nn.Linear(8, 1).to(device)
        self.opt = elsewhere.make([*self.body.parameters(), *self.head.parameters()])
        self.other = torch.optim.Adam(self.judge.parameters())
    def run(self, x):
        self.fake = self.body(x)
    def compute(self, x, y):
        made = self.body(x)
        return criterion(self.head(made), y), made
    def learn(self, made):
        loss = self.judge(made.detach()).pow(2).mean()
        self.other.zero_grad()
        loss.backward()
        self.other.step()
    def update(self, x, y):
TRAIN
gan = Gan()
for x, y in data:
    gan.update(x, y)
"""
_KEPT = """\
        self.run(x)
        self.learn(self.fake)
        loss = criterion(self.head(self.fake), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
"""
_GIVEN = """\
        loss, made = self.compute(x, y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        self.learn(made)
"""


@pytest.mark.parametrize(
    ("train", "judged"), ((_KEPT, "self.fake"), (_GIVEN, "made"), (_KEPT, "made"))
)
def test_no_region_holds_what_is_left_without_a_scale(train: str, judged: str) -> None:
    """Its gradients would be half, and smaller than half precision has."""
    body = _BESIDE.replace("made.detach()", f"{judged}.detach()")
    source = HEAD + body.replace("TRAIN\n", train)
    result = migrate_source(source, path="train.py")
    assert [loop.outcome.value for loop in result.loops].count("migrated") == 1
    begin, end = "with torch.autocast", "self.other.zero_grad()"
    assert result.output.count(begin) == 1
    assert begin in result.output.split("def learn")[1].split(end)[0]
    assert train in result.output


def test_a_forward_for_a_loss_that_is_left_alone_and_another() -> None:
    body = """\
import elsewhere
body = nn.Linear(8, 8).to(device)
opt = elsewhere.make(body.parameters())
other = torch.optim.Adam(model.parameters())
def penalty(out):
    loss = out.pow(2).mean()
    opt.zero_grad()
    loss.backward(retain_graph=True)
    opt.step()
def learn(out, y):
    loss = criterion(out, y)
    other.zero_grad()
    loss.backward()
    other.step()
for x, y in data:
    out = model(body(x))
    penalty(out)
    learn(out, y)
"""
    result = migrate_source(HEAD + body, path="train.py")
    assert not result.changed
    assert "AMP033" in [found.code for found in result.diagnostics]


_TRAINS_AND_GIVES = """\
import elsewhere
body = nn.Linear(8, 8).to(device)
opt = elsewhere.make(body.parameters())
other = torch.optim.Adam(model.parameters())
def first(x, y):
    made = body(x)
    loss = criterion(model(MADE), y)
    other.zero_grad()
    loss.backward()
    other.step()
    return made
def second(made):
    loss = made.pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
for x, y in data:
    made = first(x, y)
    second(made)
"""


@pytest.mark.parametrize("given", ("made.detach()", "made"))
def test_what_a_function_that_trains_gives_back_is_left_alone(given: str) -> None:
    source = HEAD + _TRAINS_AND_GIVES.replace("MADE", given)
    output = migrate_source(source, path="train.py").output
    assert "\n    made = body(x)\n    with torch.autocast" in output
    assert "scaler.step(other)" in output


def test_the_step_of_an_optimizer_of_the_program_is_no_forward() -> None:
    """It could be given a closure, and calls something of torch for its effect: it had a region."""
    body = """\
class Plain(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})
    def step(self, closure=None):
        torch.set_num_threads(1)
        loss = None if closure is None else closure()
        for p in self.param_groups[0]["params"]:
            p.data.add_(p.grad.data, alpha=-0.1)
        return loss
critic, made = nn.Linear(8, 1).to(device), nn.Linear(8, 8).to(device)
first, second = Plain(critic.parameters()), Plain(made.parameters())
for x, _ in data:
    first.zero_grad()
    loss = torch.mean(critic(made(x).detach())) - torch.mean(critic(x))
    loss.backward()
    first.step()
    for p in critic.parameters():
        p.data.clamp_(-0.1, 0.1)
    if len(x) > 1:
        second.zero_grad()
        other = -torch.mean(critic(made(x)))
        other.backward()
        second.step()
"""
    output = migrate_source(HEAD + body, path="train.py").output
    assert output.count("with torch.autocast(") == 2
    assert "\n    first_scaler.step(first)\n" in output
    check_runs(HEAD + body, output)


def test_a_model_that_is_called_by_a_partial_is_a_forward() -> None:
    """The region held nothing but the loss, and all products ran in fp32."""
    body = """\
import functools
model = make().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    optimizer.zero_grad()
    out = functools.partial(model)(x)
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
"""
    output = migrate_source(HEAD + body, path="train.py").output
    assert "        out = functools.partial(model)(x)\n" in output
    check_runs(HEAD + body, output)


_ROBUST = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
def robust_loss(model, x, y, optimizer, steps=2, distance="l2"):
    model.eval()
    if distance == "linf":
        adv = x.detach() + 0.001 * torch.randn(x.shape).to(device)
        for _ in range(steps):
            adv.requires_grad_()
            with torch.enable_grad():
                kl = F.kl_div(F.log_softmax(model(adv), dim=1), F.softmax(model(x), dim=1))
            grad = torch.autograd.grad(kl, [adv])[0]
            adv = adv.detach() + 0.01 * torch.sign(grad.detach())
            adv = torch.clamp(adv, 0.0, 1.0)
    else:
        delta = 0.001 * torch.randn(x.shape).to(device).detach()
        delta.requires_grad = True
        optimizer_delta = torch.optim.SGD([delta], lr=0.1)
        for _ in range(steps):
            adv = x + delta
            optimizer_delta.zero_grad()
            with torch.enable_grad():
                kl = -1 * F.kl_div(F.log_softmax(model(adv), dim=1), F.softmax(model(x), dim=1))
            kl.backward()
            optimizer_delta.step()
        adv = (x + delta).detach()
    model.train()
    adv = torch.clamp(adv, 0.0, 1.0)
    optimizer.zero_grad()
    logits = model(x)
    natural = F.cross_entropy(logits, y)
    robust = F.kl_div(F.log_softmax(model(adv), dim=1), F.softmax(model(x), dim=1))
    loss = natural + 6.0 * robust
    return loss
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.manual_seed(0)
model = nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for i in range(4):
    x, y = torch.rand(6, 8).to(device), torch.randint(0, 3, (6,)).to(device)
    optimizer.zero_grad()
    loss = robust_loss(model, x, y, optimizer, distance=("linf", "l2")[i % 2])
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def test_a_loss_is_made_by_a_function_that_trains_an_attack_first() -> None:
    result = migrate_source(_ROBUST)
    assert {loop.outcome for loop in result.loops} == {Outcome.MIGRATED}
    assert (
        "    logits = model(x)" in result.output.split("enabled=scaler.is_enabled()")[1]
    )
    check_runs(_ROBUST, result.output)
    kept = _ROBUST.replace("    optimizer.zero_grad()\n    logits", "    logits")
    assert not migrate_source(kept).changed


def test_a_region_names_a_scaler_that_is_made_whenever_it_is_come_to(
    tmp_path: Path,
) -> None:
    """Two scripts, and between them a scaler that only one arm makes."""
    shared, script = _ROBUST.split("device = torch.device")
    shared += "device = torch.device" + script.partition("\n")[0] + "\n"
    shared = shared.replace("delta.requires_grad = True", "delta = nn.Parameter(delta)")
    (tmp_path / "robust.py").write_text(shared)
    text = (
        "import torch\nfrom torch import nn\nfrom robust import robust_loss, device\n"
    )
    text += script.partition("\n")[2]
    for name in ("one.py", "two.py"):
        (tmp_path / name).write_text(text)
    results = {Path(r.path).name: r for r in migrate_paths([tmp_path]).results}
    assert all(one.changed for one in results.values())
    lines = results["robust.py"].output.splitlines()
    region = lines[lines.index("        logits = model(x)") - 1]
    assert "enabled=scaler.is_enabled()" in region
    assert "scaler_delta = torch.amp.GradScaler(" in results["robust.py"].output


_STEPS_TWICE = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
def step(model, x, y, optimizer):
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return F.cross_entropy(model(x), y)
torch.manual_seed(0)
model = nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    x, y = torch.rand(6, 8).to(device), torch.randint(0, 3, (6,)).to(device)
    loss = step(model, x, y, optimizer)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def test_a_loss_is_made_by_a_function_that_steps_first() -> None:
    result = migrate_source(_STEPS_TWICE)
    assert result.output.count("with torch.autocast(") == 2
    check_runs(_STEPS_TWICE, result.output)
    mixed = _STEPS_TWICE.replace(
        "step(model, x, y, optimizer)\n    optimizer.zero",
        "step(model, model(x).repeat(1, 3)[:, :8], y, optimizer)\n    optimizer.zero",
    )
    left = migrate_source(mixed)
    assert not left.changed
    assert {found.code for found in left.diagnostics} == {"AMP033"}


_GRAPHS = """\
import torch
from torch_geometric.nn import GraphSAGE
model = GraphSAGE(8, 4).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches:
    optimizer.zero_grad()
    out = model(x)
    loss = torch.nn.functional.cross_entropy(out, y)
    loss.backward()
    optimizer.step()
"""


def test_models_of_a_library_of_graphs() -> None:
    assert "        out = model(x)" in migrate_source(_GRAPHS).output
    vanishes = _GRAPHS.replace("GraphSAGE", "DeepGraphInfomax").replace(
        "torch.nn.functional.cross_entropy(out, y)", "model.loss(*out)"
    )
    (found,) = migrate_source(vanishes).diagnostics
    assert found.code == "AMP020"


@pytest.mark.parametrize(
    ("model", "loss", "code"),
    [
        ("Node2Vec", "model.loss(x, y)", None),
        ("GAE", "model.recon_loss(model.encode(x), y) + model.kl_loss()", None),
        ("ARGVA", "model.reg_loss(model.encode(x))", "AMP020"),
    ],
)
def test_what_is_asked_for_its_parameters_is_a_model(
    model: str, loss: str, code: str | None
) -> None:
    """Whatever it is called, and by whichever of its methods it computes a loss."""
    source = _GRAPHS.replace("GraphSAGE", model).replace(
        "    out = model(x)\n    loss = torch.nn.functional.cross_entropy(out, y)\n",
        f"    loss = {loss}\n",
    )
    result = migrate_source(source.replace("batches", "model.loader(batch_size=4)"))
    assert [found.code for found in result.diagnostics] == ([code] if code else [])
    assert (
        f"enabled=scaler.is_enabled()):\n        loss = {loss}" in result.output
    ) == (code is None)


def test_what_reads_options_is_no_forward() -> None:
    """Be it named after a model, looked up, or a part of a module that is imported by its name."""
    source = """\
import importlib
import torch
from torch import nn
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
def halved(weight):
    return weight / 2
def weight_of(model_name, network_config):
    found = importlib.import_module(model_name.replace("-", "_").lower())
    model_option_setter = [halved][0]
    return model_option_setter(found.pi * network_config.index(1))
model = nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in torch.randn(3, 6, 8):
    optimizer.zero_grad()
    weight = weight_of(eval("'math'"), eval("[0, 1]"))
    loss = model(x.to(device)).pow(2).mean() * weight
    loss.backward()
    optimizer.step()
    print(loss.item())
"""
    output = migrate_source(source, path="train.py").output
    assert "    with torch.autocast" in output
    assert "\n    weight = weight_of(" in output
    check_runs(source, output)


@pytest.mark.parametrize(
    "made", ("(out - x).abs().mean()", "(out - x).pow(2).mean(), 1")
)
def test_a_loss_that_one_function_makes_and_another_one_trains_on(made: str) -> None:
    """Where it is called a loss, and nothing but a method of a tensor makes it, it is no criterion."""
    given = "loss, times" if made.endswith("1") else "loss"
    source = f"""\
import torch
from torch import nn
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
class Agent:
    def __init__(self):
        self.net = nn.Linear(8, 8).to(device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
    def process(self, x):
        out = self.net(x)
        return {made}
    def learn(self, loss):
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
agent = Agent()
for x in torch.randn(3, 6, 8):
    {given} = agent.process(x.to(device))
    agent.learn(loss)
    print(loss.item())
"""
    output = migrate_source(source, path="train.py").output
    assert f"        {given} = agent.process(x.to(device))\n" in output
    check_runs(source, output)


_KEPT_BY_NOBODY = """\
class Learner:
    def __init__(self):
        self.encoder, self.head = nn.Linear(8, 8).to(device), nn.Linear(8, 3).to(device)
        parameters = [*self.encoder.parameters(), *self.head.parameters()]
        self.opt = torch.optim.SGD(parameters, lr=0.1)

    def show(self, x):
        self.code = self.encoder(x)
        scale = F.relu(self.code.mean())
        return self.head(self.code) * scale

    def encode(self, x):
        self.code = self.encoder(x)

    def learn(self, x, y):
        self.encode(x)
        self.opt.zero_grad()
        loss = criterion(self.head(self.code), y)
        loss.backward()
        self.opt.step()


learner = Learner()
for x, y in data:
    learner.learn(x, y)
"""


def test_what_a_method_would_keep_that_nobody_calls_is_no_part_of_a_loss() -> None:
    after = migrated(_KEPT_BY_NOBODY)
    shown = _KEPT_BY_NOBODY.partition("    def show")[2].partition("    def encode")[0]
    assert shown in after
    assert after.count("with torch.autocast(") == 1
    check_runs(HEAD + _KEPT_BY_NOBODY, HEAD + after)
    shows = _KEPT_BY_NOBODY + "    learner.show(x)\n"
    assert migrated(shows).count("with torch.autocast(") == 2


# Calls make the loss, by what one of them keeps and another reads, or by another name of a collection.
BY_CALLS = {
    "an attribute": """\
class Trainer:
    def run(self, x):
        self.out = model(x)
    def judge(self, y):
        return criterion(self.out, y)
trainer = Trainer()
for x, y in data:
    trainer.run(x)
    loss = trainer.judge(y)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "an attribute, in a method": """\
class Trainer:
    def run(self, x):
        self.out = model(x)
    def judge(self, y):
        return criterion(self.out, y)
    def train(self):
        for x, y in data:
            self.run(x)
            loss = self.judge(y)
            opt.zero_grad()
            loss.backward()
            opt.step()
Trainer().train()
""",
    "an attribute, with the forward in a caller": """\
class Trainer:
    def run(self, x):
        self.out = model(x)
    def judge(self, y):
        return criterion(self.out, y)
    def learn(self, y):
        loss = self.judge(y)
        opt.zero_grad()
        loss.backward()
        opt.step()
trainer = Trainer()
for x, y in data:
    trainer.run(x)
    trainer.learn(y)
""",
    "a global": """\
out = None
def run(x):
    global out
    out = model(x)
def judge(y):
    return criterion(out, y)
for x, y in data:
    run(x)
    loss = judge(y)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "a variable of the function around": """\
def train():
    out = None
    def run(x):
        nonlocal out
        out = model(x)
    def judge(y):
        return criterion(out, y)
    for x, y in data:
        run(x)
        loss = judge(y)
        opt.zero_grad()
        loss.backward()
        opt.step()
train()
""",
    "an object that they are given": """\
class State:
    pass
def run(state, x):
    state.out = model(x)
def judge(state, y):
    state.loss = criterion(state.out, y)
for x, y in data:
    state = State()
    run(state, x)
    judge(state, y)
    opt.zero_grad()
    state.loss.backward()
    opt.step()
""",
    "a list, filled by functions that call each other": """\
def fill(losses, x, y, left):
    if left:
        more(losses, x, y, left - 1)
def more(losses, x, y, left):
    losses.append(criterion(model(x), y))
    fill(losses, x / 2, y, left)
for x, y in data:
    losses = []
    fill(losses, x, y, 2)
    loss = torch.stack(losses).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "another name of a list": """\
for x, y in data:
    losses = []
    kept = losses
    kept.append(criterion(model(x), y))
    loss = sum(losses)
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "an element of a dict": """\
for x, y in data:
    bags = {"first": [], "second": []}
    bag = bags["first"]
    bag.append(criterion(model(x), y))
    loss = bags["first"][0]
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
}


@pytest.mark.parametrize("name", BY_CALLS)
def test_what_calls_read_and_change_is_a_part_of_the_loss(name: str) -> None:
    body = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n" + BY_CALLS[name]
    after = migrated(body)
    regions = 2 if name.endswith("in a caller") else 1
    assert after.count("with torch.autocast(") == regions
    check_runs(HEAD + body, HEAD + after)


def test_what_only_calls_read_draws_nothing_of_another_method_in() -> None:
    body = """\
class Agent:
    def __init__(self):
        self.net, self.head = make().to(device), nn.Linear(3, 3).to(device)
        parameters = [*self.net.parameters(), *self.head.parameters()]
        self.opt = torch.optim.SGD(parameters, lr=0.1)
        self.hidden = torch.zeros(4, 3, device=device)
    def act(self, x):
        with torch.no_grad():
            self.hidden = self.head(self.net(x))
        return self.hidden.argmax(1).cpu().numpy()
    def evaluate(self, x):
        out = self.net(x) + self.hidden
        self.hidden = out.detach()
        return out
    def learn(self, x, y):
        loss = criterion(self.evaluate(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
agent = Agent()
for x, y in data:
    agent.act(x)
    agent.learn(x, y)
"""
    after = migrated(body)
    assert after.count("with torch.autocast(") == 1
    check_runs(HEAD + body, HEAD + after)


@pytest.mark.parametrize("size", ["model[0].out_features", "len(features(model))"])
def test_a_number_of_a_trained_model_is_no_part_of_the_loss(size: str) -> None:
    body = f"""\
import numpy as np
def features(net):
    net.eval()
    found = np.zeros((len(data), 4, 3))
    with torch.no_grad():
        for place, (x, _) in enumerate(data):
            found[place] = np.squeeze(net(x).cpu())
    return found
def train(net, opt, weight):
    net.train()
    for x, y in data:
        opt.zero_grad()
        loss = criterion(net(x), y) * weight
        loss.backward()
        opt.step()
    return net
def begin(net, opt):
    for x, y in data:
        opt.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        opt.step()
    return net
weight = 1.0
for turn in range(3):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    if turn:
        model = train(model, opt, weight)
    else:
        model = begin(model, opt)
    weight = 1.0 / {size}
"""
    after = migrated(body)
    assert after.count("with torch.autocast(") == 2
    assert "model = train(model, opt, weight, scaler=scaler)" in after
    check_runs(HEAD + body, HEAD + after)
