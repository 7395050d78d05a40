"""Which model and which optimizer is meant is told by object, not by name: names are bound anew."""

from __future__ import annotations

import pytest
from programs import HEAD, left_alone, migrated

from amp_migrate.api import migrate_source

TRAIN = """\
def train(net, opt, x, y):
    opt.zero_grad()
    loss = criterion(net(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()


"""
EPOCH = """\
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
"""
ZERO_OF_MODEL = EPOCH.replace("opt.zero_grad", "model.zero_grad")
SGD = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
ADAM = "opt = torch.optim.Adam(model.parameters(), lr=0.01)\n"
NEW = "model = make().to(device)\n"
PAIR = """\
def pair():
    net = make().to(device)
    return net, torch.optim.Adam(net.parameters(), lr=0.01)


"""
CHOICE = "import sys\nfast, slow = len(sys.argv) > 1, len(sys.argv) > 2\n"


def inside(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


RIGHT = {
    "a model moved behind the birth": f"{SGD}model = model.to(device)\n{EPOCH}",
    "a model wrapped behind the birth": f"{SGD}model = nn.DataParallel(model)\n{EPOCH}",
    "a model that is unwrapped again": (
        f"model = nn.DataParallel(model)\n{SGD}{EPOCH}model = model.module\n{EPOCH}"
    ),
    "a second phase with the same model": f"{SGD}{EPOCH}{ADAM}{EPOCH}",
    "a second phase with another model": f"{SGD}{EPOCH}{NEW}{ADAM}{EPOCH}",
    "a second phase, gradients dropped by the model": (
        f"{SGD}{ZERO_OF_MODEL}{NEW}{ADAM}{ZERO_OF_MODEL}"
    ),
    "the same model out of what gives nothing, or several": (
        "import sys\nimport os\n"
        "def loaded(net, path):\n    if not os.path.exists(path):\n        return\n"
        "    net.load_state_dict(torch.load(path))\n    return net, 1\n"
        f"{SGD}if len(sys.argv) > 1:\n    model, first = loaded(model, sys.argv[1])\n"
        f"{ZERO_OF_MODEL}"
    ),
    "the old model deleted": f"{SGD}{EPOCH}del model, opt\n{NEW}{ADAM}{EPOCH}",
    "a model for each fold": (
        f"for fold in range(2):\n{inside(NEW)}{inside(SGD)}{inside(EPOCH)}"
    ),
    "a model for each fold, one before": (
        f"{SGD}{EPOCH}for fold in range(2):\n{inside(NEW)}{inside(SGD)}{inside(EPOCH)}"
    ),
    "an optimizer of its own for the second half": (
        f"{SGD}for epoch in range(4):\n    if epoch == 2:\n        {ADAM}{inside(EPOCH)}"
    ),
    "two pairs for one function": (
        f"{TRAIN}other = make().to(device)\n{SGD}"
        "adam = torch.optim.Adam(other.parameters(), lr=0.01)\n"
        "for x, y in data:\n    train(model, opt, x, y)\n    train(other, adam, x, y)\n"
    ),
    "two pairs of the same names": (
        f"{TRAIN}{SGD}for x, y in data:\n    train(model, opt, x, y)\n"
        f"{NEW}{ADAM}for x, y in data:\n    train(model, opt, x, y)\n"
    ),
    "two pairs of the same names, deeper down": (
        f"{TRAIN}def fit(net, opt):\n    for x, y in data:\n        train(net, opt, x, y)\n\n\n"
        f"{SGD}fit(model, opt)\n{NEW}{ADAM}fit(model, opt)\n"
    ),
    "a function that sees them from outside": (
        f"def fit():\n{inside(EPOCH)}\n\n{SGD}fit()\n{NEW}{ADAM}fit()\n"
    ),
    "a pair for each branch": (
        f"{CHOICE}if fast:\n{inside(NEW)}{inside(ADAM)}else:\n{inside(NEW)}{inside(SGD)}{EPOCH}"
    ),
    "a pair for each branch, moved and wrapped": (
        f"{CHOICE}if fast:\n{inside(NEW)}{inside(ADAM)}else:\n{inside(NEW)}{inside(SGD)}"
        f"model = model.to(device)\nmodel = nn.DataParallel(model)\n{EPOCH}"
    ),
    "a pair for each branch, for a function": (
        f"{CHOICE}{TRAIN}if fast:\n{inside(NEW)}{inside(ADAM)}else:\n{inside(NEW)}{inside(SGD)}"
        "for x, y in data:\n    train(model, opt, x, y)\n"
    ),
    "a pair that may take the place of another": (
        f"{CHOICE}{SGD}if fast:\n{inside(NEW)}{inside(ADAM)}{EPOCH}"
    ),
    "a list of parameters for each phase": (
        f"params = list(model.parameters())\nopt = torch.optim.SGD(params, lr=0.1)\n"
        f"{EPOCH.replace('model.parameters()', 'params')}"
        f"{NEW}params = list(model.parameters())\nopt = torch.optim.Adam(params, lr=0.01)\n"
        f"{EPOCH.replace('model.parameters()', 'params')}"
    ),
    "one that is loaded, if there is one": (
        f"import os\n{SGD}if os.path.exists('best.pt'):\n    model = model.to(device)\n{EPOCH}"
    ),
    "two models that one function hands out, each with its optimizer": (
        f"{PAIR}model, opt = pair()\nother, adam = pair()\n{EPOCH}"
        f"{EPOCH.replace('model', 'other').replace('opt.', 'adam.')}"
    ),
    "a function's model, for a function that is run twice": (
        f"{TRAIN}{PAIR}def run():\n    model, opt = pair()\n    other, _ = pair()\n"
        "    for x, y in data:\n        train(model, opt, x, y)\n"
        "    print(other(data[0][0].to(device)).sum().item())\n\n\nrun()\nrun()\n"
    ),
    "two models, swapped with their optimizers in sight": (
        "other = make().to(device)\n"
        "both = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.1)\n"
        f"model, other = other, model\n{EPOCH.replace('opt.', 'both.')}"
    ),
    "a model for each call, whose optimizer each call names": (
        f"{TRAIN}class Learner:\n    def fit(self, how):\n        self.net = make().to(device)\n"
        "        if how == 'sgd':\n"
        "            opt = torch.optim.SGD(self.net.parameters(), lr=0.1)\n"
        "        elif how == 'adam':\n"
        "            opt = torch.optim.Adam(self.net.parameters(), lr=0.01)\n"
        "        for x, y in data:\n            train(self.net, opt, x, y)\n\n\n"
        "learner = Learner()\nfor how in ['sgd', 'adam']:\n    learner.fit(how)\n"
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_pairs_that_belong_together(name: str) -> None:
    pytest.importorskip("torch")
    from exactness import check_scaled

    before = HEAD + RIGHT[name]
    after = HEAD + migrated(RIGHT[name])
    assert after.count("scaler.unscale_(") == before.count("clip_grad_norm_")
    assert check_scaled(before, after) == []


STALE = {
    "a new model behind the birth": f"{SGD}{NEW}{EPOCH}",
    "another of the models that a function hands out": (
        f"{PAIR}model, opt = pair()\n{EPOCH}model, _ = pair()\n{EPOCH}"
    ),
    "a new model that takes its turn": f"{SGD}{EPOCH}{NEW}{EPOCH}",
    "gradients of a new model are read": (
        f"{SGD}{EPOCH}{NEW}loss = criterion(model(x), y)\nloss.backward()\n"
        "print(max(p.grad.max() for p in model.parameters()))\n"
        f"{NEW}{SGD}{EPOCH}"
    ),
    "a new model under a condition": (
        f"import sys\n{SGD}if len(sys.argv) > 1:\n    {NEW}{EPOCH}"
    ),
    "a copy of the model": f"import copy\n{SGD}model = copy.deepcopy(model)\n{EPOCH}",
    "a layer put on top": (
        f"{SGD}model = nn.Sequential(model, nn.Linear(3, 3)).to(device)\n{EPOCH}"
    ),
    "a model of a class of one's own around it": (
        "class Around(nn.Module):\n    def __init__(self, body):\n        super().__init__()\n"
        "        self.body, self.head = body, nn.Linear(3, 3)\n\n"
        "    def forward(self, x):\n        return self.head(self.body(x))\n\n\n"
        f"{SGD}model = Around(model).to(device)\n{EPOCH}"
    ),
    "a new model in each turn of a loop": (
        f"{SGD}for fold in range(2):\n{inside(NEW)}{inside(EPOCH)}"
    ),
    "the optimizer of the fold before": (
        f"opt = None\nfor fold in range(2):\n{inside(NEW)}"
        f"    if opt is not None:\n{inside(inside(EPOCH))}{inside(SGD)}"
    ),
    "an optimizer that is born before its turn's model": (
        f"for fold in range(2):\n{inside(SGD)}{inside(NEW)}{inside(EPOCH)}"
    ),
    "models swapped, the optimizer of one": (
        f"other = make().to(device)\n{SGD}model, other = other, model\n{EPOCH}"
    ),
    "a pair that does not belong together": (
        f"{TRAIN}other = make().to(device)\n{SGD}"
        "for x, y in data:\n    train(model, opt, x, y)\n    train(other, opt, x, y)\n"
    ),
    "a new model for the old optimizer of a function": (
        f"{TRAIN}{SGD}for x, y in data:\n    train(model, opt, x, y)\n"
        f"{NEW}for x, y in data:\n    train(model, opt, x, y)\n"
    ),
    "a new model for a function that sees it from outside": (
        f"def fit():\n{inside(EPOCH)}\n\n{SGD}fit()\n{NEW}fit()\n"
    ),
    "a list of parameters bound anew": (
        f"params = list(model.parameters())\nopt = torch.optim.SGD(params, lr=0.1)\n"
        f"{NEW}params = list(model.parameters())\n"
        f"{EPOCH.replace('model.parameters()', 'params')}"
    ),
    "gradients of the new model dropped, those of the old step": (
        f"{SGD}old = model\n{NEW}for x, y in data:\n    model.zero_grad()\n"
        "    loss = criterion(old(x), y)\n    loss.backward()\n    opt.step()\n"
    ),
    "a model and an optimizer, each in a branch of its own": (
        f"{CHOICE}if fast:\n{inside(NEW)}if slow:\n{inside(ADAM)}else:\n{inside(SGD)}"
        f"if fast:\n{inside(NEW)}{EPOCH}"
    ),
    "a pair for each branch, and then another model": (
        f"{CHOICE}if fast:\n{inside(NEW)}{inside(ADAM)}else:\n{inside(NEW)}{inside(SGD)}"
        f"if slow:\n{inside(NEW)}{EPOCH}"
    ),
    "a pair may take the place of another, whose model is clipped": (
        f"{CHOICE}net = model\n{SGD}if fast:\n{inside(NEW)}{inside(ADAM)}"
        f"{EPOCH.replace('model.parameters', 'net.parameters')}"
    ),
    "a pair for each branch, and an optimizer that was kept": (
        f"{CHOICE}{SGD}kept = opt\nif fast:\n{inside(NEW)}{inside(ADAM)}"
        f"opt = kept\n{EPOCH}"
    ),
}


@pytest.mark.parametrize("name", STALE)
def test_what_the_optimizer_does_not_hold(name: str) -> None:
    assert left_alone(STALE[name]) in ("AMP011", "AMP030", "AMP031")


AGENT = """\
class Agent:
    def __init__(self):
        self.net = make().to(device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def renew(self, name="net"):
        RENEW

    def update(self, x, y):
        self.opt.zero_grad()
        loss = criterion(self.net(x), y)
        loss.backward()
        CLIP
        self.opt.step()


agent = Agent()
for i, (x, y) in enumerate(data):
    if i == 3:
        agent.renew()
    agent.update(x, y)
"""
CLIP = "nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)"
ANEW = "self.net = make().to(device)"
BORN = "self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)"


def agent(*renew: str, clip: str = CLIP) -> str:
    lines = "\n        ".join(renew)
    return AGENT.replace("RENEW", lines).replace("CLIP", clip)


GROWS = """\
class Growing(nn.Module):
    def __init__(self, body):
        super().__init__()
        self.body, self.head = body, nn.Linear(3, 3)

    def grow(self):
        self.head = nn.Linear(3, 3).to(device)

    def forward(self, x):
        return self.head(self.body(x))


model = Growing(model).to(device)
"""
RENEWED = {
    "a method that makes both anew": agent(ANEW, BORN),
    "a method that moves the model": agent("self.net = self.net.to(device)"),
    "a method that nobody calls": agent(ANEW).replace("agent.renew()", "pass"),
    "one that a class makes for a start": agent(ANEW, BORN).replace(
        "        self.net = make().to(device)\n"
        "        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)\n",
        "        self.renew()\n",
        1,
    ),
    "a model that is made anew when all is done": (
        agent(ANEW)
        .replace("    if i == 3:\n        agent.renew()\n", "")
        .replace("agent.update(x, y)\n", "agent.update(x, y)\nagent.renew()\n")
    ),
    "one out of a container whose name is used again": (
        'kept = {"net": model}\nmodel = kept["net"]\n'
        f'{SGD}for epoch in range(2):\n{inside(EPOCH)}    kept = {{"net": model.state_dict()}}\n'
        "def kept():\n    pass\n"
    ),
    "a layer put in before the birth": f"{GROWS}model.grow()\n{SGD}{EPOCH}",
    "a part that is wrapped": (
        f"{GROWS}model.grow()\n{SGD}model.head = nn.DataParallel(model.head)\n{EPOCH}"
    ),
    "an optimizer for the layer that was put in": (
        f"{GROWS}{SGD}{EPOCH}model.grow()\n{ADAM}{EPOCH}"
    ),
}


EACH_ITS_OWN = """\
import sys
class Agent:
    def __init__(self, kind):
        self.net = make().to(device)
        self.weights = list(self.net.parameters())
        if kind == "sgd":
            self.opt = torch.optim.SGD(GIVEN, lr=0.1)
    def update(self, x, y):
        self.opt.zero_grad()
        loss = criterion(self.net(x), y)
        loss.backward()
        self.opt.step()
class Runner:
    def __init__(self, kind):
        if kind != "none":
            self.agent = Agent(kind)
for turn in range(2):
    runner = Runner((sys.argv + ["sgd"])[1])
    for x, y in data:
        runner.agent.update(x, y)
"""
PEERS = EACH_ITS_OWN.replace(
    "        self.weights",
    "        self.peer, Agent.peer = getattr(Agent, 'peer', self), self\n"
    "        self.weights",
)
"""A constructor may not make an optimizer: its object has none then, and not that of another."""
RENEWED["an object with a model"] = EACH_ITS_OWN.replace(
    "GIVEN", "self.net.parameters()"
)
RENEWED["an object with a model that another class makes"] = (
    "class Nets:\n    @staticmethod\n    def build(size):\n"
    "        return make().to(device)\n"
    + EACH_ITS_OWN.replace("GIVEN", "self.net.parameters()").replace(
        "make().to(device)", "Nets.build(8)"
    )
)
RENEWED["an object with a list of weights"] = EACH_ITS_OWN.replace(
    "GIVEN", "self.weights"
)

CHANGING = """\
class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8)])
        self.build()

    def build(self):
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

    def change(self, name="head"):
        CHANGE


class Net(Base):
    pass


"""
BUILT = """\
class Built(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList()
        self.build()

    def build(self):
        self.layers.append(nn.Linear(8, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.layers[0](x))


model = Built().to(device)
"""
RENEWED["a layer that is moved by a method of the model"] = (
    f"{CHANGING.replace('CHANGE', 'self.head = self.head.to(device)')}"
    f"model = Net().to(device)\n{SGD}model.change()\n{EPOCH}"
)
RENEWED["another model behind the birth, whose constructor calls a method"] = (
    f"{BUILT}{SGD}other = Built().to(device)\n{EPOCH}"
)
RENEWED["another model in an object's constructor"] = BUILT + agent("pass").replace(
    "make()", "Built()"
).replace(f"{BORN}\n", f"{BORN}\n        self.target = Built().to(device)\n", 1)


@pytest.mark.parametrize("name", RENEWED)
def test_a_model_with_an_optimizer_of_its_own(name: str) -> None:
    pytest.importorskip("torch")
    from exactness import check_scaled

    after = HEAD + migrated(RENEWED[name])
    assert check_scaled(HEAD + RENEWED[name], after) == []


OUTLIVED = {
    "by a constructor that is run again": EACH_ITS_OWN.replace("GIVEN", "self.weights")
    + 'runner.agent.__init__("none")\nrunner.agent.update(*data[0])\n',
    "by the constructor of another": PEERS.replace("GIVEN", "self.peer.weights"),
    "by the constructor of another, asked for weights": PEERS.replace(
        "GIVEN", "self.peer.net.parameters()"
    ),
    "by a method": agent(ANEW),
    "by a method, and nothing is clipped": agent(ANEW, clip="pass"),
    "by a method, behind the new optimizer": agent(BORN, ANEW),
    "by setattr": agent("setattr(self, name, make().to(device))"),
    "from outside": agent("pass").replace(
        "agent.renew()", "agent.net = make().to(device)"
    ),
    "by a copy": "import copy\n" + agent("self.net = copy.deepcopy(self.net)"),
    "by one that was kept": agent("self.net = self.best").replace(
        "    def renew", "        self.best = make().to(device)\n\n    def renew", 1
    ),
    "by a swap": agent("self.net, self.best = self.best, self.net").replace(
        "    def renew", "        self.best = make().to(device)\n\n    def renew", 1
    ),
    "by a swap with its copy": "import copy\n"
    + agent("self.net, self.old = self.old, self.net", clip="pass").replace(
        "    def renew",
        "        self.old = copy.deepcopy(self.net)\n\n    def renew",
        1,
    ),
    "by one around it with a layer of its own": (
        GROWS.rpartition("\n\n\n")[0]
        + "\n\n\n"
        + agent("self.net = Growing(self.net).to(device)")
    ),
    "by a global statement": (
        f"{SGD}def renew():\n    global model\n    {NEW}\n\n"
        "for x, y in data:\n    renew()\n    opt.zero_grad()\n"
        "    loss = criterion(model(x), y)\n    loss.backward()\n    opt.step()\n"
    ),
    "in its layer, by a method": f"{GROWS}{SGD}model.grow()\n{EPOCH}",
    "in its layer, from outside": (
        f"{GROWS}{SGD}model.head = nn.Linear(3, 3).to(device)\n{EPOCH}"
    ),
    "in a list of layers": f"{SGD}model[2] = nn.Linear(16, 3).to(device)\n{EPOCH}",
    "by a layer more": f"{SGD}model.append(nn.Linear(3, 3).to(device))\n{EPOCH}",
}


@pytest.mark.parametrize("name", OUTLIVED)
def test_a_model_is_made_anew_and_its_optimizer_is_not(name: str) -> None:
    assert left_alone(OUTLIVED[name]) in ("AMP011", "AMP030")


FIT = f"def fit(model):\n{inside(SGD)}    model.change()\n{inside(EPOCH)}\n\n"
HOLDERS = {
    "a variable": f"model = Net().to(device)\n{SGD}model.change()\n{EPOCH}",
    "a function's parameter": f"{FIT}fit(Net().to(device))\n",
    "a parameter, the optimizer made in the call": (
        f"def fit(model, opt):\n    model.change()\n{inside(EPOCH)}\n\n"
        "model = Net().to(device)\nfit(model, torch.optim.SGD(model.parameters(), lr=0.1))\n"
    ),
    "a dict": (
        'kept = {"net": Net().to(device)}\n'
        + f"{SGD}model.change()\n{EPOCH}".replace("model", 'kept["net"]')
    ),
    "an optimizer in a list": (
        "model = Net().to(device)\nopts = []\n"
        "opts.append(torch.optim.SGD(model.parameters(), lr=0.1))\nmodel.change()\n"
        + EPOCH.replace("opt.", "opts[0].")
    ),
    "an optimizer in a dict": (
        "nets = [Net().to(device)]\n"
        'opts = {"a": torch.optim.SGD(nets[0].parameters(), lr=0.1)}\n'
        "for net in nets:\n    net.change()\n"
        + EPOCH.replace("opt.", 'opts["a"].').replace("model", "nets[0]")
    ),
    "an attribute": agent("self.net.change()").replace("make()", "Net()"),
}
WAYS = {
    "by another layer": "self.head = nn.Linear(8, 3).to(device)",
    "by a layer with a name": "new = nn.Linear(8, 3).to(device)\n        self.head = new",
    "by a layer more": "self.layers.append(nn.Linear(8, 8).to(device))",
    "by a list of layers": "self.layers.extend([nn.Linear(8, 8).to(device)])",
    "by a sum of layers": "self.layers += [nn.Linear(8, 8).to(device)]",
    "by setattr": 'setattr(self, "head", nn.Linear(8, 3).to(device))',
    "by setattr of a name": "setattr(self, name, nn.Linear(8, 3).to(device))",
    "by add_module": 'self.add_module("head", nn.Linear(8, 3).to(device))',
    "in the module's dict": 'self._modules["head"] = nn.Linear(8, 3).to(device)',
    "in the module's dict, updated": (
        'self._modules.update({"head": nn.Linear(8, 3).to(device)})'
    ),
    "in the module's dict, by a keyword": (
        "self._modules.update(head=nn.Linear(8, 3).to(device))"
    ),
    "by a parameter": "self.head.weight = nn.Parameter(torch.randn(3, 8, device=device))",
    "by a parameter that is registered": (
        'self.head.register_parameter("bias", nn.Parameter(torch.randn(3, device=device)))'
    ),
    "by two parameters for one": "nn.utils.weight_norm(self.head)",
    "in a part of its name": ('self.set_submodule("head", nn.Linear(8, 3).to(device))'),
    "by its constructor": "self.__init__()\n        self.to(device)",
    "by a layer's constructor": "self.head.__init__(8, 3)\n        self.to(device)",
    "by what its constructor calls": "self.build()\n        self.to(device)",
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("way", WAYS)
def test_a_method_of_the_model_makes_layers_anew(way: str, holder: str) -> None:
    text = CHANGING.replace("CHANGE", WAYS[way]) + HOLDERS[holder]
    assert left_alone(text) == "AMP011"


def test_a_method_that_is_asked_for_by_its_name_makes_layers_anew() -> None:
    text = CHANGING.replace("CHANGE", WAYS["by setattr"]) + HOLDERS["a variable"]
    assert left_alone(text.replace("model.change()", 'getattr(model, "change")()'))


BUILDS = (
    agent("self.build()")
    .replace("def renew", "def build(self):\n        pass\n\n    def renew", 1)
    .replace("agent = Agent()", "BUILT")
)
BEHIND = {
    "again in the constructor": agent("pass").replace(
        f"{BORN}\n", f"{BORN}\n        {ANEW}\n"
    ),
    "in the constructor of a subclass": agent("pass").replace(
        "agent = Agent()",
        "class Other(Agent):\n    def __init__(self):\n        super().__init__()\n"
        f"        {ANEW}\n\n\nagent = Other()",
    ),
    "a layer in the constructor of a subclass": agent("pass").replace(
        "agent = Agent()",
        "class Other(Agent):\n    def __init__(self):\n        super().__init__()\n"
        "        self.net[0] = nn.Linear(8, 16).to(device)\n\n\nagent = Other()",
    ),
    "by what a subclass builds": BUILDS.replace(
        "BUILT",
        f"class Other(Agent):\n    def build(self):\n        {ANEW}\n\n\nagent = Other()",
    ),
    "a module's own layer, in its constructor": (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.head = nn.Linear(8, 3)\n"
        "        self.opt = torch.optim.SGD(self.parameters(), lr=0.1)\n"
        "        self.head = nn.Linear(8, 3)\n\n"
        "    def forward(self, x):\n        return self.head(x)\n\n    def fit(self):\n"
        + inside(inside(EPOCH.replace("model", "self").replace("opt.", "self.opt.")))
        + "\n\nNet().to(device).fit()\n"
    ),
    "a module's own layer, in the constructor of a subclass": (
        "class Base(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.body = nn.Linear(8, 3)\n"
        "        self.opt = torch.optim.SGD(self.parameters(), lr=0.1)\n\n"
        "    def forward(self, x):\n        return self.body(x)\n\n    def fit(self):\n"
        + inside(inside(EPOCH.replace("model", "self").replace("opt.", "self.opt.")))
        + "\n\nclass Net(Base):\n    def __init__(self):\n        super().__init__()\n"
        "        self.head = nn.Linear(3, 3)\n\n"
        "    def forward(self, x):\n        return self.head(self.body(x))\n\n\n"
        "Net().to(device).fit()\n"
    ),
}


@pytest.mark.parametrize("name", BEHIND)
def test_a_constructor_makes_a_model_anew_behind_its_optimizer(name: str) -> None:
    assert left_alone(BEHIND[name]) == "AMP011"


def test_of_several_layers_that_are_made_anew_the_first_is_named() -> None:
    layers = [f"self.layer{number}" for number in range(5)]
    made = "".join(f"        {layer} = nn.Linear(8, 3)\n" for layer in layers)
    text = (
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.begin()\n\n    def begin(self):\n{made}\n    def forward(self, x):\n"
        f"        return {' + '.join(f'{layer}(x)' for layer in layers)}\n\n\n"
        f"model = Net().to(device)\n{SGD}model.begin()\n{EPOCH}"
    )
    (found,) = migrate_source(HEAD + text, path="train.py").diagnostics
    assert found.message.startswith("self.layer0 is made again here")


CHOSEN = {
    "one of two lists": "params = HEADS if len(sys.argv) > 1 else model.parameters()\n",
    "one of two lists, by a branch": (
        "if len(sys.argv) > 1:\n    params = model.parameters()\nelse:\n    params = HEADS\n"
    ),
    "more under a condition": (
        "params = list(HEADS)\nif len(sys.argv) > 1:\n    params += list(model.parameters())\n"
    ),
    "more appended under a condition": (
        "params = [{'params': HEADS}]\n"
        "if len(sys.argv) > 1:\n    params.append({'params': model.parameters()})\n"
    ),
    "those that a loop picks": (
        "params = []\nfor name, p in model.named_parameters():\n"
        "    if 'bias' in name:\n        params.append(p)\n"
    ),
    "those that a loop does not skip": (
        "params = []\nfor name, p in model.named_parameters():\n"
        "    if 'bias' in name:\n        continue\n    params.append(p)\n"
    ),
    "all but one that is taken out": "params = list(model.parameters())\nparams.pop()\n",
    "all but one that is deleted": "params = list(model.parameters())\ndel params[0]\n",
}


@pytest.mark.parametrize("name", CHOSEN)
def test_an_optimizer_that_may_hold_a_part(name: str) -> None:
    birth = "opt = torch.optim.SGD(params, lr=0.1)\n"
    given = CHOSEN[name].replace("HEADS", "model[2].parameters()")
    assert left_alone(f"import sys\n{given}{birth}{EPOCH}") == "AMP030"


HOLDS_ALL = {
    "both of two lists": (
        "weights, biases = [], []\nfor name, p in model.named_parameters():\n"
        "    if 'bias' in name:\n        biases.append(p)\n    else:\n        weights.append(p)\n"
        "params = [{'params': weights, 'lr': 0.1}, {'params': biases}]\n"
    ),
    "all that are not frozen": (
        "params = []\nfor name, p in model.named_parameters():\n"
        "    if not p.requires_grad:\n        continue\n    params.append(p)\n"
    ),
    "the same by either branch": (
        "if len(data) > 3:\n    params = model.parameters()\n"
        "else:\n    params = list(model.parameters())\n"
    ),
}


@pytest.mark.parametrize("name", HOLDS_ALL)
def test_an_optimizer_that_holds_all(name: str) -> None:
    birth = "opt = torch.optim.SGD(params, lr=0.1)\n"
    assert "scaler.unscale_(opt)" in migrated(f"{HOLDS_ALL[name]}{birth}{EPOCH}")


FROZEN = (
    "for p in model[0].parameters():\n    p.requires_grad = False\n"
    "opt = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)\n"
)
THAW = "for p in model[0].parameters():\n    p.requires_grad = True\n"


def test_layers_that_are_thawed_behind_the_birth() -> None:
    assert left_alone(f"{FROZEN}{THAW}{EPOCH}") == "AMP011"
    (told,) = migrate_source(f"{HEAD}{FROZEN}{THAW}{EPOCH}").loops
    assert told.diagnostic and "get gradients again" in told.diagnostic.message
    assert "scaler.unscale_(opt)" in migrated(f"{FROZEN}{EPOCH}")
    assert "scaler.unscale_(opt)" in migrated(f"{FROZEN}{THAW}{SGD}{EPOCH}")


def test_layers_that_are_thawed_where_nothing_reads_gradients() -> None:
    pytest.importorskip("torch")
    from exactness import check_scaled

    body = f"{FROZEN}{THAW}{EPOCH}".replace(
        "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n", ""
    )
    assert check_scaled(HEAD + body, HEAD + migrated(body)) == []


HANDED_BACK = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.fc = nn.Linear(8, 16), nn.Linear(16, 9)

    def forward(self, x):
        return self.fc(torch.relu(self.body(x)))


def fit(model, opt):
    for x, y in data:
        opt.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        opt.step()
    return model


first = Net()
first.fc = nn.Linear(16, 3)
first_opt = torch.optim.SGD(first.to(device).parameters(), lr=0.1)
first = fit(first, first_opt)
second = Net()
for p in second.parameters():
    p.requires_grad = False
second.fc = nn.Linear(16, 3)
second_opt = torch.optim.SGD(second.to(device).fc.parameters(), lr=0.1)
second = fit(second, second_opt)
"""


def test_a_model_that_is_handed_back_and_another_of_its_class() -> None:
    assert migrated(HANDED_BACK).count("GradScaler") == 2


LATE = """\
for x, y in data:
    loss = criterion(model(x), y)
    loss.backward()
    opt.step()
    opt.zero_grad()
"""
PLAIN = """\
class Net(nn.Module):
    def __init__(self, width=3):
        super(Net, self).__init__()
        self.build(width)

    def build(self, width):
        self.fc = nn.Linear(8, width)

    def forward(self, x):
        return self.fc(x)


"""
AROUND = """\
class Around(nn.Module):
    def __init__(self, GIVEN):
        super().__init__()
        self.net = NET

    def forward(self, x):
        return self.net(x)


"""
NEW_PAIRS = {
    "a layer": "model = nn.Linear(8, 3).to(device)\n",
    "layers in a row": (
        "model = nn.Sequential(nn.Linear(8, 5), nn.ReLU(), nn.Linear(5, 3))\n"
        "model = model.to(device)\nprint(model)\nmodel.train()\n"
    ),
    "a class": "width = 3\nmodel = Net(width).to(device)\n",
    "a class with parameters like others": (
        "start = torch.zeros(3)\nclass Biased(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        self.fc = nn.Linear(8, 3)\n"
        "        self.b = nn.Parameter(torch.randn_like(start))\n"
        "    def forward(self, x):\n        return self.fc(x) + self.b\n"
        "model = Biased().to(device)\n"
    ),
    "what a function makes": (
        "def create():\n    net = nn.Sequential()\n    net.add_module('fc', nn.Linear(8, 3))\n"
        "    net.add_module('act', nn.ReLU())\n    return net\nmodel = create().to(device)\n"
    ),
    "one for each turn": (
        f"for _ in range(2):\n    model = Net().to(device)\n    {SGD}{inside(LATE)}"
        "model = Net().to(device)\n"
    ),
}


@pytest.mark.parametrize("name", NEW_PAIRS)
def test_a_new_model_has_no_gradients(name: str) -> None:
    pytest.importorskip("torch")
    from exactness import check_off, check_scaled

    body = f"{PLAIN}{SGD}{EPOCH}{NEW_PAIRS[name]}{SGD}{LATE}"
    after = HEAD + migrated(body)
    assert check_off(HEAD + body, after) == []
    assert check_scaled(HEAD + body, after) == []


GRADIENTS_LEFT = {
    "no new model": "",
    "what a function hands out again": (
        "held = model\ndef create():\n    return held\nmodel = create()\n"
    ),
    "what a function makes with an old layer": (
        "held = model[0]\ndef create():\n    net = nn.Sequential()\n    net.add_module('a', held)\n"
        "    net.add_module('b', nn.Linear(16, 3))\n    return net\nmodel = create().to(device)\n"
    ),
    "what a function keeps": (
        "import functools\n@functools.lru_cache(None)\ndef create():\n"
        "    return nn.Linear(8, 3).to(device)\nmodel = create()\n"
        f"{SGD}{EPOCH}model = create()\n"
    ),
    "what a function makes or hands out": (
        "held = model\ndef create(new=False):\n    if new:\n        return nn.Linear(8, 3)\n"
        "    return held\nmodel = create()\n"
    ),
    "an old layer": "model = nn.Sequential(model[0], nn.Linear(16, 3)).to(device)\n",
    "an old layer in a list": (
        "layers = []\nlayers.append(model)\nmodel = nn.Sequential(*layers)\n"
    ),
    "an old layer in a list of a class": (
        f"{AROUND.replace('GIVEN', 'given').replace('NET', 'given[0]')}"
        "layers = []\nlayers.append(model)\nmodel = Around(layers)\n"
    ),
    "an old model": f"{AROUND.replace('GIVEN', 'net').replace('NET', 'net')}model = Around(model)\n",
    "an old model from outside": (
        f"{AROUND.replace(', GIVEN', '').replace('NET', 'model')}old, model = model, None\n"
        "model = old\nmodel = Around()\n"
    ),
    "an old model as a default": (
        f"{AROUND.replace('GIVEN', 'net=model').replace('NET', 'net')}model = Around()\n"
    ),
    "an old model of the class": (
        "class Net(nn.Module):\n    kept = model\n\n    def __init__(self):\n"
        "        super().__init__()\n        self.net = self.kept\n\n"
        "    def forward(self, x):\n        return self.net(x)\n\n\nmodel = Net()\n"
    ),
    "an old layer put in": (
        "old = model\nmodel = Net().to(device)\nmodel.fc = nn.Sequential(*old)\n"
    ),
    "an old layer put in by a function": (
        "def put(to, layer):\n    to.fc = layer\n\n\n"
        "old = model\nmodel = Net().to(device)\nput(model, old)\n"
    ),
    "a backward between": (
        "model = Net().to(device)\nfor x, y in data:\n    model(x).sum().backward()\n"
    ),
    "a new model under a condition": (
        "import sys\nif len(sys.argv) > 9:\n    model = Net().to(device)\n"
    ),
}


@pytest.mark.parametrize("name", GRADIENTS_LEFT)
def test_what_is_not_all_new_may_have_gradients(name: str) -> None:
    body = f"{PLAIN}{SGD}{EPOCH}{GRADIENTS_LEFT[name]}{SGD}{LATE}"
    compile(HEAD + body, "train.py", "exec")
    assert left_alone(body)


def test_old_parameters_that_are_added_have_gradients() -> None:
    body = f"{PLAIN}{SGD}{EPOCH}old = model\nmodel = Net().to(device)\n{SGD}"
    assert left_alone(
        f"{body}opt.add_param_group(dict(params=old.parameters()))\n{LATE}"
    )


TASKS = """\
import sys


class Learner:
    def __init__(self):
        self.net = make().to(device)

    def task(self):
        if "adam" in sys.argv:
            opt = torch.optim.Adam(self.net.parameters(), lr=0.01)
        elif "sgd" not in sys.argv:
            opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
        KEPT
        self.epoch(opt)
        self.net = make().to(device)

    def epoch(self, opt):
        for x, y in data:
            opt.zero_grad()
            loss = criterion(self.net(x), y)
            loss.backward()
            nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
            opt.step()


learner = Learner()
for _ in range(2):
    learner.task()
"""


def test_an_optimizer_that_is_a_variable_of_each_call() -> None:
    pytest.importorskip("torch")
    from exactness import check_scaled

    text = TASKS.replace("        KEPT\n", "")
    assert check_scaled(HEAD + text, HEAD + migrated(text)) == []


def test_an_optimizer_that_outlives_its_call() -> None:
    kept = "if not hasattr(self, 'opt'):\n            self.opt = opt\n        opt = self.opt"
    assert left_alone(TASKS.replace("KEPT", kept))


GROUPED = f"""\
class Net(nn.Module):
    def __init__(self):
        body = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        super().__init__()
        self.body, self.head = body, nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.body(x))

    def groups(self):
        return [{{"params": self.body.parameters()}}, {{"params": self.head.parameters()}}]


def train(net, opt):
    for x, y in data:
        opt.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        opt.step()


{NEW.replace("make()", "Net()")}{SGD.replace("parameters", "groups")}"""
FIT = """\
def fit(net):
    opt = torch.optim.SGD(net.groups(), lr=0.1)
    START
    train(net, opt)


fit(Net().to(device))
"""
OTHER = "other = Net().to(device)\n"
ANOTHER = {
    "a model of its class": f"{OTHER}train(model, opt)\nprint(other)\n",
    "one with an optimizer of its own, trained before": (
        f"{OTHER}adam = torch.optim.Adam(other.groups(), lr=0.1)\ntrain(other, adam)\n"
        "model.load_state_dict(other.state_dict())\ntrain(model, opt)\n"
    ),
    "one in a function that is given a model": FIT.replace("START", "ema = Net()"),
}
TAKES_ITS_PLACE = {
    "the other is trained": f"{OTHER}train(other, opt)\n",
    "both are": f"{OTHER}for net in (model, other):\n    train(net, opt)\n",
    "by name": f"train(model, opt)\n{OTHER.replace('other', 'model')}train(model, opt)\n",
    "by way of another name": f"{OTHER}model = other\ntrain(model, opt)\n",
    "by what made it": "model.__init__()\nmodel.to(device)\ntrain(model, opt)\n",
}


@pytest.mark.parametrize("name", ANOTHER)
def test_another_of_the_class_that_gives_the_parameters(name: str) -> None:
    pytest.importorskip("torch")
    from exactness import check_scaled

    text = GROUPED + ANOTHER[name]
    assert check_scaled(HEAD + text, HEAD + migrated(text)) == []


@pytest.mark.parametrize("name", TAKES_ITS_PLACE)
def test_another_of_the_class_in_place_of_the_model(name: str) -> None:
    text = GROUPED + TAKES_ITS_PLACE[name]
    assert left_alone(text) == "AMP011"


def test_a_parameter_that_is_bound_anew() -> None:
    text = GROUPED + FIT.replace("START", "net = Net().to(device)")
    assert left_alone(text) == "AMP011"


AVERAGED = """\
import copy
def freeze(net):
    for p in net.parameters():
        p.requires_grad = False
def rest():
    print("at rest")
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.fast = nn.Linear(8, 3)
        self.slow = copy.deepcopy(self.fast)
        freeze(self.slow)
    def renew(self):
        self.slow = copy.deepcopy(self.fast)
        FREEZE
    def forward(self, x):
        return self.fast(x) + self.slow(x)
model = Both().to(device)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    loss = criterion(model(x), y)
    loss.backward()
    opt.step()
    opt.zero_grad()
    model.renew()
"""
AT_REST = {
    "by a function": "freeze(self.slow)",
    "by a method": "self.slow.requires_grad_(False)",
    "by a loop": "for p in self.slow.parameters():\n            p.requires_grad = False",
}
NOT_AT_REST = {
    "another": "freeze(self.fast)",
    "perhaps": "if self.training:\n            freeze(self.slow)",
    "unless it is left": "if not self.training:\n            return\n        freeze(self.slow)",
    "by what takes nothing": "rest(self.slow)",
    "and thawed": "freeze(self.slow)\n        self.requires_grad_()",
}


@pytest.mark.parametrize("name", AT_REST)
def test_what_gets_no_gradients_is_made_anew(name: str) -> None:
    pytest.importorskip("torch")
    from exactness import check_scaled

    text = AVERAGED.replace("FREEZE", AT_REST[name])
    assert check_scaled(HEAD + text, HEAD + migrated(text)) == []


@pytest.mark.parametrize("name", NOT_AT_REST)
def test_what_may_get_gradients_is_made_anew(name: str) -> None:
    assert left_alone(AVERAGED.replace("FREEZE", NOT_AT_REST[name])) == "AMP011"


BESIDE = """
import copy

import torch
from torch import nn


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 3)
        self.average = copy.deepcopy(self.net)

    def forward(self, x):
        return self.net(x)


class Trainer:
    def __init__(self):
        self.model = Both().cuda()
        params = list(self.model.net.parameters())
        self.optimizer = torch.optim.SGD(params, lr=0.1)
        self.model.PART = copy.deepcopy(self.model.net)

    def step(self, x):
        loss = self.model(x).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.net.parameters(), 1.0)
        self.optimizer.step()


trainer = Trainer()
for _ in range(3):
    trainer.step(torch.randn(4, 8).cuda())
"""


def test_a_copy_beside_what_the_optimizer_holds_is_made_anew() -> None:
    assert migrated(BESIDE.replace("PART", "average"))
    assert left_alone(BESIDE.replace("PART", "net")) == "AMP011"


def test_a_parameter_is_given_other_numbers() -> None:
    """By a function that may move a module, too."""
    moved = """
        self.model.net.weight.data = moved(self.model.net.weight.data)
"""
    text = BESIDE.replace("PART", "average").replace(
        "        loss = self.model(x)", moved + "        loss = self.model(x)"
    )
    helper = "\n\ndef moved(x):\n    return x.to(device)\n"
    text = text.replace("\n\nclass Trainer", helper + "\n\nclass Trainer")
    text = text.replace("import torch\n", "import torch\n\ndevice = 'cuda'\n", 1)
    assert migrated(text + "moved(Both())\n")
