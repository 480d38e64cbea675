"""Describe the machine that makes a run, and the code: git revision, libraries, packages whose classes the run uses.

Facts that cannot be read are None.
"""

import os
import platform
import re
import subprocess
from collections.abc import Iterable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from wanbed.ground.entry_points import installed
from wanbed.module_process import PACKAGE
from wanbed.testbed.gpus.gpus import machine_gpus
from wanbed.testbed.kernel.namespace import read_sysctl
from wanbed.workloads.compute.backends.registry import ENTRY_POINT_GROUP as COMPUTE
from wanbed.workloads.schedules.registry import ENTRY_POINT_GROUP as SCHEDULES

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


DISTRIBUTION = "wanbed"

GIT_TIMEOUT_S = 10.0

_EXTRAS = ("torch", "gpu", "rack")
"""The package extras whose libraries take part in a run."""


def library_versions() -> dict[str, str | None]:
    """Return the versions of Python, this package, and each library that a run may use; None if not installed."""
    versions: dict[str, str | None] = {"python": platform.python_version(), DISTRIBUTION: _version(DISTRIBUTION)}
    for requirement in _requirements():
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        extra = re.search(r"extra == ['\"](.+?)['\"]", requirement)
        if extra is None or extra.group(1) in _EXTRAS:
            versions[name] = _version(name)
    return versions


def _requirements() -> list[str]:
    try:
        return metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return []


def _version(distribution: str) -> str | None:
    """Return the version of a distribution, None if it is not installed.

    Only the line of the version is read: ``metadata.version`` parses the whole file, which may have a long description.
    """
    try:
        found = metadata.distribution(distribution)
    except metadata.PackageNotFoundError:
        return None
    version = re.search(r"^Version:[ \t]*(.+)$", found.read_text("METADATA") or "", re.MULTILINE)
    return version[1].strip() if version else found.version


def foreign_schedules(names: Iterable[str]) -> list[dict[str, Any]]:
    """Return the schedules among ``names`` that come from other packages: class, distribution and version of each.

    Of a module that no distribution has installed, the latter two are None.
    """
    names = set(names)
    paths = sorted({name for name in names if ":" in name and name.partition(".")[0] != PACKAGE})
    distributions = metadata.packages_distributions() if paths else {}
    by_class = []
    for path in paths:
        distribution = next(iter(distributions.get(re.split("[.:]", path)[0], ())), None)
        version = None if distribution is None else _version(distribution)
        by_class.append({"schedule": path, "class": path, "distribution": distribution, "version": version})
    return [*_foreign("schedule", SCHEDULES, names), *by_class]


def foreign_compute(kinds: Iterable[str]) -> list[dict[str, Any]]:
    """Return the compute back ends among ``kinds`` that come from other packages, as ``foreign_schedules`` does."""
    return _foreign("compute", COMPUTE, kinds)


def _foreign(what: str, group: str, names: Iterable[str]) -> list[dict[str, Any]]:
    wanted = set(names)
    found = [entry for entry in installed(group) if entry.name in wanted]
    entries = {entry.name: entry for entry in found if entry.dist is None or entry.dist.name != DISTRIBUTION}
    return [
        {
            what: name,
            "class": entries[name].value,
            "distribution": dist.name if (dist := entries[name].dist) else None,
            "version": dist.version if dist else None,
        }
        for name in sorted(entries)
    ]


def git_state(checkout: Path) -> dict[str, Any] | None:
    """Return the revision of a git checkout, and whether the checkout differs from it (``dirty``).

    Return None unless ``checkout`` is the root of a git checkout. A folder inside another checkout, such as a virtual
    environment, does not count.
    """
    # Named, the repository is not looked for in the folders above. Under sudo the checkout belongs to another user,
    # which git accepts only with safe.directory.
    command = ["git", "-c", f"safe.directory={checkout}", "-C", str(checkout), "--git-dir=.git"]
    # The variables of a git hook that started this process would point git at another repository.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            [*command, "status", "--porcelain=v2", "--branch"],
            capture_output=True,
            text=True,
            check=False,
            timeout=GIT_TIMEOUT_S,
            env={**environment, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    revision = re.search(r"^# branch\.oid ([0-9a-f]+)$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or revision is None:
        return None
    return {"revision": revision[1], "dirty": any(not line.startswith("#") for line in done.stdout.splitlines())}


@cache
def git_state_at_start(checkout: Path) -> dict[str, Any] | None:
    """Return the ``git_state`` of the code that this process runs: as it was when it was first asked for.

    What is changed later is not what the process has loaded. A program that simulates many experiments starts git once.
    """
    return git_state(checkout)
