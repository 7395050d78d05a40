"""The language server, as an editor meets it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

pytest.importorskip("pytest_lsp")

from lsprotocol import types
from projects_support import Project
from server_support import COMMAND, LONG, Editor, editing, run

from amp_migrate.catalogue.rules import rule
from amp_migrate.cli.exits import Served
from amp_migrate.cli.main import main
from amp_migrate.report.rules import page

OLD = """\
import torch
from torch import nn

model = nn.Linear(8, 8).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.cuda.amp.GradScaler()
batches = [(torch.randn(4, 8).cuda(), torch.randn(4, 8).cuda()) for _ in range(3)]
torch.autograd.set_detect_anomaly(True)

for inputs, targets in batches:
    optimizer.zero_grad(set_to_none=False)
    with torch.cuda.amp.autocast():
        loss = nn.functional.mse_loss(model(inputs), targets)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""
OLD_CODES = [(6, "AMP210"), (8, "TCU205"), (11, "TCU304"), (12, "AMP210")]
NEW_SCALER = OLD.replace("torch.cuda.amp.GradScaler()", 'torch.amp.GradScaler("cuda")')
PLAIN = """\
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(8, 8).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.MSELoss()


def fit(batches):
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss = criterion(model(inputs.to(device)), targets.to(device))
        loss.backward()
        optimizer.step()


fit([(torch.randn(4, 8), torch.randn(4, 8))])
"""
CAN = "this training loop can be put under AMP"
MIGRATE = "Put this training loop under AMP"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    (tmp_path / "train.py").write_text(OLD, encoding="utf-8")
    return tmp_path


def amp(*arguments: str) -> str:
    return CliRunner().invoke(main, list(arguments)).output


def test_findings_are_those_of_the_text_in_the_editor(folder: Path) -> None:
    async def session() -> None:
        async with editing(folder) as editor:
            uri = editor.open("train.py")
            assert await editor.codes(uri) == OLD_CODES
            found = editor.diagnostic(uri, "TCU205")
            assert found.severity is types.DiagnosticSeverity.Warning
            assert found.source == "amp-migrate"
            assert found.message == "set_detect_anomaly(True) is left on in training"
            assert found.data == {"fixable": "safe"}
            assert found.range.start == types.Position(7, 0)
            assert found.range.end == types.Position(7, 39)
            assert found.code_description is not None
            link = Path(found.code_description.href.removeprefix("file://"))
            assert link.read_text(encoding="utf-8") == page(rule("TCU205"))

            editor.type("train.py", NEW_SCALER)
            assert await editor.codes(uri) == OLD_CODES[1:]
            editor.insert("train.py", 3, 0, "# a line more\n")
            moved = [(line + 1, code) for line, code in OLD_CODES[1:]]
            assert await editor.codes(uri) == moved

    run(session())
    assert (folder / "train.py").read_text(encoding="utf-8") == OLD


def test_nothing_is_left_of_a_file_that_is_closed(folder: Path) -> None:
    async def session() -> None:
        async with editing(folder) as editor:
            uri = editor.open("train.py")
            await editor.codes(uri)
            editor.close("train.py")
            await editor.until(lambda: not editor.shown[uri].diagnostics)

    run(session())


def test_columns_are_counted_as_the_editor_counts_them(folder: Path) -> None:
    async def session() -> None:
        async with editing(folder) as editor:
            text = OLD.replace("scaler = torch", 'print("\U0001f642"); scaler = torch')
            uri = editor.open("train.py", text)
            await editor.codes(uri)
            found = editor.diagnostic(uri, "AMP210")
            assert found.range.start == types.Position(5, len('print("xx"); scaler = '))

    run(session())


def test_a_form_feed_ends_no_line(folder: Path) -> None:
    async def session() -> None:
        async with editing(folder) as editor:
            uri = editor.open("train.py", f"# a\fb\n{OLD}")
            assert (6 + 1, "AMP210") in await editor.codes(uri)
            editor.insert("train.py", 1, 0, "\n")
            assert (6 + 2, "AMP210") in await editor.codes(uri)

    run(session())


MODEL = """\
from torch import nn

from sizes import VOCABULARY

model = nn.Linear(512, VOCABULARY).cuda()
"""


def test_a_program_is_what_is_open_and_what_is_on_disk(folder: Path) -> None:
    (folder / "sizes.py").write_text("VOCABULARY = 50257\n", encoding="utf-8")
    (folder / "model.py").write_text(MODEL, encoding="utf-8")

    async def session() -> None:
        async with editing(folder) as editor:
            uri = editor.open("model.py")
            assert await editor.codes(uri) == [(5, "TCU101")]
            chain = editor.diagnostic(uri, "TCU101").related_information
            assert chain is not None
            assert chain[0].location.uri == editor.uri("sizes.py")

            # What another file says before it is saved counts as well.
            editor.open("sizes.py")
            editor.type("sizes.py", "VOCABULARY = 50304\n")
            await editor.until(lambda: not editor.shown[uri].diagnostics)
            editor.type("sizes.py", "VOCABULARY = 50257\n")
            await editor.until(lambda: bool(editor.shown[uri].diagnostics))
            # Nothing of it is on disk, which counts again once it is closed.
            editor.type("sizes.py", "VOCABULARY = 50304\n")
            await editor.until(lambda: not editor.shown[uri].diagnostics)
            editor.close("sizes.py")
            await editor.until(lambda: bool(editor.shown[uri].diagnostics))

    run(session())


def test_a_file_that_changes_on_disk_counts_when_the_editor_says_so(
    folder: Path,
) -> None:
    sizes = folder / "sizes.py"
    sizes.write_text("VOCABULARY = 50257\n", encoding="utf-8")
    (folder / "model.py").write_text(MODEL, encoding="utf-8")

    async def session() -> None:
        async with editing(folder) as editor:
            uri = editor.open("model.py")
            assert await editor.codes(uri) == [(5, "TCU101")]
            sizes.write_text("VOCABULARY = 50304\n", encoding="utf-8")
            changed = types.FileEvent(sizes.as_uri(), types.FileChangeType.Changed)
            editor.client.workspace_did_change_watched_files(
                types.DidChangeWatchedFilesParams([changed])
            )
            await editor.until(lambda: not editor.shown[uri].diagnostics)
            # An import that is new is followed at once.
            sizes.write_text("VOCABULARY = 50304\nOTHER = 50257\n", encoding="utf-8")
            text = MODEL.replace("VOCABULARY", "OTHER")
            editor.type("model.py", text)
            assert await editor.codes(uri) == [(5, "TCU101")]

    run(session())


def test_hovering_tells_what_explain_tells(folder: Path) -> None:
    async def session() -> None:
        async with editing(folder) as editor:
            uri = editor.open("train.py")
            await editor.codes(uri)
            found = await editor.hover(uri, 7, 3)
            assert found is not None
            assert isinstance(found.contents, types.MarkupContent)
            assert found.contents.kind is types.MarkupKind.Markdown
            assert found.contents.value == page(rule("TCU205"))
            assert await editor.hover(uri, 1, 3) is None

    run(session())


def test_what_lint_fixes_is_offered(folder: Path) -> None:
    shutil.copy(folder / "train.py", folder / "fixed.py")
    amp("lint", "--fix", str(folder / "fixed.py"))
    fixed = (folder / "fixed.py").read_text(encoding="utf-8")
    (folder / "fixed.py").unlink()
    assert fixed != OLD

    async def session() -> None:
        async with editing(folder) as editor:
            uri = editor.open("train.py")
            await editor.codes(uri)
            one = (await editor.offers(uri, 7, "quickfix"))["TCU205: remove it"]
            assert one.is_preferred
            removed = OLD.replace("torch.autograd.set_detect_anomaly(True)\n", "")
            assert await editor.done(one) == {uri: removed}

            unsafe = await editor.offers(uri, 10, "quickfix")
            title = "TCU304: drop gradients instead of zeroing them (changes what is computed)"
            assert not unsafe[title].is_preferred
            dropped = OLD.replace("zero_grad(set_to_none=False)", "zero_grad()")
            assert await editor.done(unsafe[title]) == {uri: dropped}

            (every,) = (await editor.offers(uri, 0, "source.fixAll")).values()
            assert await editor.done(every) == {uri: fixed}

            # It was for another text.
            editor.insert("train.py", 0, 0, "\n")
            with pytest.raises(Exception, match="the file has changed since"):
                await editor.done(every)

    run(session())


@pytest.mark.parametrize("name", ["setup_in_another_file", "src_layout_reexports"])
def test_a_loop_is_put_under_amp_in_all_files_of_its_program(
    tmp_path: Path, name: str
) -> None:
    project = Project(name)
    (tmp_path / ".git").mkdir()
    folder = tmp_path / "project"
    shutil.copytree(project.plain, folder)
    changed = {
        path.relative_to(project.migrated).as_posix()
        for path in project.migrated.rglob("*.py")
        if path.read_bytes()
        != (project.plain / path.relative_to(project.migrated)).read_bytes()
    }
    assert len(changed) > 1
    looped = next(
        path
        for path in folder.rglob("*.py")
        if "loss.backward()" in path.read_text(encoding="utf-8")
    )
    name = looped.relative_to(folder).as_posix()

    async def session() -> None:
        async with editing(folder) as editor:
            uri = editor.open(name)
            await editor.until(lambda: uri in editor.shown and _told(editor, uri, CAN))
            row = editor.diagnostic(uri, None).range.start.line
            assert (
                editor.diagnostic(uri, None).severity is types.DiagnosticSeverity.Hint
            )
            action = (await editor.offers(uri, row))[MIGRATE]
            after = await editor.done(action)
            assert after == {
                editor.uri(one): (project.migrated / one).read_text(encoding="utf-8")
                for one in changed
            }

    run(session())


def _told(editor: Editor, uri: str, words: str) -> bool:
    return any(words in one.message for one in editor.shown[uri].diagnostics)


TWO = PLAIN + """

second = nn.Linear(8, 8).to(device)
of_second = torch.optim.SGD(second.parameters(), lr=0.1)


def fit_second(batches):
    for inputs, targets in batches:
        of_second.zero_grad()
        loss = criterion(second(inputs.to(device)), targets.to(device))
        loss.backward()
        of_second.step()


def fit_again(batches):
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss = criterion(model(inputs.to(device)), targets.to(device))
        loss.backward()
        optimizer.step()


fit_second([])
fit_again([])
"""


def test_a_loop_is_migrated_with_those_of_its_optimizer_alone(folder: Path) -> None:
    async def session() -> None:
        async with editing(folder) as editor:
            uri = editor.open("train.py", TWO)
            await editor.until(lambda: uri in editor.shown and _told(editor, uri, CAN))
            rows = [one.range.start.line for one in editor.shown[uri].diagnostics]
            assert len(rows) == 3
            action = (await editor.offers(uri, rows[0]))[MIGRATE]
            after = (await editor.done(action))[uri]
            assert after.count("scaler.scale(loss).backward()") == 2
            assert after.count("scaler.step(optimizer)") == 2
            assert after.count("of_second.step()") == 1
            # Outside of loops, nothing is offered.
            assert MIGRATE not in await editor.offers(uri, 1)

    run(session())


def test_why_a_loop_is_left_alone(folder: Path) -> None:
    text = PLAIN.replace("loss.backward()", "loss.backward(create_graph=True)")

    async def session() -> None:
        async with editing(folder) as editor:
            uri = editor.open("train.py", text)
            await editor.until(
                lambda: uri in editor.shown and _told(editor, uri, "left alone")
            )
            (found,) = editor.shown[uri].diagnostics
            assert found.severity is types.DiagnosticSeverity.Information
            code = str(found.code)
            assert code.startswith("AMP0")
            hover = await editor.hover(uri, *_start(found))
            assert hover is not None
            assert isinstance(hover.contents, types.MarkupContent)
            assert hover.contents.value == page(rule(code))
            action = (await editor.offers(uri, found.range.start.line))[MIGRATE]
            assert action.disabled is not None
            assert action.disabled.reason.startswith(f"{code}: ")
            assert action.edit is None

    run(session())


def _start(one: types.Diagnostic) -> tuple[int, int]:
    return one.range.start.line, one.range.start.character


def test_migrations_are_told_only_where_they_are_wanted(folder: Path) -> None:
    async def session() -> None:
        async with editing(folder, {"migration": False}) as editor:
            uri = editor.open("train.py", PLAIN)
            # Whoever asks is answered.
            action = (await editor.offers(uri, 12))[MIGRATE]
            assert "scaler.step(optimizer)" in (await editor.done(action))[uri]
            assert await editor.codes(uri) == []
            # What is told of loops before an edit stays at its line, until it is known better.
            settings = {"amp-migrate": {"migration": True}}
            editor.client.workspace_did_change_configuration(
                types.DidChangeConfigurationParams(settings)
            )
            await editor.until(lambda: _told(editor, uri, CAN))
            before = editor.diagnostic(uri, None).range.start.line
            editor.insert("train.py", 0, 0, "\n")
            assert await editor.codes(uri) == [(before + 2, None)]

    run(session())


def test_notebooks_are_told_cell_by_cell(tmp_path: Path) -> None:
    pytest.importorskip("nbformat")
    project = Project("notebook_cells")
    (tmp_path / ".git").mkdir()
    shutil.copytree(project.plain, tmp_path, dirs_exist_ok=True)

    async def session() -> None:
        async with editing(tmp_path) as editor:
            cells = editor.open_notebook("train.ipynb")
            training = next(
                c for c in cells if "loss.backward()" in editor.texts.get(c, "")
            )
            await editor.until(lambda: training in editor.shown)
            await editor.until(lambda: _told(editor, training, CAN))
            row = editor.diagnostic(training, None).range.start.line
            line = editor.texts[training].split("\n")[row]
            assert line.strip() == "loss.backward()"
            action = (await editor.offers(training, row))[MIGRATE]
            after = editor.texts | await editor.done(action)
            book = json.loads((project.migrated / "train.ipynb").read_text("utf-8"))
            assert [after[cell] for cell in cells if cell in after] == [
                "".join(one["source"])
                for one in book["cells"]
                if one["cell_type"] == "code"
            ]

            # A finding of lint, below a magic and in a cell that is indented as a whole.
            text = "%time\n\nscaler = torch.cuda.amp.GradScaler()"
            editor.type_in_cell("train.ipynb", cells[6 + 2], text)
            assert await editor.codes(cells[8]) == [(3, "AMP210")]
            assert (3, "AMP210") not in await editor.codes(training)
            (fix,) = (await editor.offers(cells[8], 2, "quickfix")).values()
            assert await editor.done(fix) == {
                cells[8]: text.replace(
                    "torch.cuda.amp.GradScaler()",
                    'torch.amp.GradScaler("cuda")',
                )
            }

    run(session())


def test_what_cannot_be_read_at_the_moment_changes_nothing(folder: Path) -> None:
    (folder / "sizes.py").write_text("VOCABULARY = 50257\n", encoding="utf-8")
    (folder / "model.py").write_text(MODEL, encoding="utf-8")

    async def session() -> None:
        async with editing(folder) as editor:
            uri, model = editor.open("train.py"), editor.open("model.py")
            sizes = editor.open("sizes.py")
            await editor.codes(uri)
            assert await editor.codes(model) == [(5, "TCU101")]
            times = editor.times_shown[uri]
            editor.type("train.py", OLD + "def broken(:\n")
            editor.type("sizes.py", "VOCABULARY = (\n")
            # The others are told as if the last good text still stood there.
            editor.insert("model.py", 0, 0, "\n")
            assert await editor.codes(model) == [(6, "TCU101")]
            assert editor.times_shown[uri] == times
            assert editor.shown[sizes].version == 1
            editor.type("train.py", NEW_SCALER)
            assert await editor.codes(uri) == OLD_CODES[1:]

    run(session())


def test_the_configuration_of_the_project_counts_and_the_editor_may_override_it(
    folder: Path,
) -> None:
    def configured(table: str) -> None:
        (folder / "pyproject.toml").write_text(table, encoding="utf-8")

    configured('[tool.amp-migrate.lint]\nignore = ["TCU"]\n')
    silenced = OLD.replace("GradScaler()\n", "GradScaler()  # amp: ignore[AMP210]\n")

    async def session() -> None:
        async with editing(folder) as editor:
            uri = editor.open("train.py", silenced)
            assert await editor.codes(uri) == [(12, "AMP210")]
            configured('[tool.amp-migrate]\nexclude = ["train.py"]\n')
            editor.insert("train.py", 0, 0, "\n")
            assert await editor.codes(uri) == []
            configured("[tool.amp-migrate]\nexclud = 1\n")
            editor.insert("train.py", 0, 0, "\n")
            await editor.until(lambda: bool(editor.messages))
            assert "unknown key 'exclud'" in editor.messages[0]
            configured('[tool.amp-migrate]\nexclude = ["!"]\n')
            editor.insert("train.py", 0, 0, "\n")
            await editor.until(lambda: len(editor.messages) > 1)
            assert "'!'" in editor.messages[1]
        chosen = {"lint": {"select": ["AMP"], "severity": "info"}}
        configured("")
        async with editing(folder, chosen) as editor:
            uri = editor.open("train.py", OLD)
            assert await editor.codes(uri) == [(6, "AMP210"), (12, "AMP210")]
        async with editing(folder, {"lint": {"selct": []}}) as editor:
            await editor.until(lambda: bool(editor.messages))
            assert "did you mean 'select'" in editor.messages[0]

    run(session())


def test_accepted_findings_are_not_told_again(folder: Path) -> None:
    (folder / "pyproject.toml").write_text(
        '[tool.amp-migrate.lint]\nbaseline = "known.json"\n', encoding="utf-8"
    )
    assert "accepted" in amp("lint", str(folder / "train.py"), "--write-baseline")

    async def session() -> None:
        async with editing(folder) as editor:
            uri = editor.open("train.py")
            assert await editor.codes(uri) == []
            editor.type("train.py", OLD + "torch.autograd.set_detect_anomaly(True)\n")
            assert [code for _, code in await editor.codes(uri)] == ["TCU205"]

    run(session())


def test_ignored_files_are_left_alone(folder: Path) -> None:
    (folder / ".gitignore").write_text("build*/\n", encoding="utf-8")
    for name in ("venv", "build_1"):
        (folder / name).mkdir()
        (folder / name / "train.py").write_text(OLD, encoding="utf-8")

    async def session() -> None:
        async with editing(folder) as editor:
            for name in ("venv/train.py", "build_1/train.py"):
                assert await editor.codes(editor.open(name)) == []
            # One that was never saved is where it would be saved to.
            assert await editor.codes(editor.open("new.py", OLD)) == OLD_CODES

    run(session())


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for processes")
def test_an_analysis_that_dies_takes_nothing_with_it(folder: Path) -> None:
    async def session() -> None:
        async with editing(folder) as editor:
            uri = editor.open("train.py")
            assert await editor.codes(uri) == OLD_CODES
            server = editor.client._server
            assert server is not None
            assert children(server.pid)
            for child in children(server.pid):
                os.kill(child, signal.SIGKILL)
            editor.type("train.py", NEW_SCALER)
            # What it was asked just then is lost; the next edit is not.
            await asyncio.sleep(1)
            editor.insert("train.py", 0, 0, "\n")
            assert await editor.codes(uri) == [(r + 1, c) for r, c in OLD_CODES[1:]]

    run(session())


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc for processes")
@pytest.mark.parametrize("started", [0, 1, 2])
def test_an_editor_that_vanishes_leaves_nothing_behind(
    folder: Path, started: int
) -> None:
    messages: list[dict[str, Any]] = [
        {
            "id": 1,
            "method": "initialize",
            "params": {"processId": None, "rootUri": None, "capabilities": {}},
        },
        {"method": "initialized", "params": {}},
    ]
    process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdin is not None
        for message in messages:
            data = json.dumps({"jsonrpc": "2.0", **message}).encode()
            process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        process.stdin.flush()
        while len(found := children(process.pid)) < started:
            assert process.poll() is None
        process.stdin.close()
        assert process.wait(LONG) == 0
    finally:
        process.kill()
        process.wait()
    for child in found:
        status = Path(f"/proc/{child}/status")
        # One that has ended may still wait for somebody to notice.
        assert not status.exists() or "State:\tZ" in status.read_text()


def children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task")
    lists = [(task / "children").read_text().split() for task in tasks.iterdir()]
    return [int(child) for found in lists for child in found]


def test_nothing_else_needs_pygls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygls", None)
    found = CliRunner().invoke(main, ["server"])
    assert found.exit_code == Served.ERROR
    assert (
        found.output
        == 'error: the server needs pygls: pip install "amp-migrate[server]"\n'
    )
    code = "import sys, amp_migrate.cli.main, amp_migrate.api; sys.exit('pygls' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c(tmp_path: Path) -> None:
    """While it waits for the editor, which says nothing and stays."""
    process = subprocess.Popen(
        [sys.executable, "-m", "amp_migrate", "server"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdin is not None and process.stdout is not None
    hello = (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{}}}'
    )
    process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(hello), hello))
    process.stdin.flush()
    assert process.stdout.readline().startswith(b"Content-Length")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == Served.INTERRUPTED
    process.communicate()
