"""Environment variables that keep a run to itself: nothing is sent, and caches in C go to scratch."""

from __future__ import annotations

import os


def offline_environment(scratch: str) -> dict[str, str]:
    """What to add to the environment of a run; it may override what the user has there.

    Experiment trackers stay offline and write below ``scratch``. TensorBoard needs nothing: it writes
    by Python. Aim has no such variable that we know of: it writes ``.aim`` in C. What a script says in
    its arguments goes before some of these.

    Sources: docs.wandb.ai/guides/track/environment-variables (WANDB_*); comet.com/docs/v2
    "Fallback to Offline Experiment" (COMET_OFFLINE_DIRECTORY) and transformers' CometCallback
    (COMET_START_ONLINE; COMET_MODE before it); clear.ml/docs "Task SDK", offline mode
    (CLEARML_OFFLINE_MODE); docs.neptune.ai/api/environment_variables and
    docs.neptune.ai/environment_variables (NEPTUNE_*); mlflow.org's
    mlflow.tracking._tracking_service.utils (MLFLOW_TRACKING_URI) and mlflow/mlflow#23637
    (MLFLOW_ALLOW_FILE_STORE); dvc.org/doc/user-guide/env (DVC_*)
    and dvc.org/doc/dvclive/env (DVCLIVE_OPEN); docs.swanlab.cn "cli-swanlab-offline" (SWANLAB_MODE);
    docs.codecarbon.io, how-to/configuration (CODECARBON_ before a parameter's name);
    the CUDA programming guide's environment variables (CUDA_CACHE_PATH); torch's own
    utils/cpp_extension.py (TORCH_EXTENSIONS_DIR) and _inductor/runtime (TORCHINDUCTOR_CACHE_DIR,
    TRITON_CACHE_DIR).
    """
    tracking = os.path.join(os.path.abspath(scratch), "trackers")
    caches = os.path.join(os.path.abspath(scratch), "caches")
    return {
        "WANDB_MODE": "offline",
        "WANDB_DIR": os.path.abspath(scratch),  # it must exist
        "WANDB_ARTIFACT_DIR": os.path.join(tracking, "wandb-artifacts"),
        "WANDB_CACHE_DIR": os.path.join(tracking, "wandb-cache"),
        "WANDB_DATA_DIR": os.path.join(tracking, "wandb-data"),
        "COMET_START_ONLINE": "0",
        "COMET_MODE": "OFFLINE",
        "COMET_OFFLINE_DIRECTORY": os.path.join(tracking, "comet"),
        "CLEARML_OFFLINE_MODE": "1",
        "NEPTUNE_MODE": "offline",
        "NEPTUNE_DATA_DIRECTORY": os.path.join(tracking, "neptune"),
        "NEPTUNE_LOG_DIRECTORY": os.path.join(tracking, "neptune"),
        "MLFLOW_TRACKING_URI": "file://" + os.path.join(tracking, "mlflow"),
        "MLFLOW_ALLOW_FILE_STORE": "true",
        "CODECARBON_SAVE_TO_API": "false",
        "DVC_STUDIO_OFFLINE": "true",
        "DVC_EXP_AUTO_PUSH": "false",
        "DVC_NO_ANALYTICS": "true",
        "DVCLIVE_OPEN": "false",
        "SWANLAB_MODE": "offline",
        "CUDA_CACHE_PATH": os.path.join(caches, "cuda"),
        "TORCH_EXTENSIONS_DIR": os.path.join(caches, "extensions"),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(caches, "inductor"),
        "TRITON_CACHE_DIR": os.path.join(caches, "triton"),
        # The user's __pycache__ would be written by the import system, below the overlay.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
