"""Find the compiled core in the user's cache, and import its modules in place of their sources.

::

    <XDG_CACHE_HOME or ~/.cache>/wanbed/compiled-core/<key>/
        wanbed/runner/...        an extension module for each module
        <hash>__mypyc...so       the code of all of them
        core.json                with which mypyc and compiler it was built
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from wanbed.ground.compiled_core.core_modules import CORE_MODULES, present_key
from wanbed.ground.user_cache import searched_caches, trusted, user_cache

PURE = "WANBED_PURE"
"""The environment variable that has the sources run, unless it is empty or 0."""

REMEDY = "wanbed compile"
RECORD = "core.json"
GROUP_SUFFIX = f"__mypyc{EXTENSION_SUFFIXES[0]}"
_NAME = "compiled-core"


@dataclass(frozen=True)
class Core:
    """Name what runs the simulator: the compiled core in ``folder``, or the sources (None), and why."""

    folder: Path | None
    reason: str

    @property
    def name(self) -> str:
        """``compiled`` or ``pure``."""
        return "pure" if self.folder is None else "compiled"

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def cache_folder() -> Path:
    """Return the folder for the folders of all cores; it need not exist."""
    return user_cache(_NAME)


@cache
def present_core() -> Core:
    """Return what runs the simulator in this process, by the sources, the cache and ``WANBED_PURE``."""
    if os.environ.get(PURE, "0") not in {"", "0"}:
        return Core(None, f"{PURE} is set")
    return find_core(present_key(), searched_caches(_NAME))


def find_core(key: str | None, folders: list[Path]) -> Core:
    """Return the core of that key in the first of ``folders`` that has a trusted one, else the sources."""
    if key is None:
        return Core(None, "its sources cannot be read")
    for folder in folders:
        if (folder / key / RECORD).is_file() and all(map(trusted, _with_extensions(folder / key))):
            return Core(folder / key, f"of the present sources, {key}")
    others = any(folder.is_dir() and any(folder.glob(f"*/{RECORD}")) for folder in folders)
    return Core(None, f"{'compiled are other sources' if others else 'not compiled'}, `{REMEDY}` makes it faster")


def _with_extensions(folder: Path) -> list[Path]:
    """Return a core's folder, which is named where all are foreign, and the extension modules in it."""
    return [folder, *core_files(folder).values()]


def core_files(folder: Path) -> dict[str, Path]:
    """Return the extension module of each module, and of the code that they share, in a core's folder."""
    suffix = EXTENSION_SUFFIXES[0]
    files = {module: folder.joinpath(*module.split(".")).with_suffix(suffix) for module in CORE_MODULES}
    shared = {file.name.removesuffix(suffix): file for file in folder.glob(f"*{GROUP_SUFFIX}")}
    return {**files, **shared}


class CoreFinder:
    """Find the modules of a compiled core, and leave every other module to the finders that follow."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification of a compiled module, None for any other."""
        file = self.files.get(fullname)
        if file is None:
            return None
        return spec_from_file_location(fullname, file, loader=ExtensionFileLoader(fullname, str(file)))


def use_compiled_core() -> None:
    """Import the compiled core from then on, if there is one of the present sources.

    A package whose modules are compiled calls this before any of them is imported.
    """
    if any(isinstance(finder, CoreFinder) for finder in sys.meta_path):
        return
    folder = present_core().folder
    sys.meta_path.insert(0, CoreFinder({} if folder is None else core_files(folder)))
