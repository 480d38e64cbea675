"""Pack the modules of a user's schedules and compute back ends, so that the machines of a rack import the same.

What is packed, as a zip file that Python imports from: the package or module of each class, and of a module that is not
installed also those beside it that it has imported. What Python cannot import from a zip file, because it has compiled
parts, or what is large, stays: it has to be on the machines already, byte for byte.
"""

import io
import os
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

from wanbed.ground.class_path import load_subclass
from wanbed.ground.errors import InputError
from wanbed.module_process import PACKAGE
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.workloads.compute.backends.backend import ComputeBackend
from wanbed.workloads.schedules.schedule import Schedule

MOST_BYTES = 4 * 2**20
"""The largest size of a module's files: more than that is more than code."""

_INSTALLED = ("site-packages", "dist-packages")

_LEFT_OUT = ("__pycache__", ".git")

_used: set[str] = set()
"""The hashes of the zip files that this process imports from."""


@dataclass(frozen=True)
class UserModules:
    """The classes of a user, by their paths, and their modules: a zip file, and hashes of those that stay by name."""

    schedules: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    archive: bytes = b""
    staying: Mapping[str, str] = field(default_factory=dict)


def user_modules(points: Iterable[SweepPoint]) -> UserModules:
    """Return the modules of the classes that these sweep points name and that are not wanbed's own.

    Raise InputError for a module without files.
    """
    points = list(points)
    schedules = schedules_of(variant for point in points for variant in point.scheduled)
    backends = _users(point.spec.compute.backend_path for point in points)
    return packed_modules(schedules, backends)


def packed_modules(schedules: tuple[str, ...], backends: tuple[str, ...]) -> UserModules:
    """Return the modules of these classes. Raise InputError for a module without files."""
    files: dict[str, Path] = {}
    staying: dict[str, str] = {}
    for class_path in (*schedules, *backends):
        for module in _with_those_beside(class_path.partition(":")[0].partition(".")[0]):
            found = _files(module)
            size = sum(file.stat().st_size for file in found.values())
            if size > MOST_BYTES or any(file.suffix == ".so" for file in found.values()):
                staying[module] = _digest(found)
            else:
                files.update(found)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in sorted(files.items()):
            # Without the file's times, the same files are the same bytes.
            archive.writestr(zipfile.ZipInfo(name), file.read_bytes())
    return UserModules(schedules, backends, packed.getvalue() if files else b"", staying)


def lacking_module(modules: UserModules) -> str | None:
    """Return which module this machine lacks, or what keeps a class from being imported here, None if nothing does."""
    for module, digest in modules.staying.items():
        if find_spec(module) is None:
            return f"no module {module}, which is not sent because it is large or compiled: install it there"
        if _digest(_files(module)) != digest:
            return f"another {module} than on the machine that drives: install the same"
    try:
        for path in modules.schedules:
            load_subclass(path, Schedule)
        for path in modules.backends:
            load_subclass(path, ComputeBackend)
    except ValueError as fault:
        return f"{fault}: install what is missing there"
    return None


def used_modules(modules: UserModules) -> str | None:
    """Have this process import these modules. Return what is lacking for that, None if nothing is."""
    digest = sha256(modules.archive).hexdigest()
    if modules.archive and digest not in _used:
        # It has no name that could outlive this process.
        descriptor = os.memfd_create("modules")
        with open(descriptor, "wb", closefd=False) as file:
            file.write(modules.archive)
        sys.path.insert(0, f"/proc/self/fd/{descriptor}")
        _used.add(digest)
    return lacking_module(modules)


def schedules_of(variants: Iterable[PipelineVariant]) -> tuple[str, ...]:
    """Return the schedules of a user that these variants follow, or jobs beside them, each once."""
    return _users(each.schedule for variant in variants for each in variant.at_once)


def _users(class_paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that lead out of wanbed, each once. The name of a baseline of torch has no colon."""
    found = dict.fromkeys(class_paths)
    return tuple(path for path in found if ":" in path and path.partition(":")[0].partition(".")[0] != PACKAGE)


def _with_those_beside(module: str) -> Iterator[str]:
    """Yield a top-level module, and those loaded from the same folder unless that is one of installed packages."""
    yield module
    folder = _place(module).parent
    if folder.name in _INSTALLED:
        return
    for name, loaded in [*sys.modules.items()]:
        file = getattr(loaded, "__file__", None)
        if "." in name or name in {module, "__main__", PACKAGE} or file is None:
            continue
        if (Path(file).parent if Path(file).name == "__init__.py" else Path(file)).parent == folder:
            yield name


def _place(module: str) -> Path:
    """Return the folder of a package, or the file of a module. Raise InputError if it has neither."""
    spec = find_spec(module)
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise InputError(f"{module}: the module has no file that could be sent to the machines: make it a plain module")
    return Path(spec.origin)


def _files(module: str) -> dict[str, Path]:
    """Return the files of a top-level module by their names in a zip file."""
    place = _place(module)
    found = [place] if place.is_file() else (file for file in place.rglob("*") if file.is_file())
    by_name = {str(file.relative_to(place.parent)): file for file in found}
    return {name: file for name, file in sorted(by_name.items()) if not {*Path(name).parts} & {*_LEFT_OUT}}


def _digest(files: Mapping[str, Path]) -> str:
    digest = sha256()
    for name, file in files.items():
        digest.update(f"{name}\0{sha256(file.read_bytes()).hexdigest()}\0".encode())
    return digest.hexdigest()
