"""Scripts see their own writes, and nothing of the user's changes."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from overlay_support import Ground, agree


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


_TREE = """
import os
def tree():
    for top, folders, files in sorted(os.walk(".", followlinks=True)):
        print(top, sorted(folders), sorted(files))
"""

SCRIPTS = {
    "writes and reads": """
        import os
        with open("new.txt", "w") as file:
            print(file.name, file.write("hello"))
        print(os.path.exists("new.txt"), open("new.txt").read(), os.path.getsize("new.txt"))
        with open("data/one.bin", "r+b") as file:
            file.seek(1); file.write(b"X")
        print(open("data/one.bin", "rb").read(), open("link/one.bin", "rb").read())
    """,
    "appends to the user's log": """
        for text in ("a", "b"):
            with open("log.txt", "a") as file:
                print(file.tell()); file.write(text)
        print(open("log.txt").read())
        with open("log.txt", "w") as file: file.write("anew")
        print(open("log.txt").read())
    """,
    "makes folders": """
        import os
        os.makedirs("out/a/b"); os.makedirs("out/a/b", exist_ok=True)
        try: os.mkdir("data")
        except FileExistsError as error: print(error)
        try: os.mkdir("no/where")
        except FileNotFoundError as error: print(error)
        open("out/a/f", "w").close()
        print(os.listdir("out"), sorted(os.listdir("out/a")), os.path.isdir("out/a/b"))
        try: os.rmdir("out/a")
        except OSError as error: print(error)
        os.rmdir("out/a/b"); print(os.listdir("out/a"))
    """,
    "renames and removes": """
        import os
        os.rename("data/one.bin", "data/three.bin"); os.replace("log.txt", "data/two.bin")
        os.remove("data/three.bin"); tree()
        os.rename("runs", "archive")
        print(os.path.exists("runs"), open("archive/old/model.pt").read()); tree()
        os.mkdir("runs"); tree(); os.unlink("link"); tree()
        for wrong in (
            lambda: os.remove("gone"), lambda: os.remove("data"), lambda: os.rmdir("archive"),
            lambda: os.rename("gone", "x"), lambda: os.rename("data", "archive"),
            lambda: os.rename("data", "data/inner"), lambda: open("log.txt"), lambda: open("data", "w"),
            lambda: open("gone/x", "w"), lambda: open("data/two.bin/x", "w"), lambda: os.listdir("gone"),
            lambda: os.scandir("data/two.bin"), lambda: open("data/two.bin", "x"),
            lambda: os.open("gone", os.O_RDWR), lambda: os.stat("gone"), lambda: os.chdir("gone"),
            lambda: os.truncate("gone", 3), lambda: os.chmod("gone", 0o600), lambda: os.readlink("data"),
        ):
            try: wrong(); print("nothing wrong")
            except OSError as error: print(type(error).__name__, error.errno, error.filename)
    """,
    "shutil": """
        import os, shutil
        shutil.copy("log.txt", "copy.txt"); shutil.copy2("log.txt", "runs")
        shutil.move("data/one.bin", "runs/old")
        shutil.copytree("data", "data_copy"); shutil.rmtree("data"); tree()
        shutil.move("runs", "moved"); shutil.rmtree("moved/old"); tree()
        os.makedirs("data"); tree(); shutil.make_archive("packed", "zip", "moved")
        shutil.unpack_archive("packed.zip", "unpacked"); tree()
        print(shutil.disk_usage("data").total > 0)
    """,
    "pathlib": """
        from pathlib import Path
        root = Path("out"); root.mkdir(); (root / "a.txt").write_text("a")
        (root / "b").mkdir(parents=True)
        (root / "a.txt").rename(root / "b" / "c.txt"); Path("log.txt").unlink()
        Path("data/two.bin").touch()
        print(sorted(map(str, Path(".").rglob("*"))), Path("log.txt").exists(), sorted(map(str,
            Path("data").iterdir())))
        with (root / "d").open("w") as file: file.write("d")
        print((root / "d").read_text(), (root / "d").stat().st_size,
            Path.cwd() == Path("out").resolve().parent)
        print(sorted(map(str, Path(".").glob("*/*.bin"))), Path("link").is_symlink(),
            Path("file_link").resolve().name)
        Path("data/one.bin").write_bytes(b"changed"); print(Path("file_link").read_bytes())
    """,
    "glob and scandir": """
        import glob, os
        open("data/new.bin", "w").close(); os.remove("data/two.bin")
        print(sorted(glob.glob("**/*.bin", recursive=True)), sorted(glob.glob(os.getcwd() + "/data/*")))
        with os.scandir("data") as entries:
            print(sorted((e.name, e.path, e.is_file(), e.is_dir(), e.is_symlink(),
                e.stat().st_size) for e in entries))
        with os.scandir() as entries:
            print(sorted((e.name, e.path, e.is_file(), e.is_dir(), e.is_symlink(),
                os.fspath(e)) for e in entries))
        print(sorted(os.listdir(b"data")), sorted(e.path for e in os.scandir(b"data")))
        descriptor = os.open("data", os.O_RDONLY)
        print(sorted(os.listdir(descriptor)), sorted(e.name for e in os.scandir(descriptor)))
        with os.fdopen(os.open("at", os.O_WRONLY | os.O_CREAT, dir_fd=descriptor),
            "w") as file: file.write("x")
        print(os.stat("at", dir_fd=descriptor).st_size, sorted(os.listdir("data")))
    """,
    "links": """
        import os
        os.makedirs("run1"); os.symlink("run1", "latest"); open("latest/a", "w").close()
        print(os.listdir("run1"))
        os.makedirs("run2"); os.remove("latest"); os.symlink(os.path.abspath("run2"), "latest")
        open("latest/b", "w").close(); tree()
        print(os.path.realpath("latest").endswith("/run2"), os.readlink("link"))
        os.link("data/one.bin", "hard"); open("hard", "a").write("+")
        print(open("data/one.bin").read())
        os.symlink("loop", "loop")
        try: open("loop")
        except OSError as error: print(error.errno)
        open("link/../beside", "w").close()
        print(os.path.exists("beside"), os.path.samefile("link", "data"))
        os.rename("data", "moved"); print(os.path.exists("link/one.bin"), os.path.lexists("link"))
        os.mkdir("data"); open("link/fresh", "w").close()
        print(os.listdir("data"), os.path.exists("file_link"))
    """,
    "the working folder": """
        import os
        os.makedirs("out/deep"); os.chdir("out/deep"); print(os.getcwd()[-17:], os.listdir())
        open("x", "w").write("x")
        print(open("x").read(), os.path.abspath("x")[-10:], open("../../log.txt").read())
        open("../../log.txt", "a").write("!"); os.chdir("..")
        print(os.listdir(), open("../log.txt").read())
        os.chdir("../data"); print(sorted(os.listdir()), open("one.bin").read())
        open("own", "w").close()
        os.chdir(".."); print(sorted(os.listdir("data")))
    """,
    "metadata": """
        import os, stat
        os.chmod("log.txt", 0o640); print(oct(os.stat("log.txt").st_mode)); os.utime("log.txt", (5, 6))
        print(os.stat("log.txt").st_mtime); os.truncate("data/one.bin", 2)
        print(open("data/one.bin").read())
        file = open("data/two.bin"); os.chmod(file.fileno(), 0o600); os.utime(file.fileno(), (7, 8))
        os.fchmod(file.fileno(), 0o604)
        print(oct(os.stat("data/two.bin").st_mode), os.stat("data/two.bin").st_mtime, os.access("data",
            os.W_OK), os.access("no", os.F_OK))
        os.chmod("runs", 0o750); print(oct(os.stat("runs").st_mode), os.listdir("runs/old"))
    """,
    "files of all kinds": """
        import bz2, csv, gzip, io, json, logging, os, pickle, sqlite3, tarfile, tempfile, zipfile
        with gzip.open("a.gz", "wt") as file: file.write("zipped")
        print(gzip.open("a.gz", "rt").read())
        with zipfile.ZipFile("a.zip", "w") as archive: archive.write("log.txt")
        with zipfile.ZipFile("a.zip", "a") as archive: archive.write("data/one.bin")
        print(zipfile.ZipFile("a.zip").namelist())
        with tarfile.open("a.tar", "w") as archive: archive.add("data")
        print(sorted(tarfile.open("a.tar").getnames()))
        with io.FileIO("raw", "wb") as file: print(file.write(b"raw"), isinstance(file, io.FileIO),
            file.name)
        print(isinstance(open("raw", "rb", buffering=0), io.FileIO), io.FileIO("raw").read())
        database = sqlite3.connect("a.db"); database.execute("create table t (x)")
        database.execute("insert into t values (3)")
        database.commit(); database.close()
        print(sqlite3.connect("a.db").execute("select x from t").fetchall())
        print(sqlite3.connect("file:a.db?mode=ro", uri=True).execute("select x from t").fetchall(),
            os.path.getsize("a.db") > 0)
        logging.basicConfig(filename="train.log"); logging.warning("careful")
        print(open("train.log").read())
        with tempfile.NamedTemporaryFile("w", dir=".", delete=False) as file: file.write("kept")
        print(open(file.name).read()); os.replace(file.name, "final")
        print(os.listdir(".").count("final"))
        with tempfile.TemporaryDirectory(dir=".") as folder: open(folder + "/x",
            "w").close(); print(os.listdir(folder))
        print(os.path.exists(folder)); tempfile.TemporaryFile(dir=".").close()
        pickle.dump([1], open("p", "wb")); print(pickle.load(open("p", "rb")))
        print(pickle.loads(pickle.dumps(open)) is open)
        with tempfile.NamedTemporaryFile("w", delete=False) as file: file.write("elsewhere")
        os.replace(file.name, "data/one.bin")
        print(open("data/one.bin").read(), os.path.exists(file.name))
        import shutil; shutil.move("data/one.bin", tempfile.mkdtemp()); print(os.listdir("data"))
        descriptor = os.open("d", os.O_RDWR | os.O_CREAT | os.O_EXCL); os.write(descriptor, b"d")
        os.close(descriptor)
        print(open("d").read(), open(os.open("d", os.O_RDONLY)).read(), open("e", "x").close(),
            sorted(os.listdir()))
    """,
    "child processes": """
        import os, subprocess, sys
        os.makedirs("out"); open("out/a", "w").write("parent"); os.remove("data/one.bin")
        code = "import os; print(open('a').read(), os.listdir('../data'), os.getcwd()[-4:]); "
        code += "open('b', 'w').write('child'); os.remove('a')"
        print(subprocess.check_output([sys.executable, "-c", code], cwd="out").decode(),
            os.listdir("out"), open("out/b").read())
        import multiprocessing
        process = multiprocessing.get_context("fork").Process(target=lambda: open("forked",
            "w").write("x"))
        process.start(); process.join(); print(process.exitcode, open("forked").read())
        os.chdir("out")
        print(subprocess.check_output([sys.executable, "-c", "print(open('b').read())"]).decode())
    """,
    "a module that it wrote": """
        import importlib, os, sys
        os.makedirs("made"); open("made/__init__.py", "w").close()
        open("made/part.py", "w").write("x = 3")
        open("data/helper.py", "w").write("y = 4")
        sys.path.insert(0, "."); sys.path.insert(0, "data"); importlib.invalidate_caches()
        from made import part; import helper; print(part.x, helper.y)
        try: import never_written
        except ImportError as error: print(error)
    """,
    "threads": """
        import os, threading
        wrong = []
        def work(number):
            try:
                for step in range(30):
                    folder = "t/%d" % (step % 3); os.makedirs(folder, exist_ok=True)
                    path = "%s/%d-%d" % (folder, number, step)
                    with open(path, "w") as file: file.write(path)
                    os.replace(path, path + ".done"); assert open(path + ".done").read() == path
                    if step % 2: os.remove(path + ".done")
                    open("log.txt", "a").write(".")
            except BaseException as error: wrong.append(error)
        threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(wrong, sum(len(f) for _, _, f in os.walk("t")), len(open("log.txt").read()))
    """,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_sees_what_it_would_without_the_overlay(
    ground: Ground, name: str
) -> None:
    before = ground.files()
    assert agree(ground, _TREE + textwrap.dedent(SCRIPTS[name]))
    assert ground.files() != before  # as it is, the script does change the user's files


@pytest.mark.parametrize("seed", range(6))
def test_random_changes_look_the_same_with_and_without_the_overlay(
    ground: Ground, seed: int
) -> None:
    assert agree(ground, _RANDOM.format(seed=seed)).count("\n") > 300


_RANDOM = """
import os, random, shutil
choose = random.Random({seed})
names = ["data", "runs", "log.txt", "link", "a", "b", "old", "one.bin", "file_link", ".."]
def path():
    return "/".join(choose.choice(names) for _ in range(choose.choice([1, 1, 2, 2, 3])))
def inside(path):
    return not os.path.relpath(os.path.realpath(path),
        os.getcwd()).startswith("..") and os.path.realpath(path) != os.getcwd()
def write(one, two): open(one, "w").write(two)
def append(one, two): open(one, "a").write(two)
def update(one, two): open(one, "r+").write(two)
def read(one, two): return open(one, "rb").read()
def listing(one, two): return sorted(os.listdir(one))
def scan(one, two): return sorted((e.name, e.is_dir(), e.is_file(),
    e.is_symlink()) for e in os.scandir(one))
def look(one, two):
    status = os.stat(one); return status.st_mode, 0 if os.path.isdir(one) else status.st_size
def glance(one, two): return os.lstat(one).st_mode, os.path.realpath(one)
def link(one, two): os.symlink(os.path.basename(two), one)
def move(one, two): shutil.move(one, two)
def copy(one, two): shutil.copytree(one, two) if os.path.isdir(one) and not inside_of(one,
    two) else shutil.copyfile(one, two)
def inside_of(one, two): return os.path.realpath(two).startswith(os.path.realpath(one))
deeds = [write, append, update, read, listing, scan, look, glance, link, move, copy,
         lambda one, two: os.mkdir(one), lambda one, two: os.makedirs(one), lambda one, two: os.remove(one),
         lambda one, two: os.rmdir(one), lambda one, two: os.rename(one,
             two), lambda one, two: os.replace(one, two),
         lambda one, two: shutil.rmtree(one), lambda one, two: os.truncate(one,
             2), lambda one, two: os.link(one, two)]
for number in range(400):
    deed, one, two = choose.randrange(len(deeds)), path(), path()
    try:
        if not inside(one) or not inside(two):
            continue
        result = deeds[deed](one, two)
    except OSError as error:
        result = type(error).__name__, error.errno
    except shutil.Error as error:
        result = "shutil"
    print(number, deed, one, two, result)
    if number % 20 == 0:
        print([(top, sorted(folders), sorted(files)) for top, folders, files in sorted(os.walk("."))])
"""


def test_what_gets_past_the_overlay_is_refused(ground: Ground) -> None:
    before = ground.files()
    said = ground.redirected("""
        import os, posix
        for wrong in (lambda: posix.open("new", os.O_CREAT | os.O_WRONLY), lambda: posix.mkdir("new"),
                      lambda: posix.remove("log.txt"), lambda: posix.rename("log.txt", "x"),
                      lambda: posix.truncate("log.txt", 0), lambda: posix.chmod("log.txt", 0),
                      lambda: posix.symlink("a", "b"), lambda: posix.rmdir("runs/old")):
            try: wrong(); print("done")
            except PermissionError as error: print(error)
        print(posix.open("log.txt", os.O_RDONLY) > 0)
        """)
    lines = said.splitlines()
    assert lines.pop() == "True"
    assert len(lines) == 8
    for line in lines:
        assert "amp-migrate: this run may not change the user's files" in line
    assert ground.files() == before
