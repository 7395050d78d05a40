"""Which file an import means, by the paths of a project's files alone."""

from __future__ import annotations

import posixpath
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

_INIT = "__init__.py"
_INSTALLED = frozenset(sys.stdlib_module_names) | frozenset(
    """PIL absl accelerate apex attr bs4 click cv2 datasets dateutil deepspeed einops fire gym
    gymnasium h5py hydra imageio jax joblib keras librosa lightning matplotlib mmcv mxnet nltk numba
    numpy omegaconf onnx pandas psutil pycocotools pytest pytorch_lightning regex requests rich
    scipy seaborn setuptools six skimage sklearn soundfile spacy sympy tensorboard tensorboardX
    tensorflow termcolor timm tokenizers torch torchaudio torchtext torchvision tqdm transformers
    visdom wandb yacs yaml""".split()
)
"""What nobody means a file of a project by, unless it lies where Python would look first."""


@dataclass(frozen=True, slots=True)
class Located:
    """A file, and what an import names inside it: () for the module itself."""

    file: str
    rest: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """An import that several files answer to: which one depends on how the program is started."""

    files: tuple[str, ...]


class Layout:
    """The files of a project, as imports see them.

    An absolute import is looked up the way Python would if the program were started from the
    importer's own folder, from a folder above it inside the project, or with a ``src`` folder of
    one of those on its path. A file that can be started by itself means what is nearest; any other
    is ambiguous where several files answer. What none of these folders has is looked for by its
    path's end in a project that edits ``sys.path``, be it in another file than the importer.
    """

    def __init__(
        self,
        files: Iterable[str],
        root: str,
        *,
        scripts: Collection[str] = (),
        edits_path: bool = False,
        installable: bool = False,
    ) -> None:
        """``files`` and ``root`` are absolute, with forward slashes.

        ``scripts``: the files that can be started; ``edits_path``: some file edits ``sys.path``;
        ``installable``: other projects may import the packages of this one.
        """
        self._installable = installable
        self.files = frozenset(files)
        self.root = root
        self._scripts = frozenset(scripts)
        self._edits_path = edits_path
        self._known: dict[tuple[str, str], Located | Ambiguous | None] = {}
        self._by_name: dict[str, list[str]] = defaultdict(list)
        for file in sorted(self.files):
            folder, name = posixpath.split(file)
            stem = posixpath.basename(folder) if name == _INIT else name[: -len(".py")]
            self._by_name[stem].append(file)

    def is_library(self, file: str) -> bool:
        """Whether code outside of the project may import a file: part of an installable package."""
        package = posixpath.join(posixpath.dirname(file), _INIT)
        return self._installable and package in self.files

    def locate(self, importer: str, dotted: str) -> Located | Ambiguous | None:
        """The file that ``dotted`` means in ``importer``; None where it is none of the project's.

        A relative import keeps its dots: ``..models.Net``.
        """
        asked = (importer, dotted)
        if asked not in self._known:
            self._known[asked] = self._locate(importer, dotted)
        return self._known[asked]

    def _locate(self, importer: str, dotted: str) -> Located | Ambiguous | None:
        bare = dotted.lstrip(".")
        level = len(dotted) - len(bare)
        parts = tuple(part for part in bare.split(".") if part)
        if level:
            base = posixpath.dirname(importer)
            for _ in range(level - 1):
                base = posixpath.dirname(base)
            found_below = self._below(base, parts)
            init = posixpath.join(base, _INIT)
            if found_below is None and init in self.files:
                # `from . import name` that is no submodule is a name of the package itself.
                return Located(init, parts)
            return found_below
        if not parts:
            return None
        found: dict[str, Located] = {}
        for base in self._bases(importer):
            located = self._below(base, parts)
            if located is not None and located.file != importer:
                found.setdefault(located.file, located)
                if importer in self._scripts:
                    break
        if not found and self._edits_path and parts[0] not in _INSTALLED:
            found = {located.file: located for located in self._anywhere(parts)}
        if len(found) > 1:
            return Ambiguous(tuple(sorted(found)))
        return next(iter(found.values()), None)

    def _bases(self, importer: str) -> list[str]:
        """The folders that may be on ``sys.path`` when the importer runs, nearest first."""
        bases = []
        folder = posixpath.dirname(importer)
        while True:
            bases += [folder, posixpath.join(folder, "src")]
            if folder == self.root or folder == posixpath.dirname(folder):
                return bases
            folder = posixpath.dirname(folder)

    def _below(self, base: str, parts: tuple[str, ...]) -> Located | None:
        for length in range(len(parts), 0, -1):
            stem = posixpath.join(base, *parts[:length])
            for file in (f"{stem}.py", posixpath.join(stem, _INIT)):
                if file in self.files:
                    return Located(file, parts[length:])
        return None

    def _anywhere(self, parts: tuple[str, ...]) -> list[Located]:
        found = []
        for length in range(len(parts), 0, -1):
            tail = "/".join(parts[:length])
            for file in self._by_name.get(parts[length - 1], ()):
                if file.endswith((f"/{tail}.py", f"/{tail}/{_INIT}")):
                    found.append(Located(file, parts[length:]))
            if found:
                return found
        return found


def components(
    layout: Layout, imports: Mapping[str, Collection[str]]
) -> list[frozenset[str]]:
    """Sets of files that imports connect, in either direction: each is looked at as a whole."""
    leader: dict[str, str] = {file: file for file in imports}

    def find(file: str) -> str:
        while leader[file] != file:
            leader[file] = leader[leader[file]]
            file = leader[file]
        return file

    for file, targets in imports.items():
        for target in targets:
            located = layout.locate(file, target)
            if isinstance(located, Located):
                others: tuple[str, ...] = (located.file,)
            else:
                others = located.files if located is not None else ()
            for other in others:
                if other in leader:
                    leader[find(other)] = find(file)
    groups: dict[str, set[str]] = defaultdict(set)
    for file in imports:
        groups[find(file)].add(file)
    return [frozenset(group) for group in groups.values()]
