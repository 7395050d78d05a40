"""What the calls of training code mean: the names that planning knows, in one place."""

from __future__ import annotations

import re
from dataclasses import dataclass

GRADIENT_CLIPPERS = re.compile(
    r"torch\.nn\.utils\.(clip_grad\w*|get_total_norm|clip_grads_with_norm_)"
    r"|torch\.nn\.utils\.clip_grad\.\w+"
)
"""Functions of torch that read or edit gradients."""
NORM_CLIPPERS = re.compile(r"torch\.nn\.utils\.(clip_grad\.)?clip_grad_norm_?")
"""Those of them that clip by one norm, and give it."""

FRAMEWORK_ROOTS = {
    "lightning": "Lightning",
    "pytorch_lightning": "Lightning",
    "lightning_fabric": "Lightning Fabric",
    "accelerate": "Accelerate",
    "deepspeed": "DeepSpeed",
    "colossalai": "Colossal-AI",
    "fairseq": "fairseq",
    "mmcv": "MMCV",
    "mmengine": "MMEngine",
    "catalyst": "Catalyst",
    "composer": "Composer",
    "fastai": "fastai",
    "skorch": "skorch",
    "torch_xla": "PyTorch/XLA",
    "paddle": "Paddle",
    "mindspore": "MindSpore",
    "jittor": "Jittor",
    "oneflow": "OneFlow",
    "tensorflow": "TensorFlow",
    "jax": "JAX",
    "mxnet": "MXNet",
    "chainer": "Chainer",
}

OTHER_FRAMEWORKS = frozenset(
    "mxnet jax paddle tensorflow keras chainer tinygrad mindspore autograd".split()
)
"""Packages whose values have gradients too, and are no tensors of torch."""


def is_of_another(roots: frozenset[str]) -> bool:
    """Whether a file that imports some packages computes with tensors that are not torch's."""
    return "torch" not in roots and not roots.isdisjoint(OTHER_FRAMEWORKS)


FRAMEWORK_RECEIVERS = frozenset(
    "accelerator fabric model_engine engine booster ds_engine manager".split()
)
"""Names of objects that take the loss as the argument of their own ``backward``."""

RUNS_FIRST = frozenset(
    """torch.utils.checkpoint.checkpoint torch.nn.parallel.data_parallel torch.func.functional_call
    torch.nn.utils.stateless.functional_call""".split()
)
"""Functions that call the module, or function, that they are given first with what follows."""
ROWS = ("torch.vmap", "torch.func.vmap")
CALLED_AT_ONCE = ("functools.partial", *ROWS)
"""What gives a function that calls the one that it is given."""
MODULE_BOOKKEEPING = frozenset(
    """train eval parameters named_parameters buffers named_buffers modules named_modules children
    named_children to cuda cpu double float half bfloat16 type zero_grad state_dict load_state_dict
    apply requires_grad_ share_memory add_module register_buffer register_parameter
    register_forward_hook register_full_backward_hook no_sync init_weights reset_parameters size dim
    init_hidden initHidden init_state get_parameters freeze unfreeze save load save_pretrained
    print_network set_requires_grad compile ema_update flatten_parameters""".split()
)
"""Methods of a module that compute no forward."""

TENSOR_BOOKKEEPING = frozenset(
    """to cuda cpu view reshape float long int bool double detach detach_ clone contiguous item numpy
    tolist size dim numel permute transpose unsqueeze squeeze t type type_as requires_grad_ pin_memory
    append extend update get items keys values format join split strip mean sum backward step zero_grad
    write print add_scalar log info debug save load_state_dict state_dict astype pow square sqrt exp abs
    expand expand_as chunk argmax argmin""".split()
)
"""Methods that move, reshape or keep books and by themselves start no forward computation."""

MODEL_LIKE = re.compile(
    r"(?i)(^|_|\.)(model\w*|net\w*|\w*net|criterion\w*|loss\w*|\w*loss|encoder\w*|decoder\w*|gen\w*"
    r"|disc(?!rete|ount)\w*|discriminator|backbone|head|policy\w*|actor\w*|critic\w*|agent|q_?net\w*|student|teacher"
    r"|embed\w*|rnn|lstm|gru|vae|autoencoder|classifier\w*|regressor|transformer|bert|gpt|resnet\w*"
    r"|unet|cnn|mlp|ae|crf|module|network\w*|objective|cost|ce|mse|linear\d*|fc\d*|conv\d*|layer\d*)$"
)
"""Names of callables that must be taken for modules or losses where nothing says what they are."""

AMP_WORDS = frozenset(
    "autocast GradScaler unscale_ scale_loss NativeScaler custom_fwd amp_scaler".split()
)


@dataclass(frozen=True, slots=True)
class Half:
    """What a half-precision dtype can hold."""

    largest: float
    smallest: float
    """The smallest number above 0."""
    next_to_one: float
    """1 minus less than this is 1."""
    counted: int
    """From here on it has not every integer."""

    def overflows(self, value: float) -> bool:
        """Whether it would be infinite, and is not."""
        return self.largest < abs(value) < float("inf")

    def underflows(self, value: float) -> bool:
        """Whether it would be 0, and is not."""
        return 0 < abs(value) < self.smallest

    def lacks(self, value: float) -> bool:
        """Whether it would be infinite or 0, and is neither."""
        return self.overflows(value) or self.underflows(value)

    def skips(self, value: float) -> bool:
        """Whether a number is an integer that it does not have: one of a place, or a count."""
        if not self.counted < value < self.largest:
            return False
        step = 1 << max(0, int(value).bit_length() - self.counted.bit_length() + 1)
        return value % step > 0


HALVES = {
    "float16": Half(65504.0, 5.97e-8, 2**-12, 2048),
    "bfloat16": Half(3.3895313892515355e38, 9.2e-41, 2**-9, 256),
    # What is chosen when the program runs may be either.
    "auto": Half(65504.0, 5.97e-8, 2**-9, 256),
}
