"""Which file an import means, by the paths of a project's files and what they import."""

from __future__ import annotations

import copy
import posixpath
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from amp_migrate.program.glance import seen_from
from amp_migrate.program.imports import ImportScan

_INIT = "__init__.py"
_INSTALLED = (sys.stdlib_module_names - {"code", "profile", "test"}) | frozenset(
    """PIL absl accelerate apex attr bs4 click cv2 dateutil deepspeed einops fire flax gym
    gymnasium h5py haiku hydra imageio jax joblib keras librosa lightning matplotlib mmcv mxnet
    nltk numba numpy omegaconf onnx optax pandas psutil pycocotools pytest pytorch_lightning
    regex requests rich scipy seaborn setuptools six skimage sklearn soundfile spacy sympy
    tensorboard tensorboardX tensorflow termcolor timm tokenizers torch torchaudio torchtext
    torchvision tqdm transformers visdom wandb warp yacs yaml""".split()
)
"""What nobody means a file of a project by, unless it lies where Python would look first."""


_OFTEN = frozenset({"datasets"})
"""Of installed packages, those that are folders of many projects, too: meant where Python finds them."""


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

    An absolute import is looked up the way Python would: in the folder of the script that is
    started, then in the folders above it inside the project (one of which is installed, on
    ``PYTHONPATH``, or where ``python -m`` is called), each with its ``src``. A module means what it
    means to the scripts in its folder or above that import it; where there is none, what it means
    from its own folder or one above. The inside of a package is not on the path unless a script
    lies there. Where several files answer, the import is ambiguous. What none of these folders has
    is looked for by its path's end in a project that edits ``sys.path``, be it in another file than
    the importer.
    """

    def __init__(
        self,
        scans: Mapping[str, ImportScan],
        root: str,
        *,
        libraries: Collection[str] = (),
        documented: Collection[str] = (),
        configured: Collection[str] = (),
    ) -> None:
        """``scans``: the imports of each file; paths are absolute, with forward slashes.

        ``libraries``: the folders whose files other projects may import; ``documented``: the names
        of functions whose calls the project's documentation shows; ``configured``: what its
        configuration files name to be called, dotted.
        """
        self.configured = frozenset(configured)
        self.documented = frozenset(documented)
        self._libraries = frozenset(libraries)
        self.root = root
        self._take(scans)
        self._packages = frozenset(
            posixpath.dirname(file) for file in self.files if file.endswith(f"/{_INIT}")
        )
        self._starts = self._reached(self._startable())
        self._edited: set[str] = set()
        self._follow_edited_paths()

    def narrowed(self, files: Collection[str]) -> Layout:
        """The same for some of the files, which import none of the others."""
        narrow = copy.copy(self)
        narrow._take({file: self._scans[file] for file in files if file in self._scans})
        narrow._packages = self._packages & narrow._folders
        narrow._starts = {
            file: starts for file, starts in self._starts.items() if file in files
        }
        return narrow

    def facts(self, files: Collection[str]) -> list[object]:
        """All that `narrowed` says of some files beside what stands in them, wherever the project lies."""

        def inside(path: str) -> str:
            return seen_from(self.root, path)

        folders = _folders_above(files)
        starts = {
            inside(file): sorted((inside(one), how) for one, how in starts.items())
            for file in files
            if (starts := self._starts.get(file))
        }
        return [
            sorted(map(inside, self._packages & folders)),
            sorted(map(inside, self._libraries & folders)),
            sorted(starts.items()),
            sorted(map(inside, self._edited.intersection(files))),
            sorted(self.configured),
            sorted(self.documented),
        ]

    def _take(self, scans: Mapping[str, ImportScan]) -> None:
        self._scans = scans
        self.files = frozenset(file for file in scans if file.endswith(".py"))
        self._folders = _folders_above(self.files)
        self._by_name: dict[str, list[str]] = defaultdict(list)
        for file in sorted(self.files):
            self._by_name[_module_name(file)].append(file)
        self._names = self._by_name.keys() | {
            posixpath.basename(folder) for folder in self._folders
        }
        self._known: dict[tuple[str, str], Located | Ambiguous | None] = {}
        self._served: dict[tuple[str, str, str], bool] = {}

    def is_library(self, file: str) -> bool:
        """Whether code outside of the project may import a file."""
        return posixpath.dirname(file) in self._libraries

    def imported_by_configuration(self, targets: Collection[str]) -> frozenset[str]:
        """What a file with some imports may import because a configuration file names it."""
        uses = any(target.partition(".")[0] == "hydra" for target in targets)
        return self.configured if uses else frozenset()

    def locate(self, importer: str, dotted: str) -> Located | Ambiguous | None:
        """The file that ``dotted`` means in ``importer``; None where it is none of the project's.

        A relative import keeps its dots: ``..models.Net``.
        """
        asked = (importer, dotted)
        if asked not in self._known:
            self._known[asked] = self._locate(importer, dotted)
        return self._known[asked]

    def meant(self, importer: str, target: str) -> tuple[str, ...]:
        """All files that a target of an `ImportScan` may mean in a file."""
        is_folder = target.endswith(".") and bool(target.strip("."))
        found = self.locate(importer, target[:-1] if is_folder else target)
        if isinstance(found, Ambiguous):
            files = found.files
        elif found is not None:
            files = (found.file,)
        else:
            files = ()
        if not is_folder:
            return files
        folders = {posixpath.dirname(file) for file in files}
        parts = target.split(".")[:-1]
        folders.update(
            folder
            for base in self._above(posixpath.dirname(importer))
            if (folder := posixpath.join(base, *parts)) in self._folders
        )
        beside = (f for f in self.files if posixpath.dirname(f) in folders)
        return tuple(
            sorted({*files, *(f for f in beside if not self._scans[f].trains)})
        )

    def _locate(self, importer: str, dotted: str) -> Located | Ambiguous | None:
        if dotted.startswith("."):
            return self._relative(importer, dotted)
        parts = tuple(part for part in dotted.split(".") if part)
        if not parts or parts[0] not in self._names:
            return None
        found: dict[str, Located] = {}
        for path in self._paths(importer):
            located = self._on_path(importer, path, parts)
            if located is not None:
                found.setdefault(located.file, located)
        if not found and importer in self._edited:
            found = self._by_its_end(importer, parts)
        if len(found) > 1:
            return Ambiguous(tuple(sorted(found)))
        return next(iter(found.values()), None)

    def _by_its_end(self, importer: str, parts: tuple[str, ...]) -> dict[str, Located]:
        if parts[0] in _INSTALLED | _OFTEN:
            return {}
        inside = self._package_of(importer)
        return {
            located.file: located
            for located in self._anywhere(parts)
            if inside is None
            or not self._base_of(located, parts).startswith(f"{inside}/")
        }

    def _relative(self, importer: str, dotted: str) -> Located | None:
        bare = dotted.lstrip(".")
        parts = tuple(part for part in bare.split(".") if part)
        base = posixpath.dirname(importer)
        for _ in range(len(dotted) - len(bare) - 1):
            base = posixpath.dirname(base)
        found = self._below(base, parts)
        init = posixpath.join(base, _INIT)
        if found is None and init in self.files:
            # `from . import name` that is no submodule is a name of the package itself.
            return Located(init, parts)
        return found

    def _package_of(self, file: str) -> str | None:
        """The outermost package that a file is a module of."""
        found, folder = None, posixpath.dirname(file)
        while folder in self._packages and folder != self.root:
            found, folder = folder, posixpath.dirname(folder)
        return found

    def _base_of(self, located: Located, parts: tuple[str, ...]) -> str:
        """The folder in which a dotted name was found, with a slash behind it."""
        tail = "/".join(parts[: len(parts) - len(located.rest)])
        return located.file[: located.file.rindex(tail)]

    # -- what is on sys.path --------------------------------------------------------------------

    def _paths(self, importer: str) -> list[list[str]]:
        """What ``sys.path`` may begin with when the importer runs."""
        folder = posixpath.dirname(importer)
        starts = self._starts.get(importer)
        if not starts:
            return [[base] for base in self._above(folder)]
        found = []
        for start, inserts in starts.items():
            path = self._started_in(start, folder)
            # What is inserted comes first, and is not known.
            found += [[base] for base in path] if inserts else [path]
        return found

    def _started_in(self, start: str, folder: str) -> list[str]:
        """The path of a script's folder, as a module in some other folder meets it."""
        bases = (start, *self._above(start), *self._above(folder))
        return list(dict.fromkeys(bases))

    def _above(self, folder: str) -> list[str]:
        """The folders above a package, or a folder that is none and those above, nearest first."""
        bases = []
        inside = True
        while True:
            inside = inside and folder in self._packages and folder != self.root
            if not inside:
                bases += [folder, posixpath.join(folder, "src")]
            if folder in (self.root, posixpath.dirname(folder)):
                return bases
            folder = posixpath.dirname(folder)

    def _startable(self) -> dict[str, dict[str, bool]]:
        """By folder: the files that can be scripts, and whether they insert into ``sys.path``."""
        mentioned = {
            part
            for scan in self._scans.values()
            for target in scan.targets
            for part in target.split(".")
        }
        found: dict[str, dict[str, bool]] = defaultdict(dict)
        for file, scan in self._scans.items():
            folder, name = posixpath.split(file)
            notebook = not name.endswith(".py")
            # Nobody imports it; what imports by dots is no script, whatever it says.
            alone = scan.is_script or _module_name(file) not in mentioned
            by_dots = any(target.startswith(".") for target in scan.targets)
            if notebook or (alone and not by_dots and name != _INIT):
                found[folder][file] = scan.inserts_path
        return found

    def _reached(
        self, startable: Mapping[str, Mapping[str, bool]]
    ) -> dict[str, dict[str, bool]]:
        """The folders of the scripts by which each file below them is run, and whether one inserts."""
        found: dict[str, dict[str, bool]] = defaultdict(dict)
        for start, scripts in startable.items():
            inserts = any(scripts.values())
            pending = list(scripts)
            seen: set[str] = set()
            while pending:
                for file in self._imported(pending.pop(), start):
                    if file not in seen and file.startswith(f"{start}/"):
                        seen.add(file)
                        found[file][start] = inserts
                        pending.append(file)
        for start, scripts in startable.items():
            for script, inserts in scripts.items():
                # A module of a package that says `__main__` is one all the same.
                if start not in self._packages or not found[script].keys() - {start}:
                    found[script][start] = inserts
        return found

    def _imported(self, file: str, start: str) -> Iterator[str]:
        """The files that one of them imports when a script in some folder is started."""
        path = self._started_in(start, posixpath.dirname(file))
        for target in self._scans[file].targets:
            if target.startswith("."):
                located = self._relative(file, target)
            else:
                located = self._on_path(file, path, tuple(target.split(".")))
            if located is not None:
                yield located.file
                folder = posixpath.dirname(located.file)
                while folder in self._packages:
                    yield posixpath.join(folder, _INIT)
                    folder = posixpath.dirname(folder)

    def _follow_edited_paths(self) -> None:
        """Find the files that may run where ``sys.path`` is edited: those beside or below one that does it,
        as a ``conftest.py``, what imports that, and all that these import."""
        editors = {file for file, scan in self._scans.items() if scan.edits_path}
        if not editors:
            return
        folders = {posixpath.dirname(file) for file in editors}
        importers: dict[str, set[str]] = defaultdict(set)
        for file, scan in self._scans.items():
            for part in {part for one in scan.targets for part in one.split(".")}:
                importers[part].add(file)
        pending = [*editors]
        while pending:
            one = pending.pop()
            for file in importers[_module_name(one)] - editors:
                if one in self._run_by(file):
                    editors.add(file)
                    pending.append(file)
        self._known.clear()
        pending = [f for f in self._scans if folders & _folders_above((f,))]
        pending += editors
        while pending:
            file = pending.pop()
            if file not in self._edited:
                self._edited.add(file)
                pending += self._run_by(file)

    def _run_by(self, file: str) -> set[str]:
        """What a file imports, and the packages that this is in."""
        found: set[str] = set()
        for target in self._scans[file].targets:
            named = self.locate(file, target.rstrip(".") or target)
            if isinstance(named, Ambiguous):
                continue
            for one in self.meant(file, target):
                found.add(one)
                folder = posixpath.dirname(one)
                while folder in self._packages:
                    found.add(posixpath.join(folder, _INIT))
                    folder = posixpath.dirname(folder)
        return found

    # -- what is found there ----------------------------------------------------------------------

    def _on_path(
        self, importer: str, path: Iterable[str], parts: tuple[str, ...]
    ) -> Located | None:
        """The first on a path; one that has all that is imported from it comes before one that has not."""
        if parts[0] not in self._names:
            return None
        best: tuple[tuple[bool, bool], Located] | None = None
        for base in path:
            located = self._below(base, parts)
            if located is None or located.file == importer:
                continue
            if not self._may_mean(importer, base, parts[0]):
                continue
            # Python takes a folder without __init__.py only where there is nothing else.
            worse = not self._serves(importer, base, parts[0]), not self._is_regular(
                base, parts[0]
            )
            if best is None or worse < best[0]:
                best = worse, located
        return None if best is None else best[1]

    def _is_regular(self, base: str, name: str) -> bool:
        stem = posixpath.join(base, name)
        return stem in self._packages or f"{stem}.py" in self.files

    def _serves(self, importer: str, base: str, name: str) -> bool:
        """Whether all modules of that top-level name that a file imports are in a folder."""
        asked = (importer, base, name)
        if asked not in self._served:
            self._served[asked] = all(
                self._is_module(posixpath.join(base, *module.split(".")))
                for module in self._modules(importer, name)
            )
        return self._served[asked]

    def _is_module(self, stem: str) -> bool:
        return f"{stem}.py" in self.files or stem in self._folders

    def _modules(self, importer: str, name: str) -> list[str]:
        scan = self._scans.get(importer, ImportScan())
        return [one for one in scan.modules if one.partition(".")[0] == name]

    def _may_mean(self, importer: str, base: str, name: str) -> bool:
        """Whether a folder may hold what usually is an installed package."""
        if name not in _INSTALLED:
            return True
        if not self._is_regular(base, name):
            return False
        if base in (self.root, posixpath.join(self.root, "src")):
            return True
        if base in self._packages or not self._serves(importer, base, name):
            return False
        inside = importer.startswith(posixpath.join(base, name, ""))
        return not inside or any("." in m for m in self._modules(importer, name))

    def _below(self, base: str, parts: tuple[str, ...]) -> Located | None:
        """The deepest module or package of a dotted name below a folder."""
        found = None
        stem = base
        for length, part in enumerate(parts, 1):
            stem = posixpath.join(stem, part)
            init = posixpath.join(stem, _INIT)
            if init in self.files:
                found = Located(init, parts[length:])
            elif stem not in self._packages and f"{stem}.py" in self.files:
                return Located(f"{stem}.py", parts[length:])
            elif stem not in self._folders:
                break
        return found

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


def _module_name(file: str) -> str:
    folder, name = posixpath.split(file)
    return posixpath.basename(folder) if name == _INIT else name.rpartition(".")[0]


def _folders_above(files: Iterable[str]) -> frozenset[str]:
    found: set[str] = set()
    for file in files:
        folder = posixpath.dirname(file)
        while folder not in found:
            found.add(folder)
            folder = posixpath.dirname(folder)
    return frozenset(found)


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
            for other in layout.meant(file, target):
                if other in leader:
                    leader[find(other)] = find(file)
    groups: dict[str, set[str]] = defaultdict(set)
    for file in imports:
        groups[find(file)].add(file)
    return [frozenset(group) for group in groups.values()]
