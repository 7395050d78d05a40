"""Compiled, scripted, traced, recorded and replicated models, and activation checkpointing."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest
from exactness import check_off, check_scaled
from programs import HEAD, before_and_after, left_alone, migrated, trains_as_before
from shorthand import before, written_out

from amp_migrate.api import Options, migrate_paths, migrate_source

NEW = Options(torch_version=(2, 9))
LOOP = """\
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in data:
    STEPS
"""
SET = '+{}torch._functorch.config.backward_pass_autocast = "off"\n'
STEPS = """\
 opt = torch.optim.SGD(model.parameters(), lr=0.1)
+scaler = BORN
 for x, y in data:
     STEPS net={}
"""
COMPILED = {
    "a model": SET.format("")
    + ' model = torch.compile(model, backend="aot_eager")\n'
    + STEPS.format("model"),
    "now and then": " if len(data) > 2:\n"
    + SET.format("    ")
    + '     model = torch.compile(model, backend="aot_eager")\n'
    + STEPS.format("model"),
    "under another name": SET.format("")
    + ' net = torch.compile(model, backend="aot_eager")\n'
    + STEPS.format("net"),
    "in place": SET.format("")
    + ' model.compile(backend="aot_eager")\n'
    + STEPS.format("model"),
    "what a function returns": " def build(net):\n"
    + SET.format("    ")
    + '     return torch.compile(net, backend="aot_eager")\n model = build(model)\n'
    + STEPS.format("model"),
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled(name: str) -> None:
    source, expected = before_and_after(written_out(COMPILED[name]))
    output = migrate_source(HEAD + source, options=NEW).output
    head = HEAD.replace(
        "import torch\n", "import torch\nimport torch._functorch.config\n"
    )
    assert output == head + expected
    assert left_alone(source) == "AMP008"


UNRESOLVED = {
    "a part": "model = nn.Sequential(model)\nmodel[0].compile()\n",
    "each part": "for part in model.children():\n    part.compile()\n",
    "by its name": 'model = getattr(torch, "compile")(model)\n',
}


@pytest.mark.parametrize("name", UNRESOLVED)
def test_compiled_in_other_ways(name: str) -> None:
    assert left_alone(UNRESOLVED[name] + before(LOOP)) == "AMP008"


def test_a_model_of_keras_is_none_of_torch() -> None:
    keras = 'def keras(model, loss):\n    model.compile(optimizer="adam", loss=loss)\n'
    assert "scaler.step(opt)" in migrated(keras + before(LOOP))


def test_a_compiled_model_trains_as_before() -> None:
    source = HEAD + before_and_after(written_out(COMPILED["a model"]))[0]
    output = migrate_source(source, options=NEW).output
    assert check_off(source, output) == []
    assert check_scaled(source, output) == []


def test_the_setting_under_the_files_own_name() -> None:
    source = """\
    import torch as th
    from torch import nn

    # The model.
    model = th.compile(nn.Linear(8, 3).cuda())
    opt = th.optim.SGD(model.parameters(), lr=0.1)
    for x, y in [(th.randn(4, 8).cuda(), th.zeros(4, dtype=th.long).cuda())]:
        opt.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        opt.step()
    """
    output = migrate_source(dedent(source), options=NEW).output
    assert output.startswith(
        "import torch as th\n"
        "import torch._functorch.config\n"
        "from torch import nn\n"
        "\n"
        'th._functorch.config.backward_pass_autocast = "off"\n'
        "\n"
        "# The model.\n"
        "model = th.compile("
    )


def test_a_setting_that_was_there_is_left_to_the_script() -> None:
    setting = "import torch._functorch.config\n"
    setting += 'torch._functorch.config.backward_pass_autocast = "off"\n'
    source = HEAD + before(f"{setting}model = torch.compile(model)\n{LOOP}")
    output = migrate_source(source, options=NEW).output
    assert output != source
    assert output.count("_functorch") == 2


REFUSED = {
    "a compiled step": "def turn(x):\n    return x\nturn = torch.compile(turn)\n" + LOOP,
    "a compiled function": "step = torch.compile(make)\n" + LOOP,
    "a decorated function": "@torch.compile\ndef scaled(v):\n    return v * 2\n" + LOOP,
    "a decorated function, with arguments": "@torch.compile(fullgraph=True)\ndef scaled(v):\n    return v\n"
    + LOOP,
    "a partial": "import functools\ncompiled = functools.partial(torch.compile, dynamic=True)\n" + LOOP,
    "imported": "from torch import compile as fast\nrun = fast\n" + LOOP,
    "a scripted model": "model = torch.jit.script(model)\n" + LOOP,
    "a traced model": "net = torch.jit.trace(model, data[0][0])\n" + LOOP.replace("STEPS", "STEPS net=net"),
    "a scripted function": "@torch.jit.script\ndef scaled(v):\n    return v * 2\n" + LOOP,
    "a scripted layer": "model[0] = torch.jit.script(model[0])\n" + LOOP,
    "a traced model that is trained": "net = torch.jit.trace(model, data[0][0])\n"
    "model = net\n" + LOOP,
    "a traced model that is handed on": "net = torch.jit.trace(model, data[0][0])\n"
    "nets = [net]\n" + LOOP,
    "graphs": "model = torch.cuda.make_graphed_callables(model, (data[0][0],))\n" + LOOP,
    "a recorded step": LOOP + "g = torch.cuda.CUDAGraph()\n",
    "recording": LOOP + "with torch.cuda.graph(None):\n    pass\n",
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_left_alone(name: str) -> None:
    source = HEAD + before(REFUSED[name])
    result = migrate_source(source, options=NEW)
    assert result.output == source
    assert {found.code for found in result.diagnostics} == {"AMP008"}


def test_a_function_that_is_compiled_in_another_file(tmp_path: Path) -> None:
    text = """\
    import torch
    class Net(torch.nn.Linear):
        @torch.compile
        def forward(self, x):
            return super().forward(x)
    """
    (tmp_path / "net.py").write_text(dedent(text))
    source = HEAD + before("from net import Net\nmodel = Net(8, 3)\n" + LOOP)
    (tmp_path / "train.py").write_text(source)
    report = migrate_paths([str(tmp_path)], options=NEW)
    assert not report.changed
    (found,) = (d for result in report.results for d in result.diagnostics)
    assert found.code == "AMP008"


EXPORTED = {
    "saved": "torch.jit.script(model).save('m.pt')\n",
    "a name": "traced = torch.jit.trace(model, data[0][0])\ntraced.save('m.pt')\nprint(traced(x).shape)\n",
    "saved by a function": "traced = torch.jit.trace(model, data[0][0])\ntorch.jit.save(traced, 'm.pt')\n",
    "in a function": "def export(net):\n    traced = torch.jit.trace(net, data[0][0])\n"
    "    torch.jit.save(traced, 'm.pt')\nexport(model)\n",
}


@pytest.mark.parametrize("name", EXPORTED)
def test_an_export_stands_in_nobodys_way(name: str) -> None:
    source = before(LOOP + EXPORTED[name])
    assert migrated(source).endswith(EXPORTED[name])


CHECKPOINTED = """\
 from torch.utils.checkpoint import checkpoint
 class Net(nn.Module):
     def __init__(self):
         super().__init__()
         self.first, self.rest = nn.Linear(8, 16), make()
         self.last = nn.Linear(16, 8)
     def forward(self, x):
         def run(h):
             return self.last(torch.relu(h))
         h = checkpoint(self.first, x, use_reentrant=False)
         return self.rest(checkpoint(run, h, use_reentrant={}))
 model = Net().to(device)
"""


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(reentrant: bool) -> None:
    diff = written_out(CHECKPOINTED.format(reentrant) + STEPS.format("model"))
    source, expected = before_and_after(diff)
    assert migrated(source) == expected
    if reentrant:
        # It goes backward inside of backward(), where there is no loss to be scaled.
        inner = ["6 backwards were not scaled"]
        assert check_off(HEAD + source, HEAD + expected) == []
        assert check_scaled(HEAD + source, HEAD + expected) == inner
    else:
        trains_as_before(diff)


def test_what_is_checkpointed_is_looked_into() -> None:
    source = before_and_after(CHECKPOINTED.format(False))[0] + before(LOOP)
    source = source.replace("torch.relu(h)", "h.inverse()")
    assert left_alone(source) == "AMP020"


PARALLEL = {
    "DataParallel": "model = nn.DataParallel(model)\n",
    "imported": "from torch.nn import DataParallel as DP\nmodel = DP(model)\n",
    "parallel": "model = torch.nn.parallel.DataParallel(model)\n",
}


@pytest.mark.parametrize("name", PARALLEL)
def test_the_dtype_does_not_reach_replicas(name: str) -> None:
    source = HEAD + before(PARALLEL[name] + LOOP)
    assert migrate_source(source).changed
    result = migrate_source(source, options=Options(dtype="bfloat16"))
    assert not result.changed
    assert [found.code for found in result.diagnostics] == ["AMP020"]


def test_distributed_data_parallel() -> None:
    wrap = "model = nn.parallel.DistributedDataParallel(model)\n"
    for dtype in ("float16", "bfloat16"):
        source = HEAD + before(wrap + LOOP)
        assert migrate_source(source, options=Options(dtype=dtype)).changed
