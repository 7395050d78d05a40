"""What keeps Tensor Cores idle: each rule on the code next to its examples, wrong and right."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent

import pytest
from lint_support import lint, lint_files

from amp_migrate.core.findings import Severity

HEAD = """\
import time
import torch
import torch.nn.functional as F
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(1024, 1024).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0.0
"""
STEP = """\
inputs, targets = inputs.to(device), targets.to(device)
outputs = model(inputs)
loss = F.mse_loss(outputs, targets)
optimizer.zero_grad()
loss.backward()
optimizer.step()
"""


def script(step: str = STEP, *, head: str = HEAD, after: str = "") -> str:
    """A training loop over ``loader``."""
    body = indent(dedent(step), "        ")
    loop = (
        "for epoch in range(3):\n    for i, (inputs, targets) in enumerate(loader):\n"
    )
    return f"{head}{loop}{body}{after}"


def codes(text: str, code: str, **options: object) -> list[str]:
    """The severities of a rule's findings."""
    return [one.severity.value for one in lint(text, select=(code,), **options)]


# -- TCU301 -----------------------------------------------------------------------------------

WAITS = [
    ("total += loss.item()", ["info"]),
    ("total += float(loss)", ["info"]),
    ("total += loss.detach().cpu().numpy()", ["info"]),
    ("print(loss)", ["info"]),
    ("print(f'{i}: {loss:.3f}')", ["info"]),
    ("print('%d: %.3f' % (i, loss))", ["info"]),
    ("print('{}'.format(loss))", ["info"]),
    ("if loss > 10:\n    raise ValueError", ["info"]),
    ("history.append(loss.tolist())", ["info"]),
    # One wait behind another finds nothing to wait for.
    ("total += loss.item()\ncorrect += (outputs > 0).sum().item()", ["info"]),
    # In a loop inside the step.
    (
        "for p in model.parameters():\n    total += p.grad.norm().item()",
        ["warning"],
    ),
    # Now and then, or not at all.
    ("if i % 100 == 0:\n    print(loss.item())", []),
    ("total += loss.detach()", []),
    ("print(i, loss.shape, len(loader))", []),
    ("print(total / (i + 1))", []),
    ("if loss.requires_grad:\n    pass", []),
    ("if outputs is not None and outputs.size(0) > 1:\n    pass", []),
    ("targets = targets.view(-1)", []),
    ("total += loss.item() if i % 100 == 0 else 0", []),
    ("observation, reward = env.step(outputs.argmax().item())", []),
]


@pytest.mark.parametrize(("line", "expected"), WAITS)
def test_waits_behind_the_step(line: str, expected: list[str]) -> None:
    assert codes(script(f"{STEP}{line}\n"), "TCU301") == expected


def test_two_waits_with_work_between_them_are_a_warning() -> None:
    step = STEP.replace("loss.backward()", "print(loss.item())\nloss.backward()")
    (found,) = lint(script(step + "print(outputs.sum().item())\n"), select=("TCU301",))
    assert found.severity is Severity.WARNING
    assert [one.place.line for one in found.chain if one.place] == [16, 19]


def test_a_wait_behind_the_loop_is_none_of_the_step() -> None:
    step = STEP + "total += loss.detach()\n"
    assert codes(script(step, after="    print(total.item())\n"), "TCU301") == []


def test_an_evaluation_between_the_steps_is_none_of_them() -> None:
    more = """\
        for x, y in valid_loader:
            total += F.mse_loss(model(x.to(device)), y.to(device)).item()
    """
    assert codes(script(STEP + dedent(more)), "TCU301") == []


def test_what_runs_on_the_cpu_waits_for_nothing() -> None:
    cpu = script(f"{STEP}total += loss.item()\nprint(loss)\n")
    for moved in (".to(device)", 'device = torch.device("cuda" if torch'):
        assert moved in cpu
    cpu = cpu.replace(".to(device)", "").replace(
        'torch.device("cuda" if torch.cuda.is_available() else "cpu")', '"cpu"'
    )
    assert lint(cpu, select=("TCU2", "TCU3")) == ()


def test_a_step_in_a_function_of_its_own() -> None:
    text = HEAD + dedent("""\
        def train_step(inputs, targets):
            inputs, targets = inputs.to(device), targets.to(device)
            loss = F.mse_loss(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss.item()

        for inputs, targets in loader:
            total += train_step(inputs, targets)
        """)
    assert codes(text, "TCU301") == ["info"]


# -- TCU302 to TCU304 -------------------------------------------------------------------------


def test_a_clock_needs_synchronize() -> None:
    wait = "torch.cuda.synchronize()\n"
    assert codes(script(STEP + wait), "TCU302") == ["warning"]
    timed = f"{STEP}{wait}print(time.perf_counter())\n"
    assert codes(script(timed), "TCU302") == ["info"]
    assert codes(script(f"{STEP}if i % 100 == 0:\n    {wait}"), "TCU302") == []
    assert codes(script(after=f"    {wait}"), "TCU302") == []


def test_who_orders_the_work_by_hand_has_to_wait() -> None:
    wait = "torch.cuda.synchronize()\n"
    stream = HEAD + "stream = torch.cuda.Stream()\n"
    assert codes(script(STEP + wait, head=stream), "TCU302") == []
    for copied, safe in [
        ('kept = outputs.to("cpu", non_blocking=True)\n', False),
        ("inputs = inputs.to(device, non_blocking=True)\n", True),
    ]:
        (found,) = lint(script(STEP + copied + wait), select=("TCU302",))
        assert found.fix is not None and found.fix.safe is safe


MADE = [
    ("torch.zeros(4).to(device)", ["warning"]),
    ("torch.ones(4).cuda()", ["warning"]),
    ("torch.randn(4, 100).to(device)", ["warning"]),
    ("torch.zeros(4, device=device)", []),
    ("torch.zeros(4).to(torch.float16)", []),
    ('torch.zeros(4).to("cpu")', []),
    ("torch.tensor([1.0, 2.0]).to(device)", []),
    ("torch.zeros(4, pin_memory=True).to(device)", []),
]


@pytest.mark.parametrize(("made", "expected"), MADE)
def test_made_on_the_cpu(made: str, expected: list[str]) -> None:
    assert codes(script(f"{STEP}mask = {made}\n"), "TCU303") == expected


def test_made_in_a_forward_is_info_and_elsewhere_nothing() -> None:
    text = HEAD.replace("total = 0.0", "start = torch.zeros(4).to(device)") + dedent(
        """\
        class Net(nn.Module):
            def forward(self, x):
                return x + torch.zeros(4).to(x.device)
        """
    )
    assert codes(text, "TCU303") == ["info"]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("optimizer.zero_grad(set_to_none=False)", ["warning"]),
        ("optimizer.zero_grad(False)", ["warning"]),
        ("model.zero_grad(set_to_none=False)", ["warning"]),
        ("optimizer.zero_grad(set_to_none=True)", []),
        ("optimizer.zero_grad(set_to_none=keep)", []),
        ("optimizer.zero_grad()", []),
    ],
)
def test_gradients_zeroed(call: str, expected: list[str]) -> None:
    text = script(STEP.replace("optimizer.zero_grad()", call))
    assert codes(text, "TCU304") == expected


# -- TCU201 to TCU205 -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", ["info"]),
        ("nn.Linear(1024, 1024)", "nn.Linear(10, 10)", []),
        ("nn.Linear(1024, 1024)", "nn.Conv2d(64, 64, 3)", []),
        ("total = 0.0", "torch.backends.cuda.matmul.allow_tf32 = True", []),
        ("total = 0.0", "scaler = torch.amp.GradScaler('cuda')", []),
        ("total = 0.0", "import gym", []),
    ],
)
def test_tf32(old: str, new: str, expected: list[str]) -> None:
    text = script(head=HEAD.replace(old, new) if old else HEAD)
    assert codes(text, "TCU201") == expected


def test_the_precision_is_set_in_another_file(tmp_path: Path) -> None:
    setup = "import torch\n\n\ndef setup():\n    torch.set_float32_matmul_precision('high')\n"
    text = script(head=HEAD + "import setup\n")
    found = lint_files(
        tmp_path, {"train.py": text, "setup.py": setup}, select=("TCU201",)
    )
    assert all(not one for one in found.values())


@pytest.mark.parametrize(
    ("head", "step", "expected"),
    [
        ("model = model.double()", "", ["warning"]),
        ("torch.set_default_dtype(torch.float64)", "", ["warning"]),
        ("torch.set_default_dtype(torch.float32)", "", []),
        ("", "error = loss.double().sum()", []),
        (
            "",
            'with torch.autocast("cuda", enabled=False):\n    y = inputs.float() @ inputs.float().T',
            ["info"],
        ),
        (
            "",
            'with torch.autocast("cuda", enabled=False):\n    y = outputs.float().mean()',
            [],
        ),
    ],
)
def test_precision(head: str, step: str, expected: list[str]) -> None:
    text = script(f"{STEP}{step}\n", head=f"{HEAD}{head}\n")
    assert codes(text, "TCU204") == expected


def test_a_product_in_double_in_a_forward() -> None:
    text = HEAD + dedent("""\
        class Net(nn.Module):
            def forward(self, x, w):
                return (x.double() @ w.double()).float() + x.double().mean().float()
        """)
    assert codes(text, "TCU204") == ["warning", "warning"]


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("torch.autograd.set_detect_anomaly(True)", ["warning"]),
        ("torch.autograd.set_detect_anomaly(mode=True)", ["warning"]),
        ("torch.autograd.set_detect_anomaly(False)", []),
        ("torch.autograd.set_detect_anomaly(args.debug)", []),
        ("if args.debug:\n    torch.autograd.set_detect_anomaly(True)", []),
    ],
)
def test_debugging(head: str, expected: list[str]) -> None:
    assert codes(script(head=f"{HEAD}{head}\n"), "TCU205") == expected


# -- data -------------------------------------------------------------------------------------

DATA = """\
from PIL import Image

class Files(torch.utils.data.Dataset):
    def __getitem__(self, index):
        return self.read(index)
    def read(self, index):
        return Image.open(self.paths[index])

class Memory(torch.utils.data.Dataset):
    def __getitem__(self, index):
        return self.data[index]

"""


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("DataLoader(Files(), shuffle=True)", ["info"]),
        ("DataLoader(Files(), 8, True, num_workers=0)", ["info"]),
        ("DataLoader(Files(), shuffle=True, num_workers=4)", []),
        ("DataLoader(Files(), shuffle=True, num_workers=args.workers)", []),
        ("DataLoader(Files(), **options)", []),
        ("DataLoader(Memory(), shuffle=True)", []),
        ("DataLoader(Files(), shuffle=False)", []),
        ("DataLoader(anything, shuffle=True)", []),
    ],
)
def test_workers(made: str, expected: list[str]) -> None:
    head = f"{HEAD}from torch.utils.data import DataLoader\n{DATA}loader = {made}\n"
    assert codes(script(head=head), "TCU305") == expected


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("DataLoader(Memory())", ["info"]),
        ("DataLoader(Memory(), pin_memory=False)", ["info"]),
        ("DataLoader(Memory(), pin_memory=True)", []),
        ("DataLoader(Memory(), pin_memory=pin)", []),
        ("make_loader()", []),
    ],
)
def test_pinned(made: str, expected: list[str]) -> None:
    head = f"{HEAD}from torch.utils.data import DataLoader\n{DATA}loader = {made}\n"
    step = STEP.replace("inputs.to(device)", "inputs.to(device, non_blocking=True)")
    assert codes(script(step, head=head), "TCU306") == expected


# -- layers -----------------------------------------------------------------------------------


def net(layers: str, forward: str) -> str:
    """A module with these layers, and this forward."""
    return (
        "import torch\nfrom torch import nn\n\n"
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        + indent(dedent(layers), " " * 8)
        + "\n    def forward(self, x):\n"
        + indent(dedent(forward), " " * 8)
        + "\n"
    )


CONV_BN = "self.conv = nn.Conv2d(3, 8, 3)\nself.bn = nn.BatchNorm2d(8)\n"
BIASES = [
    (CONV_BN, "return self.bn(self.conv(x))", ["info"]),
    (CONV_BN, "x = self.conv(x)\nx = self.bn(x)\nreturn x", ["info"]),
    (CONV_BN, "x = self.conv(x)\nreturn torch.relu(self.bn(x))", ["info"]),
    (CONV_BN, "x = self.conv(x)\nx = torch.relu(self.bn(x))\nreturn x", ["info"]),
    (CONV_BN, "x = self.conv(x)\nx = torch.relu(x)\nx = self.bn(x)\nreturn x", []),
    (CONV_BN, "y = self.conv(x)\nx = self.bn(y)\nreturn x + y", []),
    (CONV_BN, "return self.bn(torch.relu(self.conv(x)))", []),
    (CONV_BN, "return self.bn(self.conv(x)) + self.conv(x)", []),
    (
        CONV_BN.replace("3)", "3, bias=False)"),
        "return self.bn(self.conv(x))",
        [],
    ),
    (CONV_BN.replace("3)", "3, bias=b)"), "return self.bn(self.conv(x))", []),
    (
        "layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()]\nself.net = nn.Sequential(*layers)\n",
        "return self.net(x)",
        ["info"],
    ),
    (
        "self.net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.BatchNorm2d(8))\n",
        "return self.net(x)",
        [],
    ),
]


@pytest.mark.parametrize(("layers", "forward", "expected"), BIASES)
def test_biases(layers: str, forward: str, expected: list[str]) -> None:
    assert codes(net(layers, forward), "TCU307") == expected


def test_a_bias_that_a_checkpoint_holds_is_not_taken_away(tmp_path: Path) -> None:
    text = net(CONV_BN, "return self.bn(self.conv(x))")
    (found,) = lint(text, select=("TCU307",))
    assert found.fix is not None and not found.fix.safe
    # The weights of this architecture lie somewhere.
    loads = "Net().load_state_dict(torch.load('net.pt'))\n"
    assert codes(text + loads, "TCU307") == []
    texts = {"net.py": text, "train.py": f"import torch\nfrom net import Net\n{loads}"}
    found = lint_files(tmp_path, texts, select=("TCU307",))["net.py"][0]
    assert found.fix is None


def test_a_bias_that_is_initialized_is_not_taken_away() -> None:
    text = net(CONV_BN, "return self.bn(self.conv(x))")
    (found,) = lint(f"{text}nn.init.zeros_(Net().conv.bias)\n", select=("TCU307",))
    assert found.fix is None


# -- several GPUs -----------------------------------------------------------------------------

ACCUMULATED = """\
inputs, targets = inputs.to(device), targets.to(device)
loss = F.mse_loss(model(inputs), targets) / 4
loss.backward()
if (i + 1) % 4 == 0:
    optimizer.step()
    optimizer.zero_grad()
"""


def test_accumulation_under_ddp() -> None:
    ddp = HEAD.replace("to(device)\n", "to(device)\nmodel = WRAP(model)\n", 1)
    ddp = ddp.replace("WRAP", "nn.parallel.DistributedDataParallel")
    assert codes(script(ACCUMULATED, head=ddp), "TCU308") == ["info"]
    assert codes(script(STEP, head=ddp), "TCU308") == []
    assert codes(script(ACCUMULATED), "TCU308") == []
    quiet = ACCUMULATED.replace(
        "loss.backward()", "with model.no_sync():\n    loss.backward()"
    )
    assert codes(script(quiet, head=ddp), "TCU308") == []


def test_hints_are_off_and_told_once(tmp_path: Path) -> None:
    text = script()
    assert lint(text) == () or all(one.code != "TCU309" for one in lint(text))
    files = {"a.py": text, "b.py": text.replace("import time", "import a")}
    found = lint_files(tmp_path, files, select=("TCU309",))
    assert sum(map(len, found.values())) == 1


# -- where nobody waits -----------------------------------------------------------------------


def test_tests_are_left_alone(tmp_path: Path) -> None:
    text = script(f"{STEP}print(loss.item())\ntorch.cuda.empty_cache()\n")
    texts = {"train.py": text, "tests/test_train.py": text, "conftest.py": text}
    found = lint_files(tmp_path, texts, select=("TCU2", "TCU3"))
    assert {name for name, some in found.items() if some} == {"train.py"}


def test_a_file_that_tries_itself_out_is_left_alone(tmp_path: Path) -> None:
    net = """\
        import torch
        from torch import nn
        from torch.utils.data import DataLoader
        from torchvision import datasets, transforms

        Net = nn.Linear

        if __name__ == "__main__":
            net = nn.DataParallel(Net(3, 3)).cuda()
            data = datasets.CIFAR10("data", transform=transforms.ToTensor())
            for x, y in DataLoader(data, shuffle=True):
                print(net(x.cuda()))
        """
    train = script(head=HEAD + "from net import Net\nmodel = Net(3, 3)\n")
    texts = {"net.py": net, "train.py": train}
    found = lint_files(tmp_path, texts, select=("TCU305", "TCU308"))
    assert not any(found.values())


def test_gradients_that_are_read_may_need_their_zeros() -> None:
    zeros = STEP.replace("zero_grad()", "zero_grad(set_to_none=False)")
    more = "for p in model.parameters():\n    p.grad += 1\n"
    assert codes(script(zeros + more), "TCU304") == []


def test_a_module_is_moved_and_not_read() -> None:
    head = f"{HEAD}model = model.cuda()\n"
    step = f"{STEP}send(model.cpu())\n"
    assert codes(script(step, head=head), "TCU301") == []


def test_the_gradient_of_anything_is_not_that_of_a_parameter() -> None:
    step = f"{STEP}slopes.append(points.grad[0].item())\n"
    assert codes(script(step), "TCU301") == []
    step = f"{STEP}for name, p in model.named_parameters():\n    print(name, p.grad.norm().item())\n"
    assert codes(script(step), "TCU301") == ["warning"]


def test_normal_is_given_a_device_only_with_a_size() -> None:
    for made, fixed in [
        ("torch.normal(torch.zeros(4), 0.1)", False),
        ("torch.normal(0.0, 1.0, size=(4,))", True),
    ]:
        text = script(f"{STEP}noise = {made}.to(device)\n")
        found = [
            one for one in lint(text, select=("TCU303",)) if "normal" in one.message
        ]
        assert [one.fix is not None for one in found] == [fixed]


def test_a_demonstration_is_no_step() -> None:
    body = indent(STEP, "    ")
    call = "if __name__ == '__main__':\n    demo(inputs, targets)\n"
    text = f"{HEAD}def demo(inputs, targets):\n{body}    torch.cuda.synchronize()\n"
    assert codes(text, "TCU302") == [] == codes(text + call, "TCU302")
    text = text.replace("demo", "train_batch")
    assert codes(text, "TCU302") == ["warning"]
    assert codes(text + call.replace("demo", "train_batch"), "TCU302") == []


def test_the_backward_may_be_in_another_file(tmp_path: Path) -> None:
    scaler = """\
        import torch

        class Scaler:
            def __call__(self, loss, optimizer):
                loss.backward()
                optimizer.step()
        """
    step = STEP.replace("loss.backward()\noptimizer.step()", "scaler(loss, optimizer)")
    head = f"{HEAD}from scaler import Scaler\nscaler = Scaler()\n"
    train = script(f"{step}total += loss.item()\n", head=head)
    texts = {"scaler.py": scaler, "train.py": train}
    found = lint_files(tmp_path, texts, select=("TCU301",))
    assert [one.place.line for one in found["train.py"]] == [19]


def test_a_backward_that_nobody_steps_on_is_no_training() -> None:
    measured = STEP.replace("optimizer.step()\n", "").replace(
        "optimizer.zero_grad()\n", ""
    )
    assert codes(script(f"{measured}torch.cuda.empty_cache()\n"), "TCU302") == []


NETWORK = """\
    import torch
    from torch import nn
    from torchvision import models

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Conv2d(3, 64, 3)
            self.b = nn.Conv2d(64, 64, 3)
            self.c = nn.Conv2d(64, 64, 3)
            self.d = nn.Conv2d(64, 64, 3)
    """


def test_the_networks_of_a_library_are_not_the_model(tmp_path: Path) -> None:
    region = (
        'with torch.autocast("cuda"):\n    loss = F.mse_loss(model(inputs), targets)'
    )
    step = STEP.replace("loss = F.mse_loss(outputs, targets)", region)
    model = "import torch\nfrom {} import Net\nmodel = Net().to(device)\n"
    head = HEAD.replace("model = nn.Linear(1024, 1024).to(device)\n", "")
    with_model = head.replace("optimizer", f"{model.format('net')}optimizer", 1)
    through = head.replace("optimizer", f"{model.format('nets')}optimizer", 1)
    texts = {
        "net.py": NETWORK,
        "nets/__init__.py": "from .net import Net\n",
        "nets/net.py": NETWORK,
        "library/__init__.py": "import torch\nfrom library import metrics\n",
        "library/metrics.py": "import torch\nfrom library import inception\n",
        "library/inception.py": NETWORK,
        "a.py": script(step, head=with_model),
        "b.py": script(step, head=through),
        "c.py": script(step, head=HEAD + "import library\nlibrary.metrics\n"),
    }
    found = lint_files(tmp_path, texts, select=("TCU202",))
    assert {name for name, some in found.items() if some} == {"a.py", "b.py"}


def test_a_clock_in_what_drives_the_loop_needs_synchronize() -> None:
    driver = """\
def timed(loader):
    for batch in loader:
        begun = time.time()
        yield batch
        print(time.time() - begun)


"""
    text = script(f"{STEP}torch.cuda.synchronize()\n")
    assert codes(text, "TCU302") == ["warning"]
    text = text.replace("enumerate(loader)", "enumerate(timed(loader))")
    assert codes(driver + text, "TCU302") == ["info"]


def test_data_parallel_beside_distributed_is_for_one_process() -> None:
    both = HEAD + dedent("""\
        if distributed:
            model = nn.parallel.DistributedDataParallel(model)
        else:
            model = nn.DataParallel(model)
        """)
    assert codes(script(head=both), "TCU308") == []
    alone = f"{HEAD}model = nn.DataParallel(model)\n"
    assert codes(script(head=alone), "TCU308") == ["info"]


def test_a_tpu_is_no_gpu() -> None:
    wait = "print(loss.item())\n"
    assert codes(script(STEP + wait), "TCU301") == ["info"]
    head = HEAD.replace(
        'torch.device("cuda" if torch.cuda.is_available() else "cpu")',
        "xm.xla_device()",
    )
    head = "import torch_xla.core.xla_model as xm\n" + head
    assert codes(script(STEP + wait, head=head), "TCU301") == []
