"""IPython's own syntax, masked as Python and back."""

from __future__ import annotations

import ast

import pytest

from amp_migrate.sources.ipython import LostMarkError, MaskError, mask, unmask

MASKED = {
    "magic": ("%matplotlib inline", '"amp-migrate: magic 1"'),
    "magic with a blank": ("% matplotlib inline", '"amp-migrate: magic 1"'),
    "shell": ("!pip install x\ny", '"amp-migrate: magic 1"\ny'),
    "shell, its output": ("!!ls", '"amp-migrate: magic 1"'),
    "shell, on two lines": (
        "!pip install a \\\n  b\nx",
        '"""amp-migrate: magic 1\n"""\nx',
    ),
    "in a block": (
        "if x:\n    !nvidia-smi\n    %cd ..\ny",
        'if x:\n    "amp-migrate: magic 1"\n    "amp-migrate: magic 2"\ny',
    ),
    "assigned": ("files = !ls", "files = _amp_migrate_magic_1"),
    "assigned, continued": ("files = \\\n  !ls", "files = \\\n  _amp_migrate_magic_1"),
    "assigned, on two lines": ("f = !ls \\\n  -l", "f = (_amp_migrate_magic_1\n)"),
    "assigned, annotated": ("f: list = !ls", "f: list = _amp_migrate_magic_1"),
    "assigned magic": ("e = %env HOME", "e = _amp_migrate_magic_1"),
    "help": ("model?", '"amp-migrate: magic 1"'),
    "help, twice": ("model.fit??", '"amp-migrate: magic 1"'),
    "help, first": (
        "?model\n??model",
        '"amp-migrate: magic 1"\n"amp-migrate: magic 2"',
    ),
    "help on a magic": ("%time?", '"amp-migrate: magic 1"'),
    "help on a cell magic": ("%%time?\nx", '"amp-migrate: magic 1"\nx'),
    "sets variables": ("%run a.py", "from _amp_migrate_magic_1 import *"),
    "sets variables, on two lines": (
        "%run a.py \\\n  1",
        "from _amp_migrate_magic_1 \\\nimport *",
    ),
    "unknown": ("%foo bar", "from _amp_migrate_magic_1 import *"),
    "time": ("%time f(x)", "f(x)  # amp-migrate: magic 1"),
    "time, quiet": ("%time f(x) ;", "f(x) ;  # amp-migrate: magic 1"),
    "time, commented": ("%time f(x)  # why", "f(x)  # why  # amp-migrate: magic 1"),
    "time, a binding": ("%time y = f(x)", "y = f(x)  # amp-migrate: magic 1"),
    "time, on two lines": (
        "%time f(x, \\\n  y)",
        "f(x, \\\n  y)  # amp-migrate: magic 1",
    ),
    "time, a shell": ("%time !ls", '"amp-migrate: magic 1"'),
    "time, nothing": ("%time", '"amp-migrate: magic 1"'),
    "options": ("%timeit -n 10 -r3 f(x)", "f(x)  # amp-migrate: magic 1"),
    "option with a name": ("%lprun -f f g(x)", "g(x)  # amp-migrate: magic 1"),
    "options only": ("%prun -l 10", '"amp-migrate: magic 1"'),
    "assigned time": ("t = %timeit -o f(x);", "t = _amp_migrate_magic_1(f(x));"),
    "time in a block": (
        "for x in y:\n\t%time f(x)\n",
        "for x in y:\n\tf(x)  # amp-migrate: magic 1\n",
    ),
    "cell magic": ("%%time\nf(x)", '"amp-migrate: magic 1"\nf(x)'),
    "cell magics": (
        "\n%%time\n\n%%capture out\n!ls\nf(x)",
        '\n"amp-migrate: magic 1"\n\n"amp-migrate: magic 2"\n"amp-migrate: magic 3"\nf(x)',
    ),
    "cell magic with code": (
        "%%timeit -n1 x = g()\nf(x)",
        "x = g()  # amp-migrate: magic 1\nf(x)",
    ),
    "another program": (
        "%%bash\nif true; then\n  ls\nfi\n",
        '"""amp-migrate: magic 1\n\n\n\n"""',
    ),
    "another program, timed": (
        "%%time\n%%writefile a.py\nx = f()",
        '"amp-migrate: magic 1"\n"""amp-migrate: magic 2\n"""',
    ),
    "another language": (
        "%%sql x <<\nselect 1",
        "from _amp_migrate_magic_1 \\\nimport *",
    ),
    "unknown, not Python": (
        "%%foo\nselect 1",
        "from _amp_migrate_magic_1 \\\nimport *",
    ),
    "without a percent sign": ("pip install x\n", '"amp-migrate: magic 1"\n'),
    "after brackets in a command": ("!echo '(\nx", '"amp-migrate: magic 1"\nx'),
}


@pytest.mark.parametrize("cell, program", MASKED.values(), ids=MASKED.keys())
def test_what_ipython_adds_is_masked(cell: str, program: str) -> None:
    text, masks = mask(cell, 1)
    assert text == program
    ast.parse(text)
    assert text.count("\n") == cell.count("\n")
    assert unmask(text, masks) == cell


PYTHON = {
    "modulo": "a = b % c\na %= b",
    "modulo on its own line": "x = (a\n  %b)\ny = a \\\n  % b",
    "not equal": "a = b != c\nf(a!=b)",
    "in a string": 's = """\n%matplotlib inline\n!ls\nwhat?\n"""',
    "in a raw string": "s = r'''\n\\''' ''' '''\n%x\n'''\n",
    "in a docstring": 'def f():\n    """Doc.\n\n    !ls\n    """\n',
    "in a joined string": "s = 'a \\\n!ls \\\n'",
    "in an f-string": 'f"{x!r} {y % z}"\nf"""{x}\n%y\n"""',
    "in a comment": "# what?\nx  # why?\n# %time f()\n#!ls",
    "question in a string": "s = 'what?'",
    "quotes in a comment": "# don't\nx % y  # it's\n",
    "await": "await f()\nasync with a as b:\n    pass",
    "a name like a magic": "ls",
    "nothing": "",
    "blank lines": "\n  \n",
    "quiet": "plt.show();",
}


@pytest.mark.parametrize("cell", PYTHON.values(), ids=PYTHON.keys())
def test_python_is_not_masked(cell: str) -> None:
    assert mask(cell, 1) == (cell, ())
    assert unmask(cell, ()) == cell


REFUSED = {
    "unknown magic with a call": ("x = 1\n%foo train(model)", "%foo runs", 2),
    "unknown magic, assigned": ("y = %foo -x train(model)", "%foo runs", 1),
    "unknown cell magic on Python": ("\n%%foo\ntrain(model)", "%%foo runs", 2),
    "unknown cell magic on magics": ("%%foo\nif x:\n  %time f()", "%%foo runs", 1),
    "a repeated step": ("%timeit optimizer.step()", "repeats", 1),
    "a repeated backward": ("x = %timeit -o loss.backward()", "repeats", 1),
    "not an expression": ("x = %timeit -o y = f()", "plain expression", 1),
}


@pytest.mark.parametrize("cell, message, line", REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_masked_is_an_error(cell: str, message: str, line: int) -> None:
    with pytest.raises(MaskError) as caught:
        mask(cell, 1)
    assert message in caught.value.message
    assert caught.value.line == line


EDITS = {
    "an argument": ("%time f(x)", ("f(x)", "f(x, s)"), "%time f(x, s)"),
    "an argument, by a comment": (
        "%time f(x)  # why",
        ("f(x)", "f(x, s)"),
        "%time f(x, s)  # why",
    ),
    "an argument, assigned": (
        "y = %time f(x)  ;",
        ("f(x)", "f(x, s)"),
        "y = %time f(x, s)  ;",
    ),
    "an argument, on a line of its own": (
        "%time f(x)\ny",
        ("f(x)", "f(\n    x, s\n)"),
        "%time f(x, s)\ny",
    ),
    "an argument, many lines": (
        "y = %time f(x)",
        ("f(x)", "\n    f(\n        x,\n        [s],\n    )\n"),
        "y = %time f(x, [s],)",
    ),
    "an argument, continued": (
        "%time f(x, \\\n y)",
        ("y)", "y, s)"),
        "%time f(x, \\\n y, s)",
    ),
    "a line before": (
        "%%time\n%time f(x)",
        ("f(x)", "s = g()\nf(x)"),
        "%%time\ns = g()\n%time f(x)",
    ),
    "a line at the end": ("!ls\nx", ("\nx", "\nx\ny"), "!ls\nx\ny"),
    "an indented magic": (
        "!ls \\\n -l",
        ('"""amp', 'with a:\n    """amp'),
        "with a:\n    !ls \\\n -l",
    ),
    "an indented statement": (
        "%time y = f(x)\nz",
        ("y =", "with a:\n    y ="),
        "with a:\n    %time y = f(x)\nz",
    ),
}


@pytest.mark.parametrize("cell, edit, edited", EDITS.values(), ids=EDITS.keys())
def test_edits_come_out_beside_magics(
    cell: str, edit: tuple[str, str], edited: str
) -> None:
    text, masks = mask(cell, 1)
    assert text.count(edit[0]) == 1
    assert unmask(text.replace(*edit), masks) == edited


LOST = {
    "lost": ("!ls\nx", '"amp-migrate: magic 1"\n', ""),
    "twice": ("!ls\nx", "x", '"amp-migrate: magic 1"'),
    "another's": ("!ls\nx", "magic 1", "magic 2"),
    "joined to another statement": ("!ls\nx", "\nx", "; x"),
    "used": ("!ls\nx", '"amp-migrate: magic 1"', 'x = "amp-migrate: magic 1"'),
    "before a cell magic": ("%%time\nx", '"amp', 'import a\n"amp'),
    "between cell magics": ("%%time\n%%capture\nx", '1"\n', '1"\ny\n'),
    "in another program": ("%%bash\nls", '\n"""', '\n"""\nimport a'),
    "comment moved": ("%time f(x)\ny", "f(x)  #", "f(x)\n#"),
    "statement taken apart": ("%time f(x); y = 1", ";", "\n"),
    "call taken apart": ("t = %time f(x)", "(f(x))", ""),
    "value wrapped": ("t = !ls \\\n -l", "= (", "= ((1) and "),
    "statements become others": ("%time f(x)", "f(x)", "y = f(x)"),
}


@pytest.mark.parametrize("cell, old, new", LOST.values(), ids=LOST.keys())
def test_masks_that_cannot_be_taken_off_are_an_error(
    cell: str, old: str, new: str
) -> None:
    text, masks = mask(cell, 1)
    assert text.count(old) == 1
    with pytest.raises(LostMarkError):
        unmask(text.replace(old, new), masks)
