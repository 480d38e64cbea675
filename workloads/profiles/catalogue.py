"""Find compute profiles by name or path.

A profile is a JSON file. Those shipped lie beside this module, other packages add theirs by an entry point of the group
``wanbed.profiles`` that leads to the path of such a file (the same group has profiles of WANs, which are YAML), and a
user's own file is given by its path.
"""

import sys
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, entry_points
from os import fspath
from pathlib import Path

from ground.strict_model import InputError
from workloads.profiles.compute_profile import ComputeProfile, EstimatedProfile, MeasuredProfile
from workloads.profiles.profile_document import parse_content, read_content

ENTRY_POINT_GROUP = "wanbed.profiles"

_SHIPPED = Path(__file__).parent
_SUFFIX = ".json"
_MODELS: dict[str, type[ComputeProfile]] = {"estimated": EstimatedProfile, "measured": MeasuredProfile}


def profile_names() -> tuple[str, ...]:
    """Return the names of every known profile, shipped ones and those of other packages, sorted."""
    return tuple(sorted(_profile_paths()))


def load_profile(name_or_path: str, *, relative_to: Path | None = None) -> ComputeProfile:
    """Load the profile of that name, or in the file of that path.

    A name that ends in .json, or holds a slash, is a path, taken from the folder ``relative_to`` (the working directory
    if None). Raises InputError, one line, naming the nearest profile for an unknown name, and for an unusable file.
    """
    if name_or_path.endswith(_SUFFIX) or "/" in name_or_path:
        return read_profile((relative_to or Path()) / name_or_path)
    paths = _profile_paths()
    if name_or_path not in paths:
        near = get_close_matches(name_or_path, paths, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(paths))}"
        raise InputError(f"compute.profile: there is none of the name {name_or_path!r}, {remedy}")
    return read_profile(paths[name_or_path])


def read_profile(path: Path) -> ComputeProfile:
    """Read one profile's file. Raises InputError, one line that starts with the file."""
    return _parsed(path, read_content(path, "profile"))


@lru_cache(maxsize=16)
def _parsed(path: Path, content: bytes) -> ComputeProfile:
    """Parse the content of a profile's file. It is cached, because a sweep reads the same for every cell."""
    return parse_content(path, content, _MODELS, "profile", "the ones that are shipped")


@cache
def _entry_points(_searched: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the entry points of installed packages. Cached: a search takes milliseconds, for every cell of a sweep."""
    return tuple(entry_points(group=ENTRY_POINT_GROUP))


def _profile_paths() -> dict[str, Path]:
    """Return the path of every profile known by name. Raises InputError if two packages give one name."""
    paths = {path.stem: path for path in _SHIPPED.iterdir() if path.suffix == _SUFFIX}
    for point in _entry_points(tuple(sys.path)):
        package = point.dist.name if point.dist else point.value
        try:
            path = Path(fspath(point.load()))
        except (ImportError, AttributeError, TypeError) as fault:
            raise InputError(
                f"profile {point.name!r}: the entry point {point.value} of {package} is no path to a file: {fault}"
            ) from None
        if path.suffix != _SUFFIX:
            continue
        if point.name in paths:
            raise InputError(
                f"profile {point.name!r}: the package {package} gives a profile whose name is taken, rename it"
            )
        paths[point.name] = path
    return paths
