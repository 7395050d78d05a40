"""What goes to files in C: libraries that are known, torch, and what the kernel holds back."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
from overlay_support import Ground

from amp_migrate.validate.harness.overlay.offline import offline_environment

# Stand-ins for libraries: they open files by libc, of which Python does not hear.
_BY_C = """
import ctypes
_libc = ctypes.CDLL(None)
_libc.fopen.restype = ctypes.c_void_p
_libc.fclose.argtypes = [ctypes.c_void_p]
_libc.fputs.argtypes = [ctypes.c_char_p, ctypes.c_void_p]
def by_c(path, mode, text=b"by C"):
    file = _libc.fopen(str(path).encode(), mode.encode())
    if not file:
        return False
    if mode != "r":
        _libc.fputs(text, file)
    _libc.fclose(file)
    return True
"""

_LIBRARIES = {
    "cv2.py": """
        from by_c import by_c
        def imwrite(filename, image): return by_c(filename, "w")
        def imread(filename): return by_c(filename, "r")
        class VideoWriter:
            def __init__(self, filename, rate): self.opened = by_c(filename, "w")
            @staticmethod
            def fourcc(*letters): return "".join(letters)
    """,
    "safetensors/__init__.py": """
        from by_c import by_c
        def serialize_file(tensors, filename, metadata=None): by_c(filename, "w")
    """,
    "safetensors/torch.py": """
        from safetensors import serialize_file
        def save_file(tensors, filename): serialize_file(tensors, filename, metadata=None)
    """,
    "h5py/__init__.py": "from h5py._hl.files import File",
    "h5py/_hl/__init__.py": "",
    "h5py/_hl/files.py": """
        from by_c import by_c
        class File:
            def __init__(self, name, mode="r"): self.opened = by_c(name, mode)
    """,
}


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


@pytest.fixture
def libraries(tmp_path: Path) -> Path:
    root = tmp_path / "libraries"
    for name, text in {"by_c.py": _BY_C, **_LIBRARIES}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(textwrap.dedent(text))
    return root


def test_libraries_in_c_write_to_scratch(ground: Ground, libraries: Path) -> None:
    before = ground.files()
    said = ground.redirected(
        """
        import os, sys
        import cv2, h5py, safetensors.torch
        print(cv2.imwrite("data/one.bin", None), open("data/one.bin").read(), cv2.imread("data/one.bin"))
        print(cv2.imwrite("nowhere/one.png", None), cv2.imread(filename="nowhere/one.png"))
        print(cv2.VideoWriter("v.avi", 3).opened, cv2.VideoWriter.fourcc("a", "b"), os.path.exists("v.avi"))
        safetensors.torch.save_file({}, "model.safetensors"); print(open("model.safetensors").read())
        print(h5py.File("log.txt", "a").opened, open("log.txt").read(), h5py.File("log.txt").opened)
        print(isinstance(h5py.File("log.txt"), h5py.File), h5py.File(name="a.h5", mode="w").opened)
        """,
        libraries,
    )
    assert said.splitlines() == [
        "True by C True",
        "False False",
        "True ab True",
        "by C",
        "True the user's",
        "by C True",
        "True True",
    ]
    assert ground.files() == before


def test_torch_writes_to_scratch_in_all_its_ways(ground: Ground) -> None:
    script = """
        import os
        from pathlib import Path
        import torch
        model = torch.nn.Linear(2, 2)
        torch.save(model.state_dict(), "runs/old/model.pt")
        print(sorted(torch.load("runs/old/model.pt")))
        print(sorted(torch.load(Path("runs/old/model.pt"), mmap=True)))
        torch.save([1], "data/one.bin", _use_new_zipfile_serialization=False)
        print(torch.load("link/one.bin"))
        with open("b.pt", "wb") as file: torch.save(torch.ones(1), file)
        print(torch.load("b.pt"), os.path.getsize("b.pt") > 0)
        scripted = torch.jit.script(model); scripted.save("a.jit"); torch.jit.save(scripted, "b.jit")
        print(torch.jit.load("a.jit").weight.shape, torch.jit.load("b.jit").weight.shape)
        print(torch.from_file("t", shared=True, size=3).fill_(2).sum(), torch.from_file("t", size=3).sum())
        try: torch.save({}, "nowhere/m.pt")
        except RuntimeError as error: print(type(error).__name__)
        with torch.profiler.profile() as profile: model(torch.ones(1, 2))
        profile.export_chrome_trace("trace.json"); print(os.path.getsize("trace.json") > 100)
        torch.save(model.state_dict(), "epoch.tmp"); os.replace("epoch.tmp", "runs/old/model.pt")
        print(sorted(torch.load("runs/old/model.pt")), sorted(os.listdir()), os.listdir("runs/old"))
        from torch.utils.data import DataLoader
        class Data:
            def __len__(self): return 4
            def __getitem__(self, index): open("seen%d" % index, "w").close(); return torch.load("b.pt")
        print(sum(float(batch.sum()) for batch in DataLoader(Data(), num_workers=2)), os.path.exists("seen3"))
    """
    before = ground.files()
    redirected = ground.redirected(script)
    assert ground.files() == before
    assert redirected == ground.plain(script)
    assert ground.files() != before


def test_patching_torch_by_hand_does_nothing_twice(ground: Ground) -> None:
    before = ground.files()
    said = ground.redirected("""
        import sitecustomize, torch
        writer = torch._C.PyTorchFileWriter
        sitecustomize.overlay.patch_torch()
        print(torch._C.PyTorchFileWriter is writer); torch.save(1, "one"); print(torch.load("one"))
        """)
    assert said.split() == ["True", "1"]
    assert ground.files() == before


@pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's")
def test_programs_and_unknown_libraries_are_held_by_the_kernel(
    ground: Ground, libraries: Path
) -> None:
    before = ground.files()
    said = ground.redirected(
        """
        import os, subprocess, sys
        from _amp_smoke.overlay.confine import confine
        confined = confine([os.environ["SCRATCH"]])
        print(confined)
        if confined:
            from by_c import by_c
            print(by_c("log.txt", "a"), by_c("log.txt", "r"), by_c(os.environ["SCRATCH"] + "/x", "w"))
            print(os.system("echo named > /proc/self/comm") == 0, os.system("echo gone > /dev/null") == 0)
            print(os.system("mkdir made 2>/dev/null") != 0, os.system("rm -r runs 2>/dev/null") != 0)
            print(subprocess.run(["sh", "-c", "echo x > log.txt"], stderr=subprocess.DEVNULL).returncode != 0)
            open("mine", "w").write("mine"); os.rename("mine", "data/mine"); print(open("data/mine").read())
            print(subprocess.check_output([sys.executable, "-c", "print(open('data/mine').read())"]).decode())
        """,
        libraries,
    )
    assert ground.files() == before
    lines = said.split()
    if lines == ["False"]:
        pytest.skip("this kernel has no Landlock of version 2")
    assert lines == [
        "True",
        "False",
        "True",
        "True",
        "True",
        "True",
        "True",
        "True",
        "True",
        "mine",
        "mine",
    ]


def test_trackers_are_kept_offline_in_scratch(tmp_path: Path) -> None:
    environment = offline_environment(str(tmp_path))
    assert environment["WANDB_MODE"] == environment["NEPTUNE_MODE"] == "offline"
    assert (environment["COMET_START_ONLINE"], environment["CLEARML_OFFLINE_MODE"]) == (
        "0",
        "1",
    )
    assert environment["MLFLOW_TRACKING_URI"].startswith("file:///")
    paths = [value for value in environment.values() if "/" in value]
    assert len(paths) > 8
    assert all(str(tmp_path) in path for path in paths)
