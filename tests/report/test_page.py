"""The page that a person is shown: well-formed, complete, and safe whatever names it has to show."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from amp_migrate.catalogue.gpus.profiles import profile
from amp_migrate.cli.main import main
from amp_migrate.core.results import SourceError
from amp_migrate.report import page
from amp_migrate.report.destination import Destination
from amp_migrate.validate.kernels import KernelShares
from amp_migrate.validate.shapes import judge, room_for_batch
from amp_migrate.validate.shapes_table import as_dict
from amp_migrate.validate.verdict import (
    Curve,
    Figure,
    Finding,
    Level,
    LevelVerdict,
    Outcome,
    Speed,
    Verdict,
)

HOSTILE = "<script>alert('\"&')</script>"

SHAPES = {
    "profile": {"name": "a100", "chip": "A100 SXM"},
    "flops": 3.2e12,
    "half_share": 0.97,
    "misaligned_share": 0.21,
    "worth_mending_share": 0.2,
    "seconds_by_bound": {"compute": 0.02, "memory": 0.01, "latency": 0.0},
    "opaque": [{"op": "my::fused", "count": 12}],
    "room": {"batch": 32, "allowed": 55, "freed_bytes": 3 * 2**30, "at_least": True},
    "lines": [
        {
            "path": "/home/user/train.py",
            "number": 34,
            "function": "forward",
            "flops": 2.5e12,
            "seconds": 0.02,
            "intensity": 180.0,
            "bound": "compute",
            "waste": 0.125,
            "worth_mending": True,
            "misfits": [
                {"what": "n", "size": 50257, "padded": 50304, "adds_percent": 0.09}
            ],
        },
        {"path": "", "number": 0, "flops": 10, "seconds": 0.01, "bound": "memory"},
    ],
}


def full(name: str = "train.py", outcome: Outcome = Outcome.DISPROVED) -> Verdict:
    """A verdict in which every field is filled."""
    losses = tuple(1.0 / (1 + step) for step in range(30))
    return Verdict(
        script=name,
        outcome=outcome,
        reason=f"reason of {name}",
        device=f"GPU {name}",
        python="3.11.7",
        torch="2.13.0+cu130",
        levels=(
            LevelVerdict(Level.OFF, Outcome.PROVEN, "30 losses: bit-identical"),
            LevelVerdict(
                Level.MIXED,
                outcome,
                f"summary of {name}",
                (
                    Figure(f"figure of {name}", "7.7e-01", "≤ 1.0e-02", False),
                    Figure("other figure", "3", "≥ 1"),
                ),
                (f"detail of {name}",),
            ),
        ),
        sites_run=5,
        sites=6,
        steps=20,
        runs=17,
        seconds=27.4,
        losses=(
            Curve("fp32", losses, f"/a/{name}:67"),
            Curve("fp32", losses, f"/a/{name}:81"),
            Curve("mixed, seed 0", losses, f"/a/{name}:67"),
            Curve("mixed, seed 0", (math.nan, math.inf, *losses[2:]), f"/a/{name}:81"),
        ),
        scales=(Curve("mixed, default scale", (65536.0, 65536.0, 32768.0)),),
        speeds=(
            Speed("original", 23.1, 22.8, 24.0, 3 * 2**30),
            Speed("rewritten", 11.55, 11.4, 14.4, 2 * 2**30),
        ),
        findings=(
            Finding("clip-before-unscale", "error", name, 41, f"seen in {name}", 20),
        ),
        notes=(f"note on {name}",),
        shapes=SHAPES,
    )


def html(*verdicts: Verdict) -> str:
    return page.html(verdicts, date="2026-01-02 03:04 UTC", version="9.8.7")


class Reader(HTMLParser):
    """Checks that elements are balanced, and gathers what they hold."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return "\n".join(self.words)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


EVERY_OUTCOME = pytest.mark.parametrize("outcome", list(Outcome))


@EVERY_OUTCOME
def test_a_page_says_all_that_a_verdict_holds(outcome: Outcome) -> None:
    text = read(html(full(outcome=outcome))).text
    for wanted in (
        outcome.value,
        "reason of train.py",
        "GPU train.py",
        "2.13.0+cu130",
        "3.11.7",
        "5 of 6",
        "17 in 27 s",
        "summary of train.py",
        "figure of train.py",
        "7.7e-01",
        "≤ 1.0e-02",
        "detail of train.py",
        "Loss of train.py:67",
        "Loss of train.py:81",
        "mixed, seed 0: 2 of 30 values are not finite",
        "2¹⁶",
        "23.10 ms (22.80 to 24.00)",
        "Speedup: 2.00",
        "3072 MiB",
        "Of the original's: 67%",
        "train.py:41",
        "clip-before-unscale",
        "(20 times)",
        "a100",
        "3.2 TFLOP",
        "train.py:34",
        "n 50257 → 50304 (+0.1 %)",
        "my::fused (12)",
        "at least 55",
        "note on train.py",
        "amp-migrate 9.8.7 on 2026-01-02 03:04 UTC",
    ):
        assert wanted in text, wanted


def test_the_values_of_a_curve_are_there_to_read() -> None:
    values = (0.125, 0.0625, 0.03125)
    found = read(
        html(Verdict("a.py", Outcome.PROVEN, "", losses=(Curve("fp32", values),)))
    )
    for value in values:
        assert f"{value:.4g}" in found.words
    assert found.tags[found.tags.index("desc") - 2 :][:2] == ["svg", "title"]


def test_steps_are_where_the_values_are_drawn() -> None:
    curve = Curve("fp32", (1.0, 2.0), steps=(4, 8))
    text = html(Verdict("a.py", Outcome.PROVEN, "", losses=(curve,)))
    assert "step 4\nfp32: 1" in text
    assert "step 8\nfp32: 2" in text


@EVERY_OUTCOME
def test_hostile_names_stay_text(outcome: Outcome) -> None:
    harmless = read(html(full("name.py", outcome)))
    hostile = read(html(full(HOSTILE, outcome)))
    assert hostile.tags == harmless.tags
    assert [name for name, _ in hostile.attributes] == [
        name for name, _ in harmless.attributes
    ]
    assert f"figure of {HOSTILE}" in hostile.text
    assert f"seen in {HOSTILE}" in hostile.text


def test_undecodable_and_turning_characters_are_shown_as_escapes() -> None:
    text = html(full("a\udcff\u202e\x00b.py"))
    assert r"a\udcff\u202e\x00b.py" in text
    text.encode("utf-8")


def test_a_page_needs_nothing_from_elsewhere() -> None:
    text = html(full(), full("other.py", Outcome.PROVEN))
    assert "://" not in text
    assert "url(" not in text
    assert "@import" not in text
    found = read(text)
    assert not {"script", "link", "img", "iframe", "object"} & set(found.tags)
    links = [value for name, value in found.attributes if name in ("href", "src")]
    assert links == ["#script1", "#script2"]


def test_names_within_a_page_are_unique_and_meet() -> None:
    found = read(html(full(), full("other.py")))
    ids = [value for name, value in found.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    for name, value in found.attributes:
        if name == "aria-labelledby":
            assert set((value or "").split()) <= set(ids)


def test_a_page_is_the_same_for_the_same_verdicts() -> None:
    assert html(full()) == html(full())


def test_what_is_missing_is_left_out() -> None:
    reason = "the original does not run here: no module named 'detectron2'"
    found = read(html(Verdict("a.py", Outcome.NOT_JUDGED, reason)))
    assert reason in found.text
    assert "svg" not in found.tags
    for title in ("Levels", "Curves", "Speed", "Protocol", "Shapes", "Notes", "device"):
        assert title not in found.text


@pytest.mark.parametrize(
    "values",
    [
        (1.0,),
        (0.0, 0.0),
        (-3.0, 5.0),
        (1e-9, 1e9),
        (1e-320, 2e-320),
        (1.0, 1.0 + 2e-16),
        (-1.7e308, 1.7e308),
        (math.nan, math.nan),
        (1.0, math.inf, 2.0),
        (123456.0, 123457.0),
    ],
    ids=str,
)
def test_any_values_can_be_drawn(values: tuple[float, ...]) -> None:
    curve = Curve("fp32", values)
    text = html(Verdict("a.py", Outcome.PROVEN, "", losses=(curve,), scales=(curve,)))
    read(text)
    drawn = re.findall(r' d="(M[^"]*)"', text)
    for path in drawn:
        assert "nan" not in path
        assert "inf" not in path
        assert all(-1 <= float(n) <= 1001 for n in re.findall(r"-?[\d.]+", path))


def test_lines_lie_where_the_values_are() -> None:
    curve = Curve("fp32", (0.0, 10.0, 5.0))
    text = html(Verdict("a.py", Outcome.PROVEN, "", losses=(curve,)))
    [path] = (path for path in re.findall(r' d="(M[^"]*)"', text) if "6H26" not in path)
    points = re.findall(r"([\d.]+) ([\d.]+)", path)
    (left, zero), (middle, ten), (right, five) = [
        (float(x), float(y)) for x, y in points
    ]
    assert (left, middle, right) == (0, 500, 1000)
    assert zero > five > ten
    assert five == pytest.approx((zero + ten) / 2, abs=0.1)


# --- the file it is written to ---


def test_a_new_file_is_written(tmp_path: Path) -> None:
    Destination(str(tmp_path / "out.html")).write("é")
    assert [file.name for file in tmp_path.iterdir()] == ["out.html"]
    assert (tmp_path / "out.html").read_bytes() == "é".encode()


def test_a_file_is_replaced_with_its_mode_and_through_its_links(tmp_path: Path) -> None:
    real = tmp_path / "real.html"
    real.write_text("before")
    real.chmod(0o640)
    link = tmp_path / "link.html"
    link.symlink_to(real)
    Destination(str(link)).write("after")
    assert real.read_text() == "after"
    assert real.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()


def test_looking_whether_it_can_be_written_leaves_nothing(tmp_path: Path) -> None:
    Destination(str(tmp_path / "out.html"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["nowhere/out.html", "."])
def test_a_path_that_cannot_be_written_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError, match="cannot be written"):
        Destination(str(tmp_path / name))


@pytest.mark.parametrize("name", ["nowhere/out.html", "train.py"])
def test_a_bad_report_path_ends_it_before_anything_runs(
    tmp_path: Path, name: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    result = CliRunner().invoke(
        main, ["validate", "--report", str(tmp_path / name), str(script)]
    )
    assert result.exit_code == 2
    assert name in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not (tmp_path / "ran").exists()
    assert script.read_text().startswith("open(")


def test_shapes_are_shown_as_they_are_judged() -> None:
    row = {
        "kind": "gemm",
        "line": ["/home/user/net.py", 7, "forward"],
        "op": "aten::mm",
        "phase": "forward",
        "tf32": False,
        "count": 3,
        "form": "matmul",
        "m": 4096,
        "n": 50257,
        "k": 4096,
        "batch": 1,
        "dtype": "float16",
        "flops": 3 * 2 * 4096 * 50257 * 4096,
        "bytes": 3 * 2 * (4096 * 4096 + 2 * 4096 * 50257),
        "rows": "kkn",
        "lead": [4096, 4096],
        "layer": {},
    }
    report = judge([row], profile("ampere"), room_for_batch(2**31, 2**30, 8))
    verdict = Verdict("a.py", Outcome.PROVEN, "", shapes=as_dict(report))
    text = read(html(verdict)).text
    for wanted in ("net.py:7", "compute", "50257 → ", "5.1 TFLOP", "at least 16"):
        assert wanted in text


def test_the_share_of_tensor_cores_is_told() -> None:
    shares = KernelShares(0.81, 0.1, 0.09, 1000.0, ())
    text = html(replace(full("train.py"), tensor_cores=shares))
    assert "81% in kernels known to use Tensor Cores" in text
