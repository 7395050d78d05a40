"""Older AMP interfaces, ``torch.cuda.amp`` and its like, to ``torch.amp``."""
