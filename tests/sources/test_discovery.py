"""Which files a run is about."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from amp_migrate.sources import discovery
from amp_migrate.sources.discovery import Filters, discover
from amp_migrate.sources.ignore import PatternError

Tree = Callable[..., None]


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """Makes files (with content where a mapping gives it) in the current directory."""
    monkeypatch.chdir(tmp_path)

    def make(*names: str, **contents: str) -> None:
        for name in names:
            path = Path(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(contents.get(name, ""))

    return make


def found(*paths: str, **filters: tuple[str, ...]) -> list[str]:
    result = discover(paths, Filters(str(Path.cwd()), **filters))
    assert result.errors == ()
    return [path.replace(os.sep, "/") for path in result.files]


def test_a_directory_is_walked_in_a_fixed_order(tree: Tree) -> None:
    tree("b.py", "a.py", "c/z.py", "c/a/y.py", "d.txt", "e.pyi", "f.ipynb", "g")
    assert found(".") == ["a.py", "b.py", "f.ipynb", "c/z.py", "c/a/y.py"]
    assert found(".", include=("*.py",)) == ["a.py", "b.py", "c/z.py", "c/a/y.py"]
    assert found("c") == ["c/z.py", "c/a/y.py"]


def test_a_file_is_taken_once_however_it_is_named(tree: Tree) -> None:
    tree("a.py", "c/b.py")
    (Path.cwd() / "link.py").symlink_to("a.py")
    names = (
        "a.py",
        "./a.py",
        "c/../a.py",
        str(Path("a.py").absolute()),
        "link.py",
        ".",
    )
    assert found(*names) == ["a.py", "c/b.py"]
    assert found(".") == ["a.py", "c/b.py"]


def test_a_link_gives_way_to_the_file_itself(tree: Tree) -> None:
    tree("z.py")
    Path("a.py").symlink_to("z.py")
    assert found(".") == ["z.py"]


def test_links_out_of_the_project_are_not_followed_but_can_be_named(
    tree: Tree, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "far.py").touch()
    tree("a.py")
    Path("far.py").symlink_to(outside / "far.py")
    Path("far").symlink_to(outside)
    assert found(".") == ["a.py"]
    assert found("far.py") == ["far.py"]
    assert found("far") == ["far/far.py"]


def test_a_loop_of_links_ends(tree: Tree) -> None:
    tree("a/b.py")
    Path("a/up").symlink_to("..")
    Path("a/self.py").symlink_to("self.py")
    assert found(".") == ["a/b.py"]


USUAL = """
    .git .hg .svn .venv venv node_modules build dist __pycache__ .tox .nox .mypy_cache .eggs
    x.egg lib/site-packages
"""


@pytest.mark.parametrize("directory", USUAL.split())
def test_the_usual_directories_are_left_out(tree: Tree, directory: str) -> None:
    tree("a.py", f"{directory}/b.py")
    assert found(".") == ["a.py"]
    assert found(f"{directory}/b.py") == [f"{directory}/b.py"]
    assert found(directory) == [f"{directory}/b.py"]


def test_a_virtual_environment_is_known_by_its_marker(tree: Tree) -> None:
    tree("env/a.py", "py39/b.py", "py39/pyvenv.cfg")
    assert found(".") == ["env/a.py"]


def test_ignore_files_count_at_every_level(tree: Tree) -> None:
    Path(".git/info").mkdir(parents=True)
    tree(
        "a.py",
        "b.py",
        "c/b.py",
        "c/keep/b.py",
        "c/d.py",
        "gen/x.py",
        "mine.py",
        "s/gen/y.py",
    )
    Path(".gitignore").write_text("b.py\n/gen/\n# c/d.py\n")
    Path("c/.gitignore").write_text("d.py\n!keep/b.py\n")
    Path(".git/info/exclude").write_text("mine.py\n")
    assert found(".") == ["a.py", "c/keep/b.py", "s/gen/y.py"]
    assert found("c") == ["c/keep/b.py"]
    assert found("b.py", "gen") == ["b.py", "gen/x.py"]


def test_ignore_files_above_the_repository_do_not_count(tree: Tree) -> None:
    tree("repo/a.py")
    Path(".gitignore").write_text("*.py\n")
    Path("repo/.git").mkdir()
    assert found("repo") == ["repo/a.py"]


def test_everything_but_some(tree: Tree) -> None:
    Path(".git").mkdir()
    Path(".gitignore").write_text("*\n!*/\n!*.py\nx.py\nd/**\n!d/e/\n!d/e/f.py\n")
    tree("a.py", "c/b.py", "c/x.py", "d/e/f.py", "d/g.py")
    assert found(".") == ["a.py", "c/b.py", "d/e/f.py"]


def test_a_broken_line_in_an_ignore_file_is_passed_over(tree: Tree) -> None:
    Path(".git").mkdir()
    Path(".gitignore").write_bytes(b"!\nb.py\n\xff\n")
    tree("a.py", "b.py")
    assert found(".") == ["a.py"]


def test_include_takes_only_what_it_names(tree: Tree) -> None:
    tree("a.py", "train/b.py", "train/c.txt", "x/train/d.py", "named.py")
    assert found(".", include=("train/",)) == ["train/b.py", "x/train/d.py"]
    assert found(".", "named.py", include=("./train/",)) == ["train/b.py", "named.py"]
    assert found(".", include=("/train/", "a.*")) == ["a.py", "train/b.py"]


def test_exclude_spares_what_is_named(tree: Tree) -> None:
    tree("a.py", "old/b.py", "c/old/d.py")
    assert found(".", exclude=("old",)) == ["a.py"]
    assert found(".", exclude=("/old/",)) == ["a.py", "c/old/d.py"]
    assert found("old/b.py", "c/old", exclude=("old",)) == ["old/b.py", "c/old/d.py"]


def test_a_negated_exclude_takes_back_in(tree: Tree) -> None:
    Path(".git").mkdir()
    Path(".gitignore").write_text("gen/\n")
    tree("build/a.py", "dist/b.py", "gen/c.py")
    assert found(".", exclude=("!build/", "!gen/")) == ["build/a.py", "gen/c.py"]


def test_force_exclude_spares_nothing(tree: Tree) -> None:
    tree("a.py", "old/b.py", "old/x/c.py")
    assert found("a.py", "old/b.py", "old/x", "old", force_exclude=("old/",)) == [
        "a.py"
    ]
    assert found(".", force_exclude=("*.py", "!a.py")) == ["a.py"]


def test_a_pattern_that_means_nothing_is_an_error(tree: Tree) -> None:
    with pytest.raises(PatternError, match="'!'"):
        found(".", exclude=("!",))


def test_what_is_named_is_taken_whatever_it_is_called(tree: Tree) -> None:
    tree("script", "stub.pyi")
    assert found("script", "stub.pyi") == ["script"]


def test_what_cannot_be_looked_at_is_an_error_and_the_rest_goes_on(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "readable", lambda: False)
    tree("a.py", "n.ipynb", "sub/o.ipynb", "out/p.ipynb")
    Path("dangling.py").symlink_to("nowhere.py")
    os.mkfifo("pipe.py")
    names = ("missing.py", "n.ipynb", "dangling.py", "pipe.py", ".")
    result = discover(names, Filters(str(Path.cwd()), exclude=("out",)))
    assert result.files == ("a.py",)
    assert result.skipped == 2
    assert [str(error) for error in result.errors] == [
        "missing.py: No such file or directory",
        'n.ipynb: notebooks need nbformat: pip install "amp-migrate[notebook]"',
        "dangling.py: No such file or directory",
        "pipe.py: is neither a file nor a directory",
    ]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_directory_that_cannot_be_read_is_an_error(tree: Tree) -> None:
    tree("a.py", "closed/b.py")
    Path("closed").chmod(
        0
    )  # its marker of a virtual environment cannot be looked for, either
    result = discover(["."], Filters(str(Path.cwd())))
    Path("closed").chmod(0o755)
    assert result.files == ("a.py",)
    assert [str(error) for error in result.errors] == [
        "closed: cannot be read: Permission denied"
    ]
