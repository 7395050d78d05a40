"""Orders of backward, clip, step and zero_grad in which a scaler would raise or mix up gradients."""

from __future__ import annotations

import pytest
from half_support import check_runs
from programs import HEAD, before_and_after, left_alone, migrated
from shorthand import written_out

from amp_migrate.api import migrate_source

OPT = "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
FORWARD = "loss = criterion(model(x), y)"
CLIP = "nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
LOOP = f"""\
for i, (x, y) in enumerate(data):
    opt.zero_grad()
    {FORWARD}
    loss.backward()
"""


def blamed(body: str) -> tuple[str, str]:
    """The code of the refusal, and the line that it names."""
    assert left_alone(body)
    (found,) = migrate_source(HEAD + body, path="train.py").diagnostics
    return found.code, (found.blocker or found.place).text


# What follows the backward() of `LOOP`: its code, and text whose line to blame is marked.
AFTER_BACKWARD = {
    "a second step": ("AMP031", "    opt.step()\n    opt.step()  # here\n"),
    "an optimizer made anew": (
        "AMP031",
        "    if i == 3:\n"
        "        opt = torch.optim.Adam(model.parameters())\n"
        "    opt.step()  # here\n",
    ),
    "a second backward after a clip": (
        "AMP030",
        f"    {CLIP}\n    model(x).mean().backward()  # here\n    opt.step()\n",
    ),
    "a second backward after a step": (
        "AMP031",
        "    opt.step()\n    model(x).mean().backward()  # here\n",
    ),
    "gradients by getattr": (
        "AMP030",
        '    print(getattr(model[0].weight, "grad").norm())  # here\n    opt.step()\n',
    ),
    "code in a string": (
        "AMP030",
        '    exec("clip_everything(model)")  # here\n    opt.step()\n',
    ),
    "a step by hand": (
        "AMP030",
        "    for p in model.parameters():\n        p.data.add_(p.grad, alpha=-0.01)  # here\n"
        "    opt.step()\n",
    ),
    "a step by hand, with an operator": (
        "AMP030",
        "    with torch.no_grad():\n        for p in model.parameters():\n"
        "            p -= 0.1 * p.grad  # here\n    opt.step()\n",
    ),
    "a step by hand, by another name": (
        "AMP030",
        "    for p in model.parameters():\n        d_p = p.grad.data\n"
        "        p.data.add_(d_p, alpha=-0.01)  # here\n    opt.step()\n",
    ),
    "a step by hand, or one": (
        "AMP030",
        "    if i < 3:\n        opt.step()\n    else:\n        for p in model.parameters():\n"
        "            p.data = p.data - 0.1 * p.grad.data  # here\n",
    ),
    "a step in a lambda": ("AMP016", "    (lambda: opt.step())()  # here\n"),
    "the result of a step": ("AMP016", "    print(opt.step())  # here\n"),
}


@pytest.mark.parametrize("name", AFTER_BACKWARD)
def test_after_backward(name: str) -> None:
    code, rest = AFTER_BACKWARD[name]
    found, line = blamed(OPT + LOOP + rest)
    assert (found, line.endswith("# here")) == (code, True)


def test_the_result_of_a_step_has_a_name() -> None:
    """Of torch's own optimizers it is None, whether a scaler skips the step or not."""
    rest = "    done = opt.step()\n    print(done, loss.item())\n"
    source = HEAD + OPT + LOOP + rest
    output = migrate_source(source).output
    assert "    done = scaler.step(opt)\n    scaler.update()\n" in output
    check_runs(source, output)
    own = "class Own(torch.optim.SGD):\n    def step(self):\n        super().step()\n        return 1\n"
    assert left_alone(own + OPT.replace("torch.optim.SGD", "Own") + LOOP + rest)
    summed = LOOP.replace("    opt.zero_grad()\n", "")
    left_over = (
        "    if i % 4 == 3:\n        opt.step()\n        opt.zero_grad()\nopt.step()\n"
    )
    assert "is not None for" in migrated(OPT + summed + left_over)
    named = left_over.replace("\nopt.step", "\ndone = opt.step")
    assert left_alone(OPT + summed + named) == "AMP016"


EDITS = {
    "a decay": "p.grad.add_(p.data, alpha=0.1)",
    "a copy": "kept = p.grad.clone()\n        kept.mul_(2)",
    "a weight, apart": "print(p.grad.norm())\n        p.data.mul_(0.99)",
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_of_gradients_is_no_step(name: str) -> None:
    edit = f"    for p in model.parameters():\n        {EDITS[name]}\n    opt.step()\n"
    assert "scaler.unscale_(opt)" in migrated(OPT + LOOP + edit)


WITHOUT_ZERO_GRAD = {
    "at all": (OPT + LOOP.replace("    opt.zero_grad()\n", "") + "    opt.step()\n"),
    "every time": (
        OPT + LOOP.replace("opt.zero_grad()", "if i % 2:\n        opt.zero_grad()")
    )
    + "    opt.step()\n",
    "when the loss is good": OPT
    + LOOP.replace("    opt.zero_grad()\n", "")
    + "    opt.step()\n    if loss < 3:\n        opt.zero_grad()\n",
}


@pytest.mark.parametrize("name", WITHOUT_ZERO_GRAD)
def test_not_cleared(name: str) -> None:
    assert blamed(WITHOUT_ZERO_GRAD[name]) == ("AMP031", "loss.backward()")


ACCUMULATION = {
    "a clip on every micro-batch": f"""\
for i, (x, y) in enumerate(data):
    {FORWARD}
    loss.backward()  # here
    {CLIP}
    if i % 2:
        opt.step()
        opt.zero_grad()
""",
    "a helper that clips on every micro-batch": f"""\
def limit():
    {CLIP}
for i, (x, y) in enumerate(data):
    {FORWARD}
    loss.backward()  # here
    limit()
    if i % 2:
        opt.step()
        opt.zero_grad()
""",
    "a norm on every micro-batch": f"""\
for i, (x, y) in enumerate(data):
    {FORWARD}
    loss.backward()  # here
    print(sum(p.grad.norm() for p in model.parameters()))
    if i % 2:
        opt.step()
        opt.zero_grad()
""",
    "a clip in the inner of two loops": f"""\
for epoch in range(2):
    opt.zero_grad()
    for x, y in data:
        {FORWARD}
        loss.backward()  # here
        {CLIP}
    opt.step()
""",
}


@pytest.mark.parametrize("name", ACCUMULATION)
def test_touched_between_two_backwards_of_one_step(name: str) -> None:
    code, line = blamed(OPT + ACCUMULATION[name])
    assert (code, line.endswith("# here")) == ("AMP030", True)


PERHAPS_NONE = {
    "parts of a batch": f"""\
for x, y in data:
    opt.zero_grad()
    for k in range(parts - 4):
        criterion(model(x[k::2]), y[k::2]).backward()
    if clipped:
        {CLIP}
    opt.step()
""",
    "a leftover step": f"""\
for epoch in range(2):
    for i, (x, y) in enumerate(data[epoch:]):
        {FORWARD}
        loss.backward()
        if i % 2:
            {CLIP}
            opt.step()
            opt.zero_grad()
    {CLIP}
    opt.step()
    opt.zero_grad()
""",
}


@pytest.mark.parametrize("name", PERHAPS_NONE)
def test_what_unscales_for_a_step_that_may_find_no_gradients(name: str) -> None:
    source = f"{OPT}parts, clipped = len(data), len(data) > 1\n{PERHAPS_NONE[name]}"
    output = migrated(source)
    assert "\n    scaler.unscale_(opt)\n" not in output
    assert "\n        scaler.unscale_(opt)\n" in output
    check_runs(HEAD + source, HEAD + output)


HANDLERS = {
    "one that goes on": (
        f"        {CLIP}\n        opt.step()\n    except RuntimeError:\n        pass\n"
    ),
    "one that continues": (
        f"        {CLIP}\n        opt.step()\n    except RuntimeError:\n        continue\n"
    ),
}


@pytest.mark.parametrize("name", HANDLERS)
def test_handler_that_leaves_a_step_halfway(name: str) -> None:
    body = LOOP.replace(f"    {FORWARD}\n", f"    try:\n        {FORWARD}\n")
    body = body.replace("    loss.backward()", "        loss.backward()")
    assert "finally:\n            scaler.update()" in migrated(
        OPT + body + HANDLERS[name]
    )


def test_suppressed_exceptions_are_handlers() -> None:
    body = f"""\
import contextlib
for x, y in data:
    with contextlib.suppress(RuntimeError):
        opt.zero_grad()
        {FORWARD}
        loss.backward()
        {CLIP}
        opt.step()
"""
    assert "finally:" in migrated(OPT + body)
    plain = body.replace("suppress(RuntimeError)", "nullcontext()")
    assert "finally:" not in migrated(OPT + plain)


def test_handler_around_the_loop() -> None:
    body = f"""\
for epoch in range(2):
    try:
        for x, y in data:
            opt.zero_grad()
            {FORWARD}
            loss.backward()
            {CLIP}
            opt.step()
    except ValueError:
        print("again")
"""
    assert "finally:" in migrated(OPT + body)
    # What ends the program leaves nothing for the next epoch.
    assert "finally:" not in migrated(OPT + body.replace('print("again")', "raise"))


SUSPENDED = {
    "between backward and clip": f"    yield loss  # here\n    {CLIP}\n    opt.step()\n",
    "between clip and step": f"    {CLIP}\n    yield loss  # here\n    opt.step()\n",
    "await": "    await pause()  # here\n    opt.step()\n",
}


@pytest.mark.parametrize("name", SUSPENDED)
def test_suspended_in_the_middle_of_a_step(name: str) -> None:
    inner = "".join(f"    {line}\n" for line in (LOOP + SUSPENDED[name]).splitlines())
    word = "async def" if name == "await" else "def"
    assert left_alone(f"{OPT}{word} train():\n{inner}") == "AMP034"


RECURSION = """\
def train(net, opt, depth):
    x, y = data[depth]
    opt.zero_grad()
    loss = criterion(net(x), y)
    loss.backward()
    opt.step()
    if depth:
        train(net, opt, depth - 1)
def main():
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    train(model, opt, 3)
main()
"""


def test_recursion() -> None:
    found = migrated(RECURSION)
    assert "train(net, opt, depth - 1, scaler=scaler)" in found
    assert found.count("GradScaler(") == 1


BAD_RECURSION = {
    # name: (before, after, what the message says)
    "a call between backward and step": (
        "    opt.step()\n    if depth:\n        train(net, opt, depth - 1)\n",
        "    if depth:\n        train(net, opt, depth - 1)\n    opt.step()\n",
        "a second step",
    ),
    "what is left of the call around it": (
        "    opt.zero_grad()\n",
        "    if depth == 3:\n        opt.zero_grad()\n",
        "no zero_grad()",
    ),
    "a clip of what a call in it adds to": (
        "    opt.step()\n    if depth:\n        train",
        f"    {CLIP}\n    if depth == 0:\n        opt.step()\n    else:\n        train",
        "before the last backward()",
    ),
    "an optimizer for each": (
        "    opt.zero_grad()\n",
        "    opt = torch.optim.SGD(net.parameters(), lr=0.1)\n    opt.zero_grad()\n",
        "calls itself, which may be for another optimizer",
    ),
    "two optimizers in turn": (
        "    train(model, opt, 3)\n",
        "    train(model, opt, 3)\n    o = torch.optim.Adam(model.parameters())\n    train(model, o, 3)\n",
        "calls itself, which may be for another optimizer",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_RECURSION)
def test_what_a_recursion_does_is_followed(name: str) -> None:
    before, after, wanted = BAD_RECURSION[name]
    body = RECURSION.replace(before, after)
    assert left_alone(body)
    (found,) = migrate_source(HEAD + body, path="train.py").diagnostics
    assert wanted in found.message


def test_step_in_the_else_of_a_loop() -> None:
    """After a loop without a turn, its else meets gradients of an earlier step."""
    body = f"""\
for epoch in range(2):
    for x, y in data[:]:
        opt.zero_grad()
        {FORWARD}
        loss.backward()
    else:
        opt.step()
"""
    assert left_alone(OPT + body) == "AMP031"


def test_tests_of_one_variable_decide_together() -> None:
    """Otherwise there would be a way to the step without a backward()."""
    body = f"""\
for i, (x, y) in enumerate(data):
    trains = i % 2 == 1
    opt.zero_grad()
    {FORWARD}
    if trains:
        loss.backward()
    # between
    if trains:
        opt.step()
"""
    assert "if any(" not in migrated(OPT + body)
    assert "if any(" in migrated(OPT + body.replace("# between", "trains = i > 2"))


EPOCHS = f"""\
def epoch(model, opt=None, train=True):
    for x, y in data:
        {FORWARD}
        if opt is not None:
            loss.backward()
            {CLIP}
            opt.step()
            opt.zero_grad()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
other = nn.Linear(8, 3).to(device)
epoch(model, opt)
epoch(other, None)
"""
DECIDED = {
    "no optimizer": (EPOCHS, ""),
    "none by default": (EPOCHS.replace("(other, None)", "(other)"), ""),
    "a truth": (EPOCHS.replace("if opt is not None", "if opt"), ""),
    "a flag": (
        EPOCHS.replace("if opt is not None", "if train").replace(
            "(other, None)", "(other, opt, train=False)"
        ),
        "",
    ),
    "the optimizer, for another model": (EPOCHS.replace("(other, None)", "(other, opt)"), "AMP030"),
    "the other way round": (EPOCHS.replace("if opt is not None", "if opt is None"), "AMP030"),
    "another flag": (
        EPOCHS.replace("if opt is not None", "if train").replace(
            "(other, None)", "(other, opt, train=True)"
        ),
        "AMP030",
    ),
    "a flag that is set anew": (
        EPOCHS.replace("    for x, y in data:\n", "    train = True\n    for x, y in data:\n")
        .replace("if opt is not None", "if train")
        .replace("(other, None)", "(other, opt, train=False)"),
        "AMP030",
    ),
    "a flag that a decorator gives": (
        "from options import command\n"
        + EPOCHS.replace("def epoch", "@command\ndef epoch")
        .replace("if opt is not None", "if train")
        .replace("(other, None)", "(other, opt, train=False)"),
        "AMP030",
    ),
    "an optimizer out of a list": (
        EPOCHS.replace("(other, None)", "(other, *[opt])"),
        "AMP012",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DECIDED)
def test_what_a_call_gives_decides(name: str) -> None:
    body, code = DECIDED[name]
    if code:
        assert left_alone(body) == code
    else:
        assert "scaler.unscale_(opt)" in migrated(body)


LARGER_STATEMENTS = {
    "backward": f"    {FORWARD}\n    print(loss.backward())  # here\n",
    "backward in a comprehension": f"    [l.backward() for l in [{FORWARD[7:]}]]  # here\n",
    "backward in a lambda": "    (lambda: criterion(model(x), y).backward())()  # here\n",
    "backward by name": f"    {FORWARD}\n    loss.backward()\n    again = loss.backward  # here\n",
}


@pytest.mark.parametrize("name", LARGER_STATEMENTS)
def test_backward_that_is_no_statement_of_its_own(name: str) -> None:
    body = "for x, y in data:\n    opt.zero_grad()\n" + LARGER_STATEMENTS[name]
    code, line = blamed(OPT + body + "    opt.step()\n")
    assert (code, line.endswith("# here")) == ("AMP016", True)


COUNTED = """\
def train():
    opt.zero_grad()
    START
    for x, y in data[:]:
        loss = criterion(model(x), y)
        loss.backward()
        COUNT
        if pending == 4:
            opt.step()
            opt.zero_grad()
            AGAIN
    if TEST:
        opt.step()
        opt.zero_grad()
train()
"""
COUNTS = {
    "a counter": ("pending = 0", "pending += 1", "pending = 0", "pending > 0", False),
    "its truth": ("n, pending = 3, 0", "pending += 1", "pending = 0", "pending", False),
    "none left": (
        "pending = 0",
        "pending += 1",
        "pending = 0",
        "not pending < 1",
        True,
    ),
    "a flag": (
        "pending = False",
        "pending = True",
        "pending = False",
        "pending",
        False,
    ),
    "never set back": ("pending = 0", "pending += 1", "pass", "pending > 0", True),
    "set before": ("pending = 1", "pending += 1", "pending = 0", "pending > 0", True),
    "counted down": ("pending = 0", "pending -= 1", "pending = 0", "pending > 0", True),
    "read from elsewhere": (
        "pending = first()",
        "pending += 1",
        "pending = 0",
        "pending > 0",
        True,
    ),
    "more than one": (
        "pending = 0",
        "pending += 1",
        "pending = 0",
        "pending > 1",
        True,
    ),
}


@pytest.mark.parametrize("name", COUNTS)
def test_a_leftover_step_is_guarded_unless_it_was_counted(name: str) -> None:
    start, count, again, test, guarded = COUNTS[name]
    body = COUNTED.replace("START", start).replace("COUNT", count)
    body = body.replace("AGAIN", again).replace("TEST", test)
    assert ("p.grad is not None" in migrated(OPT + body)) is guarded


BY_HAND = """\
for x, y in data:
    loss = criterion(model(x), y)
    model.zero_grad()
    loss.backward()
    for p in model.parameters():
        p.data = p.data - 0.1 * p.grad.data
"""


def test_a_model_that_is_trained_by_hand_before() -> None:
    rest = (
        " model = make().to(device)\n opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "+scaler = BORN\n for x, y in data:\n     STEPS\n"
    )
    source, expected = before_and_after(written_out(rest))
    result = migrate_source(HEAD + BY_HAND + source, path="train.py")
    assert [d.code for d in result.diagnostics] == ["AMP011"]
    assert result.output == HEAD + BY_HAND + expected


def test_gradients_of_a_step_by_hand_that_stay() -> None:
    rest = (
        "opt = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for x, y in data:\n    loss = criterion(model(x), y)\n    loss.backward()\n"
        "    opt.step()\n    opt.zero_grad()\n"
    )
    assert left_alone(BY_HAND + rest) == "AMP030"


def test_whether_there_is_a_gradient_is_no_secret() -> None:
    source, expected = before_and_after(
        written_out(
            " opt = torch.optim.SGD(model.parameters(), lr=0.1)\n+scaler = BORN\n"
            " for x, y in data:\n     opt.zero_grad()\n"
            "-    loss = criterion(model(x), y)\n-    loss.backward()\n"
            "+    AUTOCAST\n+        loss = criterion(model(x), y)\n"
            "+    scaler.scale(loss).backward()\n"
            "     print([p.grad is None for p in model.parameters()])\n"
            "-    opt.step()\n+    scaler.step(opt)\n+    scaler.update()\n"
        )
    )
    assert migrated(source) == expected


INNER = {
    "a list that is written out": ("parts = [(x, y), (x, y)]", "parts", False),
    "a list made of another": ("parts = [(x, y) for _ in range(2)]", "parts", False),
    "an empty one": ("parts = []", "parts", True),
    "one that is chosen from": ("parts = [d for d in data if d]", "parts", True),
    "one that is emptied": ("parts = [(x, y)]\n    parts.pop()", "parts", True),
    "a generator that is used up": (
        "parts = (d for d in [(x, y)])\n    list(parts)",
        "parts",
        True,
    ),
    "pieces of a batch": ("pass", "zip(x.chunk(2), y.chunk(2))", False),
    "one of unknown length": ("pass", "zip(x.chunk(2), sys.argv)", True),
    "one that is emptied by another name": (
        "parts = [(x, y)]\n    others = parts\n    others.clear()",
        "parts",
        True,
    ),
    "one that is kept elsewhere": (
        "parts = [(x, y)]\n    sys.kept = parts",
        "parts",
        True,
    ),
    "one in a list": (
        "parts = [(x, y)]\n    for part in [parts]:\n        part.clear()",
        "parts",
        True,
    ),
    "one whose elements go": ("parts = [(x, y)]\n    parts[:] = []", "parts", True),
    "one whose element changes": ("parts = [0]\n    parts[0] = x, y", "parts", False),
    "one in another order": (
        "parts = [(x, y)]\n    random.shuffle(parts)",
        "parts",
        False,
    ),
    "a tuple that is given away": (
        "parts = ((x, y),)\n    print(*parts)",
        "parts",
        False,
    ),
    "a set that shrinks": ("parts = {(x, y)}\n    parts.discard(0)", "parts", True),
    "a dict of another": ("none = {}\n    parts = {**none}", "parts", True),
    "pieces of a string": ("pass", "'ab'.split(None)", True),
    "counted": ("parts = [(x, y)]", "[d for _, d in enumerate(parts)]", False),
}


@pytest.mark.parametrize("name", INNER)
def test_a_step_is_guarded_unless_a_backward_surely_precedes(name: str) -> None:
    setup, iterable, guarded = INNER[name]
    body = (
        f"import random, sys\n{OPT}for x, y in data:\n    opt.zero_grad()\n    {setup}\n"
        f"    for a, b in {iterable}:\n        loss = criterion(model(a), b)\n"
        "        loss.backward()\n    opt.step()\n"
    )
    assert ("p.grad is not None" in migrated(body)) is guarded


UNSEEN = {
    "a part of a function": "import functools\nmore = functools.partial(penalize, model)\n",
    "a table": "more = {'l2': lambda x: None, 'l1': penalize}['l2']\n",
    "a name that is put together": (
        "class Penalty:\n    def of_l2(self, x):\n        for _ in range(1):\n"
        "            loss = model(x).pow(2).mean()\n            loss.backward()\n"
        "    def more(self, x):\n        getattr(self, 'of_' + 'l2')(x)\n"
        "more = Penalty().more\n"
    ),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_a_backward_that_something_out_of_sight_runs_may_be_part_of_a_step(
    name: str,
) -> None:
    body = (
        "def penalize(net, x):\n    for _ in range(1):\n"
        "        loss = net(x).pow(2).mean()\n        loss.backward()\n"
        f"{UNSEEN[name]}{OPT}for x, y in data:\n    opt.zero_grad()\n"
        f"    {FORWARD}\n    loss.backward()\n    more(x)\n    opt.step()\n"
    )
    assert "AMP031" in left_alone(body)


def test_a_backward_that_nothing_runs_is_no_part_of_a_step() -> None:
    body = (
        "def penalize(net, x):\n    for _ in range(1):\n"
        "        loss = net(x).pow(2).mean()\n        loss.backward()\n"
        f"{OPT}for x, y in data:\n    opt.zero_grad()\n"
        f"    {FORWARD}\n    loss.backward()\n    opt.step()\n"
    )
    result = migrate_source(HEAD + body, path="train.py")
    assert "scaler.step(opt)" in result.output


IN_TURN = """\
def train(net, opt):
    for x, y in data:
        opt.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        opt.step()
one, two, critic = make().to(device), make().to(device), make().to(device)
first = torch.optim.SGD(one.parameters(), lr=0.1)
second = torch.optim.SGD(two.parameters(), lr=0.1)
third = torch.optim.SGD(critic.parameters(), lr=0.1)
for x, y in data:
    train(one, first)
    train(two, second)
    third.zero_grad()
    loss = criterion(critic(x), y)
    loss.backward(create_graph=True)
    third.step()
"""


def test_a_backward_that_is_left_alone_behind_one_of_another_optimizer() -> None:
    result = migrate_source(HEAD + IN_TURN, path="train.py")
    assert [found.code for found in result.diagnostics] == ["AMP023"]
    assert "scaler.step(opt)" in result.output


OF_NO_USE = {
    "a step": "    first.step()\n",
    "a norm": "    print(nn.utils.clip_grad_norm_(one.parameters(), 1.0))\n",
    "no clearing": "",
    "all that it left": "",
}


@pytest.mark.parametrize("name", OF_NO_USE)
def test_gradients_of_two_scales_are_not_used(name: str) -> None:
    body = IN_TURN + OF_NO_USE[name]
    if name == "no clearing":
        body = body.replace("        opt.zero_grad()\n", "")
    elif name == "all that it left":
        body = body.replace("    third.zero_grad()\n", "")
        body = body.replace("(critic.p", "([*critic.parameters(), *one.p")
        body = body.replace("*one.parameters()", "*one.parameters()]")
    assert left_alone(body)
