"""apex.amp to torch.amp: before and after, what stays, and what really runs."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from amp_migrate.api import modernize_source
from amp_migrate.cli.exits import ExitCode
from amp_migrate.cli.main import main

HEAD = """\
import torch
from torch import nn
{imports}

{setup}
model = nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{start}
for x, y in batches:
    optimizer.zero_grad()
"""
FORWARD = "    loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())\n"
REGION = (
    '    with torch.autocast("cuda", dtype=torch.float16, enabled=scaler.is_enabled()):\n'
    "        loss = nn.functional.mse_loss(model(x.cuda()), y.cuda())\n"
)
SCALED = "    with amp.scale_loss(loss, optimizer) as scaled_loss:\n        scaled_loss.backward()\n"
STEP = "    optimizer.step()\n"
NEW_STEP = "    scaler.step(optimizer)\n    scaler.update()\n"
FLAGGED = (
    "    if fp16:\n"
    "        with amp.scale_loss(loss, optimizer) as scaled_loss:\n"
    "            scaled_loss.backward()\n"
    "    else:\n        loss.backward()\n"
)
IMPORT = "from apex import amp\n"
START = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")\n'
IF_START = "if fp16:\n" + textwrap.indent(START, "    ")
FLAG = "fp16 = False\n"


def script(
    imports: str = IMPORT,
    setup: str = "",
    start: str = START,
    backward: str = SCALED,
    step: str = STEP,
) -> str:
    text = HEAD.format(imports=imports, setup=setup, start=start)
    return text + FORWARD + backward + step


def migrated(
    setup: str = "",
    enabled: str = "torch.cuda.is_available()",
    backward: str = "    scaler.scale(loss).backward()\n",
    step: str = NEW_STEP,
) -> str:
    text = HEAD.format(imports="", setup=setup, start="").replace("\n\n\n", "\n\n")
    scaler = f'scaler = torch.amp.GradScaler("cuda", enabled={enabled})\n'
    return text.replace("lr=0.1)\n", f"lr=0.1)\n{scaler}") + REGION + backward + step


def squeezed(text: str) -> str:
    return "\n".join(line for line in text.split("\n") if line)


CASES = {
    "plain": (script(), migrated()),
    "O2": (script(start=START.replace("O1", "O2")), migrated()),
    "no level": (script(start=START.replace(', opt_level="O1"', "")), migrated()),
    "what torch.amp does anyway": (
        script(
            start=START.replace(
                '"O1"',
                '"O1", loss_scale="dynamic", keep_batchnorm_fp32=None, verbosity=0',
            )
        ),
        migrated(),
    ),
    "amp of apex": (
        script(
            imports="import apex\n",
            start=START.replace("amp.", "apex.amp."),
            backward=SCALED.replace("amp.scale", "apex.amp.scale"),
        ),
        migrated(),
    ),
    "amp by a name": (script(imports="import apex.amp as amp\n"), migrated()),
    "what came before it, imported and not used": (
        script(imports="from apex.fp16_utils import *\nfrom apex import amp\n"),
        migrated(),
    ),
    "its functions by name": (
        script(
            imports="from apex.amp import initialize, scale_loss as scale\n",
            start=START.replace("amp.", ""),
            backward=SCALED.replace("amp.scale_loss", "scale"),
        ),
        migrated(),
    ),
    "another name": (
        script(
            imports="from apex import amp as apex_amp\n",
            start=START.replace("amp.", "apex_amp."),
            backward=SCALED.replace("amp.scale", "apex_amp.scale"),
        ),
        migrated(),
    ),
    "a flag": (
        script(setup=FLAG, start=IF_START, backward=FLAGGED),
        migrated(setup=FLAG, enabled="fp16"),
    ),
    "lists of one": (
        script(
            start=START.replace(
                "model, optimizer =", "[model], (optimizer,) ="
            ).replace("(model, optimizer", "([model], [optimizer]")
        ),
        migrated(),
    ),
    "an unknown flag": (
        script(setup="fp16 = settings()\n", start=IF_START, backward=FLAGGED),
        migrated(setup="fp16 = settings()\n", enabled="bool(fp16)"),
    ),
    "a level for a flag": (
        script(
            setup='parser.add_argument("--fp16", default=0, type=str)\nargs = parser()\n'
            "def f(fp16=False):\n    pass\n",
            start=IF_START.replace("fp16", "args.fp16"),
            backward=FLAGGED.replace("fp16", "args.fp16"),
        ),
        migrated(
            setup='parser.add_argument("--fp16", default=0, type=str)\nargs = parser()\n'
            "def f(fp16=False):\n    pass\n",
            enabled="bool(args.fp16)",
        ),
    ),
    "a flag the other way round": (
        script(
            setup=FLAG,
            start=IF_START,
            backward="    if not fp16:\n        loss.backward()\n    else:\n"
            + textwrap.indent(SCALED, "    "),
        ),
        None,
    ),
    "a level that is chosen at run time": (
        script(
            setup=FLAG + "level = argument()\n",
            start=IF_START.replace('"O1"', "level"),
            backward=FLAGGED,
        ),
        migrated(setup=FLAG + "level = argument()\n", enabled='fp16 and level != "O0"'),
    ),
    "a level that is asked where the loss is scaled": (
        script(
            setup="level = argument()\n",
            start=START.replace('"O1"', "level"),
            backward="    if level == 'O0':\n        loss.backward()\n    else:\n"
            + textwrap.indent(SCALED, "    "),
        ),
        migrated(setup="level = argument()\n", enabled='level != "O0"'),
    ),
    "a level for each answer": (
        script(setup=FLAG, start=START.replace('"O1"', '"O1" if fp16 else "O0"')),
        migrated(setup=FLAG, enabled="fp16"),
    ),
    "a level for each answer, the other way round": (
        script(setup=FLAG, start=START.replace('"O1"', '"O0" if full else "O2"')),
        migrated(setup=FLAG, enabled="not (full)"),
    ),
    "all on one line": (
        script(
            setup=FLAG,
            start="if fp16: " + START,
            backward="    if fp16:\n"
            "        with amp.scale_loss(loss, optimizer) as scaled: scaled.backward()\n"
            "    else: loss.backward()\n",
        ),
        migrated(setup=FLAG, enabled="fp16"),
    ),
    "asserted to be there": (
        script(
            imports="try:\n    from apex import amp\n    APEX = True\n"
            "except ImportError:\n    APEX = False\n",
            setup=FLAG + "assert not fp16 or fp16 and APEX, 'no apex'\n"
            "if fp16:\n    assert amp is not None, 'no apex'\n",
            start=IF_START,
            backward=FLAGGED,
        ),
        migrated(setup=FLAG, enabled="fp16"),
    ),
    "asked whether it is there": (
        script(
            imports="try:\n    from apex import amp\nexcept ImportError:\n    amp = None\n",
            setup="fp16 = bool(settings.fp16 and amp is not None)\n",
            start=IF_START,
            backward=FLAGGED,
        ),
        migrated(setup="fp16 = bool(settings.fp16)\n", enabled="bool(fp16)"),
    ),
    "the optimizer's parameters": (
        script(
            backward=SCALED + "    for p in amp.master_params(optimizer):\n"
            "        p.grad.clamp_(-1, 1)\n"
        ),
        migrated(
            backward="    scaler.scale(loss).backward()\n    scaler.unscale_(optimizer)\n"
            '    for p in [p for group in optimizer.param_groups for p in group["params"]]:\n'
            "        p.grad.clamp_(-1, 1)\n"
        ),
    ),
    "comments around the backward": (
        script(
            backward="    # up\n    with amp.scale_loss(loss, optimizer) as s:  # on\n"
            "        # now\n        s.backward()  # here\n        # down\n"
        ),
        migrated(
            backward="    # up\n    # on\n    # now\n    scaler.scale(loss).backward()  # here\n"
            "    # down\n"
        ),
    ),
    "switched by itself": (
        script(setup=FLAG, start=START.replace('"O1"', '"O1", enabled=fp16')),
        migrated(setup=FLAG, enabled="fp16"),
    ),
    "an import that may fail": (
        script(
            imports="try:\n    from apex import amp\nexcept ImportError:\n"
            '    raise ImportError("install apex")\n'
        ),
        migrated(),
    ),
    "an import that may fail, with a variable for it": (
        script(
            imports="try:\n    from apex import amp\n    APEX = True\n"
            "except ImportError:\n    APEX = False\n",
            setup=FLAG + "if fp16 and not APEX:\n    raise SystemExit(1)\n",
            start=IF_START.replace("if fp16", "if fp16 and APEX"),
            backward=FLAGGED.replace("if fp16", "if APEX and fp16"),
        ),
        migrated(setup=FLAG, enabled="fp16"),
    ),
    "the same, set before": (
        script(
            imports="APEX = False\ntry:\n    from apex import amp\n    APEX = True\n"
            "except ImportError:\n    pass\n",
            setup="if APEX is False:\n    raise SystemExit(1)\n",
        ),
        migrated(),
    ),
    "amp or None": (
        script(
            imports="try:\n    from apex import amp\nexcept ImportError:\n    amp = None\n",
            setup=FLAG + "if fp16 and amp is None:\n    raise SystemExit(1)\n",
            start=IF_START.replace("if fp16", "if fp16 and amp is not None"),
            backward=FLAGGED,
        ),
        migrated(setup=FLAG, enabled="fp16"),
    ),
    "for inference, too": (
        script()
        + 'other = nn.Linear(8, 1).cuda()\nother = amp.initialize(other, opt_level="O1")\n',
        migrated() + "other = nn.Linear(8, 1).cuda()\n",
    ),
    "other names": (
        script(start=START.replace("model, optimizer =", "net, opt =")),
        None,
    ),
    "an import under the flag": (
        script(
            imports="",
            setup=FLAG + "if fp16:\n    from apex import amp\n",
            start=IF_START,
            backward=FLAGGED,
        ),
        migrated(setup=FLAG, enabled="fp16"),
    ),
    "clipped": (
        script(
            backward=SCALED
            + "    nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)\n"
        ),
        migrated(
            backward="    scaler.scale(loss).backward()\n    scaler.unscale_(optimizer)\n"
            "    nn.utils.clip_grad_norm_([p for group in optimizer.param_groups "
            'for p in group["params"]], 1.0)\n'
        ),
    ),
    "clipped, with a flag": (
        script(
            setup=FLAG,
            start=IF_START,
            backward=FLAGGED + "    if fp16:\n"
            "        nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)\n"
            "    else:\n        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
        ),
        migrated(
            setup=FLAG,
            enabled="fp16",
            backward="    scaler.scale(loss).backward()\n    scaler.unscale_(optimizer)\n"
            "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
        ),
    ),
    "checkpoints": (
        script(
            start=START + 'saved = torch.load("c.pt")\n'
            'optimizer.load_state_dict(saved["optimizer"])\n'
            'if "amp" in saved:\n    amp.load_state_dict(saved["amp"])\n'
        )
        + 'torch.save({"optimizer": optimizer.state_dict(), "amp": amp.state_dict()}, "c.pt")\n',
        migrated().replace(
            "\nfor x, y",
            'saved = torch.load("c.pt")\noptimizer.load_state_dict(saved["optimizer"])\n'
            'if scaler.is_enabled() and saved.get("scaler"):\n'
            '    scaler.load_state_dict(saved["scaler"])\nfor x, y',
        )
        + 'torch.save({"optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()},'
        ' "c.pt")\n',
    ),
    "losses with numbers of their own": (
        script(
            start=START.replace('"O1"', '"O1", num_losses=2'),
            backward=SCALED.replace("optimizer)", "optimizer, loss_id=0)"),
        ),
        migrated(),
    ),
    "unscaled later": (
        script(
            backward=SCALED.replace("optimizer)", "optimizer, delay_unscale=False)")
        ),
        migrated(),
    ),
    "a part of the loss": (
        script(
            backward=SCALED.replace("(loss,", "(loss / 2,").replace(
                "backward()", "backward(retain_graph=True)"
            )
        ),
        migrated(backward="    scaler.scale(loss / 2).backward(retain_graph=True)\n"),
    ),
    "O0": (
        script(start=START.replace("O1", "O0")),
        script(imports="", start="", backward="    loss.backward()\n"),
    ),
}
CASES["a flag the other way round"] = (
    CASES["a flag the other way round"][0],
    CASES["a flag"][1],
)


CASES["other names"] = (
    script(
        start="def f():\n    pass\n"
        + START.replace("model, optimizer =", "net, optimizer =")
    ).replace("model(x", "net(x"),
    migrated()
    .replace("batches:", "batches:")
    .replace(
        "for x, y", "def f():\n    pass\nnet, optimizer = model, optimizer\nfor x, y"
    )
    .replace("model(x", "net(x"),
)


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    before, after = CASES[name]
    assert after is not None
    result = modernize_source(before)
    assert [str(found.message) for found in result.diagnostics] == []
    assert squeezed(result.output) == squeezed(after)
    again = modernize_source(result.output)
    assert not again.changed and again.old_uses == ()


def test_comments_stay_in_order() -> None:
    before = script(
        setup=FLAG,
        start="# start\n" + IF_START,
        backward="    # loss\n    if fp16:  # half\n        # scaled\n"
        "        with amp.scale_loss(loss, optimizer) as s:  # apex\n"
        "            s.backward()  # half\n    else:  # plain\n        loss.backward()  # full\n",
    )
    result = modernize_source(before)
    assert [str(found.message) for found in result.diagnostics] == []
    comments = [
        line.partition("#")[2] for line in result.output.split("\n") if "#" in line
    ]
    assert comments == [
        line.partition("#")[2] for line in before.split("\n") if "#" in line
    ]


def start(more: str) -> str:
    return START.replace('"O1"', f'"O1", {more}')


STAYS = {
    "O3": (script(start=START.replace("O1", "O3")), "torch.amp has no opt_level='O3'"),
    "a fixed scale": (script(start=start("loss_scale=128.0")), "no loss_scale=128.0"),
    "a scale from elsewhere": (
        script(start=start("loss_scale=args.loss_scale")),
        "no loss_scale=args.loss_scale",
    ),
    "batch norm in half": (
        script(start=start("keep_batchnorm_fp32=False")),
        "no keep_batchnorm_fp32=False",
    ),
    "no start": (script(start=""), "amp.initialize() is not seen"),
    "no scaling": (
        script(backward="    loss.backward()\n"),
        "amp.scale_loss() is not seen",
    ),
    "a start under a condition": (
        script(setup=FLAG, start=IF_START),
        "amp.initialize() is called only if fp16, amp.scale_loss() always",
    ),
    "scaling under a condition": (
        script(setup=FLAG, backward=FLAGGED),
        "amp.scale_loss() is used only if fp16, amp.initialize() always",
    ),
    "another condition": (
        script(
            setup=FLAG + "half = False\n",
            start=IF_START.replace("fp16", "half"),
            backward=FLAGGED,
        ),
        "amp.initialize() is called only if half",
    ),
    "a condition that is set too late": (
        script(setup="", start=FLAG + IF_START, backward=FLAGGED),
        "is set after the optimizer is made",
    ),
    "a step under scaling": (
        script(backward=SCALED + "        optimizer.step()\n", step=""),
        "more than backward() sees gradients that are still scaled",
    ),
    "no backward": (
        script(backward=SCALED.replace("scaled_loss.backward()", "run(scaled_loss)")),
        "not only one backward() is under amp.scale_loss()",
    ),
    "another device": (
        script(setup='device = torch.device("npu:0")\n'),
        "it is written for another device than CUDA",
    ),
    "a scaled loss that is used later": (
        script(backward=SCALED + "    print(scaled_loss)\n"),
        "scaled_loss is used outside of amp.scale_loss()",
    ),
    "functions in fp32": (
        script(setup="nms = amp.float_function(nms)\n"),
        "apex.amp.float_function is used in a way that is not known",
    ),
    "started twice": (script(start=START + START), "amp.initialize() is called twice"),
    "not to be migrated": (
        script(step="    optimizer.step(closure)\n"),
        "without apex.amp, the closure of step()",
    ),
    "a variable that more depends on": (
        script(
            imports="try:\n    from apex import amp\n    APEX = True\n"
            "except ImportError:\n    APEX = False\n",
            setup="print(APEX)\n",
        ),
        "APEX is used for more than apex.amp",
    ),
    "a variable that is set again": (
        script(
            imports="try:\n    from apex import amp\n    APEX = True\n"
            "except ImportError:\n    APEX = False\n",
            setup="APEX = argument()\n",
        ),
        "APEX is used for more than apex.amp",
    ),
    "more in the try": (
        script(
            imports="try:\n    sys.path.append('apex')\n    from apex import amp\n"
            "    APEX = True\nexcept ImportError:\n    APEX = False\n",
        ),
        "more hangs on the import of apex",
    ),
    "one or the other": (
        script(
            imports="try:\n    from apex import amp\nexcept ImportError:\n"
            "    from torch.cuda import amp\n"
        ),
        "amp is bound to something else, too",
    ),
}


@pytest.mark.parametrize("name", STAYS)
def test_stays(name: str) -> None:
    text, message = STAYS[name]
    result = modernize_source(text)
    assert result.output == text
    codes = {found.code for found in result.diagnostics}
    messages = " | ".join(found.message for found in result.diagnostics)
    assert codes <= {"AMP051", "AMP053"}, messages
    assert message in messages


TWO = """\
import torch
from apex import amp
from torch import nn

a, b = nn.Linear(8, 8).cuda(), nn.Linear(8, 1).cuda()
one = torch.optim.SGD(a.parameters(), lr=0.1)
two = torch.optim.SGD(b.parameters(), lr=0.1)
a, one = amp.initialize(a, one, opt_level="O1")
b, two = amp.initialize(b, two, opt_level="O1")
for x, y in batches:
    one.zero_grad()
    two.zero_grad()
    loss = nn.functional.mse_loss(b(a(x.cuda())), y.cuda())
    with amp.scale_loss(loss, [one, two]) as scaled_loss:
        scaled_loss.backward()
    one.step()
    two.step()
"""


def test_each_optimizer_is_started_by_itself() -> None:
    output = modernize_source(TWO).output
    assert output.count("GradScaler") == 1 and "apex" not in output
    assert "scaler.step(one)\n    scaler.step(two)\n    scaler.update()" in output
    different = TWO.replace('b, two, opt_level="O1"', "b, two, opt_level=level")
    result = modernize_source(different)
    assert not result.changed
    assert "with several levels" in result.diagnostics[0].message


def test_a_list_for_a_list() -> None:
    text = script(start=START.replace("(model,", "([model],"))
    result = modernize_source(text.replace("model(x", "model[0](x"))
    assert "model, optimizer = [model], optimizer" in result.output


def test_started_again_with_another_optimizer() -> None:
    made = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    branch = textwrap.indent(made + START, "    ")
    other = branch.replace("0.1", "0.2")
    text = script(start="").replace(made, f"if resume:\n{branch}else:\n{other}")
    output = modernize_source(text).output
    assert output.count("GradScaler(") == 1 and "apex" not in output


def test_the_line_in_the_way_is_one_of_the_file() -> None:
    text = script(
        backward=SCALED.replace("backward()", "backward(**more)"),
    )
    (found,) = modernize_source(text).diagnostics
    assert found.blocker is not None
    assert "scale" in found.blocker.text and "(AMP032)" in found.message


@pytest.mark.parametrize(
    "imports",
    [
        "from apex.fp16_utils import FP16_Optimizer\n",
        "import apex.fp16_utils as fp16\nFP16_Optimizer = fp16.FP16_Optimizer\n",
        "from apex.fp16_utils import *\n",
        "from apex.amp import *\n",
    ],
)
def test_what_came_before_apex_amp_is_told(imports: str) -> None:
    text = imports + "optimizer = FP16_Optimizer(optimizer)\noptimizer.backward(loss)\n"
    result = modernize_source(text)
    assert not result.changed
    assert {found.code for found in result.diagnostics} == {"AMP053"}


def test_marked_off() -> None:
    text = "# amp: off\n" + script()
    result = modernize_source(text)
    assert not result.changed and result.diagnostics == ()


def test_other_loops_stay_plain() -> None:
    plain = (
        "\n\ndef tune(net, batches):\n    best = torch.optim.SGD(net.parameters(), lr=0.1)\n"
        "    for x, y in batches:\n        best.zero_grad()\n"
        "        nn.functional.mse_loss(net(x.cuda()), y.cuda()).backward()\n        best.step()\n"
    )
    output = modernize_source(script() + plain).output
    assert plain in output and "scaler.step(optimizer)" in output


def test_what_a_framework_drives_stays_plain() -> None:
    driven = (
        "import lightning as L\n\n\nclass Lit(L.LightningModule):\n    pass\n\n\n"
        "L.Trainer(accelerator='cuda', precision='32-true').fit(Lit())\n"
    )
    output = modernize_source(script() + driven).output
    assert driven in output


# Files


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(**contents: str) -> None:
    for name, content in contents.items():
        Path(f"{name}.py").write_text(content)


ENGINE = (
    "from apex import amp\nfrom torch import nn\n\n\ndef train(model, optimizer, batches):\n"
    "    for x, y in batches:\n        optimizer.zero_grad()\n"
    + textwrap.indent(FORWARD + SCALED + STEP, "    ")
)
ENTRY = HEAD.format(
    imports=IMPORT + "from engine import train\n", setup="", start=START
)
ENTRY = ENTRY[: ENTRY.index("for x, y")] + "train(model, optimizer, batches)\n"


def test_several_files(project: Path) -> None:
    write(engine=ENGINE, entry=ENTRY)
    result = CliRunner().invoke(main, ["modernize", "--write"])
    assert result.exit_code == ExitCode.OK
    assert "modernized 2 of 2 uses" in result.stderr
    engine, entry = (Path(f"{name}.py").read_text() for name in ("engine", "entry"))
    assert "apex" not in engine + entry
    assert "train(model, optimizer, batches, scaler=scaler)" in entry
    assert "scaler.scale(loss).backward()" in engine
    again = CliRunner().invoke(main, ["modernize", "--check"])
    assert again.exit_code == ExitCode.OK


def test_a_file_that_is_not_given(project: Path) -> None:
    write(engine=ENGINE, entry=ENTRY)
    result = CliRunner().invoke(main, ["modernize", "engine.py"])
    assert result.stdout == "" and "AMP017" in result.stderr


def test_programs_that_only_share_a_module(project: Path) -> None:
    use = "import shared\nfrom apex import amp\nmodel = amp.initialize(model, opt_level='O3')\n"
    write(shared="x = 1\n", one="import shared\n" + script(), two=use)
    result = CliRunner().invoke(main, ["modernize", "--write"])
    assert "scaler.step(optimizer)" in Path("one.py").read_text()
    assert Path("two.py").read_text() == use and "AMP053" in result.stderr


def test_amp_that_another_file_takes_from_here(project: Path) -> None:
    write(one=script(), two="from one import amp\nprint(amp)\n")
    result = CliRunner().invoke(main, ["modernize"])
    assert (
        result.stdout == "" and "amp is imported from here by two.py" in result.stderr
    )


def test_black_stays_black(project: Path) -> None:
    black = pytest.importorskip("black")
    before = black.format_str(CASES["clipped"][0], mode=black.Mode())
    output = modernize_source(before).output
    assert output != before
    assert black.format_str(output, mode=black.Mode()) == output


# What really runs: apex stands for a package that does nothing, as it would with level O0.

STUB = """\
import contextlib


def initialize(models, optimizers=None, **options):
    return models, optimizers


@contextlib.contextmanager
def scale_loss(loss, optimizers, **options):
    yield loss


def master_params(optimizer):
    for group in optimizer.param_groups:
        yield from group["params"]


def state_dict():
    return {}


def load_state_dict(state):
    pass
"""
RUN = """\
import argparse

import torch
from torch import nn
try:
    from apex import amp
except ImportError:
    raise ImportError("install apex")


class Trainer:
    def __init__(self, args):
        self.args = args
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)).to(self.device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        if args.fp16:
            self.model, self.optimizer = amp.initialize(
                self.model, self.optimizer, opt_level=args.fp16_opt_level
            )

    def train(self):
        for epoch in range(3):
            x, y = torch.randn(4, 8), torch.randn(4, 1)
            self.optimizer.zero_grad()
            loss = nn.functional.mse_loss(self.model(x.to(self.device)), y.to(self.device))
            if self.args.fp16:
                with amp.scale_loss(loss, self.optimizer) as scaled_loss:
                    scaled_loss.backward()
            else:
                loss.backward()
            if self.args.fp16:
                norm = nn.utils.clip_grad_norm_(amp.master_params(self.optimizer), 0.1)
            else:
                norm = nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
            self.optimizer.step()
            print(repr(loss.item()), repr(norm.item()))
        state = {"optimizer": self.optimizer.state_dict(), "amp": amp.state_dict()}
        torch.save(state, "state.pt")
        print([p.tolist() for p in self.model.parameters()])

    def resume(self):
        state = torch.load("state.pt")
        self.optimizer.load_state_dict(state["optimizer"])
        amp.load_state_dict(state["amp"])


parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
parser.add_argument("--fp16_opt_level", default="O1")
torch.manual_seed(0)
trainer = Trainer(parser.parse_args())
trainer.train()
trainer.resume()
trainer.train()
"""


@pytest.mark.parametrize("flag", [[], ["--fp16", "--fp16_opt_level", "O0"]])
def test_off_is_the_original_bit_for_bit(project: Path, flag: list[str]) -> None:
    pytest.importorskip("torch")
    Path("apex").mkdir()
    Path("apex/__init__.py").touch()
    Path("apex/amp.py").write_text(STUB)

    def run(*options: str) -> str:
        command = [sys.executable, *options, "train.py", *flag]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    write(train=RUN)
    before = run()
    done = CliRunner().invoke(main, ["modernize", "train.py", "--write"])
    assert done.exit_code == ExitCode.OK, done.stderr
    text = Path("train.py").read_text()
    assert "apex" not in text and "self.scaler.unscale_(self.optimizer)" in text
    assert run("-W", "error") == before
