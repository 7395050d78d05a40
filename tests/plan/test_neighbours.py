"""Loops that a framework drives: its own switch, written where it is safe, and told where it is not."""

from __future__ import annotations

import pytest
from programs import before_and_after

from amp_migrate.api import Options, Outcome, migrate_source
from amp_migrate.verify import difference

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
    "Fabric": """\
 import torch
 from lightning.fabric import Fabric
-fabric = Fabric(accelerator="auto")
+fabric = Fabric(accelerator="auto", precision="16-mixed" if torch.cuda.is_available() else "32-true")
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
    "a parameter": LIGHTNING + f"def fit(trainer):\n    {FIT}fit(L.Trainer())\n",
    "a launcher": (
        "import torch\nfrom accelerate import Accelerator\naccelerator = Accelerator()\n"
        "for x in data:\n    accelerator.backward(model(x).sum())\n    opt.step()\n"
    ),
    "fastai": "from fastai.vision.all import *\nvision_learner(dls, resnet18).fine_tune(1)\n",
    "Ignite": (
        "from ignite.engine import create_supervised_trainer\n"
        "trainer = create_supervised_trainer(model, opt, loss)\ntrainer.run(loader)\n"
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


def test_the_same_condition_decides_on_the_device() -> None:
    device = '"gpu" if torch.cuda.is_available() else "cpu"'
    text = f"import torch\n{LIGHTNING}trainer = L.Trainer(accelerator={device})\n{FIT}"
    assert migrate_source(text).changed


def test_version_1_of_lightning() -> None:
    text = f"{LIGHTNING}trainer = L.Trainer(gpus=1)\n{FIT}"
    (found,) = migrate_source(text).diagnostics
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
