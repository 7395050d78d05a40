"""New contents of files as the edits of an editor, which touch only the lines that change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from lsprotocol import types
from pygls.workspace import PositionCodec

from amp_migrate.server.buffers import Buffer, Text
from amp_migrate.server.requests import Edited
from amp_migrate.sources.lines import matching_blocks
from amp_migrate.sources.text import NEWLINE

_Change = tuple[types.OptionalVersionedTextDocumentIdentifier, list[types.TextEdit]]


def workspace_edit(
    edited: Edited,
    buffers: Mapping[str, Buffer],
    codec: PositionCodec,
    *,
    versioned: bool,
) -> types.WorkspaceEdit:
    """For what is open, and for files on disk. ``versioned``: the client takes edits with versions."""
    changes: list[_Change] = []
    for path, (before, after) in edited.files.items():
        for text, old, new in _texts(path, before, after, buffers.get(path)):
            identifier = types.OptionalVersionedTextDocumentIdentifier(
                text.uri, text.version
            )
            changes.append((identifier, list(hunks(old, new, codec))))
    if not versioned:
        return types.WorkspaceEdit(changes={one.uri: edits for one, edits in changes})
    return types.WorkspaceEdit(
        document_changes=[types.TextDocumentEdit(*change) for change in changes]
    )


def _texts(
    path: str, before: str | bytes, after: str | bytes, buffer: Buffer | None
) -> Iterator[tuple[Text, str, str]]:
    """The documents of a file that change, as they were and as they are to be."""
    if isinstance(before, str) and isinstance(after, str):
        closed = Text(Path(path).as_uri(), None, ())
        yield closed if buffer is None else buffer.texts[0], before, after
        return
    assert buffer is not None, "a notebook that is not open is not edited"
    for text, old, new in zip(
        buffer.texts, _sources(before), _sources(after), strict=True
    ):
        if old != new:
            yield text, old, new


def _sources(notebook: str | bytes) -> list[str]:
    return [
        NEWLINE.sub("\n", "".join(cell["source"]))
        for cell in json.loads(notebook)["cells"]
    ]


def hunks(before: str, after: str, codec: PositionCodec) -> Iterator[types.TextEdit]:
    """The edits that make one text of another."""
    old, new = before.split("\n"), after.split("\n")
    at_old = at_new = 0
    for start_old, start_new, size in [
        *matching_blocks(old, new),
        (len(old), len(new), 0),
    ]:
        if (at_old, at_new) != (start_old, start_new):
            written = new[at_new:start_new]
            start = types.Position(at_old, 0)
            stop = types.Position(start_old, 0)
            text = "".join(f"{line}\n" for line in written)
            if start_old == len(old):
                # The last line has no end: what comes after another line begins with that one's.
                stop = types.Position(len(old) - 1, codec.client_num_units(old[-1]))
                text = "\n".join(written)
                if at_old:
                    end = codec.client_num_units(old[at_old - 1])
                    start = types.Position(at_old - 1, end)
                    text = "".join(f"\n{line}" for line in written)
            yield types.TextEdit(types.Range(start, stop), text)
        at_old, at_new = start_old + size, start_new + size
