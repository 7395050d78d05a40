"""What the switch is tied to: the script's own device decision, as the optimizer's birth can see it."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent

import pytest
from exactness import check_off
from half_support import check_runs
from programs import HEAD as PLAIN_HEAD
from programs import migrated

from amp_migrate.api import migrate_paths, migrate_source

HEAD = """\
import argparse
import torch
import torch.nn as nn
data = [(torch.randn(4, 8), torch.randint(0, 3, (4,)))]
criterion = nn.CrossEntropyLoss()
"""
LOOP = """\
for x, y in data:
    opt.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    opt.step()
"""
OPT = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
NET = "model = nn.Linear(8, 3)\n"
FIT = """\
    def fit(self):
        for x, y in data:
            self.opt.zero_grad()
            loss = criterion(self.model(x.to(self.device)), y.to(self.device))
            loss.backward()
            self.opt.step()
"""
ARGS = "args = parser.parse_args()\n"


def switch(source: str) -> str:
    """The condition of the scaler that a script is given, or the code of the refusal."""
    result = migrate_source(source, path="train.py")
    if result.output == source:
        codes = {found.code for found in result.diagnostics}
        assert len(codes) == 1
        return codes.pop()
    compile(result.output, "train.py", "exec")
    text = " ".join(result.output.split()).replace("'", '"')
    found = re.search(r'GradScaler\( ?"cuda", enabled=(.+?),? ?\) (?=\w)', text)
    assert found is not None
    return found[1]


PLAIN = {
    "device": (
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
        + NET
        + "model.to(device)\n"
        + OPT,
        'device.type == "cuda"',
    ),
    "deleted before the optimizer is made": (
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
        + NET
        + "model.to(device)\ndel device\n"
        + OPT,
        "torch.cuda.is_available()",
    ),
    "deleted behind the loop": (
        'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n'
        + NET
        + "model.to(device)\n"
        + OPT
        + "def end():\n    global data\n    del data\n",
        'device.type == "cuda"',
    ),
    "bound on one way only": (
        NET
        + "if torch.cuda.is_available():\n"
        + '    dev = "cuda"\n'
        + "    model.to(dev)\n"
        + OPT,
        "torch.cuda.is_available()",
    ),
    "bound on one way only, and not CUDA for sure": (
        NET
        + "if torch.cuda.is_available():\n"
        + "    dev = pick()\n"
        + "    model.to(dev)\n"
        + OPT,
        'next(model.parameters()).device.type == "cuda"',
    ),
    "bound on all ways": (
        NET
        + "if torch.cuda.is_available():\n"
        + '    dev = "cuda"\n'
        + "elif torch.backends.mps.is_available():\n"
        + '    dev = "mps"\n'
        + "else:\n"
        + '    dev = "cpu"\n'
        + "model.to(dev)\n"
        + OPT,
        'torch.device(dev).type == "cuda"',
    ),
    "bound in a with": (
        NET
        + "with torch.no_grad():\n"
        + '    dev = torch.device("cuda")\n'
        + "model.to(dev)\n"
        + OPT,
        'dev.type == "cuda"',
    ),
    "bound by all of a try": (
        NET
        + "try:\n"
        + "    dev = torch.device(pick())\n"
        + "except RuntimeError:\n"
        + '    dev = torch.device("cpu")\n'
        + "model.to(dev)\n"
        + OPT,
        'dev.type == "cuda"',
    ),
    "bound by a part of a try": (
        NET
        + "try:\n"
        + "    dev = torch.device(pick())\n"
        + "except RuntimeError:\n"
        + "    pass\n"
        + "model.to(dev)\n"
        + OPT,
        'next(model.parameters()).device.type == "cuda"',
    ),
    "else of a flag": (
        'parser.add_argument("--cpu", action="store_true")\n'
        + ARGS
        + NET
        + "if args.cpu:\n    model.cpu()\nelse:\n    model.cuda()\n"
        + OPT,
        "not args.cpu",
    ),
    "elif": (
        ARGS
        + NET
        + 'if args.dev == "cpu":\n    pass\n'
        + 'elif args.dev == "mps":\n    model.to("mps")\n'
        + "else:\n    model.cuda()\n"
        + OPT,
        'args.dev != "cpu" and args.dev != "mps"',
    ),
    "not a flag": (
        "DEBUG = True\n" + NET + "if not DEBUG:\n    model.cuda()\n" + OPT,
        "not DEBUG",
    ),
    "a flag that is not in sight": (
        NET + "if choose(model):\n    model.cuda()\n" + OPT,
        'next(model.parameters()).device.type == "cuda"',
    ),
    "both branches": (
        ARGS
        + NET
        + "if args.distributed:\n    model.cuda(0)\nelse:\n    model = model.cuda()\n"
        + OPT,
        "torch.cuda.is_available()",
    ),
    "each branch, or it raises": (
        ARGS
        + NET
        + "if args.distributed:\n    if args.gpu is None:\n        model.cuda()\n"
        + "    else:\n        model.cuda(args.gpu)\n"
        + "elif args.gpu is not None:\n    if args.deep:\n        model.cuda()\n"
        + "    else:\n        model = nn.DataParallel(model).cuda()\n"
        + "else:\n    raise NotImplementedError\n"
        + OPT,
        "torch.cuda.is_available()",
    ),
    "each branch where there is a GPU": (
        ARGS
        + NET
        + "if not torch.cuda.is_available():\n    print('slow')\n"
        + "elif args.distributed:\n    if args.gpu is not None:\n"
        + "        model.cuda(args.gpu)\n    else:\n        model.cuda()\n"
        + "elif args.gpu is not None:\n    model = model.cuda(args.gpu)\n"
        + 'elif args.arch == "vgg" or args.arch == "alexnet":\n    model.cuda()\n'
        + "else:\n    model = nn.DataParallel(model).cuda()\n"
        + OPT,
        "torch.cuda.is_available()",
    ),
    "a part of one test against another": (
        'parser.add_argument("--cuda", action="store_true")\n'
        + ARGS
        + NET
        + "if args.cuda and args.gpu:\n    model.cuda()\n"
        + "if args.cuda or args.gpu:\n    if not args.gpu:\n        model.cuda()\n"
        + OPT,
        "args.cuda",
    ),
    "by a part of tests alone": (
        ARGS
        + NET
        + "if args.cuda or args.gpu:\n    if not args.gpu:\n        model.cuda()\n"
        + "if args.cuda or not args.gpu:\n    if args.gpu:\n        model.cuda()\n"
        + OPT,
        'next(model.parameters()).device.type == "cuda"',
    ),
    "each branch but one": (
        ARGS
        + NET
        + "if args.distributed:\n    if args.gpu is None:\n        model.cuda()\n"
        + "    else:\n        model.cuda(args.gpu)\n"
        + "elif args.gpu is not None:\n    model = model.cuda(args.gpu)\n"
        + "else:\n    print('no GPU')\n"
        + OPT,
        'next(model.parameters()).device.type == "cuda"',
    ),
    "each architecture is moved": (
        ARGS
        + 'if args.arch == "a":\n    model = nn.Linear(8, 3).cuda()\n'
        + 'elif args.arch == "b":\n    model = nn.Linear(8, 3, bias=False).cuda()\n'
        + OPT,
        "torch.cuda.is_available()",
    ),
    "conditional move": (
        "gpu = torch.cuda.is_available()\n"
        + "model = nn.Linear(8, 3).cuda() if gpu else nn.Linear(8, 3)\n"
        + OPT,
        "gpu",
    ),
    "conditional move without a name": (
        NET + 'model.to("cuda" if torch.cuda.is_available() else "cpu")\n' + OPT,
        "torch.cuda.is_available()",
    ),
    "only a probe": (
        NET + "if torch.cuda.is_available():\n    print(torch.zeros(1).cuda())\n" + OPT,
        "AMP005",
    ),
    "the model's own device before another": (
        'device = torch.device("cuda")\n'
        + "weights = torch.ones(3).to(device)\n"
        + ARGS
        + NET
        + "model.to(args.where)\n"
        + OPT,
        'torch.device(args.where).type == "cuda"',
    ),
    "the last of several moves": (
        'device = torch.device("cpu" if SLOW else "cuda")\n'
        + ARGS
        + NET
        + "model.to(device)\n"
        + "model.to(args.device)\n"
        + OPT,
        'torch.device(args.device).type == "cuda"',
    ),
    "another model's device": (
        'device = torch.device("cuda")\n'
        + "teacher = nn.Linear(8, 3).to(device)\n"
        + NET
        + OPT,
        "AMP005",
    ),
    "a flag that changes before the move": (
        ARGS
        + NET
        + OPT
        + "args.cuda = args.cuda and torch.cuda.is_available()\n"
        + "if args.cuda:\n    model.cuda()\n",
        "bool(args.cuda)",
    ),
    "a bool written as a choice": (
        "cuda = True if torch.cuda.is_available() else False\n"
        + NET
        + "if cuda:\n    model.cuda()\n"
        + OPT,
        "cuda",
    ),
    "a choice that is no bool": (
        "cuda = 1 if torch.cuda.is_available() else None\n"
        + NET
        + "if cuda:\n    model.cuda()\n"
        + OPT,
        "bool(cuda)",
    ),
    "an option that is a bool, and changes": (
        'parser.add_argument("--cuda", action="store_true")\n'
        + ARGS
        + "args.cuda = args.cuda and torch.cuda.is_available()\n"
        + NET
        + "if args.cuda:\n    model.cuda()\n"
        + OPT,
        "args.cuda",
    ),
    "an option of type bool": (
        'parser.add_argument("--cuda", type=bool, default=True)\n'
        + ARGS
        + NET
        + "if args.cuda:\n    model.cuda()\n"
        + OPT,
        "args.cuda",
    ),
    "an option of type bool that may be left out": (
        'parser.add_argument("--cuda", type=bool)\n'
        + ARGS
        + NET
        + "if args.cuda:\n    model.cuda()\n"
        + OPT,
        "bool(args.cuda)",
    ),
    "a name among others": (
        ARGS
        + 'cuda = args.where in ("gpu", "cuda")\n'
        + NET
        + "if cuda:\n    model.cuda()\n"
        + OPT,
        "cuda",
    ),
    "an option that is not in sight, and is made a bool": (
        ARGS
        + "args.cuda = not args.no_cuda and torch.cuda.is_available()\n"
        + NET
        + "if args.cuda:\n    model.cuda()\n"
        + OPT,
        "args.cuda",
    ),
    "an option that is a device on one way only": (
        ARGS
        + "if torch.cuda.is_available():\n"
        + '    args.device = torch.device("cuda")\n'
        + NET
        + "model.to(args.device)\n"
        + OPT,
        'torch.device(args.device).type == "cuda"',
    ),
    "an option that is a device": (
        ARGS
        + 'args.device = torch.device("cuda")\n'
        + NET
        + "model.to(args.device)\n"
        + OPT,
        'args.device.type == "cuda"',
    ),
    "another model's device, and the same number": (
        'device = torch.device("cuda")\nhidden = 8\n'
        + "teacher = nn.Linear(hidden, 3).to(device)\n"
        + "model = nn.Linear(hidden, 3)\n"
        + OPT,
        "AMP005",
    ),
    "a text that a function makes a device of": (
        NET + 'model.to(pick("cuda"))\n' + OPT,
        'next(model.parameters()).device.type == "cuda"',
    ),
    "a flag that changes out of line": (
        ARGS
        + NET
        + OPT
        + "if not torch.cuda.is_available():\n    args.cuda = False\n"
        + "if args.cuda:\n    model.cuda()\n",
        "AMP041",
    ),
    "the tests around data say nothing": (
        "DEBUG = True\n"
        + NET
        + "model.cuda()\n"
        + "if DEBUG:\n    data = [(x.cuda(), y.cuda()) for x, y in data]\n"
        + OPT,
        "torch.cuda.is_available()",
    ),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_scripts(name: str) -> None:
    setup, expected = PLAIN[name]
    assert switch(HEAD + setup + LOOP) == expected


def test_a_flag_that_changes_is_waited_for() -> None:
    setup, _ = PLAIN["a flag that changes before the move"]
    output = migrate_source(HEAD + setup + LOOP, path="train.py").output
    assert output.index("args.cuda = args.cuda") < output.index("GradScaler")


CLASSES = {
    "set before": (
        """\
        class T:
            def __init__(self):
                self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                self.model = nn.Linear(8, 3).to(self.device)
                self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
        """,
        'self.device.type == "cuda"',
    ),
    "set by a method called later": (
        """\
        class T:
            def __init__(self):
                self.model = nn.Linear(8, 3)
                self.build()
                self.setup()
            def build(self):
                self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
            def setup(self):
                self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                self.model.to(self.device)
        """,
        "torch.cuda.is_available()",
    ),
    "set by a method called later, by more than what there is": (
        """\
        class T:
            def __init__(self):
                self.model = nn.Linear(8, 3)
                self.build()
                self.setup()
            def build(self):
                self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
            def setup(self):
                self.device = torch.device("cuda" if torch.cuda.is_available() and want else "cpu")
                self.model.to(self.device)
        """,
        "AMP041",
    ),
    "set by a method called before": (
        """\
        class T:
            def __init__(self):
                self.model = nn.Linear(8, 3)
                self.setup()
                self.build()
            def build(self):
                self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
            def setup(self):
                self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                self.model.to(self.device)
        """,
        'self.device.type == "cuda"',
    ),
    "set on one way only": (
        """\
        class T:
            def __init__(self):
                self.model = nn.Linear(8, 3)
                if torch.cuda.is_available():
                    self.device = torch.device(pick())
                    self.model.to(self.device)
                self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
        """,
        'next(self.model.parameters()).device.type == "cuda"',
    ),
    "set after the base's birth": (
        """\
        class B:
            def __init__(self):
                self.model = nn.Linear(8, 3)
                self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
        class T(B):
            def __init__(self):
                super().__init__()
                self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                self.model.to(self.device)
        """,
        "torch.cuda.is_available()",
    ),
    "set by the base before the birth": (
        """\
        class B:
            def __init__(self):
                self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                self.model = nn.Linear(8, 3).to(self.device)
        class T(B):
            def __init__(self):
                super().__init__()
                self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
        """,
        'self.device.type == "cuda"',
    ),
    "born in a method": (
        """\
        class T:
            def __init__(self, model, device):
                self.device = device
                self.model = model.to(device)
            def configure(self):
                self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
        """,
        'torch.device(self.device).type == "cuda"',
    ),
    "None in place of a device": (
        """\
        class T:
            def __init__(self, device=None):
                if device is None:
                    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
                self.device = device
                self.model = nn.Linear(8, 3).to(self.device)
                self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
        """,
        'torch.device(self.device).type == "cuda"',
    ),
    "None for as good as a device": (
        """\
        class T:
            def __init__(self, device=None):
                if device is None and wanted:
                    device = torch.device("cuda")
                self.device = device
                self.model = nn.Linear(8, 3).to(self.device)
                self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
        """,
        'next(self.model.parameters()).device.type == "cuda"',
    ),
    "another class's device": (
        """\
        device = torch.device("cuda")
        other = nn.Linear(8, 3).to(device)
        class T:
            def __init__(self):
                self.device = "cpu"
                self.model = nn.Linear(8, 3)
                self.opt = torch.optim.SGD(self.model.parameters(), lr=0.1)
        """,
        "AMP041",
    ),
}


@pytest.mark.parametrize("name", CLASSES)
def test_classes(name: str) -> None:
    text, expected = CLASSES[name]
    fit = FIT.replace(".to(self.device)", "") if "another" in name else FIT
    text = dedent(text)
    cut = text.find("class T(B)")
    # The loop belongs to the base where there is one.
    text = text + fit if cut < 0 else text[:cut] + fit + text[cut:]
    assert switch(HEAD + text + "T\n") == expected


FUNCTIONS = {
    "under the main guard": (
        """\
        def main():
            model = nn.Linear(8, 3).to(device)
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
        LOOP
        if __name__ == "__main__":
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            main()
        """,
        'device.type == "cuda"',
    ),
    "global and conditional": (
        """\
        if torch.cuda.is_available():
            device = torch.device(pick())
        def main():
            model = nn.Linear(8, 3).to(device)
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
        LOOP
        main()
        """,
        'next(model.parameters()).device.type == "cuda"',
    ),
    "the kind of an accelerator, and its number": (
        """\
        kind = torch.accelerator.current_accelerator()
        device = torch.device(f"{kind}:{rank}" if kind else "cpu")
        def fit(model):
            model.to_empty(device=device)
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
        LOOP
        fit(nn.Linear(8, 3))
        """,
        'device.type == "cuda"',
    ),
    "a flag of the caller's": (
        """\
        def fit(model, use_gpu):
            if use_gpu:
                model.cuda()
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
        LOOP
        fit(nn.Linear(8, 3), torch.cuda.is_available())
        """,
        "use_gpu",
    ),
    "an option that is a number of a device, and a flag": (
        """\
        parser = argparse.ArgumentParser()
        parser.add_argument("--cuda", action="store_true")
        parser.add_argument("--gpus", type=int, nargs="+", default=[0])
        args = parser.parse_args()
        def fit(model, use_gpu, gpus):
            opt = torch.optim.SGD(list(model.parameters()), lr=0.1)
            if use_gpu:
                model.to(gpus[0])
        LOOP
        fit(nn.Linear(8, 3), args.cuda, args.gpus)
        """,
        'use_gpu and torch.device(gpus[0]).type == "cuda"',
    ),
    "a device that is always CUDA, and a flag": (
        """\
        parser = argparse.ArgumentParser()
        parser.add_argument("--cuda", action="store_true")
        args = parser.parse_args()
        def fit(model, use_gpu):
            device = torch.device("cuda:0")
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
            if use_gpu:
                model.to(device)
        LOOP
        fit(nn.Linear(8, 3), args.cuda)
        """,
        'use_gpu and device.type == "cuda"',
    ),
    "a flag that a caller gives to what makes the model": (
        """\
        parser = argparse.ArgumentParser()
        parser.add_argument("--cuda", action="store_true")
        args = parser.parse_args()
        def make(cuda=True):
            net = nn.Linear(8, 3)
            if cuda:
                net.cuda()
            return net
        def fit(model):
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
        LOOP
        model = make(args.cuda)
        fit(model)
        """,
        "args.cuda",
    ),
    "one flag under two names": (
        """        parser = argparse.ArgumentParser()
        parser.add_argument("--cuda", action="store_true")
        args = parser.parse_args()
        def make(cuda=True):
            net = nn.Linear(8, 3)
            if cuda:
                net.cuda()
            return net
        def main():
            model, head = make(args.cuda), nn.Linear(8, 3)
            if args.cuda:
                head = head.cuda()
            params = [*model.parameters(), *head.parameters()]
            opt = torch.optim.SGD(params, lr=0.1)
        LOOP
        main()
        """,
        "args.cuda",
    ),
    "two flags of two calls": (
        """        parser = argparse.ArgumentParser()
        parser.add_argument("--cuda", action="store_true")
        args = parser.parse_args()
        def make(cuda=True):
            net = nn.Linear(8, 3)
            if cuda:
                net.cuda()
            return net
        def fit(model):
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
        LOOP
        fit(make(args.cuda))
        fit(make(not args.cuda))
        """,
        'next(model.parameters()).device.type == "cuda"',
    ),
    "a flag that may be no bool": (
        """\
        def fit(model, use_gpu):
            if use_gpu:
                model.cuda()
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
        LOOP
        fit(nn.Linear(8, 3), torch.cuda.is_available())
        fit(nn.Linear(8, 3), pick())
        """,
        "bool(use_gpu)",
    ),
    "moved by a helper under a test": (
        """\
        def to_gpu(model):
            model.cuda()
        def main(use_gpu):
            model = nn.Linear(8, 3)
            if use_gpu:
                to_gpu(model)
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
        LOOP
        main(torch.cuda.is_available())
        """,
        "use_gpu",
    ),
    "one's own name for it": (
        """\
        def fit(model, device):
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
        LOOP
        dev = torch.device("cuda")
        net = nn.Linear(8, 3).to(dev)
        fit(net, dev)
        """,
        'dev.type == "cuda"',
    ),
    "a helper that makes the optimizer": (
        """\
        def make(rate, net):
            return torch.optim.SGD(net.parameters(), lr=rate)
        def fit(model, opt):
        LOOP
        def main():
            model = nn.Linear(8, 3).to(pick())
            optimizer = make(0.1, model)
            fit(model, optimizer)
        main()
        """,
        'next(model.parameters()).device.type == "cuda"',
    ),
    "a helper that makes the optimizer of one of two models": (
        """\
        def make(rate, net):
            return torch.optim.SGD(net.parameters(), lr=rate)
        def fit(model, opt):
        LOOP
        def main():
            model, other = nn.Linear(8, 3).to(pick()), nn.Linear(8, 3).to(pick())
            optimizer = make(0.1, model if stay else other)
            fit(model if stay else other, optimizer)
        main()
        """,
        "AMP041",
    ),
    "a helper that another function asks for a model, too": (
        """\
        def build(where):
            net = nn.Linear(8, 3).to(where if where > 0 else "cpu")
            return net
        def evaluate():
            return build(pick())(torch.randn(4, 8))
        def main():
            model = build(pick())
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
        LOOP
        main()
        """,
        'next(model.parameters()).device.type == "cuda"',
    ),
    "a helper that another function calls with the same model": (
        """\
        def place(net):
            net.to(pick())
        def evaluate():
            return place(MODELS[0])
        def main():
            model = nn.Linear(8, 3)
            MODELS.append(model)
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
        LOOP
        main()
        """,
        "AMP041",
    ),
    "what is moved beside the optimizer, and other models elsewhere": (
        """\
        def other(where):
            model = nn.Linear(8, 3)
            if where.cuda or where.always:
                model.cuda()
            return model
        def main(args):
            image, net = torch.randn(4, 8), nn.Linear(8, 3)
            if args.cuda:
                image = image.cuda()
                net.cuda()
            model = lambda x: net(x + image)
            opt = torch.optim.SGD([image.requires_grad_()], lr=0.1)
        LOOP
        args = options()
        other(args)
        main(args)
        """,
        "bool(args.cuda)",
    ),
    "a helper that moves it": (
        """\
        def place(model):
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            return model.to(device)
        def main():
            if stop:
                return
            model = place(nn.Linear(8, 3))
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
        LOOP
        main()
        """,
        "torch.cuda.is_available()",
    ),
    "a helper that may return before it moves it": (
        """\
        def place(model):
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            if stay:
                return model
            return model.to(device)
        def main():
            model = place(nn.Linear(8, 3))
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
        LOOP
        main()
        """,
        'next(model.parameters()).device.type == "cuda"',
    ),
    "a helper that may return before it has it moved": (
        """\
        def place(model):
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            return model.to(device)
        def make():
            model = nn.Linear(8, 3)
            if stay:
                return model
            return place(model)
        def main():
            model = make()
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
        LOOP
        main()
        """,
        'next(model.parameters()).device.type == "cuda"',
    ),
    "a helper that a test on the same line chooses": (
        """\
        def place(model):
            device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            return model.to(device)
        def main():
            model = nn.Linear(8, 3)
            model = place(model) if go else model
            opt = torch.optim.SGD(model.parameters(), lr=0.1)
        LOOP
        main()
        """,
        'next(model.parameters()).device.type == "cuda"',
    ),
}


CHOSEN = 'torch.device("cuda" if torch.cuda.is_available() else "cpu")'
OUT_OF_SIGHT = {
    "under a test that has a name": """\
def place(net):
    there = torch.cuda.is_available()
    device = "cuda" if there else "cpu"
    return net.to(device)
""",
    "in a dict": f"""\
def place(net):
    options = {{"device": {CHOSEN}}}
    return net.to(options["device"])
""",
    "in a tuple": f"""\
def setup():
    return 3, {CHOSEN}
def place(net):
    count, device = setup()
    return net.to(device)
""",
    "in a dataclass": f"""\
from dataclasses import dataclass
@dataclass
class Options:
    device: torch.device
def place(net):
    options = Options({CHOSEN})
    return net.to(options.device)
""",
    "in a namespace": f"""\
from types import SimpleNamespace
def place(net):
    options = SimpleNamespace()
    options.device = {CHOSEN}
    return net.to(options.device)
""",
    "a property of a mixin": f"""\
class HasDevice:
    @property
    def device(self):
        return {CHOSEN}
class Placer(HasDevice):
    def put(self, net):
        return net.to(self.device)
def place(net):
    return Placer().put(net)
""",
}


@pytest.mark.parametrize("name", OUT_OF_SIGHT)
def test_a_device_that_asks_for_nothing_but_what_is_there(name: str) -> None:
    text = OUT_OF_SIGHT[name]
    made = "model = place(nn.Linear(8, 3))\n" + OPT + LOOP
    assert switch(HEAD + text + made) == "torch.cuda.is_available()"
    # Whatever else is asked has to be in sight; what was put there before can be asked itself.
    asked = text.replace("is_available()", "is_available() and wanted")
    found = switch(HEAD + asked + made)
    assert found == 'next(model.parameters()).device.type == "cuda"'


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    text, expected = FUNCTIONS[name]
    loop = "".join(f"    {line}\n" for line in LOOP.splitlines())
    assert switch(HEAD + dedent(text).replace("LOOP\n", loop)) == expected


ASKED = 'next(net.parameters()).device.type == "cuda"'
SENTINELS = {
    "a negative number for the CPU": (
        'net.to("cpu" if device < 0 else device)',
        ASKED,
    ),
    "a negative number, tested around the move": (
        "if device != -1: net.to(device)",
        ASKED,
    ),
    "a range": ("if 0 <= device < 8: net.to(device)", ASKED),
    "None for the CPU": ("if device is not None: net.to(device)", ASKED),
    "nothing for the CPU": ('net.to(device if device else "cpu")', ASKED),
    "a number in one of two": (
        "if fast and device >= 0: net.to(device)",
        ASKED,
    ),
    "a type": ("if not isinstance(device, int): net.to(device)", ASKED),
    "under another name": (
        "index = device; net.to(device if index > -1 else 'cpu')",
        ASKED,
    ),
    "left before the move": ("place(net, device)", ASKED),
    "a number that becomes a name": (
        'device = "cpu" if device < 0 else device; net.to(device)',
        'torch.device(device).type == "cuda"',
    ),
    "a name": (
        'if device != "cpu": net.to(device)',
        'torch.device(device).type == "cuda"',
    ),
    "an object": (
        'device = torch.device("cpu" if slow else "cuda")\n'
        "    if device is not None: net.to(device)",
        'device.type == "cuda"',
    ),
    "another test": (
        "if fast: net.to(device)",
        'torch.device(device).type == "cuda"',
    ),
}
PLACE = """\
def place(net, device):
    if device < 0:
        return net
    return net.to(device)
"""


@pytest.mark.parametrize("name", SENTINELS)
def test_values_that_stand_for_the_cpu_and_are_no_devices(name: str) -> None:
    move, expected = SENTINELS[name]
    text = (
        "def main(device, fast, slow):\n"
        "    net = nn.Linear(8, 3)\n"
        f"    {move}\n"
        "    opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    )
    loop = "".join(f"    {line}\n" for line in LOOP.splitlines())
    call = "main(*options())\n"
    source = HEAD + PLACE + text + loop.replace("model(", "net(") + call
    assert switch(source) == expected


def test_it_is_said_which_values_are_meant() -> None:
    moved = "if args.device >= 0:\n    model.to(args.device)\n"
    source = HEAD + ARGS + NET + "params = [model.weight, model.bias]\n" + moved
    source += OPT.replace("model.parameters()", "params") + LOOP
    (found,) = migrate_source(source, path="train.py").diagnostics
    assert found.code == "AMP041"
    assert "`args.device`" in found.message
    assert found.blocker is not None and found.blocker.text == "model.to(args.device)"


MIXIN = """\
class Steps:
    def prepare(self):
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
class Trainer(Steps):
    def __init__(self):
        here = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.net = make().to(here)
        self.prepare()
    def train(self):
        for x, y in data:
            self.opt.zero_grad()
            loss = nn.functional.cross_entropy(self.net(x), y)
            loss.backward()
            self.opt.step()
OTHERSTrainer().train()
"""


def test_a_mixin_has_the_device_of_the_only_class_that_it_is_mixed_into() -> None:
    result = migrated(MIXIN.replace("OTHERS", ""))
    assert "enabled=torch.cuda.is_available())" in result


@pytest.mark.parametrize(
    "others",
    [
        "class Elsewhere(Steps):\n    def __init__(self):\n"
        "        self.net = make()\n        self.prepare()\nElsewhere()\n",
        "steps = Steps()\nsteps.net = make()\nsteps.prepare()\n",
    ],
    ids=["another class", "by itself"],
)
def test_a_mixin_that_others_are_made_with(others: str) -> None:
    result = migrated(MIXIN.replace("OTHERS", others))
    asked = 'enabled=next(self.net.parameters()).device.type == "cuda"'
    assert asked in " ".join(result.split())


def test_parameters_that_are_a_list_are_not_asked() -> None:
    text, _ = FUNCTIONS["a helper that may return before it moves it"]
    net = "class Net(nn.Linear):\n    def parameters(self):\n        return [self.weight]\n"
    loop = "".join(f"    {line}\n" for line in LOOP.splitlines())
    source = HEAD + net + dedent(text).replace("LOOP\n", loop)
    assert switch(source.replace("place(nn.Linear", "place(Net")) == "AMP041"


def test_a_parameter_that_is_asked_where_it_is_changes_nothing() -> None:
    source = (
        HEAD.replace("import torch\n", "import torch\ntorch.manual_seed(0)\n", 1) + """\
class Agent:
    def __init__(self, net):
        self.net = net
        self.opt = torch.optim.Adam(net.parameters(), lr=0.1)
    def update(self, x, y):
        self.opt.zero_grad()
        loss = criterion(self.net(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.opt.step()
        return loss.item()
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args, _ = parser.parse_known_args()
    model = nn.Linear(8, 3)
    model.to(torch.device(args.device))
    agent = Agent(model)
    for x, y in data * 4:
        print(agent.update(x.to(args.device), y.to(args.device)))
main()
"""
    )
    result = migrate_source(source, path="train.py")
    assert "next(net.parameters()).device.type" in result.output
    check_runs(source, result.output)


_RISKS = """\
opt = torch.optim.SGD(model.parameters(), lr=0.1)
scale = 0.5
for x, y in data:
    risks = torch.zeros(2DEVICE)
    for i in range(2):
        risks[i] = criterion(model(x), y)
    mean = risks.mean()
    loss = mean + scale * ((risks - mean) ** 2).mean()TERM
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(
    ("device", "term", "is_left"),
    (
        ("", "", True),
        (", device=device", "", False),
        ("", " + criterion(model(x), y)", False),
    ),
)
def test_a_loss_that_stays_on_the_cpu(device: str, term: str, is_left: bool) -> None:
    """A scaler would keep its scale there, and ask across devices whether gradients were infinite."""
    body = _RISKS.replace("DEVICE", device).replace("TERM", term)
    result = migrate_source(PLAIN_HEAD + body, path="train.py")
    assert result.changed is not is_left
    if is_left:
        (found,) = result.diagnostics
        assert found.code == "AMP041" and "on the CPU" in found.message


_PARTS = """\
def pick():
    return ["cpu", "cuda"][torch.cuda.is_available()]
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 3)
        self.layer = self.layer.to(pick())
    def forward(self, x):
        return self.layer(x.to(self.layer.weight.device))
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
    def forward(self, x):
        return self.encoder(x)
def train(conf):
    model = Net()
    if conf.optimizer == "sgd":
        opt = torch.optim.SGD(model.parameters(), lr=0.1)
    else:
        opt = torch.optim.Adam(model.parameters(), lr=0.1)
    for x, y in data:
        opt.zero_grad()
        out = model(x)
        loss = criterion(out, y.to(out.device))
        loss.backward()
        opt.step()
class Conf:
    optimizer = "adam"
train(Conf())
"""


def test_parts_that_are_put_somewhere_where_they_are_made() -> None:
    source = HEAD.replace("import argparse\n", "") + _PARTS
    assert switch(source) == 'next(model.parameters()).device.type == "cuda"'
    check_runs(source, migrate_source(source, path="train.py").output)


@pytest.mark.parametrize(
    ("old", "new"),
    (
        ("Adam(model.parameters", "Adam(Net().parameters"),
        ("Adam(model.parameters", "Adam(model.encoder.parameters"),
        # It comes to an accelerator behind the optimizer.
        (
            "        self.layer = self.layer.to",
            "    def place(self):\n        self.layer.to",
        ),
    ),
)
def test_parts_that_may_be_elsewhere_when_the_optimizer_is_made(
    old: str, new: str
) -> None:
    source = HEAD + _PARTS.replace(old, new)
    if "place" in new:
        source = source.replace("    for x", "    model.encoder.place()\n    for x", 1)
    assert switch(source) == "AMP041"


_GIVEN = """\
class Engine:
    def __init__(self, config):
        self.opt = make(self.model, config)
    def fit(self):
        for x, y in data:
            if self.config["cuda"] is True:
                x, y = x.cuda(), y.cuda()
            self.opt.zero_grad()
            loss = criterion(self.model(x), y)
            loss.backward()
            self.opt.step()
class Own(Engine):
    def __init__(self, config):
        self.config = config
        self.model = nn.Linear(8, 3)
        if config["cuda"] is True:
            self.model.cuda()
        super().__init__(config)
def make(net, config):
    return torch.optim.SGD(net.parameters(), lr=config["lr"])
Own({"cuda": torch.cuda.is_available(), "lr": 0.1}).fit()
"""


def test_what_a_call_was_given_can_be_asked_behind_it() -> None:
    source = HEAD.replace("import argparse\n", "") + _GIVEN
    assert switch(source) == 'next(self.model.parameters()).device.type == "cuda"'
    check_runs(source, migrate_source(source, path="train.py").output)


def test_what_a_call_was_given_need_not_be_what_it_uses() -> None:
    source = HEAD + _GIVEN.replace(
        "    return torch", "    net = net.child if config else net\n    return torch"
    )
    assert switch(source) == "AMP041"
    bound = HEAD + _GIVEN.replace(
        "self.opt = make(self.model, config)",
        "model = self.model\n        self.opt, model = make(model, config), None",
    )
    assert "next(model" not in migrate_source(bound, path="train.py").output


def test_a_model_out_of_sight_is_asked_for_its_device() -> None:
    """Its parameters are in groups, and an optimizer of the program's own clips in its step."""
    source = HEAD + """\
import importlib
torch.manual_seed(0)
class Clipping(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    nn.utils.clip_grad_norm_(p, 1.0)
                    p.data.add_(p.grad, alpha=-group["lr"])
class Config:
    def __init__(self, kind):
        self.kind = kind
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
def train(config, model, batches):
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if n != "bias"]},
        {"params": [p for n, p in named if n == "bias"]},
    ]
    opt = Clipping(groups, lr=0.1)
    for x, y in batches:
        out = model(x)
        model.zero_grad()
        loss = criterion(out, y)
        loss.backward()
        opt.step()
        print(loss.item())
zoo = importlib.import_module("torch." + "nn")
config = getattr(importlib.import_module(__name__), "Con" + "fig")("Linear")
net = getattr(zoo, config.kind)(8, 3).to(config.device)
train(config, net, data)
"""
    result = migrate_source(source, path="train.py")
    assert "enabled=next(model.parameters()).device.type" in result.output
    check_runs(source, result.output)


_TESTED = """\
def fit(model, opt, device):
    for x, y in data:
        opt.zero_grad()
        loss = criterion(model(x.to(device)), y.to(device))
        loss.backward()
        opt.step()
def test_fit():
    net = nn.Linear(8, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    fit(net, opt, "cpu")
def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Linear(8, 3).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    fit(model, opt, device)
test_fit()
main()
"""


def test_a_model_that_stays_on_the_cpu_beside_one_that_does_not() -> None:
    source = HEAD + _TESTED
    result = migrate_source(source, path="train.py").output
    assert 'device.type == "cuda"' in result
    assert "next(net.parameters()).device.type" in result
    check_runs(source, result)
    # Alone, it is no reason for a switch.
    alone = source.partition("def main")[0] + "nn.Linear(8, 3).cuda()\ntest_fit()\n"
    (found,) = migrate_source(alone, path="train.py").diagnostics
    assert (found.code, "this model" in found.message) == ("AMP005", True)


def test_a_default_type_of_the_cpu_moves_nothing() -> None:
    source = HEAD + _TESTED.partition("def main")[0] + "test_fit()\n"
    for kind, codes in (("FloatTensor", ["AMP005"]), ("cuda.FloatTensor", [])):
        text = f"{source}torch.set_default_tensor_type(torch.{kind})\n"
        found = migrate_source(text, path="train.py").diagnostics
        assert [one.code for one in found] == codes


_FACTORY = """\
import sys
def place(net, gpus):
    if len(gpus) > 0:
        net.to(gpus[0])
    return net
def define(size, gpus):
    net = nn.Linear(8, size)
    return place(net, gpus)
class Base:
    def __init__(self, gpus):
        self.gpus = gpus
        self.device = torch.device("cuda:0") if gpus else torch.device("cpu")
class Model(Base):
    def __init__(self, gpus, trains):
        Base.__init__(self, gpus)
        self.net = define(3, gpus=self.gpus)
        if trains:
            self.criterion = nn.CrossEntropyLoss()
            self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
    def forward(self):
        self.out = self.net(self.x)
    def test(self):
        with torch.no_grad():
            self.forward()
    def backward(self, y):
        self.loss = self.criterion(self.out, y)
        self.loss.backward()
    def step(self, y):
        self.forward()
        self.optimizer.zero_grad()
        self.backward(y)
        self.optimizer.step()
class Other(Base):
    def __init__(self, gpus):
        Base.__init__(self, gpus)
        self.net = define(2, gpus=self.gpus)
        print(self.net)
def main():
    trains = len(sys.argv) < 9
    gpus = [0] if torch.cuda.is_available() else []
    model = {"one": Model, "other": Other}["one"](gpus, trains)
    for x, y in data:
        model.x = x.to(model.device)
        if trains:
            model.step(y.to(model.device))
        else:
            model.test()
main()
"""


def test_what_a_factory_moves_is_another_module_each_time() -> None:
    """Another class may call it later. Without an optimizer, an object computes as before."""
    source = HEAD.replace("import argparse\n", "") + _FACTORY
    result = migrate_source(source, path="train.py").output
    born = """\
            self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
            self.scaler = torch.amp.GradScaler(
                "cuda", enabled=next(self.net.parameters()).device.type == "cuda"
            )
"""
    assert born in result
    first = 'self.scaler = torch.amp.GradScaler("cuda", enabled=False)\n'
    assert f"{first}        Base.__init__(self, gpus)\n" in result
    check_runs(source, result)
    # Nobody sees when it is called again with the same module.
    kept = source.replace("    net = nn.Linear(8, size)\n", "").replace(
        "define(size, gpus):", "define(size, gpus, net=nn.Linear(8, 3)):"
    )
    assert switch(kept) == "AMP041"


_SIBLINGS = """\
class Base:
    def __init__(self, net, device):
        self.net = net
        self.device = device
        self.net.to(self.device)
class Agent(Base):
    def __init__(self, net, device=None):
        super().__init__(net, device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
    def update(self, x, y):
        self.opt.zero_grad()
        loss = criterion(self.net(x), y)
        loss.backward()
        self.opt.step()
        return loss.item()
class Other(Base):
    def __init__(self, net, device=None):
        super().__init__(net, device)
        self.size = 3
"""
_AGENT = """device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = nn.Linear(8, 3).to(device)
agent = Agent(net)
for x, y in data:
    print(agent.update(x.to(device), y.to(device)))
"""


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", 'next(self.net.parameters()).device.type == "cuda"'),
        ("other = Other(net, device)\n", "AMP041"),
        ("class Third(Other):\n    pass\nThird(net)\n", "AMP041"),
        ("kinds = [Agent, Other]\n", "AMP041"),
        ("other = globals()[name](net)\n", "AMP041"),
        (
            "class Late(Agent):\n    def __init__(self, net):\n"
            "        super().__init__(net)\n        self.net.to(where)\n",
            "AMP041",
        ),
    ],
)
def test_the_constructor_of_a_class_that_nobody_makes(more: str, expected: str) -> None:
    """It moves the module of another object, and none is there."""
    head = HEAD.replace("import argparse\n", "")
    assert switch(head + _SIBLINGS + _AGENT + more) == expected
    assert switch(head + _SIBLINGS + more) == expected
    if expected != "AMP041":
        source = head + _SIBLINGS + _AGENT + more
        check_runs(source, migrate_source(source).output)


_LATER_CALL = """\
class Trainer:
    def __init__(self, net, opt, device=None):
        self.net = net
        self.opt = opt
        self.device = device
        if not self.device:
            self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.net.to(self.device)
    def train(self):
        for x, y in data:
            self.opt.zero_grad()
            loss = criterion(self.net(x.to(self.device)), y.to(self.device))
            loss.backward()
            self.opt.step()
            print(loss.item())
def main(device):
    net = nn.Linear(8, 3).to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    Trainer(net, opt, device=device).train()
def test_it():
    net = nn.Linear(8, 3)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    Trainer(net, opt, device="cpu").train()
"""
_MAIN = """if __name__ == "__main__":
    main(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
"""


def _switches(folder: Path, check: str = "") -> list[str]:
    """The conditions of the scalers of two scripts that one trainer serves."""
    head, _, rest = HEAD.replace("import argparse\n", "").partition("data =")
    trainer, main, test = re.split("(?=^def )", _LATER_CALL, flags=re.MULTILINE)
    imports = f"{head}from lib import Trainer\n"
    (folder / "lib.py").write_text(f"{head}data ={rest}{trainer}")
    (folder / "main.py").write_text(imports + main + _MAIN)
    (folder / "check.py").write_text(f"{imports}{test}{check}test_it()\n")
    text = " ".join(one.output for one in migrate_paths([str(folder)]).results)
    return re.findall(r'GradScaler\("cuda", enabled=(.+)\)\n', text)


def test_a_later_call_that_trains_on_the_cpu(tmp_path: Path) -> None:
    """It is off there, and on where another script asks for it."""
    assert _switches(tmp_path) == ["False", 'device.type == "cuda"']


def test_later_calls_that_train_in_two_places(tmp_path: Path) -> None:
    more = """\
    other = nn.Linear(8, 3)
    opt = torch.optim.SGD(other.parameters(), lr=0.1)
    Trainer(other, opt, device="cuda").train()
"""
    assert _switches(tmp_path, more) == []


_LATER = """\
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""


def test_what_is_moved_behind_the_life_of_an_optimizer_says_nothing_of_it() -> None:
    moved = "data = [(x.to(device), y.to(device)) for x, y in data]\n"
    second = _LATER + NET + "model.to(device)\n" + OPT + moved + LOOP
    result = migrate_source(HEAD + NET + OPT + LOOP + second)
    assert result.changed, result.diagnostics
    made = [line for line in result.output.splitlines() if "GradScaler(" in line]
    assert made[-1].endswith('enabled=device.type == "cuda")')
    before, _ = result.output.split(_LATER)
    assert "next(model.parameters()).device.type" in before
    check_runs(HEAD + NET + OPT + LOOP + second, result.output)


def test_a_device_that_is_decided_after_a_step() -> None:
    source = HEAD + NET + OPT + LOOP + _LATER + "model.to(device)\n" + LOOP
    (found,) = {(d.code, d.message) for d in migrate_source(source).diagnostics}
    assert found == ("AMP041", "the device is decided later")


_OUT_OF_SIGHT = """\
class Agent:
    def __init__(self, **given):
        self.__dict__.update(given)
        self.net = nn.Linear(8, 3).to(self.device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.bias = torch.zeros(1, requires_grad=True, device=self.device)
        self.opt_b = torch.optim.SGD([self.bias], lr=0.1)
    def fit(self, x, y):
        loss = criterion(self.net(x), y)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        loss = (self.bias * loss.detach()).sum()
        self.opt_b.zero_grad()
        loss.backward()
        self.opt_b.step()
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args([])
    args.device = torch.device(args.device)
    agent = Agent(**vars(args))
    for x, y in data:
        agent.fit(x.to(args.device), y.to(args.device))
main()
"""


def test_a_tensor_tells_where_it_was_put() -> None:
    result = migrate_source(HEAD + _OUT_OF_SIGHT, path="train.py")
    assert result.changed, result.diagnostics
    assert 'enabled=self.bias.device.type == "cuda"' in result.output
    check_runs(HEAD + _OUT_OF_SIGHT, result.output)


_BESIDE = """\
small = nn.Linear(8, 3)
opt = torch.optim.SGD(small.parameters(), lr=0.1)
for x, y in data:
    opt.zero_grad()
    loss = criterion(small(x), y)
    loss.backward()
    opt.step()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
large = nn.Linear(8, 3).to(device)
opt_large = torch.optim.SGD(large.parameters(), lr=0.1)
for x, y in data:
    x, y = x.to(device), y.to(device)
    opt_large.zero_grad()
    loss = criterion(large(x), y)
    loss.backward()
    opt_large.step()
"""
_MADE = "small = nn.Linear(8, 3)\n"


def test_what_is_fed_to_another_model_does_not_move_this_one() -> None:
    head = HEAD.replace("import argparse\n", "")
    result = migrate_source(head + _BESIDE, path="train.py")
    (found,) = result.diagnostics
    assert (found.code, found.place.line) == ("AMP005", head.count("\n") + 6)
    assert "scaler.step(opt_large)" in result.output
    # One variable for both: its switch is off for the model that stays.
    one = head + _BESIDE.replace("opt_large", "opt")
    result = migrate_source(one, path="train.py")
    assert result.diagnostics == ()
    assert 'enabled=next(small.parameters()).device.type == "cuda"' in result.output
    check_runs(one, result.output)


@pytest.mark.parametrize(
    "made",
    [
        "small = nn.Linear(8, 3).cuda().float()\n",
        "small = nn.Linear(8, 3, device='cuda')\n",
        "with torch.device('cuda'):\n    small = nn.Linear(8, 3)\n",
        f"{_MADE}for p in small.parameters():\n    p.data = p.data.cuda()\n",
        f"{_MADE}def move(net):\n    net.cuda()\nmove(small)\n",
        f"{_MADE}for net in [small]:\n    net.cuda()\n",
        f"{_MADE}small._apply(lambda t: t.cuda())\n",
        f"{_MADE}small = small.cuda()\n",
    ],
)
def test_what_may_be_moved_is_not_known_to_stay(made: str) -> None:
    source = HEAD + _BESIDE.replace(_MADE, made)
    result = migrate_source(source, path="train.py")
    assert all(found.code != "AMP005" for found in result.diagnostics)


_CHOSEN_LATER = """\
import random
device = None
def set_gpu_mode(mode, number=0):
    global device
    device = torch.device(f"cuda:{number}" if mode else "cpu")
class Trainer:
    def __init__(self, net):
        self.net = net
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
        AFTER
    def train(self, x, y):
        loss = criterion(self.net(x.to(device)), y.to(device))
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
def run(uses_gpu):
    BEFORE
    trainer = Trainer(nn.Linear(8, 3))
    trainer.net.to(device)
    for x, y in data:
        trainer.train(x, y)
run(torch.cuda.is_available())
"""


def test_a_variable_of_a_file_that_is_none_at_first() -> None:
    head = HEAD.replace("import argparse\n", "") + _CHOSEN_LATER.replace("AFTER", "")
    chosen = head.replace("BEFORE", "set_gpu_mode(uses_gpu)")
    assert switch(chosen) == 'device is not None and device.type == "cuda"'
    check_runs(chosen, migrate_source(chosen, path="train.py").output)
    perhaps = head.replace("BEFORE", "if random.random() > 2: set_gpu_mode(uses_gpu)")
    check_runs(perhaps, migrate_source(perhaps, path="train.py").output)
    named = chosen.replace("torch.device(f", "(f")
    expected = 'device is not None and torch.device(device).type == "cuda"'
    assert switch(named) == expected


@pytest.mark.parametrize(
    ("before", "after"),
    (("", ""), ("", "set_gpu_mode(torch.cuda.is_available())")),
)
def test_a_variable_that_is_none_when_it_is_asked(before: str, after: str) -> None:
    text = _CHOSEN_LATER.replace("AFTER", after).replace("BEFORE", before or "pass")
    if not after:
        text = text.replace(
            "    trainer.net", "    set_gpu_mode(True)\n    trainer.net"
        )
    assert switch(HEAD + text) == "AMP041"


@pytest.mark.parametrize(
    ("imported", "used", "changed"),
    (("import gpu", "gpu.device", 1), ("from gpu import device", "device", 0)),
)
def test_a_variable_of_another_file_that_is_none_at_first(
    imported: str,
    used: str,
    changed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    text = HEAD + _CHOSEN_LATER.replace("AFTER", "").replace("BEFORE", "")
    first, rest = text.split("class Trainer")
    Path("gpu.py").write_text("import torch\n" + first[first.index("device = None") :])
    script = f"{HEAD}{imported}\nimport gpu\nclass Trainer{rest}".replace(
        "    trainer = ", "    gpu.set_gpu_mode(uses_gpu)\n    trainer = "
    )
    Path("train.py").write_text(re.sub(r"to\(device\)", f"to({used})", script))
    assert len(migrate_paths(["."]).changed) == changed


BEHIND = f"""\
{HEAD}class Trainer:
    def __init__(self, model, on_gpu=True):
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)
        if on_gpu and torch.cuda.is_available():
            self.device = torch.device("cuda:0")
        OTHERWISE
            self.device = torch.device("cpu")
        self.model = model.to(self.device)
{FIT}Trainer(nn.Linear(8, 3)).fit()
"""


@pytest.mark.parametrize(
    ("otherwise", "enabled"),
    [("else:", 'self.device.type == "cuda"'), ("elif on_gpu:", "AMP041")],
)
def test_a_device_that_is_chosen_behind_the_optimizer(
    otherwise: str, enabled: str
) -> None:
    source = BEHIND.replace("OTHERWISE", otherwise)
    assert switch(source) == enabled
    if enabled != "AMP041":
        output = migrate_source(source, path="train.py").output
        assert output.index("self.scaler =") > output.index('torch.device("cpu")')
        check_runs(source, output)


KEEPS = HEAD + """\
def define(gpus):
    return prepared(nn.Linear(8, 3), gpus)
def prepared(net, gpus):
    if len(gpus) > 0:
        net.to(gpus[0])
        net = nn.DataParallel(net, gpus)
    return net
class Learner:
    def __init__(self, gpus):
        self.device = torch.device("cuda:%d" % gpus[0]) if gpus else torch.device("cpu")
        self.model, self.other = define(gpus), define(gpus)
        self.opt = torch.optim.SGD([*self.model.parameters(), *self.other.parameters()], lr=0.1)
    def take(self, x, y):
        self.x = x.to(self.device)
        self.y = y.to(TARGETS)
    def learn(self):
        self.opt.zero_grad()
        loss = criterion(self.model(self.x) + self.other(self.x), self.y)
        loss.backward()
        self.opt.step()
parser = argparse.ArgumentParser()
parser.add_argument("--gpu", type=int, action="append", default=[])
args = parser.parse_args()
learner = Learner(args.gpu)
for x, y in data:
    learner.take(x, y)
    learner.learn()
"""


def test_what_a_method_keeps_for_the_model_tells_where_that_is() -> None:
    source = KEEPS.replace("TARGETS", "self.device")
    assert switch(source) == 'self.device.type == "cuda"'
    check_runs(source, migrate_source(source).output)
    assert switch(KEEPS.replace("TARGETS", "torch.device(args.to)")) == "AMP041"


CHOOSES = HEAD + """\
parser = argparse.ArgumentParser()
parser.add_argument("--half", action="store_true")
parser.add_argument("--dt", default="float")
args = parser.parse_args(ARGUMENTS)
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(8, 3).to(device)
if args.half:
    model.half()
def train(args, model):
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in data * 3:
        x, y = x.to(device), y.to(device)
        if args.half:
            x = x.half()
        opt.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        opt.step()
        print(loss.item())
train(args, model)
"""
_ON = 'device.type == "cuda"'
_ASKED = "if args.half"


@pytest.mark.parametrize(
    ("old", "new", "condition"),
    [
        ("", "", f"{_ON} and not args.half"),
        (_ASKED, 'if args.dt == "half"', f'{_ON} and args.dt != "half"'),
        (_ASKED, 'if args.dt == "float"', "AMP006"),
        (
            "device)\nif args.half",
            "device)\nif args.dt != 'float'",
            f'{_ON} and not args.half and args.dt == "float"',
        ),
        (_ASKED, "if len(args.dt)", "AMP006"),
        ("torch.manual_seed", "args.half = True\ntorch.manual_seed", "AMP006"),
        (
            "torch.manual_seed",
            "setattr(args, input(), True)\ntorch.manual_seed",
            "AMP006",
        ),
        (
            "torch.manual_seed",
            "vars(args).update(data[1:])\ntorch.manual_seed",
            "AMP006",
        ),
        ("    model.half()", "    pass\nmodel.half()", "AMP006"),
        # What a remedy casts to fp32 would be half.
        ("criterion(model(x), y)", "model(x).mean()", "AMP006"),
    ],
)
def test_amp_is_off_where_an_option_chooses_another_precision(
    old: str, new: str, condition: str
) -> None:
    source = CHOOSES.replace(old, new) if old else CHOOSES
    assert switch(source) == condition
    if condition != "AMP006":
        for arguments in ("[]", '["--half"]', '["--dt", "half"]'):
            chosen = source.replace("ARGUMENTS", arguments)
            check_off(
                chosen, migrate_source(source).output.replace("ARGUMENTS", arguments)
            )
        check_runs(
            source.replace("ARGUMENTS", "[]"),
            migrate_source(source).output.replace("ARGUMENTS", "[]"),
        )
