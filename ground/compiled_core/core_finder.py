"""Import compiled modules in place of their sources."""

import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from wanbed.ground.compiled_core.core_cache import core_files, present_core


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
