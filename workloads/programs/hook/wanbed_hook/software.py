"""Say which software the program runs on: its Python and its torch need not be those of wanbed."""

from __future__ import annotations

import json
import platform
import sys
from types import ModuleType


def write_software(path: str, torch: ModuleType | None) -> None:
    """Write the versions of Python and torch as JSON; null for a torch that was not imported."""
    versions = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "torch": None if torch is None else str(torch.__version__),
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(versions, file)
