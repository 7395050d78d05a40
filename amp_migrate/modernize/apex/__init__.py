"""Programs that use NVIDIA Apex."""
