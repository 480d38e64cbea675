"""Describe the machine that makes a run. Facts that cannot be read are None."""

import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

from wanbed.testbed.gpus.gpus import machine_gpus
from wanbed.testbed.kernel.namespace import read_sysctl

PROGRAM_TIMEOUT_S = 10.0

_PROGRAMS = {"iperf3": "--version", "ping": "-V"}
_SYSCTLS = (
    *(f"net.core.{name}" for name in ("rmem_max", "wmem_max", "rmem_default", "wmem_default", "netdev_max_backlog")),
    *(f"net.core.{name}" for name in ("default_qdisc", "optmem_max", "somaxconn")),
    *(f"net.ipv4.tcp_{name}" for name in ("mem", "available_congestion_control", "allowed_congestion_control")),
)
_CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def machine_facts() -> dict[str, Any]:
    """Return the machine's part of a manifest: hardware, software, and the current load."""
    return {
        "host": host_facts(),
        "gpus": [gpu.document() for gpu in machine_gpus()],
        "load_average": list(os.getloadavg()),
        "programs": {name: program_version(name, option) for name, option in _PROGRAMS.items()},
        **kernel_facts(),
    }


def kernel_facts() -> dict[str, Any]:
    """Return the manifest's facts about the kernel that this process runs on, which carries the emulated hosts."""
    return {
        "clock_source": _first_line(_CLOCK_SOURCE),
        "machine_sysctls": {name: read_sysctl(name) for name in _SYSCTLS},
    }


def host_facts() -> dict[str, Any]:
    """Return the machine's kernel, processor, cores that this process may use, memory in bytes, and distribution."""
    return {
        "kernel": platform.release(),
        "kernel_build": _first_line(Path("/proc/version")),
        "cpu": cpu_model(_text(Path("/proc/cpuinfo"))) or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "frequency_governor": _first_line(_GOVERNOR),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "os": _os_name(),
    }


def cpu_model(cpuinfo: str) -> str | None:
    """Return the processor's name from the text of ``/proc/cpuinfo``, None if it has none, as on Arm."""
    match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return match.group(1).strip() if match else None


def program_version(name: str, option: str) -> str | None:
    """Return the first line of a program's version output, None if it is not installed, fails, or prints nothing."""
    try:
        done = subprocess.run(
            [name, option],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=PROGRAM_TIMEOUT_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return next(iter(done.stdout.splitlines()), None) if done.returncode == 0 else None


def _os_name() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _first_line(path: Path) -> str | None:
    return next(iter(_text(path).splitlines()), None)
