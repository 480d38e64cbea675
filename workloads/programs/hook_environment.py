"""Prepare a program's environment so that its Python finds the hook."""

from collections.abc import Mapping
from pathlib import Path

_HOOK_FOLDER = Path(__file__).resolve().parent / "hook"


def hook_environment(config_path: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return ``environment`` with the hook's folder first on PYTHONPATH and its configuration in WANBED_HOOK."""
    search = environment.get("PYTHONPATH")
    path = str(_HOOK_FOLDER) if not search else f"{_HOOK_FOLDER}:{search}"
    return {**environment, "PYTHONPATH": path, "WANBED_HOOK": str(config_path)}
