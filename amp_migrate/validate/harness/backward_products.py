"""Counts the matrix products of backward passes by the precision in which they ran."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from .recorder import Recorder

# fmt: off
_PRODUCTS = frozenset({
    "_scaled_dot_product_cudnn_attention_backward", "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_flash_attention_backward", "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_cudnn_rnn_backward", "addbmm", "addmm", "addmv", "addr", "baddbmm", "bmm", "convolution_backward",
    "dot", "mkldnn_rnn_layer_backward", "mm", "mv",
})
# fmt: on


class ProductCounter(TorchDispatchMode):
    """Says ``products`` when it ends: half and full, the numbers of those in fp16 or bf16 and in fp32,
    and elsewhere, that of those on another device than ``device``.

    It sees operators below autocast and autograd: what really runs. Those of backward passes, since
    they tell in what the forward ran, and what makes data or evaluates is left out.
    """

    def __init__(
        self, say: Callable[..., None], recorder: Recorder, device: str
    ) -> None:
        """``device``: the type of the one that autocast works on."""
        super().__init__()
        self._device = device
        self._say = say
        self._recorder = recorder
        self._half = 0
        self._full = 0
        self._elsewhere = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if self._recorder.in_backward and func.overloadpacket.__name__ in _PRODUCTS:
            tensors = [a for a in args if isinstance(a, torch.Tensor)]
            dtypes = {tensor.dtype for tensor in tensors}
            if all(tensor.device.type != self._device for tensor in tensors):
                self._elsewhere += 1
            elif dtypes & {torch.float16, torch.bfloat16}:
                self._half += 1
            elif torch.float32 in dtypes:
                self._full += 1
        return func(*args, **(kwargs or {}))

    def __exit__(self, *args: Any) -> None:
        super().__exit__(*args)
        self._say(
            "products", half=self._half, full=self._full, elsewhere=self._elsewhere
        )
