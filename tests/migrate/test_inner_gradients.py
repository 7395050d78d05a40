"""Penalties on gradients with respect to parameters: scaled by hand, as in PyTorch's notes, or left."""

from __future__ import annotations

from textwrap import dedent

import pytest
from programs import HEAD, before_and_after, left_alone, migrated, trains_as_before
from shorthand import before, written_out

from amp_migrate.api import Options, migrate_source

SETUP = """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 for x, y in data:
     opt.zero_grad()
-    loss = criterion(model(x), y)
+    AUTOCAST
+        loss = criterion(model(x), y)
"""
TAKEN = """\
-    grads = torch.autograd.grad(loss, model.parameters(), create_graph=True)
+    grads = torch.autograd.grad(scaler.scale(loss), model.parameters(), create_graph=True)
+    inv_scale = 1.0 / scaler.get_scale()
+    grads = [g * inv_scale for g in grads]
"""
BACK = "     BACK\n"
CASES = {
    "the notes": SETUP + """\
     # Creates gradients
-    grad_params = torch.autograd.grad(outputs=loss,
-                                      inputs=model.parameters(),
-                                      create_graph=True)  # of the loss
+    grad_params = torch.autograd.grad(outputs=scaler.scale(loss),
+                                      inputs=model.parameters(),
+                                      create_graph=True)  # of the loss
+    inv_scale = 1.0 / scaler.get_scale()
+    grad_params = [g * inv_scale for g in grad_params]
     # Computes the penalty term and adds it to the loss
     grad_norm = 0
     for grad in grad_params:
         grad_norm += grad.pow(2).sum()
     grad_norm = grad_norm.sqrt()
     loss = loss + grad_norm
""" + BACK,
    "a sum": SETUP + TAKEN + """\
     loss += 0.1 * sum(g.pow(2).sum() for g in grads)
""" + BACK,
    "in the receiver": SETUP + TAKEN + """\
     norm = torch.cat([g.flatten() for g in grads]).norm()
-    (loss + norm).backward()
-    opt.step()
+    scaler.scale(loss + norm).backward()
+    scaler.step(opt)
+    scaler.update()
""",
    "shown": SETUP + TAKEN + """\
     penalty = torch.stack([torch.norm(g, 2) for g in grads]).mean()
     total = loss + penalty
     print(f"{loss.item():.3f} {penalty.item():.3f}", len(grads))
-    total.backward()
-    opt.step()
+    scaler.scale(total).backward()
+    scaler.step(opt)
+    scaler.update()
     del grads
""",
    "a list of norms": SETUP + TAKEN + """\
     norms = []
     for name, g in zip(["a", "b", "c", "d"], grads):
         norms.append(g.square().sum())
     loss = loss + torch.stack(norms).sum()
""" + BACK,
    "a tuple with more": SETUP + """\
-    grads = torch.autograd.grad(loss, model.parameters(), create_graph=True)
+    grads = torch.autograd.grad(scaler.scale(loss), model.parameters(), create_graph=True)
+    inv_scale = 1.0 / scaler.get_scale()
+    grads = tuple(g * inv_scale for g in grads)
     loss = loss + sum(g.norm() for g in grads + (model[0].weight,))
""" + BACK,
    "one parameter": SETUP + """\
-    g = torch.autograd.grad(loss, model[0].weight, create_graph=True)[0]
+    g = torch.autograd.grad(scaler.scale(loss), model[0].weight, create_graph=True)[0]
+    inv_scale = 1.0 / scaler.get_scale()
+    g = g * inv_scale
     loss = loss + g.norm()
""" + BACK,
    "each by its name": SETUP + """\
-    a, b = torch.autograd.grad(loss, [model[0].weight, model[2].bias], create_graph=True)
+    a, b = torch.autograd.grad(scaler.scale(loss), [model[0].weight, model[2].bias], create_graph=True)
+    inv_scale = 1.0 / scaler.get_scale()
+    a = a * inv_scale
+    b = b * inv_scale
     loss = loss + a.norm() * b.norm()
""" + BACK,
    "a list of parameters": """\
 params = [p for p in model.parameters() if p.requires_grad]
""" + SETUP + TAKEN.replace("model.parameters()", "params") + """\
     loss = loss + sum((p * g).sum() ** 2 for p, g in zip(params, grads))
""" + BACK,
    "now and then": SETUP + """\
     if y[0] == 0:
-        grads = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
+        grads = torch.autograd.grad(scaler.scale(loss), list(model.parameters()), create_graph=True)
+        inv_scale = 1.0 / scaler.get_scale()
+        grads = [g * inv_scale for g in grads]
         loss = loss + sum(g.pow(2).sum() for g in grads)
""" + BACK,
    "taken names": " inv_scale, g = 3.0, 2\n" + SETUP + """\
-    g = torch.autograd.grad(loss, model.parameters(), create_graph=True)
+    g = torch.autograd.grad(scaler.scale(loss), model.parameters(), create_graph=True)
+    inverse_scale = 1.0 / scaler.get_scale()
+    g = [grad * inverse_scale for grad in g]
     loss = loss + inv_scale * g[0].abs().sum()
""" + BACK,
    "another forward behind it": SETUP + TAKEN + """\
     penalty = sum(g.pow(2).sum() for g in grads)
-    loss = loss + criterion(model(x * 2), y) + penalty
+    AUTOCAST
+        loss = loss + criterion(model(x * 2), y) + penalty
""" + BACK,
    "two losses": SETUP + """\
-    other = criterion(model(-x), y)
-    grads = torch.autograd.grad(loss, model.parameters(), create_graph=True)
-    others = torch.autograd.grad(other, model.parameters(), create_graph=True)
+        other = criterion(model(-x), y)
+    grads = torch.autograd.grad(scaler.scale(loss), model.parameters(), create_graph=True)
+    inv_scale = 1.0 / scaler.get_scale()
+    grads = [g * inv_scale for g in grads]
+    others = torch.autograd.grad(scaler.scale(other), model.parameters(), create_graph=True)
+    inv_scale = 1.0 / scaler.get_scale()
+    others = [g * inv_scale for g in others]
     gap = sum((a - b).pow(2).sum() for a, b in zip(grads, others))
     total = loss + other + gap
-    total.backward()
-    opt.step()
+    scaler.scale(total).backward()
+    scaler.step(opt)
+    scaler.update()
""",
    "clipped and accumulated": """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 for i, (x, y) in enumerate(data):
-    loss = criterion(model(x), y)
+    AUTOCAST
+        loss = criterion(model(x), y)
""" + TAKEN + """\
     loss = loss + sum(g.pow(2).sum() for g in grads)
-    (loss / 2).backward()
+    scaler.scale(loss / 2).backward()
     if i % 2:
+        scaler.unscale_(opt)
         nn.utils.clip_grad_norm_(model.parameters(), 0.5)
-        opt.step()
+        scaler.step(opt)
+        scaler.update()
         opt.zero_grad()
""",
    "in a method": """\
 class Trainer:
     def __init__(self, net):
         self.net = net
         self.opt = torch.optim.Adam(net.parameters(), lr=0.01)
+        self.scaler = BORN
     def step(self, x, y):
         self.opt.zero_grad()
-        loss = criterion(self.net(x), y)
-        grads = torch.autograd.grad(loss, self.net.parameters(), create_graph=True)
+        AUTOCAST scaler=self.scaler
+            loss = criterion(self.net(x), y)
+        grads = torch.autograd.grad(self.scaler.scale(loss), self.net.parameters(), create_graph=True)
+        inv_scale = 1.0 / self.scaler.get_scale()
+        grads = [g * inv_scale for g in grads]
         loss = loss + sum(g.pow(2).sum() for g in grads)
-        loss.backward()
-        self.opt.step()
+        self.scaler.scale(loss).backward()
+        self.scaler.step(self.opt)
+        self.scaler.update()
         return loss.item()
 trainer = Trainer(model)
 print(sum(trainer.step(x, y) for x, y in data))
""",
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_written(name: str) -> None:
    source, expected = before_and_after(written_out(CASES[name]))
    assert migrated(source) == expected


@pytest.mark.parametrize("name", CASES)
def test_it_trains_as_before(name: str) -> None:
    trains_as_before(written_out(CASES[name]))


@pytest.mark.parametrize("name", CASES)
def test_a_second_run_changes_nothing(name: str) -> None:
    output = HEAD + before_and_after(written_out(CASES[name]))[1]
    assert migrate_source(output).output == output


@pytest.mark.parametrize("name", CASES)
def test_bfloat16_needs_regions_only(name: str) -> None:
    source = HEAD + before(before_and_after(written_out(CASES[name]))[0])
    result = migrate_source(source, options=Options(dtype="bfloat16"))
    assert result.changed and not result.diagnostics
    assert "scale(" not in result.output[len(HEAD) :].replace("inv_scale", "")
    lines = result.output.splitlines()
    taken = [line for line in lines if "autograd.grad(" in line]
    region = [line for line in lines if "with torch.autocast" in line]
    assert len(region[0]) - len(region[0].lstrip()) <= len(taken[0]) - len(
        taken[0].lstrip()
    )


GRADS = "grads = torch.autograd.grad(loss, model.parameters(), create_graph=True)\n"
JOINED = "loss = loss + sum(g.pow(2).sum() for g in grads)\n"
END = "loss.backward()\nopt.step()\n"

LEFT = {
    "one loss is of the other's gradients": GRADS + JOINED
    + "more = torch.autograd.grad(loss, model[0].weight, create_graph=True)[0]\n"
    + "loss = loss + more.sum()\n" + END,
    "a gradient that may be missing": GRADS.replace("create", "allow_unused=True, create") + JOINED + END,
    "zeros for missing ones": GRADS.replace("create", "materialize_grads=True, create") + JOINED + END,
    "no graph": GRADS.replace("create_graph", "retain_graph") + JOINED + END,
    "a graph, or none": "graph = len(y) > 2\n" + GRADS.replace("=True", "=graph") + JOINED + END,
    "given by position": "grads = torch.autograd.grad(loss, list(model.parameters()), None, True, True)\n"
    + JOINED + END,
    "with a gradient to begin with": "grads = torch.autograd.grad(loss, model.parameters(), "
    "grad_outputs=torch.ones_like(loss), create_graph=True)\n" + JOINED + END,
    "the forward inside of it": GRADS.replace("loss,", "criterion(model(x), y),") + JOINED + END,
    "of several losses": GRADS.replace("loss,", "[loss, loss],") + JOINED + END,
    "no name": JOINED.replace("grads)", GRADS[8:-1] + ")") + END,
    "a part of it": GRADS[:-1] + "[1]\n" + "loss = loss + grads.sum()\n" + END,
    "as a list": "grads = list(" + GRADS[8:-1] + ")\n" + JOINED + END,
    "with a rest": "grads, *rest = " + GRADS[8:] + "loss = loss + grads.sum()\n" + END,
    "an attribute": "model.kept = " + GRADS[8:] + JOINED.replace("grads", "model.kept") + END,
    "not in the loss": GRADS + "norm = sum(g.pow(2).sum() for g in grads)\nprint(norm.item())\n" + END,
    "MAML": GRADS + "fast = [p - 0.1 * g for p, g in zip(model.parameters(), grads)]\n"
    "out = torch.func.functional_call(model, dict(zip(['a'], fast)), x)\n"
    "loss = criterion(out, y)\n" + END,
    "MAML by hand": GRADS + "fast = [p - 0.1 * g for p, g in zip(model.parameters(), grads)]\n"
    "h = F.relu(F.linear(x, fast[0], fast[1]))\n"
    "loss = criterion(F.linear(h, fast[2], fast[3]), y)\n" + END,
    "the parameters change": GRADS + JOINED + "for p, g in zip(model.parameters(), grads):\n"
    "    p.data.sub_(g.detach(), alpha=0.1)\n" + END,
    "the gradients of the step": GRADS + JOINED + "loss.backward()\n"
    "for p, g in zip(model.parameters(), grads):\n    p.grad = g.detach()\nopt.step()\n",
    "in place": GRADS + "grads[0].mul_(2)\n" + JOINED + END,
    "a product": GRADS + "loss = loss + (grads[0] @ grads[0].T).sum()\n" + END,
    "a module": GRADS + "loss = loss + criterion(grads[0][:4, :3], y)\n" + END,
    "a condition on it": GRADS + "norm = grads[0].norm()\nif norm > 1:\n    loss = loss + norm\n" + END,
    "a choice by it": GRADS + "norm = grads[0].norm()\nloss = loss + (norm if norm > 1 else 0)\n" + END,
    "what is infinite is left out": GRADS
    + "loss = loss + torch.nan_to_num(grads[0].norm())\n" + END,
    "a threshold": GRADS + "loss = loss + grads[0].norm().clamp(max=3.0)\n" + END,
    "a helper": GRADS + "loss = loss + of(grads)\n" + END,
    "all at once": GRADS + "loss = loss + torch.stack([*grads[:1]]).sum()\n" + END,
    "a function inside": GRADS + "def f():\n    return grads[0].norm()\n"
    + JOINED + END,
    "a function that is not called here": "take = torch.autograd.grad\n" + GRADS + JOINED + END,
    "infinite losses are passed over": GRADS + JOINED
    + "if not torch.isfinite(loss):\n    continue\n" + END,
    "only finite losses": GRADS + JOINED
    + "if torch.isfinite(loss):\n    loss.backward()\n    opt.step()\n",
    "an infinite loss ends it": GRADS + JOINED + END + "if loss.item() > 1e6:\n    break\n",
    "an infinite penalty ends it": GRADS + "norm = grads[0].norm()\nloss = loss + norm\n" + END
    + "assert norm.item() < 1e6\n",
    "the learning rate": GRADS + JOINED + END
    + "for group in opt.param_groups:\n    group['lr'] = 0.1 / (1 + loss.item())\n",
    "an average over steps": GRADS + "norm = grads[0].norm()\n"
    "mean = 0.9 * mean + 0.1 * norm.detach()\nloss = loss + norm / mean\n" + END,
    "a weight of earlier steps": GRADS + "norm = grads[0].norm()\n"
    "loss = loss + norm / share\nshare = 0.9 * share + 0.1 * norm.item()\n" + END,
    "a weight of now and then": GRADS + "norm = grads[0].norm()\n"
    "if len(y) > 2:\n    kept_norm = norm.detach()\nloss = loss + norm / kept_norm\n" + END,
    "a weight of the same step": GRADS + "norm = grads[0].norm()\n"
    "loss = loss / (1 + norm.item()) + norm\n" + END,
    "a weight of another loss": GRADS + JOINED + END
    + "weight = 1 / (1 + loss.item())\n(weight * criterion(model(x), y)).backward()\nopt.step()\n",
    "a schedule": GRADS + JOINED + END + "plateau.step(loss.item())\n",
    "backward again": GRADS + JOINED + "for _ in range(1):\n    " + GRADS + "    " + JOINED + END,
    "in a loop": "for _ in range(2):\n    " + GRADS + "    " + JOINED + END,
    "copies of the parameters": "copies = [p.clone() for p in model.parameters()]\n"
    + GRADS.replace("model.parameters()", "copies") + JOINED + END,
    "some tensors": GRADS.replace("model.parameters()", "kept") + JOINED + END,
}  # fmt: skip


@pytest.mark.parametrize("name", LEFT)
def test_left_alone(name: str) -> None:
    setup = dedent("""\
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
        mean, share = torch.ones(()), 1.0
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt)
        kept = model(data[0][0]).unbind()
        def of(gs):
            return sum(g.pow(2).sum() for g in gs)
        for x, y in data:
            opt.zero_grad()
            loss = criterion(model(x), y)
        """)
    body = setup + "".join(f"    {line}\n" for line in LEFT[name].splitlines())
    assert left_alone(body) == "AMP023"


def test_what_is_returned() -> None:
    source = """\
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    def step(x, y):
        opt.zero_grad()
        loss = criterion(model(x), y)
        grads = torch.autograd.grad(loss, model.parameters(), create_graph=True)
        loss = loss + grads[0].norm()
        loss.backward()
        opt.step()
        return grads
    for x, y in data:
        step(x, y)
    """
    assert left_alone(dedent(source)) == "AMP023"


INNER_LOOP = """\
class Learner(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net
    def forward(self, x):
        return self.net(x)
    def clone(self):
        return Learner(copied(self.net))
    def adapt(self, loss):
        grads = torch.autograd.grad(loss, self.net.parameters(), create_graph=True)
        self.net = updated(self.net, grads)
def copied(net):
    clone = make().to(device)
    for old, new in zip(net.children(), clone.children()):
        for key in old._parameters:
            new._parameters[key] = old._parameters[key].clone()
    return clone
def updated(net, grads):
    clone, each = make().to(device), iter(grads)
    for old, new in zip(net.children(), clone.children()):
        for key in old._parameters:
            new._parameters[key] = old._parameters[key] - 0.1 * next(each)
    return clone
learner = Learner(model)
opt = torch.optim.SGD(learner.parameters(), lr=0.1)
for x, y in data:
    opt.zero_grad()
    task = learner.clone()
    task.adapt(criterion(task(x), y))
    loss = criterion(task(x), y)
    loss.backward()
    opt.step()
    print(loss.item())
"""


def test_what_an_inner_loop_makes_again_is_its_own_copy() -> None:
    assert left_alone(INNER_LOOP) == "AMP023"
