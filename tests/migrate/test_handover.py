"""An optimizer that somebody unseen may step: in a collection, in another's hands, under another name."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import HEAD, before_and_after, left_alone, migrated, trains_as_before
from shorthand import written_out

from amp_migrate.api import migrate_source

OPT = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
LOOP = """\
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    opt.step()
"""
TRAIN = "def train(opt):\n" + "".join(f"    {line}\n" for line in LOOP.splitlines())

LOOKED_AT = {
    "a scheduler": "scheduler = torch.optim.lr_scheduler.StepLR(opt, 2)\n",
    "a scheduler of schedulers": (
        "from torch.optim.lr_scheduler import LinearLR, SequentialLR\n"
        "scheduler = SequentialLR(opt, [LinearLR(opt), LinearLR(opt)], milestones=[2])\n"
    ),
    "a scheduler from another package": (
        "from transformers import get_linear_schedule_with_warmup\n"
        "scheduler = get_linear_schedule_with_warmup(opt, 0, 10)\n"
    ),
    "a function that sets the rate": (
        "def set_rate(o, rate):\n"
        "    for g in o.param_groups:\n"
        '        g["lr"] = rate\n'
        "set_rate(opt, 0.2)\n"
    ),
    "an object that sets the rate": (
        "class Rate:\n"
        "    def __init__(self, o):\n"
        "        self.o = o\n"
        "    def set(self, rate):\n"
        '        self.o.param_groups[0]["lr"] = rate\n'
        "Rate(opt).set(0.2)\n"
    ),
    "print and isinstance": "print(opt, isinstance(opt, torch.optim.Optimizer), len(opt.state))\n",
    "an assertion": "assert opt is not None\n",
    "a dict": 'state = {"opt": opt}\nprint(len(state))\n',
    "a list": "opts = [opt]\nfor o in opts:\n    print(f'{o}', o.param_groups[0]['lr'])\n",
    "a list that is filled": "opts = []\nif len(data) > 1:\n    opts.append(opt)\nprint(len(opts))\n",
    "schedulers for a list": (
        "def get_scheduler(o, wait):\n"
        "    def rate(epoch):\n"
        "        return 0.5**epoch\n"
        "    return torch.optim.lr_scheduler.LambdaLR(o, rate)\n"
        "opts = []\n"
        "opts.append(opt)\n"
        "schedulers = []\n"
        "for o in opts:\n"
        "    schedulers.append(get_scheduler(o, 1))\n"
        "    print('a scheduler for {0}'.format(o))\n"
    ),
    "a scheduler of one's own for a list": (
        "class Own(torch.optim.lr_scheduler.LambdaLR):\n"
        "    def __init__(self, o):\n"
        "        super().__init__(o, lambda epoch: 1.0)\n"
        "opts = []\n"
        "opts.append(opt)\n"
        "schedulers = []\n"
        "for o in opts:\n"
        "    schedulers.append(Own(o))\n"
    ),
    "a list whose rates a comprehension takes": (
        "opts = []\n"
        "opts.append(opt)\n"
        "rates = []\n"
        "for o in opts:\n"
        "    rates.append([group['lr'] for group in o.param_groups])\n"
    ),
    "an item of a dict": 'state = {}\nstate["opt"] = opt\nprint(len(state))\n',
    "an item of a dict, under a name": (
        "opts = {}\n"
        "def register(name, o):\n"
        "    opts[name] = o\n"
        "register('model', opt)\n"
        "for name in ('model',):\n"
        "    print(opts[name].param_groups[0]['lr'])\n"
    ),
    "a list of an object, which a callback looks at": (
        "class T:\n    def __init__(self):\n        self.optimizers = [opt]\n"
        "def on_end(trainer):\n    for o in trainer.optimizers:\n        print(o.defaults)\n"
        "keep = T()\n"
    ),
    "a pair that is unpacked": (
        "def set_rate(pair, rate):\n"
        "    first, net = pair\n"
        "    for g in first.param_groups:\n"
        '        g["lr"] = rate\n'
        "pair = (opt, model)\n"
        "set_rate(pair, 0.2)\n"
    ),
}


@pytest.mark.parametrize("name", LOOKED_AT)
def test_only_looked_at(name: str) -> None:
    assert "scaler.step(opt)" in migrated(OPT + LOOKED_AT[name] + LOOP)


HANDED_ON = {
    "a list that is stepped": (
        "opts = [opt]\ndef go():\n    for o in opts:\n        o.step()\ngo()\n",
        "AMP031",
    ),
    "a list that is handed on": (
        "from helpers import run\nopts = [opt]\nrun(opts)\n",
        "AMP012",
    ),
    "a list whose optimizers are kept": (
        "opts = []\nif len(data):\n    opts.append(opt)\nfor o in opts:\n    keep = o\n",
        "AMP012",
    ),
    "a list whose optimizers are handed on": (
        "from helpers import run\nopts = []\nif len(data):\n    opts.append(opt)\n"
        "for o in opts:\n    run(o)\n",
        "AMP012",
    ),
    "a filled list that is stepped": (
        "opts = []\nif len(data):\n    opts.append(opt)\n"
        "def go():\n    for o in opts:\n        o.step()\ngo()\n",
        "AMP031",
    ),
    "a list of an object, which a callback steps": (
        "class T:\n    def __init__(self):\n        self.optimizers = [opt]\n"
        "def on_end(trainer):\n    for o in trainer.optimizers:\n        o.step()\n"
        "keep = T()\n",
        "AMP012",
    ),
    "a dict that is looked up": (
        'import sys\nstate = {"opt": opt}\ndef go():\n    state[sys.argv[1]].step()\ngo()\n',
        "AMP012",
    ),
    "a pair whose optimizer is stepped": (
        "def go(pair):\n    first, net = pair\n    first.step()\ngo((opt, model))\n",
        "AMP012",
    ),
    "an item of a dict, under any name": (
        'state = {}\nstate["opt"] = opt\ndef go():\n    for name in state:\n'
        "        state[name].step()\ngo()\n",
        "AMP031",
    ),
    "a dict that gets it, to somebody": (
        'from helpers import run\nstate = {}\nstate["opt"] = opt\nrun(state)\n',
        "AMP012",
    ),
    "a dict that gets it, its items to somebody": (
        'from helpers import run\nstate = {}\nstate["opt"] = opt\n'
        "for name in state:\n    run(state[name])\n",
        "AMP010",
    ),
    "an imported function": ("from helpers import run\nrun(opt)\n", "AMP010"),
    "an imported class": ("from helpers import Run\nr = Run(opt)\n", "AMP010"),
    "a keyword": ("from helpers import run\nrun(optim=opt)\n", "AMP010"),
    "stars": ("from helpers import run\nrun(*opt)\n", "AMP010"),
    "a partial": (
        "import functools\ndef f(o):\n    o.step()\ng = functools.partial(f, opt)\n",
        "AMP010",
    ),
    "a function of a table": (
        'def f(o):\n    print(o)\ntable = {"f": f}\nfill(table)\ntable["f"](opt)\n',
        "AMP010",
    ),
    "pickle": ("import pickle\npickle.dumps(opt)\n", "AMP010"),
    "a checkpoint of the object": ('torch.save(opt, "o.pt")\n', "AMP040"),
    "a checkpoint of objects": ('torch.save([model, opt], "o.pt")\n', "AMP040"),
    "its step in a list": ("hooks = [opt.step]\n", "AMP016"),
    "its step under another name": ("go = opt.step\n", "AMP016"),
    "its step, wrapped by what reads gradients": (
        "def told(step):\n    def wrapper():\n        print(model.weight.grad)\n"
        "        return step()\n    return wrapper\nopt.step = told(opt.step)\n",
        "AMP016",
    ),
    "a framework": (
        "from accelerate import Accelerator\n"
        "model, opt = Accelerator().prepare(model, opt)\n",
        "AMP003",
    ),
}


@pytest.mark.parametrize("name", HANDED_ON)
def test_handed_on(name: str) -> None:
    lines, code = HANDED_ON[name]
    assert left_alone(OPT + lines + LOOP) == code


def test_a_step_of_one_that_is_made_on_the_loops_own_line() -> None:
    made = "torch.optim.Adam(model.parameters())"
    text = f"{OPT}{LOOP}for one in [{made}]:\n    one.step()\n"
    assert left_alone(text) == "AMP010"


COUNTED = """\
import weakref


class Scheduler:
    def __init__(self, optimizer):
        self.optimizer = optimizer

        def with_counter(method):
            held, func = weakref.ref(method.__self__), method.__func__

            def wrapper(*args, **kwargs):
                instance = held()
                instance.count += 1
                return func.__get__(instance, instance.__class__)(*args, **kwargs)

            wrapper.counts = True
            return wrapper

        self.optimizer.step = with_counter(self.optimizer.step)
        self.optimizer.count = 0

    def step(self):
        if not hasattr(self.optimizer.step, "counts"):
            print("wrapped again")


scheduler = Scheduler(opt)
"""


def test_a_scheduler_that_counts_steps() -> None:
    """As torch's own do: the scaler calls what stands under the name."""
    pytest.importorskip("torch")
    from exactness import check_scaled

    after = migrated(OPT + COUNTED + LOOP)
    assert "scaler.step(opt)" in after
    assert check_scaled(HEAD + OPT + COUNTED + LOOP, HEAD + after) == []


def test_a_filled_list_that_is_only_cleared() -> None:
    lines = (
        "opts = []\nif len(data):\n    opts.append(opt)\n"
        "def go():\n    for o in opts:\n        o.zero_grad()\ngo()\n"
    )
    assert "scaler.step(opt)" in migrated(OPT + lines + LOOP)


ONE_READ = """\
class Agent:
    def __init__(self):
        self.opts = {}

    def add(self, net):
        self.opts["model"] = torch.optim.SGD(net.parameters(), lr=0.1)

    def rate(self, names):
        name = names[0]
        return self.opts[name].param_groups[0]["lr"]

    def update(self, x, y):
        for name in self.opts:
            self.opts[name].zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        for name in self.opts:
            self.opts[name].step()


agent = Agent()
agent.add(model)
for x, y in data:
    agent.update(x, y)
print(agent.rate(["model"]))
"""


def test_one_of_a_collection_that_is_only_looked_at() -> None:
    pytest.importorskip("torch")
    from exactness import check_scaled

    after = migrated(ONE_READ)
    assert ".step(self.opts[name])" in after
    assert check_scaled(HEAD + ONE_READ, HEAD + after) == []


PUT_THERE = {
    "a parameter": (
        "add(self, opt)",
        "pass",
        "add(torch.optim.SGD(model.parameters(), lr=0.1))",
    ),
    "a variable": (
        "add(self, net)",
        "opt = torch.optim.SGD(net.parameters(), lr=0.1)",
        "add(model)",
    ),
}


@pytest.mark.parametrize("name", PUT_THERE)
def test_what_a_method_puts_into_a_collection_without_a_scaler(name: str) -> None:
    """Its scaler was nobody's: `self.scaler` was read, and never made."""
    head, line, call = PUT_THERE[name]
    source = (
        ONE_READ.replace("add(self, net)", head)
        .replace(
            '        self.opts["model"] = torch.optim.SGD(net.parameters(), lr=0.1)\n',
            f'        {line}\n        self.opts["model"] = opt\n',
        )
        .replace("add(model)", call)
    )
    assert left_alone(source) == "AMP010"


def test_one_optimizer_is_not_several() -> None:
    source = HEAD + OPT + "opts = [opt]\nprint(*opts)\n" + LOOP
    (found,) = migrate_source(source).diagnostics
    assert found.message == "opts, which holds the optimizer, is used as a whole"
    said = "\n".join(found.by_hand)
    assert "scaler.step(optimizer)" in said and "optimizer_b" not in said


STEPPED_BY = {
    "the scheduler's attribute": (
        "opt = torch.optim.lr_scheduler.StepLR(opt, 2).optimizer\n",
        "AMP010",
    ),
    "what a list holds": ("opt = [opt][0]\n", "AMP012"),
}


@pytest.mark.parametrize("name", STEPPED_BY)
def test_an_origin_that_is_not_followed(name: str) -> None:
    lines, code = STEPPED_BY[name]
    assert left_alone(OPT + lines + LOOP) == code


CALLED_UNSEEN = {
    "a bound method": (
        "class T:\n    pass\nt = T()\nt.train = train\nt.train(opt)\n",
        "AMP015",
    ),
    "globals": ('globals()["train"](opt)\n', "AMP015"),
    "a thread": (
        "import threading\nthreading.Thread(target=train, args=(opt,)).start()\n",
        "AMP010",
    ),
    "a plain call and a table": (
        'train(opt)\n{"train": train}["train"](opt)\n',
        "AMP010",
    ),
    "a plain call and a keeper of callbacks": (
        "from helpers import register\ntrain(opt)\nregister(train)\n",
        "AMP015",
    ),
}


@pytest.mark.parametrize("name", CALLED_UNSEEN)
def test_a_function_that_trains_and_is_called_by(name: str) -> None:
    calls, code = CALLED_UNSEEN[name]
    assert left_alone(TRAIN + OPT + calls) == code


NEIGHBOURS = {
    "sets the rate": ("def use(o):\n    o.param_groups[0]['lr'] = 1\n", ""),
    "steps": ("def use(o):\n    o.step()\n", "AMP017"),
    "saves its state": ("def use(o):\n    keep(o.state_dict())\n", "AMP017"),
}


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_a_function_in_another_file(name: str, tmp_path: Path) -> None:
    text, code = NEIGHBOURS[name]
    (tmp_path / "uses.py").write_text(text)
    source = f"from uses import use\n{HEAD}{OPT}use(opt)\n{LOOP}"
    path = tmp_path / "train.py"
    path.write_text(source)
    result = migrate_source(source, path=str(path), root=tmp_path)
    assert [found.code for found in result.diagnostics] == ([code] if code else [])
    assert result.changed == (not code)


def test_data_that_is_taken_out_of_itself_is_no_optimizer() -> None:
    source = f"""\
from helpers import keep
def worst(scores):
    for one in scores:
        if isinstance(one, list):
            one = one[-1]
        keep(one)
{OPT}
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    worst([[loss.item()]])
    opt.step()
"""
    output = migrated(source)
    assert "scaler.step(opt)" in output and "unscale_" not in output


PAIR = """\
def make_pair():
    net = nn.Linear(4, 3).to(device)
    return net, torch.optim.SGD(net.parameters(), lr=0.1)
def fit(net, opt):
    for x, y in data:
        opt.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        opt.step()
pair = make_pair()
"""

NAMED_PAIR = "from typing import NamedTuple\n" + PAIR.replace(
    "def make_pair",
    "class Pair(NamedTuple):\n    net: nn.Module\n    opt: object\ndef make_pair",
).replace(
    "return net, torch.optim.SGD(net.parameters(), lr=0.1)",
    "return Pair(net, torch.optim.SGD(net.parameters(), lr=0.1))",
)

STEPPED_ELSEWHERE = (
    "class Keeper:\n"
    "    def __init__(self, pair):\n        self.pair = pair\n"
    "    def bump(self):\n        self.pair{opt}.step()\n"
    "keeper = Keeper(pair)\nkeeper.bump()\n"
)


@pytest.mark.parametrize("pair", [PAIR, NAMED_PAIR], ids=["tuple", "named tuple"])
def test_a_pair_is_spread_over_the_parameters(pair: str) -> None:
    seen = "def tell(pair):\n    net, opt = pair\n    print(opt.param_groups)\ntell(pair)\n"
    result = migrated(pair + seen + "fit(*pair)\n")
    assert "fit(*pair, scaler=scaler)" in result


@pytest.mark.parametrize(
    "lines",
    [
        "def rest(*all):\n    all[1].step()\nrest(*pair)\n",
        "def two(a, b, c, d):\n    d.step()\ntwo(*(1, 2), *pair)\n",
        "print(*pair)\n",
    ],
)
@pytest.mark.parametrize("pair", [PAIR, NAMED_PAIR], ids=["tuple", "named tuple"])
def test_a_pair_that_is_spread_out_of_sight(pair: str, lines: str) -> None:
    assert left_alone(pair + lines + "fit(*pair)\n") == "AMP012"


def test_a_named_tuple_that_is_stepped_by_its_field_elsewhere() -> None:
    lines = STEPPED_ELSEWHERE.format(opt=".opt")
    assert left_alone(NAMED_PAIR + lines + "fit(*pair)\n")


def test_spread_options_beside_a_pair() -> None:
    lines = (
        "def run(pair, **options):\n"
        '    for epoch in range(options.pop("epochs", 1)):\n'
        "        fit(*pair, **options)\n"
        "run(pair, epochs=2)\n"
    )
    result = migrated(PAIR + lines)
    assert "fit(*pair, **options, scaler=scaler)" in result
    assert "run(pair, epochs=2, scaler=" in result


STATE = OPT + 'state = {"opt": opt, "epoch": 0}\n'
BY_KEY = LOOP.replace("opt.", 'state["opt"].')


@pytest.mark.parametrize("taken", ['get("opt")', 'pop("epoch", 0)'])
def test_what_is_taken_out_of_a_dict_under_a_known_key(taken: str) -> None:
    source = STATE + f"print(state.{taken} is None)\n" + BY_KEY
    assert 'scaler.step(state["opt"])' in migrated(source)


def test_an_optimizer_that_is_taken_away_from_a_dict() -> None:
    source = STATE + 'other = state.pop("opt")\nstate["opt"] = other\n' + BY_KEY
    assert left_alone(source)


LISTED = """\
 other = make().to(device)
 opt_a = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler_a = BORN
 opt_b = torch.optim.Adam(other.parameters(), lr=0.01)
+scaler_b = BORN
-def train(one, two, optimizer):
+def train(one, two, optimizer, scaler_0, scaler_1):
     first, second = optimizer
     for x, y in data:
         STEPS net=one opt=first scaler=scaler_0
         STEPS net=two opt=second scaler=scaler_1
 for epoch in range(2):
-    train(model, other, GIVEN)
+    train(model, other, GIVEN, scaler_0=scaler_a, scaler_1=scaler_b)
"""


@pytest.mark.parametrize("given", ("[opt_a, opt_b]", "optimizer=(opt_a, opt_b)"))
def test_optimizers_in_a_list_that_a_call_is_given(given: str) -> None:
    diff = written_out(LISTED.replace("GIVEN", given))
    source, expected = before_and_after(diff)
    assert migrated(source) == expected
    trains_as_before(diff)


@pytest.mark.parametrize(
    ("given", "body"),
    [
        ("[*[opt_a, opt_b]]", ""),
        ("[opt_a, opt_b, model]", ""),
        ("**{'optimizer': [opt_a, opt_b]}", ""),
        ("[[opt_a], [opt_b]]", ""),
        ("[opt_a, opt_b]", "    kept.append(optimizer)\n"),
    ],
)
def test_a_list_that_is_not_followed(given: str, body: str) -> None:
    source, _ = before_and_after(written_out(LISTED.replace("GIVEN", given)))
    source = source.replace("    first, second", f"{body}    first, second")
    assert left_alone(f"kept = []\n{source}") in ("AMP010", "AMP012")


@pytest.mark.parametrize("made", ('{"title": win}', 'dict(title="loss")'))
def test_a_dict_is_no_optimizer_whatever_its_name(made: str) -> None:
    """A plotter that is given one touches no gradients."""
    drawn = f"""\
from visdom import Visdom
viz = Visdom()
def draw(win, value):
    opts = {made}
    viz.line(X=[0], Y=[value], opts=opts, win=win)
"""
    after = LOOP.replace("    opt.step()\n", "    draw('loss', 0.1)\n    opt.step()\n")
    assert "    draw('loss', 0.1)\n    scaler.step(opt)" in migrated(
        drawn + OPT + after
    )


UNREAD = """\
class Trainer:
    def __init__(self, model):
        self.model = model
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
    @property
    def optimizers(self):
        return [self.opt]
    def fit(self, x, y):
        self.opt.zero_grad()
        criterion(self.model(x), y).backward()
        self.opt.step()
trainer = Trainer(model)
for x, y in data:
    trainer.fit(x, y)
"""


def test_a_list_that_nobody_in_sight_asks_for() -> None:
    assert "scaler.step(self.opt)" in migrated(UNREAD)
    other = "class Other:\n    def __init__(self):\n        self.optimizers = {}\n"
    assert "scaler.step(self.opt)" in migrated(UNREAD + other)


@pytest.mark.parametrize(
    "read",
    (
        "print(*trainer.optimizers)\n",
        "for opt in made().optimizers:\n    opt.step()\n",
        'print(getattr(trainer, "optimizers"))\n',
    ),
)
def test_a_list_that_somebody_may_ask_for(read: str) -> None:
    assert left_alone(UNREAD + read) in ("AMP010", "AMP012")
    based = UNREAD.replace("class Trainer:", "class Trainer(library.Trainer):")
    assert left_alone("import library\n" + based) == "AMP012"
