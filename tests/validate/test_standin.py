"""What scripts ask of CUDA is answered by the stand-in, without a CUDA device."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SETUP = """\
import io, json, os, sys
import torch
import torch.utils.data
import torch.distributed as dist
from torch import nn
from amp_migrate.validate.harness import standin
standin.install()
def saved():
    file = io.BytesIO()
    torch.save({"a": torch.ones(1)}, file)
    file.seek(0)
    return file
def grouped():
    dist.init_process_group("nccl")
    model = nn.Linear(2, 2).cuda()
    model = nn.parallel.DistributedDataParallel(model, device_ids=[0], output_device=0)
    model(torch.zeros(1, 2)).sum().backward()
    dist.barrier(device_ids=[0])
    dist.destroy_process_group()
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
failed = {}
for text in json.load(sys.stdin):
    try:
        exec(text, dict(globals()))
    except Exception as error:
        failed[text] = f"{type(error).__name__}: {error}"
print(json.dumps(failed))
"""

ASKED = """\
assert nn.Linear(2, 2).to(0).weight.is_cuda
assert nn.Linear(2, 2).to(torch.cuda.current_device(), torch.float64).weight.dtype is torch.float64
assert nn.Linear(2, 2).to(device="cuda").weight.get_device() == 0
nn.Linear(2, 2).to_empty(device="cuda")
assert torch.zeros(2, device=torch.zeros(2).get_device()).is_cuda
torch.nn.parallel.data_parallel(nn.Linear(2, 2), torch.zeros(1, 2), [0])
assert len(nn.DataParallel(nn.Linear(2, 2)).cuda().device_ids) == 1
nn.DataParallel(nn.Linear(2, 2), device_ids=[0])(torch.zeros(1, 2)).sum().backward()
torch.cuda.manual_seed(0); torch.cuda.initial_seed()
torch.cuda.random.manual_seed_all(0); torch.cuda.random.get_rng_state()
torch.zeros(2).record_stream(torch.cuda.current_stream())
with torch.cuda.stream(torch.cuda.Stream()): torch.zeros(2)
with torch.cuda.StreamContext(torch.cuda.Stream()): torch.zeros(2)
torch.cuda.streams.Event(enable_timing=True).record()
assert torch.cuda.memory_stats()["allocated_bytes.all.peak"] == 0
torch.cuda.memory.max_memory_allocated(0); torch.cuda.memory.empty_cache()
torch.cuda.memory_snapshot()
torch.cuda.reset_accumulated_memory_stats()
torch.cuda.memory_usage(); torch.cuda.temperature(); torch.cuda.power_draw()
assert torch.cuda.get_device_properties(0).warp_size == 32
torch.cuda.can_device_access_peer(0, 0)
assert not torch.cuda.is_current_stream_capturing()
torch.cuda.profiler.start(); torch.cuda.profiler.stop(); torch.cuda.cudart().cudaProfilerStart()
torch.cuda.set_sync_debug_mode("warn")
assert torch.version.cuda.split(".")
assert torch.accelerator.is_available()
assert torch.accelerator.current_accelerator().type == "cuda"
assert torch.accelerator.device_count() == 1; torch.accelerator.synchronize()
torch.accelerator.set_device_index(0)
nn.Linear(2, 2).to(torch.accelerator.current_accelerator())
torch.randn(2, device="cuda", generator=torch.Generator(device="cuda").manual_seed(0))
assert isinstance(torch.Generator("cuda"), torch.Generator)
torch.utils.data.DataLoader([1, 2], shuffle=True, pin_memory=True, generator=torch.Generator())
assert torch.load(saved(), map_location=lambda storage, place: storage.cuda(0))["a"] == 1
assert torch.load(saved(), map_location={"cpu": "cuda:0"})["a"] == 1
assert torch.load(saved(), map_location=torch.device("cuda"))["a"] == 1
assert torch.load(saved(), "cuda:0")["a"] == 1
torch.cuda.CharTensor([1]); torch.cuda.BFloat16Tensor([1])
with torch.cuda.device(0), torch.cuda.device_of(torch.zeros(1)): pass
assert isinstance(torch.cuda.device("cuda"), torch.cuda.device)
grouped()
""".splitlines()


def test_what_scripts_ask_of_cuda_is_answered() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SETUP],
        input=json.dumps(ASKED),
        env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    failed = json.loads(done.stdout.splitlines()[-1])
    import torch

    if not hasattr(torch, "accelerator"):
        failed = {
            text: error for text, error in failed.items() if "torch.acc" not in text
        }
    assert not failed, "\n".join(f"{text}: {error}" for text, error in failed.items())
