"""Notebooks: one program text, and back into the same bytes."""

from __future__ import annotations

import ast
import codecs
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amp_migrate.core.results import SourceError
from amp_migrate.report.diff import unified_diff
from amp_migrate.sources.cells import cell_mark, cell_number, is_magic
from amp_migrate.sources.document import open_document
from amp_migrate.sources.ipython import LostMarkError
from amp_migrate.sources.notebook import Notebook
from amp_migrate.sources.text import Document

pytest.importorskip("nbformat")


def cell(source: str | list[str], kind: str = "code") -> dict[str, Any]:
    made: dict[str, Any] = {"cell_type": kind, "metadata": {}, "source": source}
    if kind == "code":
        made |= {"execution_count": None, "outputs": []}
    return made


def notebook(*cells: dict[str, Any], **changes: Any) -> dict[str, Any]:
    made = {"cells": list(cells), "metadata": {}, "nbformat": 4, "nbformat_minor": 4}
    return made | changes


def read(*sources: str) -> Notebook:
    cells = [cell(source.splitlines(keepends=True)) for source in sources]
    return Notebook.decode("a.ipynb", json.dumps(notebook(*cells), indent=1).encode())


def sources(data: bytes) -> list[str]:
    return [
        "".join(one["source"]) for one in json.loads(data.decode("utf-8-sig"))["cells"]
    ]


# -- bytes --------------------------------------------------------------------------------------------

CELLS = (
    cell(["# Ä title\n", "with two lines"], "markdown"),
    cell(["import torch\n", "%matplotlib inline\n", "s = 'é\u2028\U0001f600/'\n", "x"]),
    cell([]),
    cell(["x"]),
    cell("y = 1\ny;"),
    cell(["raw"], "raw"),
    cell(["# nothing but words"]),
)
PLAIN = json.dumps(notebook(*CELLS), indent=1, ensure_ascii=False)

STYLES = {
    "jupyter": PLAIN + "\n",
    "no newline at the end": PLAIN,
    "newlines at the end": PLAIN + "\n\n ",
    "escapes": json.dumps(notebook(*CELLS), indent=2),
    "tabs": json.dumps(notebook(*CELLS), indent="\t"),
    "compact": json.dumps(notebook(*CELLS), separators=(",", ":")),
    "on one line": json.dumps(notebook(*CELLS)),
    "no indentation": json.dumps(notebook(*CELLS), indent=0),
    "byte order mark": "\ufeff" + PLAIN,
    "crlf": PLAIN.replace("\n", "\r\n"),
    "sorted": json.dumps(notebook(*CELLS), indent=1, sort_keys=True),
    "reversed": json.dumps(
        dict(reversed(notebook(*(dict(reversed(c.items())) for c in CELLS)).items()))
    ),
    "odd escapes": PLAIN.replace("/'", "\\/'").replace("\\n", "\\u000A"),
    "equal keys": PLAIN.replace('"source": [', '"source": ["old"], "source": [', 2),
    "blanks": PLAIN.replace(":", " \t: ").replace(",", "\n ,"),
    "with ids": json.dumps(
        notebook(*(c | {"id": str(n)} for n, c in enumerate(CELLS)), nbformat_minor=5)
    ),
}


@pytest.mark.parametrize("text", STYLES.values(), ids=STYLES.keys())
def test_what_is_not_changed_comes_back(text: str) -> None:
    data = text.encode()
    document = Notebook.decode("a.ipynb", data)
    assert document.data == data
    assert document.encode(document.text) == data
    assert document.text.splitlines()[0] == "import torch"
    ast.parse(document.text)


@pytest.mark.parametrize("text", STYLES.values(), ids=STYLES.keys())
def test_only_the_source_of_a_changed_cell_changes(text: str) -> None:
    document = Notebook.decode("a.ipynb", text.encode())
    program = document.text.replace("import torch\n", "import torch\nnew = 'é'\n")
    output = document.encode(program)
    raw = document.cells[0].raw
    start, stop = raw.source
    new = output.decode()
    assert new.startswith(text[:start])
    assert new.endswith(text[stop:])
    expected = [
        source.replace("import torch\n", "import torch\nnew = 'é'\n")
        for source in sources(text.encode())
    ]
    assert sources(output) == expected
    # What a style is made of: the lines that were there keep all of their bytes.
    before = text[start:stop]
    after = new[start : len(new) - (len(text) - stop)]
    position = next(
        n for n in range(len(before)) if not after.startswith(before[: n + 1])
    )
    assert after.endswith(before[position:])
    added = after[position : len(after) - len(before) + position]
    assert ("\\u00e9" in added) == text.isascii()


def test_a_change_in_the_form_of_jupyter_is_what_jupyter_would_write() -> None:
    document = Notebook.decode("a.ipynb", STYLES["jupyter"].encode())
    output = document.encode(
        document.text.replace("\ny;\n", "\ny = 'ü'\n").replace("\nx\n", "\nx\ny\n")
    )
    made = json.loads(PLAIN)
    made["cells"][1]["source"] = [*CELLS[1]["source"][:-1], "x\n", "y"]
    made["cells"][3]["source"] = ["x\n", "y"]
    made["cells"][4]["source"] = "y = 1\ny = 'ü'"
    assert output.decode() == json.dumps(made, indent=1, ensure_ascii=False) + "\n"


SHORT = {
    "its own brackets": ('[\n  "x"\n ]', '[\n  "x\\n",\n  "y"\n ]'),
    "nothing to go by": ('["x"]', '["x\\n", "y"]'),
    "a string": ('"x"', '"x\\ny"'),
    "lines in one item": ('["x\\nz"]', '["x\\n", "z\\n", "y"]'),
    "items that are no lines": ('["x", "\\nz"]', '["x\\n", "z\\n", "y"]'),
}


@pytest.mark.parametrize("before, after", SHORT.values(), ids=SHORT.keys())
def test_a_source_that_is_short_gets_lines(before: str, after: str) -> None:
    raw = json.dumps(notebook(cell("?"))).replace('"?"', before)
    document = Notebook.decode("a.ipynb", raw.encode())
    output = document.encode(document.text + "y\n")
    assert output.decode() == raw.replace(before, after)


def test_a_source_without_a_style_takes_that_of_another_cell() -> None:
    raw = json.dumps(notebook(cell("1?"), cell("2?")))
    raw = raw.replace('"1?"', '["a"]').replace('"2?"', '[\t"b\\n",\t"c"\t]')
    document = Notebook.decode("a.ipynb", raw.encode())
    output = document.encode("a\nb\n" + document.text[2:])
    assert output.decode() == raw.replace('["a"]', '["a\\n",\t"b"]')


def test_a_source_can_become_empty() -> None:
    document = read("a\n", "b")
    output = document.encode(document.text.replace("a\n", "").replace("b", ""))
    assert [one["source"] for one in json.loads(output)["cells"]] == [[], []]


def test_newlines_and_indentation_inside_a_source_stay() -> None:
    document = read("a\r\nb\r\n", "  if a:\n    '''\nb'''\n\n  c", "a\n")
    assert document.text.startswith('a\nb\n\n"amp')
    new = document.text.replace("b\n\n", "b\nc\n\n").replace("\nc\n", "\nd\nc\n")
    assert sources(document.encode(new)) == [
        "a\r\nb\r\nd\r\nc\r\n",
        "  if a:\n    '''\nb'''\n\n  d\n  c",
        "a\n",
    ]


def test_a_form_feed_ends_an_item_where_python_wrote_it() -> None:
    document = read("x = 1\n\x0c\ny = '''\u2028'''")
    output = document.encode(document.text + "z\n")
    assert (
        output
        == json.dumps(
            notebook(cell(["x = 1\n", "\x0c", "\n", "y = '''\u2028", "'''\n", "z"])),
            indent=1,
        ).encode()
    )


# -- the program --------------------------------------------------------------------------------------


def test_the_program_is_the_code_cells_between_marks() -> None:
    document = Notebook.decode("a.ipynb", PLAIN.encode())
    lines = document.text.split("\n")
    assert lines[1] == '"amp-migrate: magic 1"'
    assert lines[4:] == [
        *(cell_mark(3), ""),
        *(cell_mark(4), "x"),
        *(cell_mark(5), "y = 1", "y;"),
        *(cell_mark(7), "# nothing but words"),
        "",
    ]
    assert [one.number for one in document.cells] == [2, 3, 4, 5, 7]


def test_marks_and_magics_are_recognised_in_the_tree() -> None:
    document = read("!ls \\\n -l\n'x'", "x", "y")
    constants = [
        node.value.value
        for node in ast.parse(document.text).body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    ]
    assert [is_magic(one) for one in constants] == [True, False, False, False]
    assert [cell_number(one) for one in constants] == [None, None, 2, 3]
    assert cell_number(2) is None


def test_places_are_counted_in_all_cells() -> None:
    document = Notebook.decode("a.ipynb", PLAIN.encode())
    places = [document.place(line) for line in range(1, 15)]
    assert places == [
        *((2, 1), (2, 2), (2, 3), (2, 4)),
        *((3, 1), (3, 1)),
        *((4, 1), (4, 1)),
        *((5, 1), (5, 1), (5, 2)),
        *((7, 1), (7, 1)),
        (7, 2),
    ]


def test_a_cell_that_is_another_program_has_no_part() -> None:
    document = read("%%bash\nls", "x", "%%time\n%%writefile a.py\nf()", "y")
    assert document.text == f"x\n{cell_mark(4)}\ny\n"
    output = document.encode(f"import a\n{document.text}")
    assert sources(output)[:2] == ["%%bash\nls", "import a\nx"]


def test_magics_of_a_changed_cell_stay() -> None:
    document = read("!ls", "%%time\n%cd a\n%time f(x)\nm?", "!ls")
    output = document.encode(document.text.replace("f(x)", "f(x, s)"))
    assert sources(output) == ["!ls", "%%time\n%cd a\n%time f(x, s)\nm?", "!ls"]


def test_edits_at_both_ends_of_a_cell_stay_in_it() -> None:
    document = read("# one\na", "# two\nb", "c\n")
    mark = cell_mark(2)
    program = document.text.replace(
        f"a\n{mark}\n# two\nb", f"a\nlast\n{mark}\n# two\nfirst\nb"
    )
    expected = ["# one\na\nlast", "# two\nfirst\nb", "c\n"]
    assert sources(document.encode(program)) == expected


def test_await_outside_of_a_function_is_left_to_ipython() -> None:
    document = read("x = await f()\nasync with x:\n    pass")
    assert sources(document.encode(document.text + "y\n"))[0].endswith("pass\ny")


def test_a_notebook_without_code_is_an_empty_program() -> None:
    data = json.dumps(notebook(cell("x", "markdown"))).encode()
    document = Notebook.decode("a.ipynb", data)
    assert document.text == ""
    assert document.encode("") == data
    assert document.place(1) == (0, 1)


DISPLACED = {
    "lost": (f"{cell_mark(2)}\n", ""),
    "twice": ("b", cell_mark(2)),
    "out of order": (cell_mark(2), cell_mark(3)),
    "indented": (cell_mark(2), f"if x:\n    {cell_mark(2)}"),
    "not alone": (cell_mark(2), f"{cell_mark(2)}; x"),
}


@pytest.mark.parametrize("old, new", DISPLACED.values(), ids=DISPLACED.keys())
def test_displaced_marks_are_an_error(old: str, new: str) -> None:
    document = read("a", "b", "c")
    with pytest.raises(LostMarkError):
        document.encode(document.text.replace(old, new))


def test_it_goes_to_another_process() -> None:
    document = read("!ls", "x")
    assert pickle.loads(pickle.dumps(document)) == document


# -- what is not read ---------------------------------------------------------------------------------


def kernel(**metadata: Any) -> str:
    return json.dumps(notebook(cell("x"), metadata=metadata))


def code(*lines: str) -> str:
    return json.dumps(notebook(cell("words", "markdown"), cell("\n".join(lines))))


UNREADABLE = {
    "not json": ('{\n"cells": [', r"a\.ipynb:2: not valid JSON"),
    "nothing": ("", "not valid JSON"),
    "nested too deeply": ("[" * 100_000, "not valid JSON"),
    "conflict": (PLAIN.replace(' "metadata"', "<<<<<<< ours\n"), "not valid JSON"),
    "a list": ("[]", "JSON, but not a notebook"),
    "another object": ('{"cells": []}', "JSON, but not a notebook"),
    "format 3": (
        '{"nbformat": 3, "nbformat_minor": 0, "metadata": {}, "worksheets": []}',
        "a notebook of format 3",
    ),
    "no cells": (
        '{"nbformat": 4, "nbformat_minor": 4, "metadata": {}}',
        "not a valid notebook: ",
    ),
    "no source": (
        json.dumps(notebook({"cell_type": "code", "metadata": {}})),
        "not a valid notebook: ",
    ),
    "wrong source": (json.dumps(notebook(cell("x") | {"source": 1})), "not a valid"),
    "wrong item": (json.dumps(notebook(cell("x") | {"source": [1]})), "not a valid"),
    "wrong cells": (json.dumps(notebook() | {"cells": {}}), "not a valid notebook"),
    "wrong cell": (json.dumps(notebook() | {"cells": [1]}), "not a valid notebook"),
    "wrong metadata": (json.dumps(notebook(metadata=[])), "not a valid notebook"),
    "wrong kernel": (kernel(kernelspec="R"), "not a valid notebook"),
    "another kernel": (
        kernel(kernelspec={"name": "ir", "display_name": "R", "language": "R"}),
        "a notebook for R, not for Python",
    ),
    "another language": (
        kernel(language_info={"name": "julia"}),
        "a notebook for julia, not for Python",
    ),
    "wrong Python": (code("x = 1", "print x"), "cell 2, line 2: not valid for Python"),
    "unfinished": (code("f(", ""), "cell 2, line 1: not valid for Python"),
    "half a character": (code("x = '\ud800'"), "cell 2, line 1: not valid for Python"),
    "null": (code("x = '\0'"), "cell 2, line 1: not valid for Python"),
    "unknown magic": (code("x", "%foo f(x)"), "cell 2, line 2: it is not known"),
    "reserved": (code("", cell_mark(1)), "cell 2, line 2: 'amp-migrate: cell 1'"),
    "reserved name": (
        code("_amp_migrate_magic_1"),
        "cell 2, line 1: '_amp_migrate_magic_1' is reserved",
    ),
}


@pytest.mark.parametrize("text, message", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_cannot_be_read_is_said_in_one_line(
    text: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SourceError, match=message) as caught:
        Notebook.decode("a.ipynb", text.encode())
    assert str(caught.value).startswith("a.ipynb:")
    assert len(str(caught.value).splitlines()) == 1
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("data", [b'{\n"\xff"}', codecs.BOM_UTF16 + b"{"])
def test_what_is_not_utf_8_is_an_error(data: bytes) -> None:
    with pytest.raises(SourceError, match="is not valid utf-8"):
        Notebook.decode("a.ipynb", data)


@pytest.mark.parametrize(
    "text",
    [
        kernel(kernelspec={"name": "x", "display_name": "x", "language": "python"}),
        kernel(kernelspec={"name": "x", "display_name": "x"}),
        kernel(language_info={"name": "python", "version": "3.9"}),
        # Ids that are missing or there twice, members of later formats: nothing that matters here.
        json.dumps(notebook(cell("x"), cell("x"), nbformat_minor=5)),
        json.dumps(notebook(*[cell("x") | {"id": "a"}] * 2, nbformat_minor=5)),
        json.dumps(notebook(cell("x") | {"new": 1}, nbformat_minor=99, new=1)),
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_does_not_matter_is_no_error(
    text: str, capfd: pytest.CaptureFixture[str]
) -> None:
    document = Notebook.decode("a.ipynb", text.encode())
    assert document.encode(document.text) == text.encode()
    assert capfd.readouterr() == ("", "")


def test_without_nbformat_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nbformat", None)
    with pytest.raises(SourceError, match=r'pip install "amp-migrate\[notebook\]"'):
        Notebook.decode("a.ipynb", PLAIN.encode())


def test_nbformat_is_imported_for_notebooks_only() -> None:
    code = (
        "import sys, amp_migrate.cli.main\n"
        "from amp_migrate.sources.document import open_document\n"
        "open_document('a.py', b'x')\n"
        "import amp_migrate.sources.notebook\n"
        "assert 'nbformat' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- documents and diffs ------------------------------------------------------------------------------


def test_a_document_is_read_as_its_name_says() -> None:
    assert isinstance(open_document("a.ipynb", PLAIN.encode()), Notebook)
    script = open_document("a.py", b"x\r\n")
    assert isinstance(script, Document)
    assert script.place(3) == (0, 3)
    assert script.heading(3) == ()


@pytest.mark.parametrize("style", STYLES.keys())
def test_a_diff_names_cells_and_is_taken_by_git(tmp_path: Path, style: str) -> None:
    path = tmp_path / "a.ipynb"
    path.write_bytes(STYLES[style].encode())
    document = Notebook.decode("a.ipynb", path.read_bytes())
    output = document.encode(
        document.text.replace("import torch\n", "import torch\nnew\n") + "x = 1\n"
    )
    diff = unified_diff("a.ipynb", document.data, output, document.heading)
    headings = [
        line.rpartition(b"@@")[2].decode()
        for line in diff.split(b"\n")
        if line.startswith(b"@@ ")
    ]
    lines = STYLES[style].rstrip().count("\n")
    assert headings == ([" cell 2", " cell 7"] if lines else [""])
    done = subprocess.run(["git", "apply"], input=diff, cwd=tmp_path)
    assert done.returncode == 0
    assert path.read_bytes() == output


def test_a_hunk_on_several_cells_names_them() -> None:
    cells = ",\n".join(map(json.dumps, [cell("a"), cell("b"), cell("c")]))
    raw = (
        f'{{"cells": [\n{cells}\n], "metadata":{{}}, "nbformat":4, "nbformat_minor":4}}'
    )
    document = Notebook.decode("a.ipynb", raw.encode())
    output = document.encode(document.text.replace("a\n", "a\nx\n") + "y\n")
    diff = unified_diff("a.ipynb", document.data, output, document.heading)
    assert b"@@ -1,5 +1,5 @@ cell 1, cell 3\n" in diff
