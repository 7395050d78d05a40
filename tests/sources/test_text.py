"""Bytes to text and back."""

from __future__ import annotations

import codecs

import pytest

from amp_migrate.core.results import SourceError
from amp_migrate.sources.text import Document

ROUND_TRIPS = {
    "empty": b"",
    "no newline at end": b"x = 1",
    "lf": b"x = 1\ny = 2\n",
    "crlf": b"x = 1\r\ny = 2\r\n",
    "cr": b"x = 1\ry = 2\r",
    "mixed": b"x = 1\r\ny = 2\nz = 3\r\rw = 4",
    "bom": codecs.BOM_UTF8 + b"x = 1\n",
    "bom and cookie": codecs.BOM_UTF8 + b"# coding: utf-8\nx = 1\n",
    "latin-1": b"# -*- coding: latin-1 -*-\ns = '\xe9'\n",
    "cookie in line 2": b"#!/usr/bin/python\n# vim: set fileencoding=cp1252 :\ns = '\x80'\n",
    "cr and cookie": b"# a comment\r# coding: latin-1\rs = '\xe9'\r",
    "cr, not a cookie": b"# a\rx = 1\r# coding: latin-1\rs = '\xc3\xa9'\r",
    "form feed and line separator": "x = 1\n\x0c\ny = '\u2028'\n".encode(),
    "shift jis": "# coding: shift_jis\ns = '日本'\n".encode("shift_jis"),
}


@pytest.mark.parametrize("data", ROUND_TRIPS.values(), ids=ROUND_TRIPS.keys())
def test_what_is_not_changed_comes_back(data: bytes) -> None:
    document = Document.decode("a.py", data)
    assert "\r" not in document.text
    assert not document.text.startswith("\ufeff")
    assert document.encode(document.text) == data


@pytest.mark.parametrize("data", ROUND_TRIPS.values(), ids=ROUND_TRIPS.keys())
def test_a_change_goes_back_in_the_form_of_the_file(data: bytes) -> None:
    document = Document.decode("a.py", data)
    changed = document.encode(document.text + "pass")
    assert changed == data + b"pass"


def test_the_text_is_what_python_would_read() -> None:
    assert Document.decode("a.py", ROUND_TRIPS["cookie in line 2"]).text.endswith(
        "s = '€'\n"
    )
    assert Document.decode("a.py", ROUND_TRIPS["cr and cookie"]).text.endswith(
        "s = 'é'\n"
    )
    assert Document.decode("a.py", ROUND_TRIPS["cr, not a cookie"]).text.endswith(
        "s = 'é'\n"
    )


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_new_lines_take_the_newline_of_the_file(newline: str) -> None:
    document = Document.decode("a.py", f"a{newline}b{newline}".encode())
    assert (
        document.encode("a\nnew\nb\n") == newline.join(["a", "new", "b", ""]).encode()
    )


def test_among_mixed_newlines_old_lines_keep_theirs_and_new_ones_take_the_majority() -> (
    None
):
    document = Document.decode("a.py", b"a\nb\r\nc\r\nd\re\r\nf\n")
    assert document.encode("a\nb\nnew\nc\nd\nchanged\nf\n") == (
        b"a\nb\r\nnew\r\nc\r\nd\rchanged\r\nf\n"
    )


def test_a_last_line_that_gets_a_successor_gets_a_newline() -> None:
    document = Document.decode("a.py", b"a\r\nb\nc\r\nd")
    assert document.encode("a\nb\nc\nd\ne") == b"a\r\nb\nc\r\nd\r\ne"


UNREADABLE = {
    "not utf-8": (b"x = 1\ns = '\xe9'\n", "not valid utf-8"),
    "not utf-8, far down": (
        b"x = 1\n\n\n\ns = '\xe9'\n",
        "byte 0xe9 is not valid utf-8",
    ),
    "unknown encoding": (b"# coding: klingon\n", "unknown encoding: klingon"),
    "not a text encoding": (b"# coding: rot13\n", "not an encoding for text"),
    "bom against cookie": (
        codecs.BOM_UTF8 + b"# coding: latin-1\n",
        "encoding problem",
    ),
    "null byte": (b"x = 1\0\n", "null byte"),
    "utf-16": ("x = 1\n".encode("utf-16"), "not valid utf-8"),
    "no way back": (b"# coding: utf-7\nx = '+AGE-'\n", "round trip through utf-7"),
}


@pytest.mark.parametrize("data, message", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_what_cannot_be_read_is_said_in_one_line(data: bytes, message: str) -> None:
    with pytest.raises(SourceError) as caught:
        Document.decode("a.py", data)
    assert message in str(caught.value)
    assert str(caught.value).startswith("a.py:")
    assert "\n" not in str(caught.value)


def test_the_line_of_a_bad_byte_is_named() -> None:
    with pytest.raises(SourceError, match=r"^a\.py:5: "):
        Document.decode("a.py", UNREADABLE["not utf-8, far down"][0])


def test_what_the_encoding_has_no_room_for_is_an_error() -> None:
    document = Document.decode("a.py", ROUND_TRIPS["latin-1"])
    with pytest.raises(SourceError, match="iso-8859-1 cannot encode"):
        document.encode(document.text + "☃")
