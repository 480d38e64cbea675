"""Pack the modules of a user's schedules and compute back ends, so that the machines of a rack can import them.

What is packed, as a zip file that Python imports from: the package or module of each class, and of a module that is not
installed also those beside it that it has imported. The machines import exactly these files, whatever they have.
"""

import io
import sys
import zipfile
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from ground.strict_model import InputError
from runner.resolve.experiment import SweepPoint
from wanbed.own_modules import OWN_PACKAGES

MOST_BYTES = 16 * 2**20
"""The largest size of all files together: they are code, and each machine gets them in one message."""

_INSTALLED = ("site-packages", "dist-packages")
_LEFT_OUT = ("__pycache__", ".git")


def user_class_paths(points: Iterable[SweepPoint]) -> tuple[list[str], list[str]]:
    """Return the paths of the schedules and of the back ends of these sweep points that are not wanbed's own."""
    points = list(points)
    schedules = (variant.schedule for point in points for variant in point.variants)
    backends = (point.spec.compute.backend_path for point in points)
    return _users(schedules), _users(backends)


def packed_modules(class_paths: Iterable[str]) -> bytes:
    """Return a zip file of the modules of these classes, which have been loaded; no bytes if there is none.

    A package with compiled modules is left out: Python imports none of these from a zip file, so that it has to be
    installed on the machines. Raise InputError for a module without files, and for too many bytes.
    """
    files: dict[str, Path] = {}
    for path in class_paths:
        for name in _names(path.partition(":")[0].partition(".")[0]):
            files.update(_files(name))
    size = sum(file.stat().st_size for file in files.values())
    if size > MOST_BYTES:
        raise InputError(
            f"the modules of {', '.join(class_paths)} have {size / 2**20:.0f} MiB, and at most "
            f"{MOST_BYTES / 2**20:.0f} are sent to the machines: install them there, or keep data apart from code"
        )
    if not files:
        return b""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, file in sorted(files.items()):
            # Without the file's times, the same files are the same bytes.
            archive.writestr(zipfile.ZipInfo(name), file.read_bytes())
    return packed.getvalue()


def _users(class_paths: Iterable[str]) -> list[str]:
    """Return the paths that lead out of wanbed's packages, each once. The name of a baseline of torch has no colon."""
    found = dict.fromkeys(class_paths)
    return [path for path in found if ":" in path and path.partition(":")[0].partition(".")[0] not in OWN_PACKAGES]


def _names(module: str) -> Iterator[str]:
    """Yield a top-level module, and those loaded from the same folder unless that is one of installed packages."""
    yield module
    folder = _place(module).parent
    if folder.name in _INSTALLED:
        return
    for name, loaded in [*sys.modules.items()]:
        file = getattr(loaded, "__file__", None)
        if "." in name or name in {module, "__main__", *OWN_PACKAGES} or file is None:
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
    """Return the files of a top-level module by their names in the zip file, none of one with compiled parts."""
    place = _place(module)
    found = [place] if place.is_file() else sorted(file for file in place.rglob("*") if file.is_file())
    found = [file for file in found if not {*file.relative_to(place.parent).parts} & {*_LEFT_OUT}]
    if any(file.suffix == ".so" for file in found):
        return {}
    return {str(file.relative_to(place.parent)): file for file in found}
