"""Parts of `gpu_smoke.py`. Standard library only; torch is needed by `clock.py`, in a process of its own."""
