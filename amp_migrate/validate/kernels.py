"""Which CUDA kernels multiply matrices on Tensor Cores, told by their names alone.

cuBLAS, cuDNN and CUTLASS write the instruction into the name: `s884`, `s1688`, `s16816` are the sizes
of its matrices (sm70, sm75, sm80), `tensorop`, `hmma`, `wgmma`, `tensor16x8x16` the unit; `simt` and
`ffma` say the opposite. Starting point: the list of PyProf (pyprof/prof/tc.py), which PyTorch's
profiler took over. It counts every `xmma_gemm`, of which there are `ffma` ones, so names without
Tensor Cores are looked for first. A name that says neither is unknown, and said to be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

TENSOR_CORE = "tensor_core"
NOT_TENSOR_CORE = "not_tensor_core"
UNKNOWN = "unknown"
NO_PRODUCT = ""

# Beside products: copies, sums of partial results, biases, and what merely has "conv" in its name.
_BESIDE = re.compile(
    r"splitK_?reduce|ReduceSplitK|init_device_workspace|elementwise|elemwise|pointwise|softmax|nchwToNhwc|nhwcToNchw|convertTensor"
    r"|addBias|_init\b|\bbn_|batch_?norm|layer_?norm|memcpy|memset|triton_(?!tem_)|\bpermut"
    r"|\btranspose|flash_bwd_(?:dot_do_o|convert_dq)|unrolled|vectorized",
    re.IGNORECASE,
)

_WRAPPER = re.compile(r"^void cutlass\w*::(?:Kernel2?|device_kernel)<")
"""In front of the name that CUTLASS has for a kernel."""

_NOT = re.compile(
    # Says so: single-precision multiply-add, no matrix instruction.
    r"_simt_|_ffma|\bsimt_|OpClassSimt|MmaSimt"
    # The classic kernels of cuBLAS and cuDNN, in fp32 and with fp16 operands.
    r"|(?<![a-z])(?:[sdcz]gemm|gcgemm|hgemm)"
    r"|scudnn|hcudnn|convolve_[shd]gemm"
    # A matrix times a vector; one channel a filter; the oldest cards.
    r"|gemv|conv_depthwise|fmha_cutlass[FB]_\w+_sm50",
)

_YES = re.compile(
    # Sizes of the matrices of one instruction, with the letter of its accumulator.
    r"(?<![a-z0-9])[hsdicb](?:884|1688|8816|16816|16832|16864|161616)"
    r"|hmma|_HMMA|imma_|wgmma|[a-z]Gmma|(?<![a-z])wmma|tensorop|OpClassTensorOp|MmaTensorOp|_tensor\d+x\d+x\d+|tcgen05|umma|utcmma"
    r"|nvjet|warpgroupsize"
    # xmma: the types of the operands, where Tensor Cores are the only unit for them.
    r"|xmma_(?:\w+?_)?(?:gemm|conv)\w*?_(?:tf32|f16f16|bf16bf16|bf16f16|f8f8|e4m3|e5m2|i8i8)"
    r"|xmma_gemm_f32f32_tf32"
    r"|xmma_fprop_\w+_tf32f32|xmma_dgrad_\w+_tf32f32|xmma_wgrad_\w+_tf32f32"
    # Fused attention in half precision.
    r"|flash_(?:fwd|bwd)\w*_kernel|FlashAttention(?:Forward|Backward)Sm"
    r"|fmha_cutlass[FB]_b?f16_\w+_sm(?:70|75|80)|native_sdpa_sm\d+_flash"
    # cuDNN's kernels for first and narrow layers, from PyProf's list.
    r"|first_layer_wgrad_kernel|conv2d_c1_k1|dgrad_1x1_stride_2x2|direct_group",
)

_PRODUCT = re.compile(
    r"gemm|convol|conv\dd|_conv_|fprop|dgrad|wgrad|winograd|matmul|\bmm_|_mm_|_mm\b|cublas|xmma"
    r"|cutlass|fmha|flash|attention|sdpa|persistRNN|RNN_block|LSTM|GRU|triton_tem_",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class KernelShares:
    """Of the time of kernels that multiply matrices, the share of each class; they add up to 1."""

    tensor_core: float
    not_tensor_core: float
    unknown: float
    gemm_us: float
    """The time of all of them, in microseconds."""
    unknown_names: tuple[str, ...]
    """The kernels of `unknown`, the costliest first."""

    def __str__(self) -> str:
        return (
            f"{self.tensor_core:.0%} in kernels known to use Tensor Cores,"
            f" {self.not_tensor_core:.0%} in others, {self.unknown:.0%} in kernels of unknown kind"
        )


@lru_cache(maxsize=4096)
def classify(name: str) -> str:
    """`TENSOR_CORE`, `NOT_TENSOR_CORE` or `UNKNOWN`; `NO_PRODUCT` where nothing is multiplied.

    ``name``: in full, as torch.profiler gives it: one that was cut off may have lost the part that
    tells.
    """
    if _BESIDE.search(
        _WRAPPER.sub("", name).partition("<")[0]
    ):  # its own name, not its template's arguments
        return NO_PRODUCT
    if _NOT.search(name):
        return NOT_TENSOR_CORE
    if _YES.search(name):
        return TENSOR_CORE
    return UNKNOWN if _PRODUCT.search(name) else NO_PRODUCT


def shares(kernels: Iterable[tuple[str, float]]) -> KernelShares | None:
    """From kernel names and microseconds; None if no kernel multiplies matrices."""
    time = dict.fromkeys((TENSOR_CORE, NOT_TENSOR_CORE, UNKNOWN), 0.0)
    unknown: dict[str, float] = {}
    for name, microseconds in kernels:
        kind = classify(name)
        if kind == NO_PRODUCT:
            continue
        time[kind] += microseconds
        if kind == UNKNOWN:
            unknown[name] = unknown.get(name, 0.0) + microseconds
    total = sum(time.values())
    if not total:
        return None
    return KernelShares(
        tensor_core=time[TENSOR_CORE] / total,
        not_tensor_core=time[NOT_TENSOR_CORE] / total,
        unknown=time[UNKNOWN] / total,
        gemm_us=total,
        unknown_names=tuple(sorted(unknown, key=lambda name: -unknown[name])),
    )
