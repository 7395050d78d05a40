"""An optimizer's state that is saved or loaded through another object, by name, or out of a list: the
scaler's goes along, or the loop is left alone, or a note says where it is missing. What stays in memory
needs none.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from programs import HEAD, before_and_after, left_alone, migrated, trains_as_before

from amp_migrate.api import migrate_paths, migrate_source
from amp_migrate.cli.main import main

STEPS = """\
        for x, y in data:
            self.optimizer.zero_grad()
            loss = criterion(self.model(x), y)
            loss.backward()
            self.optimizer.step()
"""
LEARNER = f"""\
class Learner:
    def __init__(self, model, optimizer, callbacks=()):
        self.model, self.optimizer = model, optimizer
        self.callbacks = list(callbacks)
        for callback in self.callbacks:
            ATTACH

    def fit(self):
{STEPS}        for callback in self.callbacks:
            CALL


BODY
learner = Learner(model, torch.optim.SGD(model.parameters(), lr=0.1), [Saver()])
learner.fit()
"""
SAVER = """\
class Saver:
    def attach(self, learner):
        self.learner = learner

    def after(self):
        torch.save({"optimizer": self.learner.optimizer.state_dict()}, "c.pt")
"""
TRAINER = f"""\
class Trainer(BASES):
    def __init__(self):
        self.model = model
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def fit(self):
{STEPS}
BODY
trainer = Trainer()
trainer.fit()
"""


def learner(body: str, attach: str = "callback.attach(self)", call: str = "") -> str:
    text = LEARNER.replace("ATTACH", attach).replace("BODY\n", body)
    return text.replace("CALL", call or "callback.after()")


def trainer(body: str, bases: str = "") -> str:
    indented = "".join(f"    {line}\n" for line in body.splitlines())
    bases = f"({bases})" if bases else ""
    return TRAINER.replace("BODY\n", indented).replace("(BASES)", bases)


FOLLOWED = {
    "a callback that is told": (learner(SAVER), "self.learner.scaler.state_dict()"),
    "by its base": (
        learner(
            SAVER.replace("Saver:", "Callback:").replace(
                "    def after", "\nclass Saver(Callback):\n    def after"
            )
        ),
        "self.learner.scaler.state_dict()",
    ),
    "an attribute of a callback": (
        learner(
            "class Saver:\n    learner = None\n\n    def after"
            + SAVER.partition("    def after")[2],
            attach="callback.learner = self",
        ),
        "self.learner.scaler.state_dict()",
    ),
    "an argument of a callback": (
        learner(
            "class Saver:\n    def after(self, of):\n"
            '        torch.save({"optimizer": of.optimizer.state_dict()}, "c.pt")\n',
            attach="pass",
            call="callback.after(self)",
        ),
        "of.scaler.state_dict()",
    ),
    "a mixin": (
        "class Saved:\n    def save(self):\n"
        '        torch.save({"optimizer": self.optimizer.state_dict()}, "c.pt")\n\n\n'
        + trainer("", "Saved"),
        "self.scaler.state_dict()",
    ),
    "loaded by a mixin": (
        "class Loaded:\n    def load(self, found):\n"
        '        self.optimizer.load_state_dict(found["optimizer"])\n\n\n'
        + trainer("", "Loaded"),
        'self.scaler.load_state_dict(found["scaler"])',
    ),
    "loaded by a callback": (
        learner(
            SAVER.replace(
                'torch.save({"optimizer": self.learner.optimizer.state_dict()}, "c.pt")',
                'self.learner.optimizer.load_state_dict(torch.load("c.pt"))',
            ).replace('torch.load("c.pt")', 'found["optimizer"]')
        ).replace("class Saver", 'found = torch.load("c.pt")\n\n\nclass Saver'),
        'self.learner.scaler.load_state_dict(found["scaler"])',
    ),
    "one of its attributes that is asked for by its name": (
        trainer(
            "def save(self):\n"
            "    if self.__dict__.get('optimizer') is None:\n"
            "        raise AttributeError('optimizer')\n"
            '    torch.save({"optimizer": self.optimizer.state_dict()}, "c.pt")\n'
        ),
        "self.scaler.state_dict()",
    ),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_followed(name: str) -> None:
    source, written = FOLLOWED[name]
    assert migrated(source).count(written) == 1
    assert migrate_source(HEAD + source, path="train.py").notes == ()


def test_a_callback_trains_as_before() -> None:
    source = learner(SAVER)
    lines = [f"-{line}" for line in source.splitlines(keepends=True)]
    lines += [f"+{line}" for line in migrated(source).splitlines(keepends=True)]
    diff = "".join(lines)
    assert before_and_after(diff)[0] == source
    trains_as_before(diff)


# `# NOTE` marks the lines that a note is expected for.
NOTED = {
    "a function that is called back": learner(
        """\
def save(of):
    torch.save({"optimizer": of.optimizer.state_dict()}, "c.pt")  # NOTE
def Saver():
    return save
""",
        attach="pass",
        call="callback(self)",
    ),
    "one of several trainers": """\
class Agent:
    def __init__(self):
        self.net = make().to(device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
    def learn(self, x, y):
        self.opt.zero_grad()
        loss = criterion(self.net(x), y)
        loss.backward()
        self.opt.step()
agents = {name: Agent() for name in "ab"}
for x, y in data:
    for agent in agents.values():
        agent.learn(x, y)
for name, agent in agents.items():
    torch.save({"opt": agent.opt.state_dict(), "net": agent.net.state_dict()}, name)  # NOTE
for agent in agents.values():
    agent.opt.load_state_dict(torch.load("a")["opt"])  # NOTE
""",
    "where it is made, before its scaler is": """\
def create(saved):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if saved is not None:
        optimizer.load_state_dict(saved["optimizer"])  # NOTE
    return model, optimizer
net, opt = create(None)
for x, y in data:
    opt.zero_grad()
    loss = criterion(net(x), y)
    loss.backward()
    opt.step()
torch.save({"optimizer": opt.state_dict()}, "c.pt")
""",
    "names put together": trainer("""\
def save(self):
    torch.save({k: getattr(self, k).state_dict() for k in ("model", "optimizer")}, "c.pt")  # NOTE
"""),
    "names gone through": trainer("""\
def save(self, saved):
    for name in ("model", "optimizer"):
        saved[name] = getattr(self, name).state_dict()  # NOTE
"""),
    "attributes gone through": trainer("""\
def save(self, saved):
    for name in dir(self):
        value = getattr(self, name)
        if isinstance(value, torch.optim.Optimizer):
            saved[name] = value.state_dict()  # NOTE
"""),
    "a method that returns it": trainer("""\
def get(self):
    return self.optimizer
""")
    + """\
def save(of):
    torch.save({"optimizer": of.get().state_dict()}, "c.pt")  # NOTE
for one in [save]:
    one(trainer)
""",
    "its scheduler": trainer("")
    + """\
schedule = torch.optim.lr_scheduler.StepLR(trainer.optimizer, 2)
torch.save({"optimizer": schedule.optimizer.state_dict()}, "c.pt")  # NOTE
""",
    "a function that nothing calls": """\
def load(path, net, optimizer):
    found = torch.load(path)
    net.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])  # NOTE
"""
    + trainer(""),
    "all variables": trainer("")
    + 'torch.save({k: v.state_dict() for k, v in globals().items()}, "c.pt")  # NOTE\n',
    "a library that saves": "from keeping import save_checkpoint\n"
    + trainer('def save(self):\n    save_checkpoint("c.pt", {"all": self})  # NOTE\n'),
    "the whole object": trainer(
        'def save(self):\n    torch.save(self, "c.pt")  # NOTE\n'
    ),
    "out of a list that grows": trainer("") + "parts = [model]\n"
    "parts.append(trainer.optimizer)\n"
    "torch.save([part.state_dict() for part in parts], 'c.pt')  # NOTE\n",
    "out of a list": trainer("") + "parts = [model, trainer.optimizer]\n"
    "torch.save([part.state_dict() for part in parts], 'c.pt')  # NOTE\n"
    "found = torch.load('c.pt')\n"
    "for part, state in zip(parts, found):\n    part.load_state_dict(state)  # NOTE\n",
    "out of a dict": trainer(
        "def save(self):\n    self.parts = {'model': self.model, 'optimizer': self.optimizer}\n"
        "    torch.save({k: part.state_dict() for k, part in self.parts.items()}, 'c.pt')  # NOTE\n"
        "def load(self):\n    found = torch.load('c.pt')\n"
        "    for name, part in self.parts.items():\n"
        "        part.load_state_dict(found[name])  # NOTE\n"
    )
    + "trainer.save()\ntrainer.load()\n",
    "by a function that is given a dict": "def save(parts):\n"
    "    torch.save({k: v.state_dict() for k, v in parts.items()}, 'c.pt')  # NOTE\n"
    + trainer("")
    + "parts = {'model': model, 'optimizer': trainer.optimizer}\nsave(parts)\n",
}


@pytest.mark.parametrize("name", NOTED)
def test_noted(name: str) -> None:
    source = HEAD + NOTED[name]
    migrated(NOTED[name])
    result = migrate_source(source, path="train.py")
    expected = [
        number
        for number, line in enumerate(source.splitlines(), 1)
        if line.endswith("# NOTE")
    ]
    assert expected and [note.place.line for note in result.notes] == expected
    for note in result.notes:
        assert any(note.message in line for line in result.plan)
    # Written out, they are still there.
    again = migrate_source(result.output, path="train.py")
    assert again.output == result.output


SILENT = {
    "the model's": trainer(
        'def save(self):\n    torch.save(self.model.state_dict(), "c")\n'
    ),
    "a model behind a callback": learner(SAVER.replace(".optimizer", ".model")),
    "any model": "def save(net):\n    torch.save(net.state_dict(), 'c.pt')\n"
    + trainer(""),
    "another library's": "import zoo\nema = zoo.EMA(model)\n"
    + trainer('def save(self):\n    torch.save(ema.module.state_dict(), "c.pt")\n'),
    "another class's": """\
class Plan:
    def state_dict(self):
        return {}
class Other:
    def __init__(self):
        self.optimizer = Plan()
    def save(self):
        return {"optimizer": self.optimizer.state_dict()}
"""
    + trainer(""),
    "the scaler's among all attributes": trainer("""\
def save(self):
    torch.save({k: v.state_dict() for k, v in vars(self).items() if k != "data"}, "c.pt")
"""),
}


@pytest.mark.parametrize("name", SILENT)
def test_nothing_to_note(name: str) -> None:
    migrated(SILENT[name])
    assert migrate_source(HEAD + SILENT[name], path="train.py").notes == ()


MANAGER = """\
class Manager:
    def __init__(self):
        self.objects = {}
    def track(self, **objects):
        self.objects.update(objects)
    def save(self, path):
        torch.save({n: o.state_dict() for n, o in self.objects.items()}, path)
"""
REFUSED = {
    "by name": (
        MANAGER
        + trainer("")
        + "manager = Manager()\nmanager.track(net=model, optimizer=trainer.optimizer)\n",
        "AMP040",
    ),
    "saved by name": (
        "def save(path, **states):\n"
        "    torch.save({n: s.state_dict() for n, s in states.items()}, path)\n"
        + trainer('def save(self):\n    save("c.pt", optimizer=self.optimizer)\n'),
        "AMP040",
    ),
    "a whole collection": (
        trainer("") + "parts = [model, trainer.optimizer]\ntorch.save(parts, 'c.pt')\n",
        "AMP012",
    ),
    "a bound method of each of a collection": (
        trainer("") + "parts = [model]\nparts.append(trainer.optimizer)\n"
        "torch.save([part.state_dict for part in parts], 'c.pt')\n",
        "AMP012",
    ),
    "a collection that is handed on": (
        trainer("")
        + 'parts = {"net": model, "optimizer": trainer.optimizer}\nkeep(parts)\n',
        "AMP012",
    ),
    "each of a collection that is handed on": (
        trainer("")
        + 'parts = {"net": model, "optimizer": trainer.optimizer}\n'
        + "for part in parts.values():\n    keep(part)\n",
        "AMP010",
    ),
    "stepped by name": (
        "def step(**optimizers):\n    for one in optimizers.values():\n        one.step()\n"
        + trainer("def more(self):\n    step(a=self.optimizer)\n"),
        "AMP031",
    ),
    "stepped out of a list": (
        "def step(*optimizers):\n    for one in optimizers:\n        one.step()\n"
        + trainer("def more(self):\n    step(self.optimizer)\n"),
        "AMP031",
    ),
    "stepped by a callback": (
        learner(
            "class Saver:\n    def attach(self, learner):\n        self.learner = learner\n"
            "    def after(self):\n        self.learner.optimizer.step()\n"
        ),
        "AMP031",
    ),
    "stepped by a function that is called back": (
        learner(
            "def step(of):\n    of.optimizer.step()\ndef Saver():\n    return step\n",
            attach="pass",
            call="callback(self)",
        ),
        "AMP010",
    ),
    "each attribute's state is loaded": (
        trainer(
            "def load(self, saved):\n    for k, v in self.__dict__.items():\n"
            "        v.load_state_dict(saved[k])\n"
        ),
        "AMP040",
    ),
    "each attribute's state is loaded, by vars": (
        trainer(
            "def load(self, saved):\n    for k, v in vars(self).items():\n"
            "        v.load_state_dict(saved[k])\n"
        ),
        "AMP040",
    ),
    "the whole object, loaded again": (
        trainer('def save(self):\n    torch.save(self, "c.pt")\n')
        + 'trainer = torch.load("c.pt")\n',
        "AMP040",
    ),
    "its state alone": (
        trainer(
            'def save(self):\n    torch.save({"o": self.optimizer.state}, "c.pt")\n'
        ),
        "AMP040",
    ),
    "a bound method": (
        trainer(
            "def save(self):\n    get = self.optimizer.state_dict\n    torch.save(get(), 'c.pt')\n"
        ),
        "AMP040",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    source, code = REFUSED[name]
    assert left_alone(source) == code


# --- copies that stay in memory: the scale goes on as it is ----------------------------------------

LOOP = """\
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
BEFORE
for x, y in data:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    INSIDE
AFTER
"""


def loop(inside: str = "pass", before: str = "pass", after: str = "pass") -> str:
    text = LOOP.replace("BEFORE", before).replace("AFTER", after)
    return text.replace("INSIDE", inside.replace("\n", "\n    "))


BOX = """\
class Box:
    pass
class Task:
    def __init__(self):
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.box = Box()
    def fit(self):
        for x, y in data:
            self.optimizer.zero_grad()
            criterion(model(x), y).backward()
            self.optimizer.step()
            self.box.kept = self.optimizer.state_dict()
task = Task()
task.fit()
"""
KEPT = "kept = optimizer.state_dict()"
COPIED = "import copy\nkept = copy.deepcopy(optimizer.state_dict())"
LOAD = "optimizer.load_state_dict(kept)"
IN_MEMORY = {
    "a copy": loop(f"if loss > 2:\n    {LOAD}\nkept = optimizer.state_dict()", COPIED),
    "none at first": loop(f"if kept is not None:\n    {LOAD}\n{KEPT}", "kept = None"),
    "by two names": loop(
        "old, kept = kept, copy.deepcopy(optimizer.state_dict())\n"
        "optimizer.load_state_dict(old)",
        COPIED,
    ),
    "for another optimizer": loop(
        f"{KEPT}\nother = torch.optim.Adam(model.parameters())\nother.load_state_dict(kept)"
    ),
    "by functions": "def take(one):\n    return one.state_dict()\n"
    "def give(one, state):\n    one.load_state_dict(state)\n"
    + loop("give(optimizer, kept)", "kept = take(optimizer)"),
    "an attribute": BOX + "task.optimizer.load_state_dict(task.box.kept)\n",
    "printed": loop("print(optimizer.state_dict())"),
    "a learning rate": loop('print(optimizer.state_dict()["param_groups"][0]["lr"])'),
    "a learning rate that is saved": loop(
        'torch.save({"lr": optimizer.state_dict()["param_groups"][0]["lr"]}, "c.pt")'
    ),
    "new groups": "def load(path, one):\n    found = torch.load(path)\n"
    "    kept = one.state_dict()\n    kept['param_groups'] = found['param_groups']\n"
    "    one.load_state_dict(kept)\n" + loop(after='load("c.pt", optimizer)'),
}


@pytest.mark.parametrize("name", IN_MEMORY)
def test_a_copy_in_memory(name: str) -> None:
    output = migrated(IN_MEMORY[name])
    assert "scaler.state_dict" not in output and "scaler.load" not in output
    assert migrate_source(HEAD + IN_MEMORY[name], path="train.py").notes == ()


BY_NAME = {
    "in a dict": f'{KEPT}\ntorch.save({{"optimizer": kept}}, "c.pt")',
    "in a call of dict": f'{KEPT}\ntorch.save(dict(optimizer=kept), "c.pt")',
    "put into a dict": f'{KEPT}\nsaved = {{}}\nsaved["optimizer"] = kept\ntorch.save(saved, "c.pt")',
    "a copy of it": "import copy\nsaved = {'optimizer': copy.deepcopy(optimizer.state_dict())}\n"
    "torch.save(saved, 'c.pt')",
    "beside a file of that kind": f"torch.save(data, 'opt.pt')\n{KEPT}\ntorch.save(kept, 'optimizer.pt')",
    "in a file of its own": f"{KEPT}\ntorch.save(kept, 'optimizer.pt')",
    "a copy in a file of its own": "from copy import deepcopy\n"
    "torch.save(deepcopy(optimizer.state_dict()), 'optimizer.pt')",
}


@pytest.mark.parametrize("name", BY_NAME)
def test_saved_by_a_name(name: str) -> None:
    assert migrated(loop(BY_NAME[name])).count("scaler.state_dict()") == 1


LEAVES = {
    "in files that would have twins of one name": loop(
        f"{KEPT}\nlast = model.state_dict()\ntorch.save(kept, 'optimizer.pt')\n"
        "torch.save(last, 'opt.pt')"
    ),
    "by another name": loop(
        after='other = kept\ntorch.save(other, "c.pt")', before=KEPT
    ),
    "in a function": loop(before=f"{KEPT}\ndef save():\n    torch.save(kept, 'c.pt')"),
    "in a lambda": loop(before=f"{KEPT}\nsave = lambda: torch.save(kept, 'c.pt')"),
    "in a tuple": loop("kept = (model.state_dict(), optimizer.state_dict())"),
    "in a list": loop(before="kept = []", inside="kept.append(optimizer.state_dict())"),
    "given to who knows": loop(f"{KEPT}\nsend(kept)"),
    "given to a function that saves": "def send(state):\n    torch.save(state, 'c.pt')\n"
    + loop("send(optimizer.state_dict())"),
    "only where there is one": "def save(one):\n"
    "    kept = one.state_dict() if one is not None else None\n"
    "    torch.save({'optimizer': kept}, 'c.pt')\n"
    + loop("save(optimizer)\nsave(None)"),
    "behind a test": "def save(one):\n    kept = None\n    if one is not None:\n"
    "        kept = one.state_dict()\n    torch.save({'optimizer': kept}, 'c.pt')\n"
    + loop("save(optimizer)\nsave(None)"),
    "an attribute": BOX + "torch.save(task.box.kept, 'c.pt')\n",
    "an attribute of who knows": BOX
    + "def save(box):\n    torch.save(box.kept, 'c.pt')\nfor box in [task.box]:\n    save(box)\n",
    "an attribute of one of several": BOX
    + "class Other:\n    kept = None\n"
    + "box = task.box if data else Other()\ntorch.save(box.kept, 'c.pt')\n",
    "an attribute by its name": BOX + "torch.save(getattr(task.box, 'kept'), 'c.pt')\n",
    "its object": BOX + "torch.save(task.box, 'c.pt')\n",
    "all of its object": BOX + "torch.save(vars(task.box), 'c.pt')\n",
}


@pytest.mark.parametrize("name", LEAVES)
def test_a_copy_that_may_leave_the_memory(name: str) -> None:
    """The scaler's state is an entry of it, wherever it goes."""
    output = migrated(LEAVES[name])
    entry = r'\{\*\*[\w.]+\.state_dict\(\), "scaler": [\w.]+\.state_dict\(\)\}'
    assert len(re.findall(entry, output)) == 1
    assert output.count("scaler.state_dict()") == 1


IN_PARTS = {
    "entry by entry": loop(f"{KEPT}\ntorch.save([v for v in kept.values()], 'c.pt')"),
    "its moments": loop("torch.save(optimizer.state_dict()['state'], 'c.pt')"),
}


@pytest.mark.parametrize("name", IN_PARTS)
def test_a_copy_that_leaves_in_parts(name: str) -> None:
    assert left_alone(IN_PARTS[name]) == "AMP040"


def test_loaded_from_a_file_or_not() -> None:
    source = loop(f"{LOAD}\n{KEPT}", "kept = torch.load('c.pt')")
    assert migrated(source).count('scaler.load_state_dict(kept["scaler"])') == 1


_BY_NAME = (
    "def load(saved, **states):\n"
    "    for name, state in states.items():\n"
    "        state.load_state_dict(saved[name])\n"
)


def test_loaded_by_name() -> None:
    """An optimizer alone gets its scaler's; what may be a model's is no place for it."""
    own = "def load(self, saved):\n    load(saved, optimizer=self.optimizer)\n"
    output = migrated(_BY_NAME + trainer(own))
    assert "scaler.load_state_dict(optimizer_state" in output
    mixed = own.replace("saved, o", "saved, model=self.model, o")
    assert "load_state_dict(optimizer_state" not in migrated(_BY_NAME + trainer(mixed))


def test_learning_rates_are_no_state() -> None:
    save = 'torch.save({"lr": self.optimizer.param_groups[0]["lr"]}, "c.pt")'
    migrated(trainer(f"def save(self):\n    {save}\n"))


def test_saved_in_one_file_and_loaded_in_another(tmp_path: Path) -> None:
    body = 'def save(self):\n    torch.save({"optimizer": self.optimizer.state_dict()}, "c.pt")\n'
    text = (HEAD + trainer(body)).replace("trainer = Trainer()\ntrainer.fit()\n", "")
    (tmp_path / "train.py").write_text(text)
    (tmp_path / "loading.py").write_text("""\
import torch


class Loader:
    def __init__(self, trainer):
        self.trainer = trainer

    def load(self, path):
        found = torch.load(path)
        self.trainer.optimizer.load_state_dict(found["optimizer"])
""")
    (tmp_path / "resume.py").write_text("""\
from loading import Loader
from train import Trainer

trainer = Trainer()
Loader(trainer).load("c.pt")
trainer.fit()
""")
    report = migrate_paths([tmp_path])
    texts = {Path(m.document.path).name: m.result.output for m in report.migrations}
    assert '"scaler": self.scaler.state_dict()' in texts["train.py"]
    assert 'self.trainer.scaler.load_state_dict(found["scaler"])' in texts["loading.py"]


def test_the_command_line_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(HEAD + NOTED["its scheduler"])
    line = HEAD.count("\n") + NOTED["its scheduler"].count("\n")
    for mode in ("--check", "--write"):
        said = CliRunner().invoke(main, [mode]).stderr
        assert f"train.py:{line}:1 note: the scaler's state is not saved here" in said
        Path("train.py").write_text(HEAD + NOTED["its scheduler"])
    plan = CliRunner().invoke(main, ["--explain-plan"]).stdout
    assert f"by hand at line {line}: the scaler's state is not saved here" in plan
