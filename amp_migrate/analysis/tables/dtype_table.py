"""What functions and layers of torch do to the dtype of what they are given."""

from __future__ import annotations

import re

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
SAME = frozenset(
    """sigmoid tanh relu relu6 leaky_relu elu selu celu gelu silu mish hardtanh hardswish softplus
    logsigmoid softmax log_softmax softmin dropout dropout2d alpha_dropout flatten squeeze unsqueeze
    reshape view permute transpose movedim swapaxes t abs neg exp log log2 log10 log1p expm1 sqrt rsqrt
    square mean sum prod clamp clip clamp_min clamp_max normalize interpolate pad contiguous clone
    detach expand expand_as view_as repeat narrow select roll flip chunk split unbind cos sin tril triu
    max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d
    adaptive_avg_pool2d adaptive_max_pool2d adaptive_avg_pool3d masked_fill masked_fill_ mul_ div_
    add_ sub_ clamp_ relu_ sigmoid_ tanh_ exp_ zero_ requires_grad_ diagonal diag diag_embed norm std var
    logsumexp cumsum cumprod cuda cpu squeeze_ unsqueeze_ masked_select index_select gather repeat_interleave
    amax amin glu fill_ pow reciprocal float_power_ unfold instance_norm zeros_like ones_like
    rand_like randn_like randint_like full_like empty_like bernoulli normal nan_to_num erf erfc lgamma
    hardsigmoid threshold rrelu hardshrink softshrink tanhshrink softsign ceil round floor sign sgn trunc fix
    frac sinc positive atan asin acos sinh cosh tan atanh asinh acosh exp2 deg2rad rad2deg logit expit ravel
    atleast_1d atleast_2d atleast_3d to_dense as_strided take_along_dim take unflatten diff nanmean nansum
    rot90 flipud fliplr dropout1d dropout3d feature_dropout feature_alpha_dropout batch_norm pixel_shuffle
    pixel_unshuffle channel_shuffle lp_pool1d lp_pool2d local_response_norm gumbel_softmax fold tile
    resolve_conj real index_fill index_put index_add index_copy scatter scatter_add masked_scatter
    sum_to_size broadcast_to tensor_split vsplit hsplit dsplit reshape_as swapdims moveaxis adjoint
    adaptive_max_pool1d adaptive_max_pool3d renorm layer_norm group_norm leaky_relu_ elu_ selu_ celu_ rrelu_
    threshold_ hardtanh_ fill_diagonal_""".split()
)
"""Functions and methods whose floating-point result has the dtype of their first operand."""
TURNS = frozenset("t transpose permute swapaxes swapdims adjoint".split())
GROWING = frozenset("exp expm1 sum prod cumsum cumprod pow square norm".split())
"""Functions and methods that leave the range of half precision soon, and have no autocast outside."""
PRODUCTS = frozenset("mm bmm matmul linear conv1d conv2d conv3d mv".split())
"""Functions that raise where their operands are not of one dtype."""
MORE_PRODUCTS = frozenset(
    """addmm addmv addbmm baddbmm addmm_ addmv_ addbmm_ baddbmm_ einsum tensordot inner dot vdot linear
    multi_dot chain_matmul bilinear conv_transpose1d conv_transpose2d conv_transpose3d
    scaled_dot_product_attention""".split()
)
"""Others of them."""
ALIKE = frozenset(
    "lerp lerp_ equal isclose allclose cross cdist grid_sample heaviside complex binary_cross_entropy".split()
)
"""Functions that compute no such product, and outside of autocast want operands of one dtype, too."""
PROMOTING = frozenset(
    """lerp maximum minimum fmax fmin add sub subtract rsub mul multiply div divide true_divide
    floor_divide remainder fmod hypot logaddexp logaddexp2 xlogy copysign atan2 arctan2 nextafter
    addcmul addcdiv outer ger kron""".split()
)
"""Functions and methods whose result has the dtype to which their operands are promoted."""
CHOOSING = frozenset(
    "min max sort topk kthvalue median nanmedian mode cummin cummax".split()
)
"""Functions and methods that give some of what they are given, and where that was."""
JOINS = frozenset(
    "cat stack concat concatenate hstack vstack dstack column_stack row_stack".split()
)
FACTORIES = frozenset("randn rand zeros ones empty linspace eye".split())
INTEGER_FACTORIES = frozenset("randint arange randperm".split())
FP32_FUNCTIONS = frozenset(
    """acos asin cosh exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow softplus layer_norm
    group_norm rms_norm softmax log_softmax cumprod cumsum norm prod sum dist cdist pdist renorm logsumexp
    cosine_similarity normalize interpolate nll_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss
    cross_entropy binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss
    hinge_embedding_loss margin_ranking_loss triplet_margin_loss poisson_nll_loss soft_margin_loss
    multi_margin_loss multilabel_margin_loss softmin lp_pool1d lp_pool2d local_response_norm gumbel_softmax
    pairwise_distance""".split()
)
"""Functions that autocast runs in fp32."""
FP32_ONLY = re.compile(
    r"torch\.(linalg\.)?(inverse|inv|det|slogdet|logdet|cholesky|solve|svd|svdvals|eigh|eigvalsh|qr"
    r"|quantile|nanquantile)|torch\.fft\.(fft|rfft|fft2|rfft2|fftn|rfftn)"
    r"|torch\.distributions\.(multivariate_normal\.)?MultivariateNormal"
)
"""Functions that want fp32 operands, and compute no product that autocast would cast again."""
FP32_METHODS = frozenset(
    "inverse det slogdet logdet cholesky svd qr quantile nanquantile".split()
)
"""Those of them that are methods."""
NORMAL = re.compile(r"torch\.distributions\.(normal\.)?Normal")
FLOAT = re.compile(r"torch\.(float|float32|FloatTensor|cuda\.FloatTensor)")
INTEGERS = re.compile(r"torch\.(u?int\d*|long|short|bool)")
FROM_NUMBERS = (
    FACTORIES
    | INTEGER_FACTORIES
    | frozenset("full tensor from_numpy as_tensor FloatTensor LongTensor".split())
)
"""Functions whose result has nothing of autocast."""
MADE_LIKE = frozenset("to eq ge gt le lt ne new_ones new_zeros new_full size".split())
"""Methods whose result is no half where their tensor is none."""
NUMBERS = frozenset(
    (*(f"builtins.{name}" for name in "len int float".split()), "numpy.prod")
)
"""Functions that give Python numbers."""
LIMITS = ("torch.finfo", "torch.iinfo", "numpy.finfo", "numpy.iinfo")
"""What tells the limits of a dtype, which are Python numbers, or those of NumPy."""
OF_NUMBERS = frozenset(f"builtins.{name}" for name in "min max abs round sum".split())
"""Functions that give a Python number where they are given nothing else."""
ARITHMETIC = frozenset("+ - * /".split())
"""Operators whose result has the dtype of its operands, if that is one."""
COMPARISONS = frozenset("== != < <= > >= and or not in is compare".split())


def view_of(expr: ir.Expr) -> ir.Expr | None:
    """The tensor of which an attribute is a view, ``x`` of ``x.data``."""
    if isinstance(expr, ir.Attr) and expr.attr in ("data", "T", "mT"):
        return expr.value
    return None
