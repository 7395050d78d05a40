"""Misaligned sizes of layers: what is reported, how it is graded, and in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from lint_support import lint, lint_files, told

from amp_migrate.api import Options, migrate_source
from amp_migrate.catalogue.gpus.target import target, tile_waste
from amp_migrate.cli.main import main
from amp_migrate.core.findings import Finding, Severity
from amp_migrate.lint.shapes.scale import scale

SHAPES = ("TCU10", "TCU112")


def one(layer: str, **options: Any) -> Finding | None:
    """The only finding in a layer that a module makes, if there is one."""
    found = lint(module(layer), select=SHAPES, **options)
    assert len(found) <= 1, [finding.message for finding in found]
    return found[0] if found else None


def module(*lines: str, head: str = "") -> str:
    """A module whose constructor holds some lines."""
    body = "\n".join(f"        {line}" for line in lines)
    return (
        "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
        f"{head}\n\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n{body}\n"
    )


def grade(layer: str, **options: Any) -> str:
    """``TCU102 warning``; empty where nothing is found."""
    found = one(layer, **options)
    return f"{found.code} {found.severity.value}" if found else ""


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        ("self.up = nn.Linear(1024, 1500)", "TCU102 warning"),
        ("self.up = nn.Linear(1500, 1024)", "TCU102 warning"),
        ("self.up = nn.Linear(1024, 1536)", ""),
        ("self.up = nn.Linear(588, 1152)", "TCU102 warning"),
        ("self.lm_head = nn.Linear(768, 50257)", "TCU101 warning"),
        ("self.lm_head = nn.Linear(768, 50304)", ""),
        ("self.c = nn.Conv2d(128, 250, 3)", "TCU103 warning"),
        ("self.c = nn.ConvTranspose2d(250, 128, 3)", "TCU103 warning"),
        ("self.c = nn.Conv1d(512, 500, 1)", "TCU103 warning"),
        ("self.c = nn.Conv2d(128, 128, 3, groups=32)", "TCU104 info"),
        ("self.r = nn.LSTM(256, 650)", "TCU106 info"),
        ("self.b = nn.Bilinear(512, 512, 300)", "TCU102 warning"),
        ("self.t = nn.TransformerEncoderLayer(512, 8, 2050)", "TCU102 warning"),
        # What does not matter, each for a reason of its own.
        ("self.fc = nn.Linear(2048, 10)", "TCU112 info"),
        ("self.fc = nn.Linear(2048, 100)", "TCU112 info"),
        ("self.up = nn.Linear(120, 84)", "TCU112 info"),
        ("self.up = nn.Linear(200, 300)", "TCU112 info"),
        ("self.c = nn.Conv2d(3, 64, 7)", "TCU112 info"),
        ("self.c = nn.Conv2d(64, 1, 1)", "TCU112 info"),
        ("self.c = nn.Conv2d(28, 512, 3)", "TCU112 info"),
        ("self.c = nn.Conv2d(100, 100, 3, groups=100)", "TCU112 info"),
        ("self.e = nn.Embedding(50257, 768)", "TCU112 info"),
        ("self.r = nn.GRU(30, 50)", "TCU112 info"),
    ],
)
def test_grades(layer: str, expected: str) -> None:
    assert grade(layer) == expected


def test_a_warning_says_what_is_so_what_happens_and_what_padding_costs() -> None:
    found = one("self.up = nn.Linear(784, 500)")
    assert found is not None
    assert found.message == (
        "Linear(784, 500): out_features 500 is not divisible by 8: cuBLAS takes a slower low-alignment "
        "kernel for float16; 504 adds 0.8 %, tiles of 128 waste 2.3 % at 500"
    )
    data = dict(found.data)
    assert (data["size"], data["padded"], data["multiple_of"]) == (500, 504, 8)


def test_no_message_says_that_tensor_cores_are_not_used() -> None:
    for layer in ("nn.Linear(768, 50257)", "nn.Conv2d(128, 250, 3)"):
        found = one(f"self.layer = {layer}")
        assert found is not None and "Tensor Core" not in found.message


def test_an_info_says_why_it_is_none() -> None:
    found = one("self.up = nn.Linear(120, 84)")
    assert found is not None and found.severity is Severity.INFO
    assert found.message.endswith(
        "out_features 84 is not divisible by 8 for float16;"
        " at most 50 FLOPs a byte at any batch size: memory-bound"
    )


def test_what_padding_would_cost_is_told_of_what_is_cut_into_tiles() -> None:
    for made, tiled in (
        ("nn.Linear(120, 84)", True),
        ("nn.Conv2d(3, 64, 7)", False),
        ("nn.Embedding(50257, 500)", False),
        ("nn.Conv2d(36, 36, 3, groups=36)", False),
    ):
        found = one(f"self.up = {made}")
        assert found is not None and "waste" not in found.message
        misfit, *_ = dict(found.data)["misfits"]  # type: ignore[misc]
        assert ("tile_waste" in misfit) == tiled


def test_both_sizes_of_a_layer_are_one_finding() -> None:
    found = one("self.up = nn.Linear(1001, 1003)")
    assert found is not None
    assert (
        "in_features 1001 and out_features 1003 are not divisible by 8" in found.message
    )
    assert len(dict(found.data)["misfits"]) == 2  # type: ignore[arg-type]


def test_one_known_size_is_told_and_no_more() -> None:
    text = """
        from torch import nn

        def make(width):
            return nn.Linear(width, 1500)
    """
    (found,) = lint(text, select=SHAPES)
    assert (found.code, found.severity) == ("TCU102", Severity.INFO)
    assert "the other size is not known" in found.message


def test_a_vocabulary_needs_only_one_size() -> None:
    text = """
        from torch import nn

        def make(width, vocab_size=50257):
            return nn.Linear(width, vocab_size)
    """
    (found,) = lint(text, select=SHAPES)
    assert (found.code, found.severity) == ("TCU101", Severity.WARNING)


def test_a_tied_vocabulary_is_counted_once() -> None:
    text = module(
        "self.wte = nn.Embedding(50257, 768)",
        "self.lm_head = nn.Linear(768, 50257, bias=False)",
        "self.wte.weight = self.lm_head.weight",
    )
    assert [found.code for found in lint(text, select=SHAPES)] == ["TCU101"]


def test_the_number_of_classes_is_told_by_its_name() -> None:
    text = """
        from torch import nn

        class Model(nn.Module):
            def __init__(self, num_classes=1001):
                super().__init__()
                self.output = nn.Linear(2048, num_classes)
    """
    (found,) = lint(text, select=SHAPES)
    assert found.code == "TCU112" and "as many as the task has" in found.message


def test_heads() -> None:
    found = lint(module("self.a = nn.MultiheadAttention(1000, 8)"), select=("TCU105",))
    assert [(one.code, one.severity) for one in found] == [("TCU105", Severity.WARNING)]
    assert "heads of 125" in found[0].message
    assert not lint(module("self.a = nn.MultiheadAttention(1024, 8)"), select=SHAPES)


def test_heads_that_are_too_large() -> None:
    (found,) = lint(
        module("self.a = nn.MultiheadAttention(1024, 2)"), select=("TCU105",)
    )
    assert "larger than 256" in found.message


def test_padding_of_attention_keeps_its_heads_aligned() -> None:
    (found,) = lint(
        module("self.a = nn.MultiheadAttention(500, 4)"), select=("TCU102",)
    )
    assert dict(found.data)["padded"] == 512


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ""),
        ({"dtype": "bfloat16"}, ""),
        ({"dtype": "tf32"}, ""),
        ({"align": 64}, "TCU102 warning"),
        ({"profile": "hopper", "dtype": "float8"}, "TCU109 warning"),
    ],
)
def test_what_is_aligned_depends_on_the_type(
    options: dict[str, Any], expected: str
) -> None:
    assert grade("self.up = nn.Linear(1024, 4104)", **options) == expected


def test_tf32_needs_multiples_of_four() -> None:
    assert grade("self.up = nn.Linear(1024, 1500)", dtype="tf32") == ""
    assert grade("self.up = nn.Linear(1024, 1502)", dtype="tf32") == "TCU102 warning"


def test_what_imports_an_fp8_library_is_judged_for_it() -> None:
    text = module("self.up = nn.Linear(1024, 4104)", head="import transformer_engine")
    (found,) = lint(text, select=SHAPES)
    assert found.code == "TCU109" and "float8 products require" in found.message


def test_convolutions_are_not_computed_in_fp8() -> None:
    options = {"profile": "hopper", "dtype": "float8"}
    assert grade("self.c = nn.Conv2d(128, 248, 3)", **options) == ""


def test_a_type_that_the_profile_does_not_have() -> None:
    with pytest.raises(ValueError, match="volta has no Tensor Cores for bfloat16"):
        target("volta", "bfloat16")


def test_published_weights_leave_no_choice() -> None:
    text = module("self.up = nn.Linear(1024, 1500)") + (
        "\n    @classmethod\n    def from_pretrained(cls):\n        return cls()\n"
    )
    (found,) = lint(text, select=SHAPES)
    assert found.severity is Severity.INFO and "published weights" in found.message


def test_the_compiler_pads_but_not_vocabularies() -> None:
    text = (
        module(
            "self.up = nn.Linear(1024, 1500)", "self.lm_head = nn.Linear(768, 50257)"
        )
        + "\nmodel = torch.compile(Model())\n"
    )
    found = lint(text, select=SHAPES)
    assert [(one.code, one.severity.value) for one in found] == [
        ("TCU102", "info"),
        ("TCU101", "warning"),
    ]


def test_tests_are_told_and_no_more(tmp_path: Path) -> None:
    text = module("self.up = nn.Linear(1024, 1500)")
    found = lint_files(
        tmp_path, {"tests/test_it.py": text, "it.py": text}, select=SHAPES
    )
    assert found["tests/test_it.py"][0].severity is Severity.INFO
    assert found["it.py"][0].severity is Severity.WARNING


def test_layers_of_the_users_own(tmp_path: Path) -> None:
    rules = tmp_path / "layers.toml"
    rules.write_text(
        '[layers.Dense]\norigins = ["mycompany.nn.Dense"]\nlike = "Linear"\n'
    )
    text = """
        import torch
        from mycompany.nn import Dense

        layer = Dense(1024, out_features=1500)
    """
    (found,) = lint(text, select=SHAPES, extend_rules=(str(rules),))
    assert found.code == "TCU102" and found.message.startswith("Dense(1024, 1500)")
    assert not lint(text, select=SHAPES)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[layers", "layers.toml"),
        ('[layers.A]\norigins = ["a.A"]\nlike = "Nothing"', "like must be a layer"),
        ('[layers.A]\nlike = "Linear"', "layers.A: origins must be a list"),
        ('[layers.A]\norigins = ["a.A"]\nsise = 3', "unknown keys: sise"),
    ],
)
def test_a_bad_file_of_layers_is_an_error_in_one_line(
    tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "layers.toml").write_text(text)
    (tmp_path / "it.py").write_text("import torch\n")
    (tmp_path / "pyproject.toml").write_text(
        '[tool.amp-migrate.lint]\nextend-rules = ["layers.toml"]\n'
    )
    done = CliRunner().invoke(main, ["lint", str(tmp_path / "it.py")])
    assert done.exit_code == 2 and "Traceback" not in done.output
    assert said in done.output and done.output.count("\n") == 1


def test_the_waste_of_tiles() -> None:
    assert tile_waste(136) == pytest.approx(0.469, abs=0.001)
    assert tile_waste(128) == 0
    assert tile_waste(10) == pytest.approx(0.844, abs=0.001)


TRAINING = """
import torch
from torch import nn

device = torch.device("cuda")
model = nn.Sequential(nn.Linear(784, 500), nn.ReLU(), nn.Linear(500, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    inputs = torch.randn(8, 784).to(device)
    labels = torch.randint(10, (8,)).to(device)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
"""


def test_a_migration_carries_the_count() -> None:
    found = migrate_source(TRAINING, options=Options()).unaligned
    assert (found.sizes, found.unit) == (1, 8)


def test_a_fault_of_lint_breaks_no_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    from amp_migrate.lint.shapes import count

    def broken(*_: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(count, "unaligned", broken)
    found = migrate_source(TRAINING)
    assert found.changed and found.unaligned.sizes == 0


def test_the_summary_of_a_migration_says_it_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAINING)
    told = CliRunner().invoke(main, [str(tmp_path)]).output
    assert "1 layer size not divisible by 8: `amp-migrate lint`\n" in told
    (tmp_path / "train.py").write_text(TRAINING.replace("500", "512"))
    assert "amp-migrate lint" not in CliRunner().invoke(main, [str(tmp_path)]).output


def test_a_type_that_the_profile_does_not_have_is_an_error_of_the_command(
    tmp_path: Path,
) -> None:
    (tmp_path / "it.py").write_text("import torch\n")
    done = CliRunner().invoke(main, ["lint", str(tmp_path), "--dtype", "float8"])
    assert done.exit_code == 2
    assert "ampere has no Tensor Cores for float8" in done.output


@pytest.mark.parametrize(
    "layer",
    [
        "nn.Linear()",
        "nn.Linear(*sizes)",
        "nn.Linear(-3, 0)",
        "nn.Linear(2**70, 'x')",
        "nn.Conv2d(64, 100, 3, groups=0)",
        "nn.Conv2d(100, 100, 3, groups=3)",
        "nn.Conv2d(100, 200, (3, 3, 3))",
        "nn.MultiheadAttention(500, 0)",
        "nn.Embedding(0, 0)",
    ],
)
def test_sizes_that_no_layer_has_break_nothing(layer: str) -> None:
    lint(f"from torch import nn\n\nlayer = {layer}\n", select=("TCU1",))


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("int(8 * width / 3)", True),
        ("int(width * 2.6667)", True),
        ("8 * width // 3", True),
        ("int(width * 0.5)", False),
        ("width // 2", False),
        ("int(width * 4.0)", False),
        ("64 * ((8 * width // 3 + 63) // 64)", False),
        ("width * 3", False),
    ],
)
def test_widths_that_are_computed_by_a_fraction(formula: str, expected: bool) -> None:
    text = f"""
        from torch import nn

        def make(width):
            hidden = {formula}
            return nn.Linear(width, hidden)
    """
    found = lint(text, select=("TCU107",))
    assert bool(found) is expected


def test_a_width_that_is_known_needs_no_formula() -> None:
    text = """
        from torch import nn

        width = 4096
        hidden = int(8 * width / 3)
        layer = nn.Linear(width, hidden)
    """
    assert [one.code for one in lint(text, select=("TCU10",))] == ["TCU102"]


def test_class_heads_of_convolutions_and_inputs_of_generators() -> None:
    text = """
        from torch import nn

        def make(num_classes=84, nz=100):
            return nn.Conv2d(512, num_classes, 3), nn.ConvTranspose2d(nz, 512, 4)
    """
    found = lint(text, select=SHAPES)
    assert [one.code for one in found] == ["TCU112", "TCU112"]


def test_a_group_is_padded_by_itself() -> None:
    found = one("self.c = nn.Conv2d(128, 128, 3, groups=32)")
    assert found is not None and "in_channels 4 a group" in found.message
    assert dict(found.data)["padded"] == 8


def test_what_the_gpu_cannot_be_bound_by_is_no_warning() -> None:
    found = one("self.up = nn.Linear(100, 8192)")
    assert found is not None and found.severity is Severity.INFO
    assert "memory-bound below 153 on ampere" in found.message


def test_words_are_looked_for_within_one_name() -> None:
    words = scale()
    assert words.says("classes", ["numClasses", "x"])
    assert words.says("classes", ["--num-classes (default 10)"])
    assert words.says("vocabulary", ["cfg.VOCAB_SIZE"])
    assert not words.says("classes", ["the output = dim"])
    assert not words.says("vocabulary", ["n = words"])


TRAINED = """
    import torch
    from torch import nn

    batch_size = {batch}
    model = nn.Linear(784, 500).cuda()
    {run}
"""


@pytest.mark.parametrize(
    ("batch", "run", "reason"),
    [
        (4096, "model(torch.ones(3, 784)).sum().backward()", ""),
        (100, "model(torch.ones(3, 784)).sum().backward()", "in batches of 100"),
        (4096, "with torch.no_grad(): model(torch.ones(3))", "nothing here trains it"),
        (100, "model(embed(tokens)).sum().backward()", ""),
        (4096, "", ""),
    ],
    ids=["large batches", "small batches", "only run", "tokens", "a library"],
)
def test_what_is_done_with_a_layer_tells_what_its_size_costs(
    batch: int, run: str, reason: str
) -> None:
    (found,) = lint(TRAINED.format(batch=batch, run=run), select=("TCU102",))
    assert found.severity is (Severity.INFO if reason else Severity.WARNING)
    assert reason in found.message


def test_a_tpu_is_no_gpu() -> None:
    (found,) = lint(
        """
        import torch_xla.core.xla_model as xm
        from torch import nn

        device = xm.xla_device()
        nn.Linear(784, 500).to(device)(batch).sum().backward()
        """,
        select=("TCU102",),
    )
    assert found.message.endswith("the program names no GPU")


@pytest.mark.parametrize(
    "attention",
    [
        "torch.einsum('b h i j, h g -> b g i j', torch.softmax(q @ k, -1), v)",
        "torch.softmax(q @ k.T, -1) @ v",
    ],
    ids=["heads that are mixed", "matrices"],
)
def test_what_no_fused_kernel_does_is_not_told(attention: str) -> None:
    text = f"""
        import torch

        def attend(q, k, v):
            return {attention}
    """
    assert lint(text, select=("TCU108",)) == ()
    usual = text.replace(attention, "torch.softmax(q @ k.transpose(-2, -1), -1) @ v")
    assert told(lint(usual, select=("TCU108",))) == ["5 TCU108"]


def test_what_tests_make_says_nothing_of_the_package(tmp_path: Path) -> None:
    model = """
        from torch import nn

        class Model(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.out = nn.Linear(width, 4096)
        """
    made = "from model import Model\n\nmodel = Model(1501)\n"
    found = lint_files(
        tmp_path,
        {"model.py": model, "tests/test_model.py": made},
        select=SHAPES,
    )
    assert found["model.py"] == ()
    found = lint_files(tmp_path, {"train.py": made}, select=SHAPES)
    assert told(found["model.py"]) == ["7 TCU102"]


def test_a_layer_in_double_precision_is_none_of_tensor_cores() -> None:
    assert grade("self.up = nn.Linear(1024, 1500, dtype=torch.float64)") == ""
    assert grade("self.up = nn.Linear(1024, 1500, dtype=torch.float32)") != ""


def test_an_entry_of_the_head_is_the_head() -> None:
    for name in ("self.head", "self.head[6]", "self.classifier[-1]"):
        found = one(f"{name} = nn.Linear(4096, 1234)")
        assert found is not None and found.code == "TCU112"
        assert "the outputs of a head" in found.message
    found = one("self.up[6] = nn.Linear(4096, 1234)")
    assert found is not None and found.code == "TCU102"


def test_few_weights_of_a_convolution_may_see_large_images() -> None:
    found = one("self.up = nn.Conv2d(36, 44, 5)")
    assert found is not None and found.code == "TCU103"
    assert found.severity is Severity.INFO
    assert found.message.endswith("depends on how large its images are")
    found = one("self.up = nn.Conv2d(84, 100, 5)")
    assert found is not None and found.severity is Severity.WARNING
