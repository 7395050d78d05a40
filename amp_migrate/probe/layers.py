"""Which attributes of torch's layers hold their sizes."""

from __future__ import annotations

_CONV = ("in_channels", "out_channels", "kernel_size", "groups")
_RNN = ("input_size", "hidden_size", "proj_size")
_CELL = ("input_size", "hidden_size")

LAYERS: dict[str, tuple[str, ...]] = {
    "torch.nn.Linear": ("in_features", "out_features"),
    "torch.nn.LazyLinear": ("out_features",),
    "torch.nn.Bilinear": ("in1_features", "in2_features", "out_features"),
    "torch.nn.Embedding": ("num_embeddings", "embedding_dim"),
    "torch.nn.EmbeddingBag": ("num_embeddings", "embedding_dim"),
    **{f"torch.nn.Conv{n}d": _CONV for n in (1, 2, 3)},
    **{f"torch.nn.ConvTranspose{n}d": _CONV for n in (1, 2, 3)},
    **{f"torch.nn.{name}": _RNN for name in ("RNN", "LSTM", "GRU")},
    **{f"torch.nn.{name}Cell": _CELL for name in ("RNN", "LSTM", "GRU")},
    "torch.nn.MultiheadAttention": ("embed_dim", "num_heads", "kdim", "vdim"),
}
