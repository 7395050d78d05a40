"""Settings: pyproject.toml, the command line over it, and where the project begins."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from amp_migrate.cli.main import main
from amp_migrate.run.config import ConfigError, Overrides, Settings, load


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project" / "src" / "deep").mkdir(parents=True)
    # Nothing above the project may count.
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path / "project"


def configured(table: str, name: str = "pyproject.toml") -> Settings:
    Path(name).write_text(f"[tool.amp-migrate]\n{table}\n")
    return load(["src"])


def test_without_configuration_there_are_defaults(project: Path) -> None:
    settings = load(["src"])
    assert settings.options.dtype == "float16"
    assert settings.options.torch_version == (2, 4)
    assert settings.options.evaluation is False
    assert settings.include == settings.exclude == settings.force_exclude == ()
    assert settings.config_file is None


def test_every_key_is_read(project: Path) -> None:
    settings = configured("""
        dtype = "bfloat16"
        torch-version = "2.10.1"
        eval = true
        include = "*.py"
        exclude = ["a", "b"]
        force-exclude = ["c"]
    """)
    assert settings.options.dtype == "bfloat16"
    assert settings.options.torch_version == (2, 10)
    assert settings.options.evaluation is True
    assert settings.include == ("*.py",)
    assert settings.exclude == ("a", "b")
    assert settings.force_exclude == ("c",)
    assert settings.config_file == project / "pyproject.toml"
    assert settings.root == project


def test_the_command_line_wins() -> None:
    configured('dtype = "bfloat16"\neval = true\nexclude = "a"\ntorch-version = "1.13"')
    given = Overrides("float16", (2, 1), False, ("i",), ("e",), ("f",))
    settings = load(["src"], given)
    assert settings.options.dtype == "float16"
    assert settings.options.torch_version == (2, 1)
    assert settings.options.evaluation is False
    assert (settings.include, settings.exclude, settings.force_exclude) == (
        ("i",),
        ("e",),
        ("f",),
    )


WRONG = {
    'dtypes = "float16"': "unknown key 'dtypes'; did you mean 'dtype'?",
    'torch_version = "2.3"': "unknown key 'torch_version'; did you mean 'torch-version'?",
    "colour = 1": "unknown key 'colour' (known: dtype, torch-version, ",
    'dtype = "float8"': "dtype: must be one of float16, bfloat16, auto, not 'float8'",
    "dtype = 16": "dtype: must be one of float16, bfloat16, auto, not 16",
    "torch-version = 2.3": 'torch-version: must be a string such as "2.3"',
    'torch-version = "two"': "torch-version: a torch version is written X.Y, not 'two'",
    'torch-version = "1.4"': "torch-version: torch 1.4 has no autocast",
    "eval = 1": "eval: must be true or false",
    "include = [1]": "include: must be a string or a list of strings",
    "exclude = true": "exclude: must be a string or a list of strings",
}


@pytest.mark.parametrize("table, message", WRONG.items())
def test_what_cannot_be_meant_is_an_error(table: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(table)
    assert message in str(caught.value)
    assert str(Path("pyproject.toml").absolute()) in str(caught.value)


def test_broken_toml_is_an_error_with_file_and_line() -> None:
    with pytest.raises(ConfigError, match=r"pyproject\.toml:3: not valid TOML: "):
        configured('dtype = "float16"\neval =')


def test_a_table_that_is_none_is_an_error() -> None:
    Path("pyproject.toml").write_text("[tool]\namp-migrate = 1\n")
    with pytest.raises(ConfigError, match="must be a table"):
        load(["src"])


def test_the_nearest_configuration_counts(project: Path) -> None:
    configured('dtype = "bfloat16"')
    Path("src/pyproject.toml").write_text("[tool.amp-migrate]\n")
    assert load(["src/deep"]).options.dtype == "float16"
    assert load(["src/deep"]).root == project / "src"
    # Of several paths, what is above them all.
    assert load(["src/deep", "."]).options.dtype == "bfloat16"


def test_a_pyproject_of_others_is_passed_over(project: Path) -> None:
    configured('dtype = "bfloat16"')
    Path("src/pyproject.toml").write_text("[tool.black]\n")
    assert load(["src/deep"]).options.dtype == "bfloat16"
    assert load(["src/deep"]).root == project


@pytest.mark.parametrize("marker", [".git", ".hg"])
def test_a_repository_is_a_project_and_ends_the_search(
    project: Path, marker: str
) -> None:
    configured('dtype = "bfloat16"')
    (project / "src" / marker).mkdir()
    Path("src/deep/setup.py").touch()
    settings = load(["src/deep/a.py"])
    assert settings.root == project / "src"
    assert settings.options.dtype == "float16"


def test_without_a_repository_packaging_files_mark_the_project(
    project: Path, tmp_path: Path
) -> None:
    (tmp_path / ".git").rmdir()
    assert load(["src/deep", "src"]).root == project / "src"
    (project / "setup.cfg").touch()
    assert load(["src/deep", "src"]).root == project


def test_a_configuration_can_be_named(project: Path) -> None:
    Path("other.toml").write_text('[tool.amp-migrate]\ndtype = "bfloat16"\n')
    configured('dtype = "float16"')
    settings = load(["src"], config_file="other.toml")
    assert settings.options.dtype == "bfloat16"
    assert settings.root == project


@pytest.mark.parametrize(
    "content, message", [(None, "cannot be read"), ("", "has no [tool.amp-")]
)
def test_a_named_configuration_must_be_one(content: str | None, message: str) -> None:
    if content is not None:
        Path("other.toml").write_text(content)
    with pytest.raises(ConfigError) as caught:
        load(["src"], config_file="other.toml")
    assert message in str(caught.value)


REQUIREMENTS = {
    "torch>=1.13": (1, 13),
    "torch >= 2.0.1, < 3": (2, 0),
    "torch==1.12.1": (1, 12),
    "torch==2.*": (2, 0),
    "torch~=2.1": (2, 1),
    "torch<3,>2.2": (2, 2),
    "Torch[opt-einsum] (>=1.11) ; python_version > '3.8'": (1, 11),
    "torch>=2.6  # not 1.13": (2, 6),
    "torch>=1.0": (1, 10),
    "torch<2.1": (1, 10),
    "torch!=2.0.1": (2, 4),
    "torch==1.2.0": (1, 6),
    "torch": (2, 4),
    "torch @ https://example.org/torch-1.13.whl": (2, 4),
    "torchvision>=0.11": (2, 4),
    "torch-geometric>=1.13": (2, 4),
    "pytorch-lightning>=1.13": (2, 4),
}


@pytest.mark.parametrize("requirement, version", REQUIREMENTS.items())
def test_the_project_says_which_torch_it_supports(
    requirement: str, version: tuple[int, int]
) -> None:
    Path("requirements-train.txt").write_text(f"numpy\n{requirement}\n")
    configured("")
    assert load(["src"]).options.torch_version == version
    Path("requirements-train.txt").unlink()
    quoted = requirement.replace('"', "'").partition("#")[0]
    Path("pyproject.toml").write_text(
        f'[tool.amp-migrate]\n[project]\ndependencies = ["numpy", "{quoted}"]\n'
    )
    assert load(["src"]).options.torch_version == version


TOO_OLD = {
    "requirements.txt": ("torch==1.2.0+cu92\n", True),
    "requirements/base.txt": ("numpy\ntorch~=1.4.0\n", True),
    "requirements-dev.txt": ("torch<1.6\n", True),
    "requirements-gpu.txt": ("torch<=1.5.1\n", True),
    "requirements-any.txt": ("torch>=1.2\n", False),
    "requirements-wide.txt": ("torch>=1.2,<2\n", False),
    "requirements-later.txt": ("torch<1.10.1\n", False),
    "requirements-compatible.txt": ("torch~=1.4\n", False),
    "setup.cfg": ("[options]\ninstall_requires =\n    torch==1.5\n", True),
    "setup.py": ('setup(install_requires=["numpy", "torch>=1.1,<1.3"])\n', True),
    "Pipfile": ('[packages]\ntorch = "==1.4.0"\n', True),
    "environment.yml": (
        "dependencies:\n  - pytorch=1.2.0=py3.7_cuda10\n  - cudatoolkit=10\n",
        True,
    ),
    "conda_env.yaml": ("dependencies:\n  - pip:\n    - torch==1.3\n", True),
    "environment-new.yml": ("dependencies:\n  - pytorch::pytorch>=1.4\n", False),
}


@pytest.mark.parametrize("name", TOO_OLD)
def test_a_torch_without_autocast_is_known(name: str) -> None:
    text, too_old = TOO_OLD[name]
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(text)
    options = configured("").options
    assert options.torch_version == ((1, 6) if too_old else (1, 10))
    assert bool(options.torch_too_old) == too_old
    if too_old:
        assert options.torch_too_old.endswith(f" in {name}")


def test_a_message_is_no_requirement() -> None:
    Path("setup.py").write_text('raise SystemExit("torch < 1.5 is not supported")\n')
    options = configured("").options
    assert (options.torch_version, options.torch_too_old) == ((2, 4), "")


def test_one_of_several_requirements_may_be_newer() -> None:
    Path("requirements-old.txt").write_text("torch==1.2\n")
    Path("requirements.txt").write_text("torch==2.4\n")
    options = configured("").options
    assert (options.torch_version, options.torch_too_old) == ((1, 10), "")


LOOP = (
    "import torch\n"
    "model = torch.nn.Linear(2, 1).cuda()\n"
    "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
    "for x in [torch.ones(1, 2).cuda()]:\n"
    "    optimizer.zero_grad()\n"
    "    loss = model(x).pow(2).mean()\n"
    "    loss.backward()\n"
    "    optimizer.step()\n"
)
BELOW = {
    "torch>=1.7\n": "torch>=1.7",
    "torch>1.8,<2\n": "torch>1.8,<2",
    "torch~=1.4\n": "torch~=1.4",
    "torch>=1.10\n": "",
    "torch<2\n": "",
    "torch==1.2\n": "",
    "torch\n": "",
}


@pytest.mark.parametrize("text", BELOW)
def test_a_requirement_that_admits_older_ones_as_well_is_told(text: str) -> None:
    Path("requirements.txt").write_text(text)
    Path("train.py").write_text(LOOP)
    found = configured("").options.torch_below
    assert found == (BELOW[text] and f"{BELOW[text]} in requirements.txt")
    said = "the rewrite needs torch 1.10 at least, and the project allows older ones: "
    for way in ("--diff", "--explain-plan"):
        run = CliRunner().invoke(main, [way, "train.py"])
        assert (said + found in run.output) == bool(found)
    # Who says which torch is meant need not be told.
    run = CliRunner().invoke(main, ["--diff", "--torch-version", "1.10", "train.py"])
    assert said not in run.output


@pytest.mark.parametrize(
    "given, code", [((), "AMP009"), (("--torch-version", "1.10"), "")]
)
def test_a_project_with_an_old_torch_is_left_alone(
    given: tuple[str, ...], code: str
) -> None:
    configured("")
    Path("requirements.txt").write_text("torch==1.2.0\n")
    Path("train.py").write_text(LOOP)
    result = CliRunner().invoke(main, ["train.py", "--diff", *given])
    assert ("+scaler" in result.output) == (not code)
    if code:
        assert (
            "AMP009 the project asks for torch==1.2.0 in requirements.txt"
            in result.output
        )


def test_the_oldest_of_several_statements_counts() -> None:
    settings = configured("""
        [project]
        dependencies = ["torch>=2.2"]
        [project.optional-dependencies]
        old = ["torch==1.13.1"]
        [dependency-groups]
        dev = [{include-group = "x"}, "torch==2.6"]
    """)
    assert settings.options.torch_version == (1, 13)


@pytest.mark.parametrize(
    "value, version",
    [
        ('"^1.13"', (1, 13)),
        ('"1.12.0"', (1, 12)),
        ('{version = ">=2.1"}', (2, 1)),
        ("1", (2, 4)),
    ],
)
def test_poetry_is_understood(value: str, version: tuple[int, int]) -> None:
    settings = configured(f"[tool.poetry.dependencies]\ntorch = {value}")
    assert settings.options.torch_version == version


def test_pyproject_is_asked_before_requirements_and_configuration_before_both() -> None:
    Path("requirements.txt").write_text("torch==1.13\n")
    assert configured("").options.torch_version == (1, 13)
    assert configured(
        '[project]\ndependencies = ["torch>=2.1"]'
    ).options.torch_version == (2, 1)
    both = 'torch-version = "2.4"\n[project]\ndependencies = ["torch>=2.1"]'
    assert configured(both).options.torch_version == (2, 4)


@pytest.mark.parametrize(
    ("requirement", "old"),
    [
        ("pytorch-lightning==1.9.0", True),
        ("pytorch_lightning>=1.7,<2", True),
        ("lightning<2.0.0", True),
        ("lightning[extra]~=1.8 ; python_version < '3.11'", True),
        ("pytorch-lightning <= 1.9.5", True),
        ("lightning>=1.9", False),
        ("lightning<2.1", False),
        ("lightning>=1.0,<3", False),
        ("lightning==2.1", False),
        ("lightning==10.0", False),
        ("lightning-utilities==0.9", False),
    ],
)
def test_an_old_lightning_is_seen(requirement: str, old: bool) -> None:
    Path("requirements.txt").write_text(f"torch\n{requirement}\n")
    assert configured("").options.lightning_1 is old


@pytest.mark.parametrize(
    ("stated", "old"),
    [
        ('[project]\ndependencies = ["lightning<2"]', True),
        ('[tool.poetry.dependencies]\npytorch-lightning = "1.9"', True),
        ('[tool.poetry.dependencies]\nlightning = "^2.1"', False),
    ],
)
def test_an_old_lightning_in_pyproject(stated: str, old: bool) -> None:
    assert configured(stated).options.lightning_1 is old
