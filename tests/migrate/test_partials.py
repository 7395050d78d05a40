"""Functions that train, called by way of `functools.partial`."""

from __future__ import annotations

import pytest
from exactness import check_off, check_scaled
from programs import HEAD, left_alone

from amp_migrate.api import migrate_source

TRAIN = """\
from functools import partial
def train(net, opt, batches):
    for x, y in batches:
        opt.zero_grad()
        loss = criterion(net(x), y)
        loss.backward()
        opt.step()
def main(flag):
    net = make().to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""
LEFT_ALONE = {
    "handed on": "run = partial(train, net, opt)\nschedule(run)\nrun(data)",
    "another one, perhaps": """\
run = partial(train, net, opt)
if flag:
    run = partial(train, net, other_of(net))
run(data)""",
    "of one of several functions": "run = partial(pick(train, flag), net, opt)\nrun(data)",
    "called by a function that may come later": """\
run = partial(train, net, opt)
def later():
    run(data)
schedule(later)""",
    "with arguments in a list": "run = partial(train, *[net, opt])\nrun(data)",
    "with options that may take its place": """\
run = partial(train, net, opt=opt)
run(batches=data, **options)""",
    "with an optimizer of its own": """\
run = partial(train, net, torch.optim.SGD(net.parameters(), lr=0.1))
run(data)""",
    "in a variable that is asked for its parts": """\
run = partial(train, net, opt)
run(data)
run.args[1].step()""",
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_one_that_is_not_only_called_is_left_alone(name: str) -> None:
    body = "".join(f"    {line}\n" for line in LEFT_ALONE[name].splitlines())
    assert left_alone(f"{TRAIN}{body}main(True)\n") == "AMP010"


def test_what_it_holds_is_what_its_variables_were() -> None:
    """The optimizer that is made later under the same name is none of the partial's."""
    body = """\
    run = partial(train, net, opt)
    opt = torch.optim.SGD(net.parameters(), lr=0.2)
    run(data)
    for x, y in data:
        opt.zero_grad()
        criterion(net(x), y).backward()
        opt.step()
"""
    source = f"{HEAD}{TRAIN}{body}main(True)\n"
    result = migrate_source(source, path="train.py")
    assert result.changed, result.diagnostics
    assert check_off(source, result.output) == []
    assert check_scaled(source, result.output) == []


SCRIPT = f"""\
{TRAIN.partition("def main")[0]}def other():
    global opt
    opt = None
if __name__ == "__main__":
    net = make().to(device)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""


def test_one_of_a_script() -> None:
    source = f"{HEAD}{SCRIPT}    run = partial(train, net, opt)\n    for _ in range(2):\n        run(data)\n"
    result = migrate_source(source, path="train.py")
    assert result.changed, result.diagnostics
    assert check_off(source, result.output) == []
    assert check_scaled(source, result.output) == []


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_one_of_a_script_that_is_not_only_called(name: str) -> None:
    body = "".join(f"    {line}\n" for line in LEFT_ALONE[name].splitlines())
    assert left_alone(f"{SCRIPT}{body}") == "AMP010"


def test_one_that_a_file_may_hand_out_is_left_alone() -> None:
    made = SCRIPT.replace('if __name__ == "__main__":', "if data:")
    assert made != SCRIPT
    assert (
        left_alone(f"{made}    run = partial(train, net, opt)\n    run(data)\n")
        == "AMP010"
    )
    used = f"{SCRIPT}    run = partial(train, net, opt)\n    run(data)\ndef again():\n    run(data)\n"
    assert left_alone(used) == "AMP010"
