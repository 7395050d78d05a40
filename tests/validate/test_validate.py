"""`amp-migrate validate` through its command line: what it proves, disproves, and cannot judge."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from validated import PLAIN

from amp_migrate.validate.order import Entry, Order
from amp_migrate.validate.runner import Limits, Program

LIMITS = Limits(seconds=60, memory=4 << 30, steps=30, threads=1)


def test_a_right_rewrite_is_proven_at_every_level(validate: Any) -> None:
    said = validate({"train.py": PLAIN}, "train.py", "--json")
    assert said.code == 0
    levels = {one["level"]: one["outcome"] for one in said.only["levels"]}
    assert levels == dict.fromkeys(
        ["L0 off", "L1 scaled", "L2 mixed", "protocol"], "proven"
    )
    assert said.only["sites_run"] == said.only["sites"] == 2
    assert said.only["steps"] == 6
    assert "executed" in said.err


def test_a_person_reads_a_verdict_a_level(validate: Any) -> None:
    said = validate({"train.py": PLAIN}, "train.py", "-v")
    head, *rest = said.out.splitlines()
    assert head == "train.py: proven: the rewrite trains as the original does"
    for level in ("L0 off", "L1 scaled", "L2 mixed", "protocol"):
        assert any(line.strip().startswith(f"{level} ") for line in rest)
    assert any("2 of 2 rewritten places ran, 6 steps" in line for line in rest)
    assert any("CPU emulation of CUDA's autocast, not CUDA" in line for line in rest)
    assert any(
        line.split("  ")[2:3] == ["first loss, relative difference"] for line in rest
    )


def test_runs_end_after_the_steps_that_were_asked_for(validate: Any) -> None:
    endless = PLAIN.replace("range(6)", "range(10**9)").replace(
        "    optimizer.zero_grad()\n",
        "    optimizer.zero_grad()\n    try:\n        pass\n    except Exception:\n        break\n",
    )
    said = validate({"train.py": endless}, "train.py", "--steps", "4", "--json")
    assert (said.code, said.only["steps"]) == (0, 4)


def test_a_script_of_many_calls(validate: Any) -> None:
    """Its plan recurses deeper than Python allows by itself."""
    layers = "".join(
        f"def step{n}(x):\n    return step{n - 1}(x)\n" for n in range(1, 100)
    )
    script = PLAIN.replace(
        "for step in",
        f"def step0(x):\n    return torch.sigmoid(model(x))\n{layers}for step in",
    ).replace(
        "nn.functional.cross_entropy(model(x), y)",
        "nn.functional.binary_cross_entropy(step99(x), x[:, :3].sigmoid())",
    )
    said = validate({"train.py": script}, "train.py", "--json", "--steps", "2")
    assert (said.code, said.only["outcome"]) == (0, "proven")


def test_arguments_reach_the_script(validate: Any) -> None:
    text = "import sys\n" + PLAIN.replace("range(6)", "range(int(sys.argv[2]))")
    said = validate({"train.py": text}, "train.py", "--json", "--", "--steps", "3")
    assert (said.code, said.only["steps"]) == (0, 3)


def test_a_module_with_its_loop_in_another_file(validate: Any) -> None:
    head, loop = PLAIN.split("for step", 1)
    body = textwrap.indent("for step" + loop, "    ")
    files = {
        "pkg/__init__.py": "",
        "pkg/engine.py": "import torch\nfrom torch import nn\n\n\n"
        f"def fit(model, optimizer, device):\n{body}",
        "pkg/train.py": f"from pkg.engine import fit\n{head}\n\nif __name__ == '__main__':\n"
        "    fit(model, optimizer, device)\n",
    }
    said = validate(files, "-m", "pkg.train", "--json")
    assert (said.code, said.only["reason"]) == (
        0,
        "the rewrite trains as the original does",
    )
    assert said.only["sites_run"] == 2


def test_scripts_of_a_directory(validate: Any) -> None:
    files = {"jobs/a.py": PLAIN, "jobs/b.py": PLAIN, "jobs/util.py": "x = 1\n"}
    files["jobs/get.py"] = "if __name__ == '__main__':\n    print()\n"
    said = validate(files, "jobs", "--json")
    assert said.code == 0
    names = [one["script"] for one in json.loads(said.out)["scripts"]]
    assert names == ["jobs/a.py", "jobs/b.py", "jobs/get.py"]


def test_a_migration_by_hand_against_git(validate: Any, tmp_path: Path) -> None:
    import subprocess

    def git(*words: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(
            ["git", *identity, *words], cwd=tmp_path, check=True, capture_output=True
        )

    (tmp_path / "train.py").write_text(PLAIN)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "plain")
    by_hand = PLAIN.replace(
        "for step",
        'scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")\nfor step',
    ).replace("loss.backward()", "scaler.scale(loss).backward()")
    forgotten = validate(
        {"train.py": by_hand}, "train.py", "--against", "HEAD", "--json"
    )
    assert forgotten.code == 1
    assert forgotten.only["outcome"] == "disproved"
    right = by_hand.replace(
        "optimizer.step()", "scaler.step(optimizer)\n    scaler.update()"
    ).replace(
        "    loss = nn",
        '    with torch.autocast("cuda", torch.float16, enabled=scaler.is_enabled()):\n'
        "        loss = nn",
    )
    proven = validate({"train.py": right}, "train.py", "--against", "HEAD", "--json")
    assert proven.code == 0, proven.out
    same = validate({"train.py": PLAIN}, "train.py", "--against", "HEAD", "--json")
    assert (same.code, same.only["reason"]) == (2, "no Python file differs from HEAD")


COULD_NOT = {
    "refused": (
        PLAIN.replace("loss.backward()", "loss.backward(torch.ones(()))"),
        "AMP032",
    ),
    "an import is missing": (
        "import no_such_thing\n" + PLAIN,
        "does not run here: ModuleNotFoundError",
    ),
    "no data": (
        PLAIN.replace("for step", "open('data.csv')\nfor step"),
        "FileNotFoundError",
    ),
    "it stops itself": (
        "import sys\n" + PLAIN.replace("for step", "sys.exit(3)\nfor step"),
        "status 3",
    ),
    "not the same twice": (
        "import time\n"
        + PLAIN.replace(
            "    optimizer.zero", "    x += time.time() % 1\n    optimizer.zero"
        ),
        "differs from itself",
    ),
    "no step": (
        PLAIN.replace("range(6)", "range(0)").replace("print(loss.item())", ""),
        "makes no optimizer step",
    ),
}


@pytest.mark.parametrize("why", COULD_NOT)
def test_what_cannot_be_judged_is_told(validate: Any, why: str) -> None:
    text, reason = COULD_NOT[why]
    said = validate({"train.py": text}, "train.py", "--json")
    assert (said.code, said.only["outcome"]) == (2, "not judged")
    assert reason in said.only["reason"]


def test_a_script_without_training(validate: Any) -> None:
    said = validate(
        {"tool.py": "if __name__ == '__main__':\n    print()\n"}, "tool.py", "--json"
    )
    assert (said.code, said.only["outcome"]) == (2, "nothing to migrate")


def test_a_script_that_takes_too_long_is_ended(validate: Any) -> None:
    text = PLAIN.replace("for step", "import time; time.sleep(60)\nfor step")
    said = validate({"train.py": text}, "train.py", "--json", "--time-limit", "2")
    assert said.code == 2
    assert "it took more than 2 s" in said.only["reason"]


def test_a_script_that_takes_too_much_memory_is_ended(validate: Any) -> None:
    text = PLAIN.replace(
        "for step", "hoard = [bytearray(2**22) for _ in range(10**5)]\nfor step"
    )
    said = validate({"train.py": text}, "train.py", "--json", "--memory-limit", "2")
    assert said.code == 2
    assert "2.0 GiB of memory" in said.only["reason"]


def test_an_interpreter_without_torch(validate: Any, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    said = validate({"train.py": PLAIN}, "train.py", "--json", "--python", str(bare))
    assert said.code == 2
    assert "has no torch that can be imported" in said.only["reason"]
    said = validate({}, "train.py", "--json", "--python", str(tmp_path / "none"))
    assert said.code == 2
    assert "No such file" in said.only["reason"]


def test_loops_that_are_never_reached(validate: Any) -> None:
    text = PLAIN + "\n\ndef later():\n" + textwrap.indent(PLAIN, "    ") + "\n"
    said = validate({"train.py": text}, "train.py", "--json")
    assert said.code == 0
    assert (said.only["sites_run"], said.only["sites"]) == (2, 4)


def test_a_script_that_needs_cuda_sees_a_stand_in(validate: Any) -> None:
    text = PLAIN.replace(
        'torch.device("cuda" if torch.cuda.is_available() else "cpu")',
        'torch.device("cuda")',
    ).replace("for step", "assert torch.cuda.is_available()\nmodel.cuda()\nfor step")
    said = validate({"train.py": text}, "train.py", "--json")
    assert said.code == 0, said.out
    assert any("stand-in for CUDA" in note for note in said.only["notes"])


def test_processes_of_the_script_have_the_rewrite_too(
    server: Any, tmp_path: Path
) -> None:
    """Children are given the rewritten sources: spawned by multiprocessing, and started by name."""
    steps, train = tmp_path / "steps.py", tmp_path / "train.py"
    steps.write_text("form = 'the original'\n")
    train.write_text(textwrap.dedent("""\
            import inspect
            import multiprocessing
            import subprocess
            import sys

            import steps


            def child(queue):
                queue.put(inspect.getsource(steps))


            if __name__ == "__main__":
                context = multiprocessing.get_context("spawn")
                queue = context.Queue()
                process = context.Process(target=child, args=(queue,))
                process.start()
                spawned = queue.get()
                process.join()
                code = "import inspect, steps; print(inspect.getsource(steps), end='')"
                started = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
                assert spawned == started.stdout == inspect.getsource(steps), started.stderr
                print(steps.form)
            """))
    program = Program(
        Entry(str(train)),
        tmp_path,
        frozenset({str(train), str(steps)}),
        rewritten={str(steps): b"form = 'the rewrite'\n"},
    )
    with server(sys.executable, program, LIMITS, device="cpu") as runner:
        for form, is_rewritten in (("the original", False), ("the rewrite", True)):
            record = runner.run(Order(form, is_rewritten))
            assert (record.failure, record.stdout) == ("", f"{form}\n")


AMP = PLAIN.replace(
    "for step",
    'scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")\nfor step',
).replace(
    "    loss = nn",
    '    with torch.autocast("cuda", torch.float16, enabled=scaler.is_enabled()):\n'
    "        loss = nn",
)
AMP = AMP.replace("loss.backward()", "scaler.scale(loss).backward()")
AMP = AMP.replace("optimizer.step()", "scaler.step(optimizer)\n    scaler.update()")


def test_a_script_under_amp_is_watched(validate: Any) -> None:
    said = validate({"train.py": AMP}, "train.py", "--monitor-only", "--json")
    assert (said.code, said.only["outcome"]) == (0, "proven")
    assert [one["level"] for one in said.only["levels"]] == ["protocol"]
    assert said.only["runs"] == 1


def test_the_line_that_breaks_the_protocol_is_named(validate: Any) -> None:
    clipped = "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    scaler.step"
    text = AMP.replace("    scaler.step", clipped)
    said = validate({"train.py": text}, "train.py", "--monitor-only", "--json")
    assert said.code == 1
    line = text.split("clip_grad_norm_")[0].count("\n") + 1
    (finding,) = said.only["findings"]
    assert (finding["path"], finding["line"]) == ("train.py", line)
    assert (finding["rule"], finding["count"]) == ("clipped-scaled-gradients", 6)
    assert finding["code"] == "AMP101"


def test_a_script_under_amp_has_nothing_to_migrate(validate: Any) -> None:
    said = validate({"train.py": AMP}, "train.py", "--json")
    assert said.code == 2
    assert "--monitor-only" in said.only["reason"]
    said = validate({"train.py": PLAIN}, "train.py", "--monitor-only", "--json")
    assert (said.code, said.only["reason"]) == (
        2,
        "the script enters no autocast region here",
    )


def test_nothing_of_the_users_is_touched(validate: Any, tmp_path: Path) -> None:
    text = PLAIN.replace(
        "print(loss",
        "import os\n"
        "open('notes.txt', 'a').write('more')\n"
        "assert open('notes.txt').read().endswith('more')\n"
        "os.makedirs('runs/new')\n"
        "torch.save(model.state_dict(), 'runs/model.pt')\n"
        "assert torch.load('runs/model.pt')\n"
        "os.remove('data.csv')\n"
        "print(loss",
    )
    files = {"train.py": text, "notes.txt": "mine", "data.csv": "1,2"}
    said = validate(files, "train.py", "--json")
    assert said.code == 0, said.out
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)
    assert not [note for note in said.only["notes"] if "past what" in note]


def test_a_rewritten_file_that_is_never_loaded(validate: Any) -> None:
    """An installed copy hides the one that was rewritten: what ran was not the rewrite."""
    files = {
        "engine.py": PLAIN,
        "copy/engine.py": PLAIN,
        "train.py": "import sys\nsys.path.insert(0, 'copy')\nimport engine\n",
    }
    said = validate(files, "train.py", "--json")
    assert said.code == 2, said.out


def test_gradients_that_are_not_finite_are_told_apart(validate: Any) -> None:
    text = PLAIN.replace(
        "    loss.backward()",
        "    loss = loss * (float('inf') if step == 3 else 1)\n    loss.backward()",
    )
    said = validate({"train.py": text}, "train.py", "--json")
    assert said.code == 2
    outcomes = {one["level"]: one["outcome"] for one in said.only["levels"]}
    assert outcomes["L1 scaled"] == "the original has gradients that are not finite"


def test_overflow_of_fp32_is_told_apart(validate: Any) -> None:
    """Gradients that fp32 just holds overflow at a scale of 2**20, and not at a low one."""
    huge = "    loss = loss * 1e33\n    loss.backward()"
    text = PLAIN.replace("    loss.backward()", huge).replace("lr=0.1", "lr=1e-34")
    said = validate({"train.py": text}, "train.py", "--json")
    outcomes = {one["level"]: one["outcome"] for one in said.only["levels"]}
    assert outcomes["L1 scaled"] == "proven at low scales", said.out


def test_usage(validate: Any) -> None:
    for words, message in (
        ((), "name a script"),
        (("none.py",), "no such file"),
        (("-m", "no.such"), "no such module"),
        (("train.py", "--against", "HEAD", "--monitor-only"), "exclude each other"),
    ):
        said = validate({"train.py": PLAIN}, *words)
        assert said.code == 2
        assert message in said.err
        assert "Traceback" not in said.err
