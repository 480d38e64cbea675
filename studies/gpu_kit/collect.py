"""Collect the kit: ``python -m studies.gpu_kit.collect FOLDER``, on a Debian machine that reaches the registries.

The kit has wanbed, the Python packages that it needs but for torch, the steps of the first hour, and the programs,
libraries and kernel modules of Debian that a bare machine lacks. A list of what the GPU machine has
(``python3 -m pip list --format=freeze`` there) keeps it small: large packages on it are left out.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

from wanbed.module_process import PACKAGE
from wanbed.testbed.substrate.guest_kernel import MODULES as GUEST_MODULES

PACKAGES = (
    "mininet",
    "net-tools",
    "iperf3",
    "libiperf0",
    "libsctp1",
    "iputils-ping",
    "kmod",
    "user-mode-linux",
)
"""The Debian packages that files are taken from. Whole ones would be larger than everything else together."""

MODULES = "usr/lib/uml/modules"

FILES = {
    "usr/bin/mnexec": "bin/mnexec",
    "sbin/ifconfig": "bin/ifconfig",
    "usr/bin/iperf3": "bin/iperf3",
    "bin/ping": "bin/ping",
    "bin/kmod": "sbin/insmod",
    "usr/bin/linux.uml": "bin/linux.uml",
    "usr/lib/x86_64-linux-gnu/libiperf.so.0": "lib/libiperf.so.0",
    "usr/lib/x86_64-linux-gnu/libsctp.so.1": "lib/libsctp.so.1",
}
"""Path in the unpacked packages, and path in the kit's ``system`` folder. kmod is insmod if it is called so."""

ROOT = Path(__file__).resolve().parents[2]

OWN_FILES = ("install.py", "env.sh")

PIP = (sys.executable, "-m", "pip")

BESIDES = ("nvidia-ml-py", "pip", "setuptools", "wheel")
"""Beside wanbed's requirements: NVML's binding, pip, and setuptools, whose distutils Mininet imports."""

LARGE_BYTES = 4 * 2**20
"""A smaller package is always carried, in the version that is tested."""

_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info")

_PLATFORMS = ("manylinux2014_x86_64", "manylinux_2_17_x86_64", "manylinux_2_28_x86_64")


class CollectError(Exception):
    """Something cannot be collected; the message is one line."""


def collect(kit: Path, python: str, has: frozenset[str] = frozenset()) -> None:
    """Make the folder ``kit`` for Python ``python`` (like 3.12) on x86-64 Linux. ``has`` names packages to leave out.

    Raise CollectError if a registry is not reached or a package is not found.
    """
    shutil.rmtree(kit, ignore_errors=True)
    wheels = kit / "wheels"
    wheels.mkdir(parents=True)
    _download_wheels(wheels, python)
    for wheel in wheels.glob("*.whl"):
        if wheel.stat().st_size > LARGE_BYTES and distribution(wheel) in has:
            wheel.unlink()
    with TemporaryDirectory() as work:
        _build_own_wheel(Path(work), wheels)
        _collect_system(Path(work), kit / "system.tar.xz")
    own = Path(__file__).parent
    for name in OWN_FILES:
        shutil.copy(own / name, kit / name)
    # The steps: studies are not in the wheel.
    (kit / "studies").mkdir()
    shutil.copy(own.with_name("__init__.py"), kit / "studies")
    shutil.copytree(own, kit / "studies" / own.name, ignore=_LEFT_OUT)


def distribution(wheel: Path) -> str:
    """Return the normalized name of the distribution in a wheel."""
    return normalized(wheel.name.split("-")[0])


def normalized(name: str) -> str:
    """Return a distribution's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def listed(freeze: str) -> frozenset[str]:
    """Return the distributions in the output of ``pip list --format=freeze``."""
    return frozenset(normalized(re.split(r"[=@ ]", line)[0]) for line in freeze.splitlines() if line.strip())


def _download_wheels(wheels: Path, python: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    platforms = [option for platform in _PLATFORMS for option in ("--platform", platform)]
    options = ["--quiet", "--only-binary=:all:", "--implementation", "cp", "--python-version", python, *platforms]
    where = ["--constraint", str(ROOT / "constraints.txt"), "--dest", str(wheels)]
    wanted = [*project["dependencies"], *BESIDES]
    _run([*PIP, "download", "--disable-pip-version-check", *options, *where, *wanted])


def _build_own_wheel(work: Path, wheels: Path) -> None:
    """Build wanbed's wheel from a copy: building leaves files in the folder."""
    copy = work / "wanbed"
    shutil.copytree(ROOT / PACKAGE, copy / PACKAGE, ignore=_LEFT_OUT)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    _run([*PIP, "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(copy)])


def _collect_system(work: Path, archive: Path) -> None:
    downloads, unpacked, system = work / "debs", work / "unpacked", work / "system"
    downloads.mkdir()
    _run(["apt-get", "download", "-q", *PACKAGES], downloads)
    for package in downloads.glob("*.deb"):
        _run(["dpkg-deb", "--extract", str(package), str(unpacked)])
    chosen = dict(FILES)
    for release in (unpacked / MODULES).iterdir():
        for module in GUEST_MODULES:
            chosen[f"{MODULES}/{release.name}/kernel/{module}"] = f"modules/{release.name}/kernel/{module}"
    for source, target in chosen.items():
        if not (unpacked / source).exists():
            raise CollectError(f"{source} is in none of {', '.join(PACKAGES)}")
        (system / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(unpacked / source, system / target)
    with tarfile.open(archive, "w:xz") as packed:
        packed.add(system, "system")


def _run(command: list[str], folder: Path | None = None) -> None:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError as fault:
        raise CollectError(f"{command[0]}: {fault.strerror}") from None
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise CollectError(f"{' '.join(command[:4])} ... failed: {words}")


def main(arguments: list[str]) -> int:
    """Collect the kit and print its size and its largest files. Return 1 if it could not be collected."""
    parser = argparse.ArgumentParser(description="Collect what a bare GPU machine needs to run wanbed.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", help="version of the GPU machine's Python (default: 3.12)")
    parser.add_argument("--has", type=Path, help="output of `python3 -m pip list --format=freeze` on the GPU machine")
    given = parser.parse_args(arguments)
    try:
        has = frozenset() if given.has is None else listed(given.has.read_text(encoding="utf-8"))
        collect(given.folder, given.python, has)
    except (CollectError, OSError) as failure:
        print(f"gpu-kit: {failure}", file=sys.stderr)
        return 1
    files = sorted((path for path in given.folder.rglob("*") if path.is_file()), key=lambda path: -path.stat().st_size)
    total = sum(path.stat().st_size for path in files)
    largest = ", ".join(f"{path.name.split('-')[0]} {path.stat().st_size / 2**20:.0f}" for path in files[:6])
    print(f"gpu-kit: {given.folder}, {total / 2**20:.0f} MiB for Python {given.python}; largest (MiB): {largest}")
    if given.has is None:
        print("gpu-kit: smaller with HAS=FILE, the GPU machine's `python3 -m pip list --format=freeze`")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
