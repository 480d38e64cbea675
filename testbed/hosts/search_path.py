"""Say where programs of users are searched on this machine."""

import os
import sys
from pathlib import Path


def search_path() -> str:
    """Return the PATH of programs: what is installed beside wanbed is found after everything that the caller finds."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])
