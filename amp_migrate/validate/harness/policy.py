"""Autocast on the CPU as it is on CUDA: CUDA's list of operators on the CPU's dispatch key.

The CPU's own autocast lets BCELoss pass, casts linear algebra, and leaves exp and sums in half. What
a script does under `apply()` is what it would do on a GPU, in the CPU's kernels. The cache of casted
weights is not there. The lists are those that torch 2.13 registers for CUDA, less what an older one does not;
and `linalg_matrix_norm`, for which CUDA's autocast asks for a result in fp32, and which refuses half operands
nevertheless.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

# fmt: off
_LOW = """
_convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d
conv_transpose2d.input conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv
linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell
_thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell scaled_dot_product_attention
""".split()
_FULL = """
acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm
frobenius_norm.dim nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss
cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss
mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss
multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp
upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d
upsample_trilinear3d upsample_bicubic2d
prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm
sum sum.dim_IntList norm.Scalar norm.ScalarOpt_dim
""".split()
_PROMOTE = """
addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add
""".split()
_BANNED = "binary_cross_entropy"
# fmt: on

_KEY = "AutocastCPU"
_BAN = "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast."
_library: list[Any] = []


def apply() -> None:
    """Change autocast on the CPU for the rest of this process."""
    library = torch.library.Library("aten", "IMPL")
    _library.append(library)
    registered = torch._C._dispatch_get_registrations_for_dispatch_key(_KEY)
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    low, full, promote = (
        [name for name in names if has_kernel(f"aten::{name}", "AutocastCUDA")]
        for names in (_LOW, _FULL, _PROMOTE)
    )
    wanted = {*low, *full, *promote, _BANNED}
    for name in registered:
        short = name.removeprefix("aten::")
        if name.startswith("aten::") and short not in wanted:
            library.impl(
                short, torch.library.fallthrough_kernel, _KEY, allow_override=True
            )
    for names, policy in ((low, _low), (full, _full), (promote, _promote)):
        for name in names:
            library.impl(name, _kernel(name, policy), _KEY, allow_override=True)
    library.impl(_BANNED, _banned, _KEY, allow_override=True)


def _kernel(name: str, policy: Callable[[list[Any]], torch.dtype | None]) -> Any:
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(
            torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
        ):
            tensors = [t for t in _tensors([*args, *kwargs.values()]) if _may_cast(t)]
            dtype = policy(tensors)
            if dtype is not None:
                args = tuple(_cast(a, dtype) for a in args)
                kwargs = {key: _cast(a, dtype) for key, a in kwargs.items()}
            return operator(*args, **kwargs)

    return kernel


def _low(tensors: list[Any]) -> torch.dtype | None:
    return torch.get_autocast_dtype("cpu")


def _full(tensors: list[Any]) -> torch.dtype | None:
    return torch.float32


def _promote(tensors: list[Any]) -> torch.dtype | None:
    full = any(t.dtype == torch.float32 for t in tensors)
    return torch.float32 if full else torch.get_autocast_dtype("cpu")


def _banned(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(_BAN)


def _tensors(values: list[Any]) -> list[Any]:
    found = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += _tensors(list(value))
    return found


def _may_cast(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_floating_point()) and tensor.dtype != torch.float64


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if _may_cast(value) else value
    if isinstance(value, (list, tuple)):
        return [_cast(item, dtype) for item in value]
    return value
