"""An AMP sanitizer: watches any training script that uses AMP while it runs, and tells violations.

It is silent on correct code, hand-written or ours. It changes neither numbers nor random streams, and
keeps no graph, tensor, optimizer or scaler alive. What it watches:

- `monitor_scaler`: what is scaled, and the order of unscale_, step and update;
- `monitor_backward`: which backward made which gradients;
- `monitor_optimizer`: steps outside the scaler, gradients that are zeroed;
- `monitor_gradients`: clipping, reading and editing while gradients are scaled;
- `monitor_autocast`: regions; `monitor_forward`: layers outside them, and what may not be inside;
- `monitor_checkpoint`: the scaler's state in files.
"""

from __future__ import annotations

import sys
from typing import Any

from ..log import Log
from ..where import Where
from .autocast import Regions
from .backward import Backwards
from .checkpoint import Checkpoints
from .findings import Findings
from .forward import Forwards
from .gradients import GradientUses
from .known import Known
from .optimizer import Optimizers
from .scaler import Scalers


class Monitor:
    """Patches torch, in a process that is about to run one script.

    Each violation is one line of the log, `finding`, with the fields ``rule`` (the name of a rule of
    lint), ``path`` and ``line`` of the user's code, ``detail`` (an operator or a class, or empty),
    ``count`` and ``final``. It is said at once when it is new,
    ``final`` false, and once more by `finish`, ``final`` true, with its count.
    """

    def __init__(self, log: Log, where: Where, protocol: dict[str, Any]) -> None:
        """``protocol``: the table of what breaks which rule (`amp_migrate.catalogue.protocol`)."""
        known = self._known = Known()
        self._findings = Findings(log, protocol)
        self._regions = Regions(self._findings, where)
        self._checkpoints = Checkpoints(known, self._findings, where)
        self._uses = GradientUses(known, self._findings, where)
        self._forwards = Forwards(
            known, self._regions, self._uses.settle, self._findings, where
        )
        self._scalers = Scalers(
            known, self._regions, self._checkpoints, self._findings, where
        )
        self._optimizers = Optimizers(known, self._regions, self._findings, where)
        self._backwards = Backwards(known, self._regions, self._forwards, where)

    def patch(self) -> None:
        """Before the script runs. What stands in for GradScaler and autocast may be there already."""
        self._regions.patch()
        self._scalers.patch()
        self._optimizers.patch()
        self._backwards.patch()
        self._uses.patch()
        self._forwards.patch()
        self._checkpoints.patch()

    def finish(self, cut_off: bool | None = None) -> None:
        """After the script. ``cut_off``: it was stopped or died, and may not be asked for what would
        have come later: an update after the last step, the scaler's state after the optimizer's. If
        that is not said, it was cut off if an exception is on its way.
        """
        self._known.cut_off = (
            sys.exc_info()[0] is not None if cut_off is None else cut_off
        )
        self._uses.finish()
        self._regions.finish()
        self._scalers.finish()
        self._checkpoints.finish()
        self._findings.finish()
