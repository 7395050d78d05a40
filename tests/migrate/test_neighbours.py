"""Loops that a framework drives: its own switch, written where it is safe, and told where it is not."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs import before_and_after

from amp_migrate.api import Options, Outcome, migrate_paths, migrate_source
from amp_migrate.edit.verify import difference

MODULE = """\
class Net(L.LightningModule):
    def training_step(self, batch, index):
        x, y = batch
        return nn.functional.cross_entropy(self.layer(x), y)
"""
WRITTEN = {
    "Lightning": """\
 import lightning as L
+import torch
 from torch import nn
 class Net(L.LightningModule):
     def training_step(self, batch, index):
         x, y = batch
         return nn.functional.cross_entropy(self.layer(x), y)
-trainer = L.Trainer(max_epochs=3)
+trainer = L.Trainer(max_epochs=3, precision="16-mixed" if torch.cuda.is_available() else "32-true")
 trainer.fit(Net(), loader)
""",
    "Lightning, several times": """\
 import torch
 from pytorch_lightning import Trainer
 def main():
-    trainer = Trainer(precision=32, accelerator='gpu')
+    trainer = Trainer(precision='16-mixed' if torch.cuda.is_available() else '32-true', accelerator='gpu')
     trainer.fit(model)
-    trainer = Trainer(strategy='auto')
+    trainer = Trainer(strategy='auto', precision='16-mixed' if torch.cuda.is_available() else '32-true')
     trainer.fit(model)
""",
    "Lightning, in a helper": """\
+import torch
 import lightning as L
 def make():
-    return L.Trainer()
+    return L.Trainer(precision="16-mixed" if torch.cuda.is_available() else "32-true")
 def fit(trainer):
     trainer.fit(model, data)
 fit(make())
""",
    "Fabric": """\
 import torch
 from lightning.fabric import Fabric
-fabric = Fabric(accelerator="auto")
+fabric = Fabric(accelerator="auto", precision="16-mixed" if torch.cuda.is_available() else "32-true")
 model, opt = fabric.setup(model, opt)
 for x in data:
     opt.zero_grad()
     fabric.backward(model(x).sum())
     opt.step()
""",
    "Hugging Face": """\
+import torch
 import transformers
 class Own(transformers.Trainer):
     pass
-args = transformers.TrainingArguments("out", fp16=False)
+args = transformers.TrainingArguments("out", fp16=torch.cuda.is_available())
 trainer = Own(model, args, train_dataset=data)
 trainer.train()
""",
    "Hugging Face, inline": """\
 import torch as t
 from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments
-Seq2SeqTrainer(model, args=Seq2SeqTrainingArguments("out")).train()
+Seq2SeqTrainer(model, args=Seq2SeqTrainingArguments("out", fp16=t.cuda.is_available())).train()
""",
    "Accelerate": """\
 import torch
 from accelerate import Accelerator
-accelerator = Accelerator(mixed_precision="no")
+accelerator = Accelerator(mixed_precision="fp16" if torch.cuda.is_available() else "no")
 model, opt = accelerator.prepare(model, opt)
 for x in data:
     opt.zero_grad()
     accelerator.backward(model(x).sum())
     opt.step()
""",
}


@pytest.mark.parametrize("name", WRITTEN)
def test_written(name: str) -> None:
    before, after = before_and_after(WRITTEN[name])
    result = migrate_source(before, path="train.py")
    assert {loop.outcome for loop in result.loops} == {Outcome.MIGRATED}
    assert result.output == after
    again = migrate_source(after, path="train.py")
    assert not again.changed
    assert {loop.outcome for loop in again.loops} == {Outcome.ALREADY}


def test_bfloat16() -> None:
    before, _ = before_and_after(WRITTEN["Hugging Face"])
    result = migrate_source(before, options=Options(dtype="bfloat16"))
    assert '"out", fp16=False, bf16=torch.cuda.is_available())' in result.output


LIGHTNING = "import lightning as L\nfrom torch import nn\n" + MODULE
FIT = "trainer.fit(Net(), loader)\n"
TRAINER = "trainer = L.Trainer()\n" + FIT
TOLD = {
    "the CPU": LIGHTNING + 'trainer = L.Trainer(accelerator="cpu")\n' + FIT,
    "another precision": LIGHTNING
    + "trainer = L.Trainer(precision=args.precision)\n"
    + FIT,
    "a double": LIGHTNING + "trainer = L.Trainer(precision=64)\n" + FIT,
    "a plugin": LIGHTNING + "trainer = L.Trainer(plugins=[MyPrecision()])\n" + FIT,
    "an old version": LIGHTNING + "trainer = L.Trainer(gpus=1)\n" + FIT,
    "arguments out of sight": LIGHTNING + "trainer = L.Trainer(**config)\n" + FIT,
    "a parameter of several": LIGHTNING
    + f"def fit(trainer):\n    {FIT}fit(L.Trainer())\nfit(L.Trainer(max_epochs=3))\n",
    "a launcher": (
        "import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\n"
        "for x in data:\n    accelerator.backward(model(x).sum())\n    opt.step()\n"
    ),
    "fastai": "from fastai.vision.all import *\nvision_learner(dls, resnet18).fine_tune(1)\n",
    "Ignite": (
        "from ignite.engine import create_supervised_trainer\n"
        "trainer = create_supervised_trainer(model, opt, loss)\ntrainer.run(loader)\n"
    ),
    "LightningCLI": (
        "from lightning.pytorch.cli import LightningCLI\nfrom net import Net\nLightningCLI(Net)\n"
    ),
    "TRL": (
        "from trl import SFTConfig, SFTTrainer\n"
        'trainer = SFTTrainer("name", args=SFTConfig("out"))\ntrainer.train()\n'
    ),
    "sentence-transformers": (
        "from sentence_transformers import SentenceTransformer\n"
        "model = SentenceTransformer(name)\nmodel.fit(train_objectives=objectives)\n"
    ),
    "Detectron2": (
        "from detectron2.engine import DefaultTrainer\nclass Own(DefaultTrainer):\n    pass\n"
        "trainer = Own(cfg)\ntrainer.train()\n"
    ),
    "DeepSpeed, by another name": (
        "import deepspeed, torch\nengine, *_ = deepspeed.initialize(model=model)\n"
        "engine.backward(engine(x).sum())\nengine.step()\n"
    ),
    "DeepSpeed": (
        "import deepspeed, torch\nmodel_engine, *_ = deepspeed.initialize(model=model)\n"
        "model_engine.backward(model_engine(x).sum())\nmodel_engine.step()\n"
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_told(name: str) -> None:
    result = migrate_source(TOLD[name], path="train.py")
    (found,) = result.diagnostics
    assert (result.changed, found.code) == (False, "AMP003")
    assert len(found.by_hand) == 1


ACCELERATE = """\
import torch
from accelerate import Accelerator
accelerator = Accelerator(mixed_precision="no")
model, opt = accelerator.prepare(model, opt)
for x in data:
    accelerator.backward(model(x).sum())
    opt.step()
    scheduler.step()
"""
ARGUMENTS = """\
import os, transformers
args = transformers.TrainingArguments("out")
class Own(transformers.Trainer):
    def compute_loss(self, model, inputs):
        return model(**inputs).loss
Own(model, args).train()
"""
BYPASSED = {
    "an optimizer of its own": (
        ACCELERATE.replace("model, opt = accelerator.prepare(model, opt)", "pass"),
        "opt is not seen to be prepared by it",
    ),
    "a closure": (
        ACCELERATE.replace("opt.step()", "opt.step(closure)"),
        "a closure cannot be under a scaler",
    ),
    "another backward": (
        ACCELERATE + "    other(x).backward()\n",
        "a backward() here bypasses it",
    ),
    "a training step of its own": (
        ARGUMENTS.replace(
            "return model(**inputs).loss", "model(**inputs).loss.backward()"
        ),
        "a backward() here bypasses it",
    ),
    "a precision that is set later": (
        ARGUMENTS.replace("Own(model", "args.bf16 = True\nOwn(model"),
        "bf16 is set later",
    ),
    "settings that are set later": (
        ARGUMENTS.replace("Own(model", "setattr(args, key, value)\nOwn(model"),
        "its arguments are set later",
    ),
    "the environment": (
        ARGUMENTS.replace(
            "Own(model", 'os.environ["ACCELERATE_MIXED_PRECISION"] = "bf16"\nOwn(model'
        ),
        "the environment also decides",
    ),
    "LBFGS": (
        LIGHTNING
        + "    def configure_optimizers(self):\n"
        + "        return torch.optim.LBFGS(self.parameters())\n"
        + TRAINER.replace("trainer =", "import torch\ntrainer ="),
        "LBFGS cannot be under mixed precision",
    ),
    "a hook of Lightning 1": (
        LIGHTNING
        + "    def training_epoch_end(self, outputs):\n        pass\n"
        + TRAINER,
        "training_epoch_end() here is written for its version 1",
    ),
    "a parameter of Lightning 1": (
        LIGHTNING.replace("index)", "index, optimizer_idx)") + TRAINER,
        "training_step() here is written for its version 1",
    ),
    "arguments by position": (
        LIGHTNING + TRAINER.replace("Trainer()", "Trainer(logger)"),
        "its arguments are those of another version",
    ),
    "a backward by hand": (
        LIGHTNING + "    def step(self, loss):\n        loss.backward()\n" + TRAINER,
        "a backward() here bypasses it",
    ),
    "clipping by hand": (
        LIGHTNING
        + "    def step(self, opt):\n        self.clip_gradients(opt, 1.0)\n"
        + TRAINER,
        "gradients are clipped by hand, still scaled",
    ),
}


@pytest.mark.parametrize("name", BYPASSED)
def test_what_goes_past_the_switch(name: str) -> None:
    text, reason = BYPASSED[name]
    result = migrate_source(text, path="train.py")
    assert not result.changed
    assert any(found.message.endswith(reason) for found in result.diagnostics)


@pytest.mark.parametrize(
    "text",
    [
        ACCELERATE,
        ACCELERATE.replace("prepare(model, opt)", "prepare(model, SGD(params))"),
        ARGUMENTS,
        LIGHTNING
        + "    def backward(self, loss):\n        loss.backward(retain_graph=True)\n"
        + "    def configure_gradient_clipping(self, opt, value, how):\n"
        + "        self.clip_gradients(opt, value, how)\n"
        + TRAINER,
    ],
)
def test_what_does_not(text: str) -> None:
    assert migrate_source(text, path="train.py").changed


@pytest.mark.parametrize(
    "text",
    [
        "from fastai.vision.all import *\nlearn = vision_learner(dls, net)\nlearn.to_fp16()\n"
        "learn.fine_tune(1)\n",
        "from composer import Trainer\nTrainer(model=m, precision='amp_bf16').fit()\n",
        "from mmengine.runner import Runner\n"
        "runner = Runner(m, optim_wrapper=dict(type='AmpOptimWrapper'))\nrunner.train()\n",
    ],
)
def test_what_is_on_already(text: str) -> None:
    (loop,) = migrate_source(text, path="train.py").loops
    assert loop.outcome is Outcome.ALREADY


def test_a_project_that_asks_for_lightning_1() -> None:
    text = LIGHTNING + TRAINER
    assert migrate_source(text).changed
    result = migrate_source(text, options=Options(lightning_1=True))
    assert not result.changed
    assert result.diagnostics[0].by_hand == ("Trainer(precision=16)",)


STOPPED = {
    "AMP020": LIGHTNING.replace("cross_entropy", "binary_cross_entropy") + TRAINER,
    "AMP030": LIGHTNING
    + "    def on_after_backward(self):\n        print(self.layer.weight.grad.norm())\n"
    + TRAINER,
    "AMP006": (
        "import torch, transformers\n"
        "model = transformers.AutoModel.from_pretrained(name, torch_dtype=torch.float16)\n"
        'transformers.Trainer(model, transformers.TrainingArguments("out")).train()\n'
    ),
}


@pytest.mark.parametrize("code", STOPPED)
def test_what_the_switch_would_break(code: str) -> None:
    result = migrate_source(STOPPED[code], path="train.py")
    assert [found.code for found in result.diagnostics] == [code]
    assert not result.changed


def test_what_another_script_does_is_no_matter_of_the_trainer(tmp_path: Path) -> None:
    model = 'model = transformers.AutoModel.from_pretrained("bert")\n'
    train = (
        f"import numpy as np, transformers\nplaces = np.zeros(3, dtype=np.int64)\n{model}"
        'transformers.Trainer(model, transformers.TrainingArguments("out")).train()\n'
    )
    (tmp_path / "train.py").write_text(train)
    (tmp_path / "other.py").write_text(
        "import torch, transformers\n"
        f"{model.replace(')', ', torch_dtype=torch.float16)')}"
        "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
    )
    found = {Path(r.path).name: r for r in migrate_paths([tmp_path]).results}
    assert found["train.py"].changed, found["train.py"].diagnostics


def test_the_same_condition_decides_on_the_device() -> None:
    device = '"gpu" if torch.cuda.is_available() else "cpu"'
    text = f"import torch\n{LIGHTNING}trainer = L.Trainer(accelerator={device})\n{FIT}"
    assert migrate_source(text).changed


def test_version_1_of_lightning() -> None:
    text = f"{LIGHTNING}trainer = L.Trainer(gpus=1)\n{FIT}"
    (found,) = migrate_source(text).diagnostics
    assert found.by_hand == ("Trainer(precision=16)",)


@pytest.mark.parametrize(
    "given", ("progress_bar_refresh_rate=0", "weights_summary=None")
)
def test_an_argument_of_version_1_of_lightning(given: str) -> None:
    text = f"{LIGHTNING}trainer = L.Trainer({given})\n{FIT}"
    (found,) = migrate_source(text).diagnostics
    name = given.partition("=")[0]
    assert f"{name} is of its version 1, in which precision is a number" in (
        found.message
    )
    assert found.by_hand == ("Trainer(precision=16)",)


def test_a_model_that_overflows() -> None:
    text = (
        'import transformers\nmodel = transformers.AutoModel.from_pretrained("t5-small")\n'
        'transformers.Trainer(model, transformers.TrainingArguments("out")).train()\n'
    )
    (found,) = migrate_source(text).diagnostics
    assert found.by_hand == ("TrainingArguments(bf16=True)",)


@pytest.mark.parametrize(
    "text",
    [
        "import lightning as L\ntrainer = L.Trainer()\n",
        "from transformers import AutoModel\nmodel = AutoModel.from_pretrained(n)\nmodel.train()\n",
        "import sklearn, ignite\nsvm.fit(x, y)\n",
    ],
)
def test_what_starts_no_loop_is_none(text: str) -> None:
    assert migrate_source(text).loops == ()


def test_marked_off() -> None:
    text = LIGHTNING + TRAINER.replace(FIT, "trainer.fit(Net(), loader)  # amp: off\n")
    (loop,) = migrate_source(text).loops
    assert (loop.outcome, loop.diagnostic) == (Outcome.OFF, None)


def test_the_check_knows_our_values_only() -> None:
    half = '"16-mixed" if torch.cuda.is_available() else "32-true"'
    assert difference("Trainer(precision=32)", f"Trainer(precision={half})") is None
    assert difference("Trainer()", f"Trainer(precision={half})") is None
    for wrong in ("64", '"16-mixed"', "half", f"{half} or 1"):
        assert difference("Trainer()", f"Trainer(precision={wrong})") is not None
    assert difference("Trainer(precision=64)", f"Trainer(precision={half})") is not None
    assert difference("f()", f"f(precision={half})") is not None


@pytest.mark.parametrize(
    "made", ('"gpu" if torch.cuda.is_available() else "cpu"', '"gpu"')
)
def test_a_variable_that_follows_cuda(made: str) -> None:
    text = f"import torch\n{LIGHTNING}kind = {made}\ntrainer = L.Trainer(accelerator=kind)\n{FIT}"
    assert migrate_source(text).changed
    other = text.replace("trainer =", 'if quick:\n    kind = "cpu"\ntrainer =')
    (found,) = migrate_source(other).diagnostics
    assert "accelerator decides on its precision or device" in found.message


CLEARED = """\
    def on_after_backward(self):
        for p in self.layer.parameters():
            p.grad = None
"""
OWN_STEP = """\
class Own(torch.optim.SGD):
    def step(self, closure=None):
        loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                p.data -= 0.1 * p.grad
        return loss
own = Own(Net().parameters())
"""


@pytest.mark.parametrize("code", (LIGHTNING + CLEARED, LIGHTNING + OWN_STEP))
def test_gradients_that_nobody_reads_scaled(code: str) -> None:
    assert migrate_source("import torch\n" + code + TRAINER).changed


def test_a_scheduler_reads_them_scaled() -> None:
    code = OWN_STEP.replace("SGD)", "lr_scheduler.LRScheduler)")
    assert not migrate_source("import torch\n" + LIGHTNING + code + TRAINER).changed


def test_what_has_to_run_in_fp32() -> None:
    code = LIGHTNING.replace(
        "nn.functional.cross_entropy(self.layer(x), y)", "gram(self.layer(x)).mean()"
    )
    text = f"def gram(x):\n    return x @ x.t()\n{code}{TRAINER}"
    result = migrate_source(text)
    assert "16-mixed" in result.output
    assert 'with torch.autocast("cuda", enabled=False):' in result.output


LOSSES = """\
from torch import nn
import torch
class Plain(nn.Module):
    def forward(self, x, y):
        return nn.functional.mse_loss(x, y)
class Far(nn.Module):
    def forward(self, x, y):
        return (x.reshape(-1) - 1e9 * (x > 0).to(x).reshape(-1)).amax()
"""


def test_what_other_scripts_run(tmp_path: Path) -> None:
    """The losses of a library, each of which one script uses."""
    (tmp_path / "losses.py").write_text(LOSSES)
    for name in ("Plain", "Far"):
        script = LIGHTNING.replace("nn.functional.cross_entropy", "self.criterion")
        made = f"    def __init__(self):\n        super().__init__()\n        self.criterion = {name}()\n"
        script = script.replace("Module):\n", f"Module):\n{made}")
        text = f"from losses import {name}\n{script}{TRAINER}"
        (tmp_path / f"{name.lower()}.py").write_text(text)
    results = {Path(r.path).name: r for r in migrate_paths([tmp_path]).results}
    assert results["plain.py"].changed
    (found,) = results["far.py"].diagnostics
    assert found.code == "AMP021"


def test_an_island_of_a_framework_and_of_a_loop_beside_it() -> None:
    code = LIGHTNING.replace(
        "nn.functional.cross_entropy(self.layer(x), y)", "gram(self.layer(x)).mean()"
    )
    loop = "loss = gram(model(x.cuda())).mean()\n    loss.backward()\n    opt.step()"
    text = (
        f"import torch\ndef gram(x):\n    y = x * 2\n    return y @ y.t()\n{code}{TRAINER}"
        "model = nn.Linear(8, 8).cuda()\nopt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        f"for x in data:\n    opt.zero_grad()\n    {loop}\n"
    )
    result = migrate_source(text)
    assert {one.outcome for one in result.loops} == {Outcome.MIGRATED}
    assert result.output.count("enabled=False") == 1
