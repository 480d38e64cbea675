"""Find compute profiles by name or path, and read their files.

A compute profile is a JSON file. Those of this package are in this folder. Other packages add theirs by an entry point
in the group ``wanbed.profiles`` whose value is the path of such a file (the same group has network presets, which are
YAML). A user's own file is given by its path.
"""

from collections.abc import Mapping
from functools import lru_cache
from os import fspath
from pathlib import Path
from typing import TypeVar

from wanbed.ground.entry_points import installed
from wanbed.ground.errors import InputError, did_you_mean, shown
from wanbed.ground.json_document import parse_content, read_content
from wanbed.ground.strict_model import StrictModel, parse_model
from wanbed.workloads.profiles.compute_profile import ComputeProfile, EstimatedProfile, MeasuredProfile

Model = TypeVar("Model", bound=StrictModel)


def parse_profile(path: Path, content: bytes, models: Mapping[str, type[Model]], what: str, example: str) -> Model:
    """Parse the ``content`` of that file by the model for its ``basis``. Raise InputError, one line with the path."""
    document = parse_content(content, str(path), what, example)
    basis = document.get("basis")
    if not isinstance(basis, str) or basis not in models:
        raise InputError(f"{path}: basis: write whether the profile is {' or '.join(models)}")
    return parse_model(models[basis], document, str(path))


ENTRY_POINT_GROUP = "wanbed.profiles"

_SHIPPED = Path(__file__).parent

_SUFFIX = ".json"

_MODELS: dict[str, type[ComputeProfile]] = {"estimated": EstimatedProfile, "measured": MeasuredProfile}


def profile_names() -> tuple[str, ...]:
    """Return the names of all compute profiles, those of this package and of others, sorted."""
    return tuple(sorted(_profile_paths()))


def load_profile(name_or_path: str, *, relative_to: Path | None = None) -> ComputeProfile:
    """Load the compute profile of that name, or the file at that path.

    A name that ends in .json or contains a slash is a path, relative to the folder ``relative_to`` (the working
    directory if None). Raise InputError, one line, for an unknown name, with the nearest one, or for an invalid file.
    """
    if name_or_path.endswith(_SUFFIX) or "/" in name_or_path:
        return _read_profile((relative_to or Path()) / name_or_path)
    paths = _profile_paths()
    if name_or_path not in paths:
        remedy = did_you_mean(name_or_path, paths, f"known: {', '.join(sorted(paths))}")
        raise InputError(f"compute.profile: there is none of the name {shown(name_or_path)}, {remedy}")
    return _read_profile(paths[name_or_path])


def _read_profile(path: Path) -> ComputeProfile:
    """Read one compute profile. Raise InputError, one line that starts with the path."""
    return _parsed(path, read_content(path, "profile"))


@lru_cache(maxsize=16)
def _parsed(path: Path, content: bytes) -> ComputeProfile:
    """Parse the content of a compute profile. Cached, because a sweep reads the same file for every sweep point."""
    return parse_profile(path, content, _MODELS, "profile", "the ones that are shipped")


def _profile_paths() -> dict[str, Path]:
    """Return the path of each compute profile by its name. Raise InputError if two packages use the same name."""
    paths = {path.stem: path for path in _SHIPPED.iterdir() if path.suffix == _SUFFIX}
    for point in installed(ENTRY_POINT_GROUP):
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
