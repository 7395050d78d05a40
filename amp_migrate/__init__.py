"""Rewrites PyTorch fp32 training loops for automatic mixed precision, or says why not."""

__version__ = "0.1.0"
