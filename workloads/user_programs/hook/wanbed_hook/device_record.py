"""Say what the program computed on: its device, and the software, which need not be wanbed's."""

from __future__ import annotations

import json
import os
import platform
import sys
from types import ModuleType
from typing import Any


def uses_gpu(torch: ModuleType) -> bool:
    """Return whether the program has begun to use a GPU. Initialises nothing."""
    return bool(torch.cuda.is_available() and torch.cuda.is_initialized())


def device_record(torch: ModuleType, clock_error_ns: int) -> dict[str, Any]:
    """Return the log's record of the device: the GPU that is current in this thread, or the CPU."""
    device = model = "cpu"
    if uses_gpu(torch):
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        device, model = _uuid(str(properties.uuid)), str(properties.name)
    return {
        "device": {
            "device": device,
            "model": model,
            "clock_error_ns": clock_error_ns,
            "deterministic": bool(torch.are_deterministic_algorithms_enabled()),
        }
    }


def _uuid(seen: str) -> str:
    """Return the UUID as telemetry knows it: torch gives it bare, and of a MIG instance may give that of the GPU."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").partition(",")[0].strip()
    return first if first.startswith("MIG-") else f"GPU-{seen[4:] if seen[:4] in ('GPU-', 'MIG-') else seen}"


def write_software(path: str, torch: ModuleType | None) -> None:
    """Write the versions of Python and torch as JSON; null for a torch that was not imported."""
    versions = {
        "python": platform.python_version(),
        "executable": sys.executable,
        "torch": None if torch is None else str(torch.__version__),
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(versions, file)
