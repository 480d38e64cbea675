"""Where the user's cache is, by the XDG Base Directory Specification."""

import os
from pathlib import Path


def user_cache(name: str) -> Path:
    """Return the folder ``<XDG_CACHE_HOME or ~/.cache>/wanbed/<name>``; it need not exist."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    # The specification ignores relative paths.
    return (Path(root) if Path(root).is_absolute() else Path.home() / ".cache") / "wanbed" / name
