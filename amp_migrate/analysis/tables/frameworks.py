"""Training frameworks: how their code is known, and the one line that turns mixed precision on there."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Framework:
    name: str
    line: str
    """What to write, as far as it goes into one line."""
    roots: tuple[str, ...]
    """Its packages."""
    drives: frozenset[str] = frozenset()
    """Methods of the object that trains."""
    makers: re.Pattern[str] = re.compile(r"(?!)")
    """What makes that object, as dotted names; bases of a program's own classes as well."""
    starts: re.Pattern[str] = re.compile(r"(?!)")
    """What trains when it is made, as dotted names."""
    speaks: frozenset[str] = frozenset()
    """Names and texts that say that mixed precision is on, of a framework whose line is only told."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The argument that decides on precision where one call of a framework holds it."""

    maker: re.Pattern[str]
    """What is called, as a dotted name."""
    argument: str
    half: str
    """The value that turns it on, as text; a switch by itself where there is no ``full``."""
    full: str
    """The value that stands for fp32."""
    fp32: tuple[object, ...]
    """Literal values that stand for fp32 where they are written."""
    deciding: frozenset[str]
    """Other arguments that decide on precision, or on the device."""
    may_be_absent: bool = True
    """Nothing outside of the program decides where the argument is left out."""
    harmless: tuple[tuple[str, object], ...] = ()
    """Values with which a deciding argument leaves all to the framework."""
    by_name: bool = False
    """All its arguments are given by name; by position they were those of an older version."""


OF_LIGHTNING_1 = frozenset(
    """resume_from_checkpoint weights_summary progress_bar_refresh_rate checkpoint_callback auto_lr_find
    auto_scale_batch_size""".split()
)
"""Arguments that version 2 no longer has, and that have nothing to do with precision."""
LIGHTNING_1 = OF_LIGHTNING_1 | frozenset(
    """gpus tpu_cores ipus num_processes auto_select_gpus amp_backend amp_level
    distributed_backend""".split()
)
"""All arguments that version 2 no longer has: before it, precision was a number."""
_LIGHTNING_DEFAULTS: tuple[tuple[str, object], ...] = (
    ("accelerator", "auto"),
    ("accelerator", "gpu"),
    ("accelerator", "cuda"),
    ("strategy", "auto"),
    ("strategy", "ddp"),
    ("detect_anomaly", False),
)

FRAMEWORKS = (
    Framework(
        "Lightning",
        'Trainer(precision="16-mixed")',
        ("lightning", "pytorch_lightning"),
        frozenset({"fit"}),
        re.compile(r"(pytorch_lightning|lightning)(\.\w+)*\.Trainer(\.\w+)?"),
    ),
    Framework(
        "LightningCLI",
        'LightningCLI(..., trainer_defaults={"precision": "16-mixed"})',
        ("lightning", "pytorch_lightning"),
        starts=re.compile(r"(pytorch_lightning|lightning)(\.\w+)*\.LightningCLI"),
        speaks=frozenset({"16-mixed", "bf16-mixed"}),
    ),
    Framework(
        "Lightning Fabric",
        'Fabric(precision="16-mixed")',
        ("lightning_fabric",),
        makers=re.compile(r"(lightning|lightning_fabric)(\.\w+)*\.Fabric"),
    ),
    Framework(
        "the Hugging Face Trainer",
        "TrainingArguments(fp16=True)",
        ("transformers",),
        frozenset({"train"}),
        re.compile(r"transformers(\.\w+)*\.(Seq2Seq)?Trainer"),
    ),
    Framework(
        "Accelerate",
        'Accelerator(mixed_precision="fp16"), or accelerate launch --mixed_precision fp16',
        ("accelerate",),
        makers=re.compile(r"accelerate(\.\w+)*\.Accelerator"),
    ),
    Framework(
        "fastai",
        "learn = learn.to_fp16()",
        ("fastai",),
        frozenset("""fit fit_one_cycle fine_tune fit_flat_cos fit_sgdr""".split()),
        re.compile(r"fastai(\.\w+)*\.(\w*_learner|\w*Learner)"),
        speaks=frozenset({"to_fp16", "to_bf16", "MixedPrecision"}),
    ),
    Framework(
        "Ignite",
        'create_supervised_trainer(..., amp_mode="amp", scaler=True)',
        ("ignite",),
        frozenset({"run"}),
        re.compile(r"ignite(\.\w+)*\.create_supervised_trainer"),
        speaks=frozenset({"amp_mode"}),
    ),
    Framework(
        "DeepSpeed",
        '"fp16": {"enabled": true} in its configuration, with inputs in half precision',
        ("deepspeed",),
        makers=re.compile(r"deepspeed(\.\w+)*\.initialize"),
        speaks=frozenset({"fp16", "bf16", "torch_autocast"}),
    ),
    Framework(
        "Composer",
        'Trainer(precision="amp_fp16")',
        ("composer",),
        frozenset({"fit"}),
        re.compile(r"composer(\.\w+)*\.Trainer"),
        speaks=frozenset({"amp_fp16", "amp_bf16", "amp_fp8"}),
    ),
    Framework(
        "MMEngine",
        'optim_wrapper=dict(type="AmpOptimWrapper", ...)',
        ("mmengine",),
        frozenset({"train"}),
        re.compile(r"mmengine(\.\w+)*\.Runner(\.\w+)?"),
        speaks=frozenset({"AmpOptimWrapper"}),
    ),
    Framework(
        "Catalyst",
        "runner.train(fp16=True, ...)",
        ("catalyst",),
        frozenset({"train"}),
        re.compile(r"catalyst(\.\w+)*\.\w*Runner"),
        speaks=frozenset({"fp16", "amp"}),
    ),
    Framework(
        "TRL",
        "SFTConfig(fp16=True), or bf16=True",
        ("trl",),
        frozenset({"train"}),
        re.compile(r"trl(\.\w+)*\.\w*Trainer"),
        speaks=frozenset({"fp16", "bf16"}),
    ),
    Framework(
        "sentence-transformers",
        "SentenceTransformerTrainingArguments(fp16=True), or model.fit(..., use_amp=True)",
        ("sentence_transformers",),
        frozenset({"fit", "train"}),
        re.compile(
            r"sentence_transformers(\.\w+)*\.(\w*Trainer|SentenceTransformer|CrossEncoder)"
        ),
        speaks=frozenset({"fp16", "bf16", "use_amp"}),
    ),
    Framework(
        "Detectron2",
        "cfg.SOLVER.AMP.ENABLED = True",
        ("detectron2",),
        frozenset({"train"}),
        re.compile(r"detectron2(\.\w+)*\.(DefaultTrainer|SimpleTrainer)"),
        speaks=frozenset({"AMP"}),
    ),
    Framework(
        "skorch",
        'AccelerateMixin, with Accelerator(mixed_precision="fp16")',
        ("skorch",),
        frozenset({"fit", "partial_fit"}),
        re.compile(r"skorch(\.\w+)*\.NeuralNet\w*"),
    ),
)

SETTINGS = {
    "Lightning": Setting(
        re.compile(r"(pytorch_lightning|lightning)(\.\w+)*\.Trainer"),
        "precision",
        '"16-mixed"',
        '"32-true"',
        (32, "32", "32-true", None),
        LIGHTNING_1 | {"accelerator", "strategy", "plugins", "detect_anomaly"},
        harmless=_LIGHTNING_DEFAULTS,
        by_name=True,
    ),
    "Lightning Fabric": Setting(
        re.compile(r"(lightning|lightning_fabric)(\.\w+)*\.Fabric"),
        "precision",
        '"16-mixed"',
        '"32-true"',
        (32, "32", "32-true", None),
        frozenset({"accelerator", "strategy", "plugins"}),
        harmless=_LIGHTNING_DEFAULTS,
        by_name=True,
    ),
    "the Hugging Face Trainer": Setting(
        re.compile(r"transformers(\.\w+)*\.(Seq2Seq)?TrainingArguments"),
        "fp16",
        "",
        "",
        (False,),
        frozenset(
            """bf16 use_cpu no_cuda use_mps_device deepspeed fsdp fp16_backend half_precision_backend
            fp16_full_eval bf16_full_eval torch_compile accelerator_config place_model_on_device
            """.split()
        ),
        harmless=(("bf16", False), ("use_cpu", False), ("no_cuda", False)),
    ),
    "Accelerate": Setting(
        re.compile(r"accelerate(\.\w+)*\.Accelerator"),
        "mixed_precision",
        '"fp16"',
        '"no"',
        ("no",),
        frozenset(
            "cpu deepspeed_plugin fsdp_plugin megatron_lm_plugin dynamo_backend".split()
        ),
        # What `accelerate launch` was told counts then.
        may_be_absent=False,
        harmless=(("cpu", False),),
    ),
}
"""By the name of the framework."""

BFLOAT16 = {
    '"16-mixed"': '"bf16-mixed"',
    '"fp16"': '"bf16"',
    "fp16": "bf16",
}
"""What takes the place of what where bfloat16 is asked for."""
