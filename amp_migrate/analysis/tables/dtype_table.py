"""What functions and layers of torch do to the dtype of what they are given."""

from __future__ import annotations

import re

from amp_migrate.catalogue.operations import operations
from amp_migrate.program import ir

_NN = r"torch\.nn\.(modules\.\w+\.)?"
PARAMETRIC = re.compile(
    _NN
    + r"((Lazy)?Linear|(Lazy)?Conv(Transpose)?[123]d|BatchNorm[123]d|SyncBatchNorm|LayerNorm|GroupNorm"
    r"|PReLU|Bilinear|Embedding|EmbeddingBag|RNN|LSTM|GRU|RNNCell|LSTMCell|GRUCell|MultiheadAttention"
    r"|Transformer\w*)"
)
"""Layers with parameters, which are fp32: their results are, too, and other floats raise."""
EMBEDDING = re.compile(_NN + r"Embedding(Bag)?")
"""Layers that give rows of their parameters, which autocast leaves fp32."""
NORMS = re.compile(_NN + r"(Sync)?BatchNorm\w*")
"""Layers with parameters that take half values, too."""
RECURRENT = re.compile(_NN + r"(RNN|LSTM|GRU|LSTMCell|MultiheadAttention)")
"""Layers that give a tuple."""
KEEPING = re.compile(
    _NN
    + r"(Sigmoid|Tanh|ReLU|ReLU6|LeakyReLU|ELU|SELU|CELU|GELU|SiLU|Mish|Hardtanh|Hardswish|Softplus"
    r"|Softsign|LogSigmoid|Softmax|LogSoftmax|Softmin|Softmax2d|Identity|Flatten|Unflatten|Dropout\w*"
    r"|AlphaDropout|(Max|Avg|AdaptiveAvg|AdaptiveMax|LP)Pool[123]d|InstanceNorm[123]d"
    r"|Upsample|UpsamplingNearest2d|UpsamplingBilinear2d|(Zero|Reflection|Replication|Constant|Circular)Pad[123]d"
    r"|ChannelShuffle|Pixel(Uns|S)huffle|Unfold|Fold|GLU|Hardsigmoid|(Tanh|Soft|Hard)shrink|Threshold|RReLU"
    r"|FeatureAlphaDropout|MaxUnpool[123]d|FractionalMaxPool[23]d|LocalResponseNorm|CosineSimilarity"
    r"|PairwiseDistance)"
)
"""Layers whose result has the dtype of what they are given."""
EINOPS = re.compile(r"einops\.(rearrange|repeat|reduce)")
"""The same of functions of another package: https://einops.rocks/api/rearrange"""
FP32_LAYERS = re.compile(
    _NN
    + r"(LayerNorm|GroupNorm|Softmax|LogSoftmax|Softmin|Softplus|Softmax2d|LPPool[123]d|LocalResponseNorm"
    r"|CosineSimilarity|PairwiseDistance|(MSE|L1|SmoothL1|Huber"
    r"|CrossEntropy|NLL|KLDiv|BCEWithLogits|CosineEmbedding|HingeEmbedding|MarginRanking|TripletMargin"
    r"|PoissonNLL|SoftMargin|MultiMargin|MultiLabelMargin)Loss)"
)
"""Layers that autocast runs in fp32."""
IMAGE_MODELS = re.compile(r"torchvision\.models\.(?!detection)[\w.]+")
"""Models of other packages, which are fp32."""
FP32_ONLY = re.compile(
    r"torch\.(linalg\.)?(inverse|inv|det|slogdet|logdet|cholesky|solve|svd|svdvals|eigh|eigvalsh|qr"
    r"|view_as_complex|matrix_norm|quantile|nanquantile|histc|stft)|torch\.fft\.(fft|rfft|fft2|rfft2|fftn|rfftn)"
    r"|torch\.distributions\.(multivariate_normal\.)?MultivariateNormal"
)
"""Functions that want fp32 operands (``histc`` on CUDA), and compute no product that autocast would cast
again."""
RAISES = re.compile(
    r"torch\.nn\.AdaptiveLogSoftmaxWithLoss"
    r"|torch\.linalg\.(?!norm$|vector_norm$|multi_dot$|vecdot$)\w+"
    r"|torch\.(inverse|cholesky\w*|svd\w*|qr|det|logdet|slogdet|solve|eig|symeig|lstsq|pinverse"
    r"|matrix_exp|pca_lowrank|lobpcg|lu\w*|geqrf|triangular_solve|quantile|nanquantile|polar|stft"
    r"|istft|fft|ifft|rfft|irfft|baddbmm_|sspaddmm|hspmm)"
    r"|torch\.sparse\.(addmm|sampled_addmm|spsolve)"
    r"|torch\.fft\.\w+|warpctc_pytorch\.\w+"
    r"|torch\.distributions\.(\w+\.)?(MultivariateNormal|LowRankMultivariateNormal|Wishart)"
    r"|torch_geometric\.nn\.(models\.)?(DeepGraphInfomax\.loss|ARGV?A\.(reg|discriminator)_loss)"
)
"""Functions that raise in half precision, or lose their meaning there."""
DISTRIBUTIONS = ("MultivariateNormal", "LowRankMultivariateNormal", "Wishart")
"""Those whose methods factorize matrices."""
FACTORS = re.compile(
    r"torch\.distributions\.(\w+\.)?(LowRankMultivariateNormal|Wishart)"
)
"""Those that factorize what they multiply themselves, which autocast makes half: an island around what makes
one is not enough."""
NORMAL = re.compile(r"torch\.distributions\.(normal\.)?Normal")
FLOAT = re.compile(r"torch\.(float|float32|Tensor|FloatTensor|cuda\.FloatTensor)")
INTEGERS = re.compile(r"torch\.(u?int\d*|long|short|bool)")
FULL = re.compile(
    r"torch\.(float|float32|double|float64|u?int\d*|long|short|bool"
    r"|Tensor|(cuda\.)?(Float|Double|Byte|Char|Short|Int|Long|Bool)Tensor)"
)
"""Dtypes, and types of tensors, that are no half."""
MADE_LIKE = operations("first", "new", "compares") | {"to", "size", "numpy"}
"""Methods whose result is no half where their tensor is none."""
NUMBERS = re.compile(
    r"builtins\.(len|int|float)|numpy\.(prod|float)|math\.\w+"
    r"|torch\.distributed\.get_(rank|world_size)|torch\.cuda\.device_count"
    r"|time\.(time|perf_counter|monotonic|process_time)|random\.(random|uniform|gauss|randint|randrange)"
)
"""Functions that give Python numbers."""
LIMITS = ("torch.finfo", "torch.iinfo", "numpy.finfo", "numpy.iinfo")
"""What tells the limits of a dtype, which are Python numbers, or those of NumPy."""
OF_NUMBERS = frozenset(f"builtins.{name}" for name in "min max abs round sum".split())
"""Functions that give a Python number where they are given nothing else."""
ARITHMETIC = frozenset("+ - * /".split())
"""Operators whose result has the dtype of its operands, if that is one."""
COMPARISONS = frozenset("== != < <= > >= and or not in is compare".split())


def tells_places(expr: ir.Expr, index: int | None) -> bool:
    """Whether an element of what is chosen is where that was, ``x.max(1)[1]``: integers."""
    if index not in (1, -1) or not isinstance(expr, ir.Call):
        return False
    name = ir.method_of(expr)
    return name in operations("chosen") and (
        name not in ("max", "min")
        # And not what two tensors are compared with.
        or any(
            arg.name == "dim"
            or isinstance(arg.value, ir.Const)
            or (isinstance(arg.value, ir.Operation) and arg.value.op == "-x")
            or (ir.key_of(arg.value) or "").endswith(("dim", "axis"))
            for arg in expr.args
        )
    )


def view_of(expr: ir.Expr) -> ir.Expr | None:
    """The tensor of which an attribute is a view, ``x`` of ``x.data``."""
    if isinstance(expr, ir.Attr) and expr.attr in ("data", "T", "mT"):
        return expr.value
    return None
