"""What is inside the wheel, and what it asks for."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

import amp_migrate

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_version() -> None:
    assert PYPROJECT["project"]["version"] == amp_migrate.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## {amp_migrate.__version__} " in changelog


def test_only_the_package_is_installed(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    version = amp_migrate.__version__
    assert tops == {"amp_migrate", f"amp_migrate-{version}.dist-info"}


def test_every_rule_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    packed = {name for name in wheel.namelist() if name.startswith("amp_migrate/rules")}
    here = {f"amp_migrate/rules/{path.name}" for path in (ROOT / "rules").iterdir()}
    assert packed == here


def test_every_module_is_in_the_wheel(wheel: zipfile.ZipFile) -> None:
    here = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "amp_migrate").rglob("*.py")
    }
    assert here <= set(wheel.namelist())


def test_types_are_told_to_those_who_import_it(wheel: zipfile.ZipFile) -> None:
    assert "amp_migrate/py.typed" in wheel.namelist()


def test_the_classifiers_are_known_and_name_the_supported_pythons(
    wheel: zipfile.ZipFile,
) -> None:
    known = pytest.importorskip("trove_classifiers").classifiers
    (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    metadata = email.message_from_bytes(wheel.read(name))
    given = set(metadata.get_all("Classifier", []))
    assert given <= known
    named = {
        one.rpartition(" ")[2]
        for one in given
        if one.startswith("Programming Language :: Python :: 3.")
    }
    assert min(named, key=lambda one: int(one[2:])) == "3.10"
    assert metadata["Requires-Python"] == ">=3.10"
    workflow = ROOT / ".github" / "workflows" / "ci.yml"
    if workflow.exists():
        jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
        assert {*jobs["checks"]["strategy"]["matrix"]["python"]} == named


def test_catalogue_is_read_from_the_wheel(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    wheel.extractall(tmp_path)
    program = (
        "import amp_migrate, amp_migrate.catalogue.rules as catalogue\n"
        "print(amp_migrate.__file__, len(catalogue.rules()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    file, count = done.stdout.split()
    assert Path(file).is_relative_to(tmp_path)
    assert int(count) == len(list((ROOT / "rules").glob("*[0-9][0-9]-*.toml")))


def test_torch_is_only_an_extra(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    required = email.message_from_bytes(wheel.read(name)).get_all("Requires-Dist", [])
    base = [line for line in required if "extra ==" not in line]
    assert base and not any(re.match(r"torch\b", line) for line in base)
    assert any(
        re.match(r"torch\b.*extra == ['\"]torch['\"]", line) for line in required
    )


def test_importing_the_core_does_not_import_torch() -> None:
    program = (
        "import sys, amp_migrate.run.engine, amp_migrate.catalogue.rules\n"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_the_oldest_versions_that_are_tried_are_those_that_are_admitted() -> None:
    file = ROOT / ".github" / "oldest.txt"
    if not file.exists():
        pytest.skip("a source distribution has no workflows")
    lines = file.read_text(encoding="utf-8").splitlines()
    tried = dict(one.split("==") for one in lines if not one.startswith("#"))
    project = PYPROJECT["project"]
    needed = project["dependencies"] + project["optional-dependencies"]["notebook"]
    admitted = dict(re.split(r">=|;", one)[:2] for one in needed)
    assert admitted.keys() == tried.keys()
    for name, oldest in admitted.items():
        parts = oldest.split(".")
        assert tried[name].split(".") == parts + ["0"] * (3 - len(parts)), name
