"""Older names to torch.amp's: before and after, at every spelling; and what stays."""

from __future__ import annotations

import textwrap

import pytest

from amp_migrate.api import LintOptions, Options, lint_source, modernize_source

NEW = Options(torch_version=(2, 4))


def modernized(text: str, options: Options = NEW) -> str:
    result = modernize_source(text, options=options)
    assert [str(found.message) for found in result.diagnostics] == []
    again = modernize_source(result.output, options=options)
    assert again.output == result.output and again.old_uses == ()
    return result.output


def kept(text: str, options: Options = NEW) -> list[tuple[str, str]]:
    result = modernize_source(text, options=options)
    assert result.output == text
    return [(found.code, found.message) for found in result.diagnostics]


def dedent(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


CALLS = [
    ("autocast()", 'autocast("cuda")'),
    ("autocast(True)", 'autocast("cuda", enabled=True)'),
    (
        "autocast(use, torch.float16, False)",
        'autocast("cuda", enabled=use, dtype=torch.float16, cache_enabled=False)',
    ),
    ("autocast(enabled=use)", 'autocast("cuda", enabled=use)'),
    ("autocast(dtype=torch.half)", 'autocast("cuda", dtype=torch.half)'),
    ("autocast(**kwargs)", 'autocast("cuda", **kwargs)'),
    ("autocast( True )", 'autocast( "cuda", enabled=True )'),
    ("GradScaler()", 'GradScaler("cuda")'),
    ("GradScaler(1024.0)", 'GradScaler("cuda", init_scale=1024.0)'),
    (
        "GradScaler(2.0, 4.0, 0.5, 100, use)",
        'GradScaler("cuda", init_scale=2.0, growth_factor=4.0, backoff_factor=0.5, '
        "growth_interval=100, enabled=use)",
    ),
    ("GradScaler(8.0, enabled=use)", 'GradScaler("cuda", init_scale=8.0, enabled=use)'),
    ("GradScaler(*args, **kwargs)", 'GradScaler("cuda", *args, **kwargs)'),
    ("GradScaler(1.0, *args)", 'GradScaler("cuda", 1.0, *args)'),
    ("custom_fwd(f)", 'custom_fwd(f, device_type="cuda")'),
    ("custom_fwd(fwd=f)", 'custom_fwd(device_type="cuda", fwd=f)'),
    (
        "custom_fwd(cast_inputs=torch.float32)",
        'custom_fwd(device_type="cuda", cast_inputs=torch.float32)',
    ),
    ("custom_bwd(f)", 'custom_bwd(f, device_type="cuda")'),
    ("custom_bwd()", 'custom_bwd(device_type="cuda")'),
]
SPELLINGS = [
    ("from torch.cuda.amp import {0}", "from torch.amp import {0}", "", ""),
    ("from torch.cuda import amp", "from torch import amp", "amp.", "amp."),
    ("from torch.cuda import amp as a", "from torch import amp as a", "a.", "a."),
    ("import torch.cuda.amp as amp", "import torch.amp as amp", "amp.", "amp."),
    ("import torch.cuda.amp", "import torch.amp", "torch.cuda.amp.", "torch.amp."),
    ("import torch", "import torch", "torch.cuda.amp.", "torch.amp."),
    ("import torch as th", "import torch as th", "th.cuda.amp.", "th.amp."),
    ("amp = torch.cuda.amp", "amp = torch.amp", "amp.", "amp."),
    ("{0} = torch.cuda.amp.{0}", "{0} = torch.amp.{0}", "", ""),
    ("from torch import cuda", "from torch import cuda", "cuda.amp.", "torch.amp."),
    (
        "import torch.cuda as tc",
        "import torch.cuda as tc",
        "tc.amp.",
        "torch.amp.",
    ),
]


@pytest.mark.parametrize("spelling", SPELLINGS, ids=lambda s: s[0])
@pytest.mark.parametrize(("old", "new"), CALLS, ids=lambda c: c)
def test_call(old: str, new: str, spelling: tuple[str, str, str, str]) -> None:
    name = old.partition("(")[0]
    imported, moved, before, after = (part.format(name) for part in spelling)
    head = "import torch\n" if imported.split()[:2] != ["import", "torch"] else ""
    old, new = (text.replace("torch.", "", 0) for text in (old, new))
    if imported == "import torch as th":
        old, new = (text.replace("torch.", "th.") for text in (old, new))
    text = f"{head}{imported}\nx = {before}{old}\n"
    assert modernized(text) == f"{head}{moved}\nx = {after}{new}\n"


def test_cpu() -> None:
    assert (
        modernized("import torch\nwith torch.cpu.amp.autocast(on):\n    pass\n")
        == 'import torch\nwith torch.amp.autocast("cpu", enabled=on):\n    pass\n'
    )
    assert (
        modernized("from torch.cpu import amp\ns = amp.GradScaler(2.0)\n")
        == 'from torch import amp\ns = amp.GradScaler("cpu", init_scale=2.0)\n'
    )


def test_the_quotes_of_the_file_are_kept() -> None:
    text = "import torch\nname = 'a'\nscaler = torch.cuda.amp.GradScaler(enabled=on)\n"
    new = "torch.amp.GradScaler('cuda', enabled=on)"
    after = text.replace("torch.cuda.amp.GradScaler(enabled=on)", new)
    assert modernized(text) == after
    options = Options(lint=LintOptions(select=("AMP210",), fix=True))
    assert lint_source(text, options=options).output == after


CASES: dict[str, tuple[str, str]] = {
    "decorators": (
        """
        from torch.cuda.amp import autocast, custom_bwd, custom_fwd

        class F(Function):
            @staticmethod
            @custom_fwd
            def forward(ctx, x):
                return x

            @staticmethod
            @custom_bwd  # plain
            def backward(ctx, g):
                return g

        @autocast()
        def step(x):
            return x

        @autocast(enabled=False)
        async def other(x):
            return x
        """,
        """
        from torch.amp import autocast, custom_bwd, custom_fwd

        class F(Function):
            @staticmethod
            @custom_fwd(device_type="cuda")
            def forward(ctx, x):
                return x

            @staticmethod
            @custom_bwd(device_type="cuda")  # plain
            def backward(ctx, g):
                return g

        @autocast("cuda")
        def step(x):
            return x

        @autocast("cuda", enabled=False)
        async def other(x):
            return x
        """,
    ),
    "several names of one import": (
        """
        from torch.cuda import amp, is_available  # what is there

        scaler = amp.GradScaler(enabled=is_available())
        """,
        """
        from torch import amp
        from torch.cuda import is_available  # what is there

        scaler = amp.GradScaler("cuda", enabled=is_available())
        """,
    ),
    "a list of names": (
        """
        from torch.cuda.amp import (
            GradScaler,  # scales
            autocast,
        )

        with autocast():
            scaler = GradScaler()
        """,
        """
        from torch.amp import (
            GradScaler,  # scales
            autocast,
        )

        with autocast("cuda"):
            scaler = GradScaler("cuda")
        """,
    ),
    "submodules": (
        """
        import torch
        from torch.cuda.amp.autocast_mode import autocast
        from torch.cuda.amp.grad_scaler import GradScaler, OptState
        from torch.cuda.amp import grad_scaler

        ready: OptState
        with autocast():
            scalers = torch.cuda.amp.grad_scaler.GradScaler(), grad_scaler.GradScaler()
        """,
        """
        import torch
        from torch.amp.autocast_mode import autocast
        from torch.amp.grad_scaler import GradScaler, OptState
        from torch.amp import grad_scaler

        ready: OptState
        with autocast("cuda"):
            scalers = torch.amp.grad_scaler.GradScaler("cuda"), grad_scaler.GradScaler("cuda")
        """,
    ),
    "annotations and tests": (
        """
        import torch
        from torch.cuda.amp import GradScaler

        def f(a: GradScaler, b: torch.cuda.amp.GradScaler | None = None) -> GradScaler:
            c: list[GradScaler] = []
            assert isinstance(a, (GradScaler, torch.cuda.amp.GradScaler))
            return a
        """,
        """
        import torch
        from torch.amp import GradScaler

        def f(a: GradScaler, b: torch.amp.GradScaler | None = None) -> GradScaler:
            c: list[GradScaler] = []
            assert isinstance(a, (GradScaler, torch.amp.GradScaler))
            return a
        """,
    ),
    "a fallback that is never needed": (
        """
        import torch
        try:
            from torch.cuda.amp import autocast
            HAS_AMP = True
        except ImportError:
            HAS_AMP = False
            class autocast:
                def __init__(self, enabled):
                    pass
        try:
            scale = torch.cuda.amp.GradScaler
        except:
            scale = None

        with autocast(HAS_AMP):
            scaler = scale(enabled=HAS_AMP)
        """,
        """
        import torch
        try:
            from torch.amp import autocast
            HAS_AMP = True
        except ImportError:
            HAS_AMP = False
            class autocast:
                def __init__(self, enabled):
                    pass
        try:
            scale = torch.amp.GradScaler
        except:
            scale = None

        with autocast("cuda", enabled=HAS_AMP):
            scaler = scale("cuda", enabled=HAS_AMP)
        """,
    ),
    "scopes of their own": (
        """
        def train():
            from torch.cuda.amp import autocast
            def inner():
                return [autocast(i) for i in range(2)]

        def other(autocast):
            with autocast(True):
                pass
        """,
        """
        def train():
            from torch.amp import autocast
            def inner():
                return [autocast("cuda", enabled=i) for i in range(2)]

        def other(autocast):
            with autocast(True):
                pass
        """,
    ),
    "names that are hidden for a while": (
        """
        from torch.cuda.amp import autocast
        a = lambda autocast: autocast(True)
        b = [autocast(True) for autocast in regions]
        c = [autocast(on) for on in (True, False)]
        d = lambda on: autocast(on)
        """,
        """
        from torch.amp import autocast
        a = lambda autocast: autocast(True)
        b = [autocast(True) for autocast in regions]
        c = [autocast("cuda", enabled=on) for on in (True, False)]
        d = lambda on: autocast("cuda", enabled=on)
        """,
    ),
    "a name for itself in each function": (
        """
        def a():
            from torch.cuda import amp
            return amp.GradScaler(1.0)
        def b():
            from torch.cpu import amp
            return amp.GradScaler(1.0)
        def c():
            from other import amp
            return amp.GradScaler(1.0)
        """,
        """
        def a():
            from torch import amp
            return amp.GradScaler("cuda", init_scale=1.0)
        def b():
            from torch import amp
            return amp.GradScaler("cpu", init_scale=1.0)
        def c():
            from other import amp
            return amp.GradScaler(1.0)
        """,
    ),
    "aliases of torch and its modules": (
        """
        import torch
        t, tc = torch, torch.cuda
        x: object = torch.cuda
        a = b = torch.cuda.amp
        def f():
            u = tc
            u.amp.autocast(True)
            x.amp.autocast(True)
            t.cuda.amp.autocast(True)
        def g():
            return a.autocast(True), b.autocast(True)
        """,
        """
        import torch
        t, tc = torch, torch.cuda
        x: object = torch.cuda
        a = b = torch.amp
        def f():
            u = tc
            torch.amp.autocast("cuda", enabled=True)
            torch.amp.autocast("cuda", enabled=True)
            t.amp.autocast("cuda", enabled=True)
        def g():
            return a.autocast("cuda", enabled=True), b.autocast("cuda", enabled=True)
        """,
    ),
    "comments in a call": (
        """
        from torch.cuda.amp import GradScaler
        scaler = GradScaler(
            # the scale at first
            1024.0,  # small
            growth_interval=100,
        )
        """,
        """
        from torch.amp import GradScaler
        scaler = GradScaler(
            # the scale at first
            "cuda",
            init_scale=1024.0,  # small
            growth_interval=100,
        )
        """,
    ),
    "two imports on a line": (
        "import torch; from torch.cuda.amp import autocast; c = autocast()\n",
        'import torch; from torch.amp import autocast; c = autocast("cuda")\n',
    ),
    "other regions' dtypes": (
        """
        import torch
        def outer():
            with torch.autocast("cuda", dtype=torch.bfloat16):
                inner()
        def inner():
            with torch.cuda.amp.autocast():
                with torch.cuda.amp.autocast(enabled=False):
                    pass
            with torch.cuda.amp.autocast(True, torch.float16):
                pass
            with torch.cpu.amp.autocast(enabled=x):
                pass
        """,
        """
        import torch
        def outer():
            with torch.autocast("cuda", dtype=torch.bfloat16):
                inner()
        def inner():
            with torch.amp.autocast("cuda", dtype=torch.float16):
                with torch.amp.autocast("cuda", enabled=False):
                    pass
            with torch.amp.autocast("cuda", enabled=True, dtype=torch.float16):
                pass
            with torch.amp.autocast("cpu", dtype=torch.bfloat16, enabled=x):
                pass
        """,
    ),
    "other regions' caches": (
        """
        import torch
        with torch.cuda.amp.autocast(cache_enabled=False):
            with torch.cuda.amp.autocast():
                pass
        """,
        """
        import torch
        with torch.amp.autocast("cuda", cache_enabled=False):
            with torch.amp.autocast("cuda", cache_enabled=True):
                pass
        """,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    before, after = CASES[name]
    assert modernized(dedent(before)) == dedent(after)


MODERN = [
    "import torch\nwith torch.autocast('cuda'):\n    pass\n",
    "import torch\nscaler = torch.amp.GradScaler('cuda')\n",
    "from torch.amp import autocast, GradScaler\nwith autocast(device_type='cuda'):\n    pass\n",
    "try:\n    from torch.amp import autocast\n"
    "except ImportError:\n    from torch.cuda.amp import autocast\n",
    "import torch\ns = torch.amp.GradScaler('cuda') if TORCH_2_4 else torch.cuda.amp.GradScaler()\n",
    "import torch\nif hasattr(torch.amp, 'GradScaler'):\n    s = torch.amp.GradScaler('cuda')\n"
    "else:\n    s = torch.cuda.amp.GradScaler()\n",
    "import torch\nprint(torch.cuda.amplitude, amp.autocast())\n",
    "import torch\na = b\nb = a\na = a.amp\na.autocast()\nprint(torch.cuda.amplitude)\n",
    "import torch\ntry:\n    s = torch.amp.GradScaler('cuda')\n"
    "except (AttributeError, TypeError):\n    s = torch.cuda.amp.GradScaler()\n",
    "# amp: off\nimport torch\ns = torch.cuda.amp.GradScaler()\n",
    "import torch\ns = torch.cuda.amp.GradScaler()  # amp: off\n",
    '"""\nUses torch.cuda.amp.autocast().\n"""\n',
]


@pytest.mark.parametrize("text", MODERN)
def test_what_is_modern_or_marked_stays_without_a_word(text: str) -> None:
    assert kept(text) == []


LEFT = {
    "a star import": (
        "from torch.cuda.amp import *\nwith autocast():\n    pass\n",
        "everything is imported from it (*)",
    ),
    "a value": (
        "from contextlib import nullcontext\nfrom torch.cuda.amp import autocast\n"
        "ctx = autocast if x else nullcontext\nwith ctx():\n    pass\nwith autocast():\n    pass\n",
        "autocast is used as a value",
    ),
    "getattr": (
        "import torch\nautocast = getattr(torch.cuda.amp, 'autocast')\n",
        "torch.cuda.amp is used as a value",
    ),
    "a string": (
        "import importlib\namp = importlib.import_module('torch.cuda.amp')\n",
        "torch.cuda.amp stands in a string",
    ),
    "a base class": (
        "from torch.cuda.amp import GradScaler\nclass S(GradScaler):\n    pass\n",
        "GradScaler is used as a value",
    ),
    "two meanings": (
        "try:\n    from apex import amp\nexcept ImportError:\n    from torch.cuda import amp\n"
        "with amp.autocast():\n    pass\n",
        "amp is bound to something else, too",
    ),
    "a fallback that may be needed": (
        "try:\n    import special\n    from torch.cuda.amp import autocast\n"
        "except ImportError:\n    autocast = special_autocast\nwith autocast(True):\n    pass\n",
        "autocast is bound to something else, too",
    ),
    "arguments that cannot be counted": (
        "import torch\nwith torch.cuda.amp.autocast(*args):\n    pass\n",
        "torch.cuda.amp.autocast is given arguments that cannot be counted (*)",
    ),
    "a parameter that is not there": (
        "import torch\nwith torch.cuda.amp.autocast(device_type='cuda'):\n    pass\n",
        "torch.cuda.amp.autocast has no parameter device_type",
    ),
    "a device for enabled": (
        "import torch\nwith torch.cuda.amp.autocast('cuda'):\n    pass\n",
        "torch.cuda.amp.autocast is given a text for enabled",
    ),
    "a decorator that is not called": (
        "from torch.cuda.amp import autocast\n@autocast\ndef f():\n    pass\n",
        "@autocast is not called",
    ),
    "an unknown name": (
        "import torch\ntorch.cuda.amp.common.amp_definitely_not_available()\n",
        "torch.cuda.amp.common.amp_definitely_not_available is not in torch.amp",
    ),
    "torch out of sight": (
        "from torch import cuda\nwith cuda.amp.autocast():\n    pass\n",
        "torch itself is not imported",
    ),
    "an attribute of a class": (
        "class A:\n    from torch.cuda.amp import autocast\n"
        "    def f(self):\n        return self.autocast(True)\n",
        "autocast is an attribute of a class",
    ),
    "a text": (
        "import torch\nprint(f'{1} {torch.cuda.amp.GradScaler()}')\n",
        "torch.cuda.amp.GradScaler stands in a text",
    ),
    "a text in a text": (
        "import torch\nprint(f'{[torch.cuda.amp.GradScaler(x) for x in y]}')\n",
        "torch.cuda.amp.GradScaler stands in a text",
    ),
    "torch.cuda handed on": (
        "import torch\ndef f(cuda=torch.cuda):\n    return cuda.amp.autocast(True)\n",
        "cuda.amp.autocast may be torch's, by a way that is not followed",
    ),
    "torch.cuda kept": (
        "import torch\nclass A:\n    def __init__(self):\n        self.c = torch.cuda\n"
        "    def f(self):\n        return self.c.amp.autocast(True)\n",
        "self.c.amp.autocast may be torch's, by a way that is not followed",
    ),
    "torch.cuda looked up": (
        "import torch\nwith getattr(torch, 'cuda').amp.autocast(True):\n    pass\n"
        "print(torch.cuda)\n",
        "amp.autocast may be torch's, by a way that is not followed",
    ),
    "torch out of a star": (
        "from common import *\nwith torch.cuda.amp.autocast(True):\n    pass\n",
        "torch.cuda.amp.autocast may be torch's, by a way that is not followed",
    ),
    "another device": (
        "import torch\nfrom torch_npu.contrib import transfer_to_npu\n"
        "with torch.cuda.amp.autocast():\n    pass\n",
        "another device's package may replace torch.cuda.amp",
    ),
    "a list of what others may import": (
        "from torch.cuda.amp import autocast\n__all__ = ['autocast']\n",
        "autocast may be imported from here",
    ),
}


@pytest.mark.parametrize("name", LEFT)
def test_left(name: str) -> None:
    text, message = LEFT[name]
    assert kept(text) == [("AMP051", message)]


def test_a_variable_of_a_function_around_goes_with_its_import() -> None:
    text = (
        "def f():\n    autocast = None\n    def g():\n        nonlocal autocast\n"
        "        from torch.cuda.amp import autocast\n    g()\n    return autocast(True)\n"
    )
    assert {code for code, _ in kept(text)} == {"AMP051"}


@pytest.mark.parametrize(
    "text",
    [
        "from torch.cuda.amp import autocast\nac = autocast\nf(autocast)\nac(True)\n",
        "import torch\nam = torch.cuda.amp\nac = am.autocast\nf(am)\nac(True)\n",
        "import torch\na = b = torch.cuda.amp.autocast\nf(b)\na(True)\n",
        "import torch\na = b = torch.cuda.amp.autocast\nf(a)\nb(True)\n",
    ],
)
def test_an_alias_stays_with_what_it_stands_for(text: str) -> None:
    assert {code for code, _ in kept(text)} == {"AMP051"}


def test_a_test_for_the_older_class_keeps_what_it_tests() -> None:
    text = (
        "import torch\nscaler = torch.cuda.amp.GradScaler()\n"
        "print(type(scaler) is torch.cuda.amp.GradScaler)\n"
    )
    assert [code for code, _ in kept(text)] == ["AMP051", "AMP051"]


@pytest.mark.parametrize(
    ("version", "kinds"),
    [
        ((1, 11), {"autocast", "GradScaler", "custom_fwd"}),
        ((2, 2), {"GradScaler", "custom_fwd"}),
        ((2, 3), {"custom_fwd"}),
        ((2, 4), set()),
    ],
)
def test_oldest_torch(version: tuple[int, int], kinds: set[str]) -> None:
    text = (
        "from torch.cuda.amp import autocast, GradScaler, custom_fwd\n"
        "with autocast():\n    f(GradScaler(), custom_fwd(g))\n"
    )
    result = modernize_source(text, options=Options(torch_version=version))
    assert {found.code for found in result.diagnostics} <= {"AMP052"}
    assert {found.message.split()[0] for found in result.diagnostics} == {
        f"torch.amp.{kind}" for kind in kinds
    }
    for kind in ("autocast", "GradScaler", "custom_fwd"):
        assert (f"{kind}()" in result.output or f"{kind}(g)" in result.output) == (
            kind in kinds
        )


def test_black_stays_black() -> None:
    text = (
        "import torch\n\nx = torch.cuda.amp.GradScaler(\n"
        "    init_scale=1024.0, growth_factor=2.0, backoff_factor=0.5, enabled=True\n)\n"
        "with torch.cuda.amp.autocast(enabled=some_rather_long_name.is_switched_on_now):\n"
        "    pass\n"
    )
    black = pytest.importorskip("black")
    output = modernized(text)
    assert black.format_str(output, mode=black.Mode()) == output


@pytest.mark.parametrize(
    "patch",
    [
        "torch.cuda.amp.autocast = mine\n",
        "setattr(torch.cuda.amp, 'autocast', mine)\n",
        "mock.patch('torch.cuda.amp.autocast', mine).start()\n",
        "mock.patch.object(torch.cuda.amp, 'autocast', mine).start()\n",
    ],
)
def test_what_is_replaced_stays(patch: str) -> None:
    text = f"import torch\n{patch}with torch.cuda.amp.autocast(True):\n    pass\n"
    messages = {message for _, message in kept(text)}
    assert "the program replaces names in torch.cuda.amp" in messages
