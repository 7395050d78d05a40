"""Libraries that open files in C: their path arguments are redirected when they get imported."""

from __future__ import annotations

import functools
import importlib.machinery
import os
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from ..finders import next_spec

# What a call does with the file: reads it, replaces it, changes it, or has it as working folder.
_READS, _REPLACES, _CHANGES, _ENTERS = "reads", "replaces", "changes", "enters"


class _Call(NamedTuple):
    """A function, method or class, by its dotted name, that takes a path."""

    name: str
    position: int  # of the path; a method's own object is 0
    keyword: str
    how: Any  # one of the words above, or a function of the arguments that gives one
    # A class gets a subclass in its place. Not every class in C bears that: those of OpenCV free
    # themselves as if they had none. They get a function, and isinstance() with them fails.
    derived: bool = False


def _by_mode(
    position: int, default: str = "r"
) -> Callable[[tuple[Any, ...], dict[str, Any]], str]:
    """From an argument like that of ``open``."""

    def how(values: tuple[Any, ...], more: dict[str, Any]) -> str:
        mode = str(
            values[position] if len(values) > position else more.get("mode", default)
        )
        if mode.startswith("r") and "+" not in mode:
            return _READS
        return _REPLACES if mode.startswith("w") else _CHANGES

    return how


def _by_flag(
    position: int, keyword: str, default: bool
) -> Callable[[tuple[Any, ...], dict[str, Any]], str]:
    """From an argument that says whether the file is changed."""

    def how(values: tuple[Any, ...], more: dict[str, Any]) -> str:
        flag = (
            values[position] if len(values) > position else more.get(keyword, default)
        )
        return _CHANGES if flag else _READS

    return how


def _by_readonly(values: tuple[Any, ...], more: dict[str, Any]) -> str:
    return (
        _READS if more.get("readonly") or (len(values) > 3 and values[3]) else _CHANGES
    )


_CALLS = {
    "subprocess": [_Call("Popen.__init__", 10, "cwd", _ENTERS)],
    "h5py._hl.files": [_Call("File.__init__", 1, "name", _by_mode(2))],
    "cv2": [
        _Call("imwrite", 0, "filename", _REPLACES),
        _Call("imwritemulti", 0, "filename", _REPLACES),
        _Call("imread", 0, "filename", _READS),
        _Call("imreadmulti", 0, "filename", _READS),
        _Call("VideoWriter", 0, "filename", _REPLACES),
        _Call("VideoCapture", 0, "filename", _READS),
    ],
    "safetensors": [
        _Call("serialize_file", 1, "filename", _REPLACES),
        _Call("safe_open", 0, "filename", _READS),
    ],
    "tokenizers": [
        _Call("Tokenizer.save", 1, "path", _REPLACES),
        _Call("Tokenizer.from_file", 0, "path", _READS),
    ],
    "pyarrow": [
        _Call("memory_map", 0, "path", _by_mode(1)),
        _Call("OSFile", 0, "path", _by_mode(1), True),
    ],
    "pyarrow.parquet.core": [
        _Call("ParquetWriter.__init__", 1, "where", _REPLACES),
        _Call("ParquetFile.__init__", 1, "source", _READS),
        _Call("read_table", 0, "source", _READS),
    ],
    "soundfile": [_Call("SoundFile.__init__", 1, "file", _by_mode(2))],
    "lmdb": [
        _Call("open", 0, "path", _by_readonly),
    ],
    "torchvision.io.image": [
        _Call("read_file", 0, "path", _READS),
        _Call("write_file", 0, "filename", _REPLACES),
    ],
    "torch": [
        # torch.save, torch.load, torch.package and torch.export all end in these two.
        _Call("_C.PyTorchFileWriter", 0, "file_name", _REPLACES, True),
        _Call("_C.PyTorchFileReader", 0, "file_name", _READS, True),
        _Call("jit.save", 1, "f", _REPLACES),
        _Call("jit.load", 0, "f", _READS),
        _Call("jit.ScriptModule.save", 1, "f", _REPLACES),
        _Call("jit.RecursiveScriptModule.save", 1, "f", _REPLACES),
        _Call("jit.ScriptFunction.save", 1, "filename", _REPLACES),
        _Call("from_file", 0, "filename", _by_flag(1, "shared", False)),
        _Call("UntypedStorage.from_file", 0, "filename", _by_flag(1, "shared", False)),
        _Call("autograd.profiler.profile.export_chrome_trace", 1, "path", _REPLACES),
    ],
    "torch.distributed": [_Call("FileStore", 0, "file_name", _CHANGES, True)],
    "torch.distributed.rendezvous": [
        _Call("FileStore", 0, "file_name", _CHANGES, True)
    ],
}


class Libraries:
    """Watches imports, and redirects the path arguments of the libraries it knows."""

    def __init__(
        self,
        read: Callable[[Any], str],
        write: Callable[..., str],
        enter: Callable[[Any], str],
    ) -> None:
        """``read``, ``write(path, empty)`` and ``enter`` give the path on disk to use instead."""
        self._read = read
        self._write = write
        self._enter = enter
        self._done: set[str] = set()

    def install(self) -> None:
        """Patch what is imported already; the others when they get imported."""
        for name in [*_CALLS, "sqlite3"]:
            if name in sys.modules:
                self.patch(name)
        sys.meta_path.insert(0, self)
        sys.meta_path.append(_Written(self._read))

    def patch_torch(self) -> None:
        """Patch what of torch is imported and was not patched before."""
        for name in _CALLS:
            if name.partition(".")[0] == "torch":
                self.patch(name)

    def patch(self, name: str) -> None:
        """Patch a module, once. One that is not imported, or lacks what is known, is left alone."""
        module = sys.modules.get(name)
        if module is None or name in self._done:
            return
        self._done.add(name)
        if name == "sqlite3":
            self._patch_sqlite(module)
        for call in _CALLS.get(name, ()):
            self._patch_call(module, call)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec that the other finders give, with a loader that patches the module."""
        if name not in _CALLS and name != "sqlite3":
            return None
        spec = next_spec(self, name, path, target)
        if spec is not None:
            self._patch_when_run(spec)
        return spec

    def _patch_when_run(self, spec: Any) -> None:
        loader = spec.loader
        run = getattr(loader, "exec_module", None)
        if run is None:
            return

        def exec_module(module: Any) -> None:
            run(module)
            self.patch(module.__spec__.name)

        try:
            loader.exec_module = exec_module
        except AttributeError:
            return

    def _patch_call(self, module: Any, call: _Call) -> None:
        *owners, name = call.name.split(".")
        owner = module
        for part in owners:
            owner = getattr(owner, part, None)
        original: Any = getattr(owner, name, None)
        if original is None:
            return
        new: Any
        if call.derived:
            new = self._subclass(original, call)
        else:
            new = self._redirected(original, call)
            if isinstance(owner, type) and _is_bound(owner, name):
                new = staticmethod(new)
        try:
            setattr(owner, name, new)
        except (AttributeError, TypeError):
            return  # a type that cannot be changed

    def _redirected(self, original: Any, call: _Call) -> Any:
        @functools.wraps(original, updated=())
        def redirected(*values: Any, **more: Any) -> Any:
            values, more = self._mapped(call, values, more)
            return original(*values, **more)

        if isinstance(original, type):
            for name in dir(original):
                if not name.startswith("_"):
                    setattr(redirected, name, getattr(original, name))
        return redirected

    def _subclass(self, original: Any, call: _Call) -> Any:
        def __new__(cls: Any, *values: Any, **more: Any) -> Any:
            if original.__new__ is object.__new__:
                return object.__new__(cls)
            values, more = self._mapped(call, values, more)
            return original.__new__(cls, *values, **more)

        def __init__(this: Any, *values: Any, **more: Any) -> None:
            if original.__init__ is not object.__init__:
                values, more = self._mapped(call, values, more)
                original.__init__(this, *values, **more)

        body = {
            "__new__": __new__,
            "__init__": __init__,
            "__module__": original.__module__,
            "__doc__": original.__doc__,
        }
        return type(original)(original.__name__, (original,), body)

    def _mapped(
        self, call: _Call, values: tuple[Any, ...], more: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        at = call.position
        if len(values) > at:
            return (
                *values[:at],
                self._place(call, values[at], values, more),
                *values[at + 1 :],
            ), more
        if call.keyword in more:
            return values, {
                **more,
                call.keyword: self._place(call, more[call.keyword], values, more),
            }
        return values, more

    def _place(
        self, call: _Call, path: Any, values: tuple[Any, ...], more: dict[str, Any]
    ) -> Any:
        if not isinstance(path, (str, bytes, os.PathLike)) or "://" in os.fsdecode(
            path
        ):
            return path
        how = call.how if isinstance(call.how, str) else call.how(values, more)
        if how == _ENTERS:
            return self._enter(path)
        return (
            self._read(path) if how == _READS else self._write(path, how == _REPLACES)
        )

    def _patch_sqlite(self, module: Any) -> None:
        from urllib.parse import quote, unquote

        connect = module.connect

        @functools.wraps(connect)
        def connect_mapped(database: Any, *values: Any, **more: Any) -> Any:
            text = os.fsdecode(database)
            if more.get("uri") and text.startswith("file:"):
                path, mark, query = text[len("file:") :].partition("?")
                if "mode=memory" not in query and path != ":memory:":
                    place = (
                        self._read
                        if "mode=ro" in query or "immutable=1" in query
                        else self._write
                    )
                    path = quote(
                        place(
                            unquote(
                                path.split("//", 1)[-1] if path[:2] == "//" else path
                            )
                        )
                    )
                database = "file:" + path + mark + query
            elif text and text != ":memory:":
                database = self._write(text)
            return connect(database, *values, **more)

        module.connect = module.dbapi2.connect = connect_mapped


def _is_bound(owner: type, name: str) -> bool:
    """Whether a method takes no object."""
    for base in owner.__mro__:
        if name in vars(base):
            held = vars(base)[name]
            return isinstance(
                held, (staticmethod, classmethod, type(vars(dict)["fromkeys"]))
            )
    return False


class _Written:
    """Finds the modules that the script wrote itself, after all other finders."""

    def __init__(self, read: Callable[[Any], str]) -> None:
        self._read = read

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """As a meta path finder's."""
        folders = []
        for folder in sys.path if path is None else path:
            if isinstance(folder, str):
                own = self._read(folder or ".")
                if own != os.path.abspath(folder):
                    folders.append(own)
        return (
            importlib.machinery.PathFinder.find_spec(name, folders, target)
            if folders
            else None
        )
