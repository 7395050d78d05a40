"""Turns loss scaling and autocast off or on, whatever the script says, and brings both to the CPU.

With neither forced, a script has what it asks for. On a machine without CUDA both work on the CPU in
its place: the scaler is torch's own, and autocast follows CUDA's list of operators (see `policy`).
"""

from __future__ import annotations

from typing import Any

import torch

from . import policy

SCALE_CAP = 2.0**32
"""A scale that doubles every step or two goes back to its start here, before fp32 overflows."""


_PARAMETERS = (
    "init_scale",
    "growth_factor",
    "backoff_factor",
    "growth_interval",
    "enabled",
)


class Switches:
    """What is forced on a script."""

    def __init__(
        self,
        *,
        on_cpu: bool,
        scaler: bool | None = None,
        autocast: bool | None = None,
        init_scale: float | None = None,
        growth_interval: int | None = None,
    ) -> None:
        """``scaler``, ``autocast``: off, on, or None for what the script says.

        ``autocast=True`` leaves alone what the script disables: islands in full precision.
        ``init_scale`` and ``growth_interval`` replace the script's; with an interval, each scaler starts
        at another power of two, so that gradients never meet a stranger's scale unseen.
        """
        self.on_cpu = on_cpu
        self.scaler = scaler
        self.autocast = autocast
        self.init_scale = init_scale
        self.growth_interval = growth_interval
        self._made = 0

    def patch(self) -> None:
        """For the rest of this process.

        Before 2.3, torch had no scaler for the CPU: there, both can only be off.
        """
        self._patch_scaler()
        self._patch_autocast()
        if self.on_cpu:
            self._patch_custom_functions()
            if self.autocast is not False:
                # Not every processor has recurrent layers in fp16 in oneDNN; what is behind has.
                torch._C._set_mkldnn_enabled(False)
                policy.apply()

    def _patch_scaler(self) -> None:
        switches = self
        takes_device = hasattr(torch.amp, "GradScaler")
        base: Any = (torch.amp if takes_device else torch.cuda.amp).GradScaler

        class Scaler(base):
            def __init__(self, device: Any = "cuda", *args: Any, **given: Any) -> None:
                if not isinstance(device, str):
                    # The scaler of `torch.cuda.amp` begins with the scale.
                    args, device = (device, *args), "cuda"
                given.update(zip(_PARAMETERS, args))
                if switches.scaler is not None:
                    given["enabled"] = switches.scaler
                if switches.init_scale is not None:
                    given["init_scale"] = switches.init_scale
                if switches.growth_interval is not None:
                    given["growth_interval"] = switches.growth_interval
                    given["init_scale"] *= 2.0 ** (3 * (switches._made % 4))
                switches._made += 1
                self._first_scale = given.get("init_scale")
                if takes_device:
                    given["device"] = "cpu" if switches.on_cpu else device
                super().__init__(**given)

            def update(self, new_scale: Any = None) -> None:
                super().update(new_scale)
                if switches.growth_interval is not None and self.is_enabled():
                    if self.get_scale() >= SCALE_CAP:
                        super().update(self._first_scale)

        Scaler.__name__ = Scaler.__qualname__ = "GradScaler"
        torch.cuda.amp.GradScaler = torch.cuda.amp.grad_scaler.GradScaler = Scaler
        if takes_device:
            for module in (torch, torch.amp, torch.amp.grad_scaler):
                module.GradScaler = Scaler

    def _patch_autocast(self) -> None:
        switches = self

        class Autocast(torch.amp.autocast_mode.autocast):
            def __init__(
                self,
                device_type: str,
                dtype: Any = None,
                enabled: bool = True,
                cache_enabled: Any = None,
            ) -> None:
                kept = bool(enabled) and switches.autocast is not False
                if switches.on_cpu and device_type == "cuda":
                    device_type = "cpu"
                    dtype = torch.float16 if dtype is None else dtype
                    if not kept:
                        dtype = torch.bfloat16  # before 2.3 no other, not even when off
                super().__init__(
                    device_type, dtype=dtype, enabled=kept, cache_enabled=cache_enabled
                )

        class CudaAutocast(Autocast):
            def __init__(
                self, enabled: bool = True, dtype: Any = None, cache_enabled: Any = None
            ) -> None:
                super().__init__("cuda", dtype, enabled, cache_enabled)

        for one in (Autocast, CudaAutocast):
            one.__name__ = one.__qualname__ = "autocast"
        for module in (torch, torch.amp, torch.amp.autocast_mode):
            module.autocast = Autocast
        for module in (torch.cuda.amp, torch.cuda.amp.autocast_mode):
            module.autocast = CudaAutocast

    def _patch_custom_functions(self) -> None:
        for name in ("custom_fwd", "custom_bwd"):
            decorate = getattr(torch.amp, name, None)
            if decorate is None:
                continue

            def on_the_cpu(
                method: Any = None, *, decorate: Any = decorate, **given: Any
            ) -> Any:
                return decorate(method, **{**given, "device_type": "cpu"})

            for namespace in (torch.amp, torch.cuda.amp):
                setattr(namespace, name, on_the_cpu)
