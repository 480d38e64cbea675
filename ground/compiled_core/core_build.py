"""Build the compiled core from the present sources into the user's cache: ``wanbed compile``.

It appears in the cache atomically, once each of its modules has been imported. The output of a failed build is kept
there in a log.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from wanbed.ground.compiled_core.core_cache import GROUP_SUFFIX, RECORD, cache_folder
from wanbed.ground.compiled_core.core_modules import (
    ANALYSED_MODULES,
    CORE_MODULES,
    ROOT,
    core_key,
    core_sources,
    source_path,
)
from wanbed.ground.errors import WanbedError

_SETUP = Path(__file__).with_name("mypyc_setup.py")
_KEPT = 8
"""So many cores stay in the cache, those used by other checkouts among them; the oldest ones are removed."""
_TRY = (
    "import sys; sys.path.insert(0, sys.argv[1]); from importlib import import_module; from pathlib import Path; "
    "from wanbed.ground.compiled_core.core_cache import core_files; "
    "from wanbed.ground.compiled_core.core_cache import CoreFinder; "
    "files = core_files(Path(sys.argv[2])); sys.meta_path.insert(0, CoreFinder(files)); "
    "[import_module(name) for name in files]"
)


class CompilerError(WanbedError):
    """The machine lacks what compiles; the message is one line with the remedy. Exit status 5."""


class CompileError(WanbedError):
    """The core could not be compiled; the message is one line with the cause and the log. Exit status 4."""


def build_core(root: Path | None = None, *, again: bool = False) -> tuple[Path, bool]:
    """Build the core of the present sources unless it is in ``root``, or ``again``.

    Return its folder, and whether it was built. Raise CompilerError for a missing compiler, CompileError if it cannot
    be compiled.
    """
    root = cache_folder() if root is None else root
    sources = core_sources()
    folder = root / core_key(sources)
    root.mkdir(parents=True, exist_ok=True)
    with _alone(root / "lock"):
        if (folder / RECORD).is_file() and not again:
            folder.touch()
            return folder, False
        _check_machine()
        for left_behind in root.glob("*.partial"):
            shutil.rmtree(left_behind, ignore_errors=True)
        with tempfile.TemporaryDirectory(suffix=".partial", dir=root) as work:
            made = _build_in(Path(work), sources, folder.with_name(f"{folder.name}.log"))
            shutil.rmtree(folder, ignore_errors=True)
            made.rename(folder)
        _remove_oldest(root)
    return folder, True


def _build_in(work: Path, sources: dict[str, bytes], log: Path) -> Path:
    for module, source in sources.items():
        file = source_path(module, work)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(source)
        for folder in list(file.relative_to(work).parents)[:-1]:
            (work / folder / "__init__.py").touch()
    files = ",".join(str(source_path(module, Path())) for module in CORE_MODULES)
    _logged(log, "compiling", [sys.executable, "-P", str(_SETUP), files, ",".join(ANALYSED_MODULES)], work)
    made = work / "built"
    if not any(made.glob(f"*{GROUP_SUFFIX}")):
        raise CompileError(f"compiling made no shared code: see {log}")
    _logged(log, "importing what was compiled", [sys.executable, "-P", "-c", _TRY, str(ROOT), str(made)], work)
    record = {"mypyc": metadata.version("mypy"), "python": sys.version.split()[0], "compiler": _compiler()}
    (made / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    log.unlink()
    return made


def _logged(log: Path, step: str, command: list[str], folder: Path) -> None:
    """Run a step of the build. Raise CompileError with the first error that it printed if it fails."""
    with log.open("wb") as output:
        environment = {**os.environ, "WANBED_PURE": "1"}
        done = subprocess.run(
            command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False
        )
    if done.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        told = [line for line in lines if "error" in line.lower()] or lines[-1:] or ["it printed nothing"]
        raise CompileError(f"{step} failed: {told[0].strip()} (all of it: {log})")


def _check_machine() -> None:
    if find_spec("mypyc") is None or find_spec("setuptools") is None:
        raise CompilerError("mypyc is not installed: pip install 'wanbed[compiled]'")
    if shutil.which(_compiler()) is None:
        raise CompilerError(f"no C compiler {_compiler()!r}: apt-get install build-essential")
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        raise CompilerError(
            f"no Python.h in {sysconfig.get_path('include')}: apt-get install python3-dev, for this Python"
        )


def _compiler() -> str:
    configured = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return str(configured).split()[0]


def _remove_oldest(root: Path) -> None:
    cores = sorted((record.parent for record in root.glob(f"*/{RECORD}")), key=lambda each: each.stat().st_mtime)
    for folder in cores[:-_KEPT]:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Wait until no other process builds."""
    with lock.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
