"""Install wanbed from the kit on a bare machine. Doing it again is quick.

The kit has a copy of this file. It runs before anything of wanbed is there, so it imports only the standard library,
and works with Python 3.11 or later. It changes what is outside the kit only where a program is missing, and says so.
"""

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path

STAMP = "installed"
NEEDED = ("torch",)
"""The packages that the machine has to bring: they are too large to be carried."""


def install(kit: Path, system: Path = Path("/"), *, root: bool | None = None) -> Iterator[str]:
    """Make the kit's environment ``env`` and install everything there. Yield a line on each thing done outside of it.

    The environment sees the machine's own packages, torch among them. Programs that the machine lacks are linked into
    ``system``, or into the environment by a user who is not ``root``. Raise SystemExit, one line, if pip fails.
    """
    root = os.geteuid() == 0 if root is None else root
    environment = kit / "env"
    wheels = sorted((kit / "wheels").glob("*.whl"))
    wanted = "\n".join([sys.version, *(f"{wheel.name} {wheel.stat().st_size}" for wheel in wheels)])
    stamp = environment / STAMP
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(environment, ignore_errors=True)
        venv.create(environment, system_site_packages=True, with_pip=False, symlinks=True)
        _show_packages_of_caller(environment)
        _install_wheels(environment / "bin/python", wheels)
        stamp.write_text(wanted, encoding="utf-8")
    unpacked = kit / "system"
    if not unpacked.is_dir():
        shutil.unpack_archive(kit / "system.tar.xz", kit)
    yield from _link_programs(unpacked, system if root else environment, root=root)


def _show_packages_of_caller(environment: Path) -> None:
    """Let ``environment`` see the packages of this Python, behind its own.

    ``system_site_packages`` shows only those of the interpreter below, and torch is often in a virtual environment.
    """
    if sys.prefix == sys.base_prefix:
        return
    inside = sysconfig.get_path("purelib", vars={"base": str(environment), "platbase": str(environment)})
    lines = [f"import site; site.addsitedir({sysconfig.get_path(name)!r})\n" for name in ("purelib", "platlib")]
    (Path(inside) / "packages-of-caller.pth").write_text("".join(dict.fromkeys(lines)), encoding="utf-8")


def _install_wheels(python: Path, wheels: list[Path]) -> None:
    # pip runs from its own wheel: a bare machine may have none.
    pip = next(wheel for wheel in wheels if wheel.name.startswith("pip-"))
    carried = [str(wheel) for wheel in wheels if wheel != pip]
    options = ["--quiet", "--no-index", "--no-deps", "--no-compile", "--disable-pip-version-check"]
    done = subprocess.run(
        [str(python), f"{pip}/pip", "install", *options, *carried],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PIP_CONFIG_FILE": os.devnull},
    )
    if done.returncode:
        raise SystemExit(f"install: pip failed: {(done.stderr.strip().splitlines() or ['without a word'])[-1]}")


def _link_programs(unpacked: Path, system: Path, *, root: bool) -> Iterator[str]:
    for program in sorted([*(unpacked / "bin").iterdir(), *(unpacked / "sbin").iterdir()]):
        folder = system / ("usr" if root else "") / program.parent.name
        if shutil.which(program.name) is None and not (folder / program.name).is_symlink():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / program.name).symlink_to(program)
            if root:
                yield f"install: {folder / program.name} is the kit's"
    modules = system / "usr/lib/uml/modules"
    if root and not modules.exists():
        modules.parent.mkdir(parents=True, exist_ok=True)
        modules.symlink_to(unpacked / "modules")
        yield f"install: {modules} is the kit's"


def missing(python: Path) -> list[str]:
    """Return what the machine should have brought and does not have."""
    found = "import importlib.util, sys; print(*[n for n in sys.argv[1:] if importlib.util.find_spec(n) is None])"
    done = subprocess.run([str(python), "-c", found, *NEEDED], capture_output=True, text=True, check=True)
    return done.stdout.split()


def main(arguments: list[str]) -> int:
    """Install from the folder that this file is in. Return 1 if the machine lacks something."""
    parser = argparse.ArgumentParser(description="Install wanbed from this kit.")
    parser.parse_args(arguments)
    kit = Path(__file__).resolve().parent
    for line in install(kit):
        print(line, file=sys.stderr)
    lacking = missing(kit / "env/bin/python")
    if lacking:
        print(f"install: this Python has no {', '.join(lacking)}: call the one that has", file=sys.stderr)
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
