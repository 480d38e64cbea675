"""Put the hook into the Python of a user's program, by its environment alone."""

import os
from collections.abc import Mapping
from pathlib import Path

HOOK_FOLDER = Path(__file__).resolve().parent / "hook"
HOOK_VARIABLE = "WANBED_HOOK"


def with_hook(environment: Mapping[str, str], config: Path) -> dict[str, str]:
    """Return the environment in which every Python records as ``config`` says. The caller's PYTHONPATH stays behind."""
    path = [str(HOOK_FOLDER), *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": os.pathsep.join(path), HOOK_VARIABLE: str(config)}
