"""What is written of torch's AMP, by the oldest torch that the code has to run on.

Each form with the first version that has it. Before 1.10, autocast has no ``dtype=``: it casts to float16.
"""

from __future__ import annotations

from amp_migrate.sources.requirements import CHOOSES_DTYPE, OLDEST

_FORMS: dict[str, dict[tuple[int, int], str]] = {
    "autocast": {
        OLDEST: "{torch}.cuda.amp.autocast(enabled={enabled})",
        CHOOSES_DTYPE: '{torch}.autocast("cuda", dtype={dtype}, enabled={enabled})',
    },
    "autocast without a cache": {
        CHOOSES_DTYPE: (
            '{torch}.autocast("cuda", dtype={dtype}, enabled={enabled},'
            " cache_enabled=False)"
        ),
        # What is cast while gradients are off is not kept any more.
        (2, 13): '{torch}.autocast("cuda", dtype={dtype}, enabled={enabled})',
    },
    "off": {
        OLDEST: "{torch}.cuda.amp.autocast(enabled=False)",
        CHOOSES_DTYPE: '{torch}.autocast("cuda", enabled=False)',
    },
    "GradScaler": {
        OLDEST: "{torch}.cuda.amp.GradScaler(enabled={enabled})",
        (2, 3): '{torch}.amp.GradScaler("cuda", enabled={enabled})',
    },
    "type of a scaler": {
        OLDEST: "{torch}.cuda.amp.GradScaler",
        (2, 3): "{torch}.amp.GradScaler",
    },
    "forward": {
        OLDEST: "{torch}.cuda.amp.custom_fwd",
        (2, 4): '{torch}.amp.custom_fwd(device_type="cuda")',
    },
    "forward in fp32": {
        OLDEST: "{torch}.cuda.amp.custom_fwd(cast_inputs={torch}.float32)",
        (2, 4): (
            '{torch}.amp.custom_fwd(device_type="cuda", cast_inputs={torch}.float32)'
        ),
    },
    "backward": {
        OLDEST: "{torch}.cuda.amp.custom_bwd",
        (2, 4): '{torch}.amp.custom_bwd(device_type="cuda")',
    },
    # Hardware that only emulates bfloat16 gets float16; `is_bf16_supported` counts emulation unless told.
    "bfloat16": {
        OLDEST: "{torch}.cuda.get_device_capability() >= (8, 0)",
        (2, 4): "{torch}.cuda.is_bf16_supported(including_emulation=False)",
    },
}


def spelled(form: str, oldest: tuple[int, int], torch: str, **given: str) -> str:
    """A form as the oldest torch has it, in a file that calls torch so."""
    forms = _FORMS[form]
    return forms[max(since for since in forms if since <= oldest)].format(
        torch=torch, **given
    )


def as_parsed(form: str) -> list[str]:
    """A form's spellings in all versions, with the quotes of `ast.unparse`."""
    return [text.replace('"', "'") for text in _FORMS[form].values()]
