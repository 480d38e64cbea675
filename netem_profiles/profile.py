"""Profiles: the conditions of WAN links, kept under a name together with where the figures come from.

A profile is a YAML file. Those shipped lie beside this module, other packages add theirs by an entry point of the group
``wanbed.profiles`` that leads to the path of such a file, and a user's own file is given by its path.
"""

import sys
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.metadata import EntryPoint, entry_points
from itertools import combinations
from os import fspath
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from ground.shown_text import one_line
from ground.strict_model import InputError, StrictModel, parse_model
from ground.yaml_document import parse_document, read_text
from testbed.network.topology import LinkConditions, LinkSpec, Name, WanSpec, conditions_of

ENTRY_POINT_GROUP = "wanbed.profiles"

_SHIPPED = Path(__file__).parent
_SUFFIXES = (".yaml", ".yml")


class SourceSpec(StrictModel):
    """The source of figures: which figures, their origin, and their licence."""

    figures: str = Field(min_length=1)
    origin: str = Field(min_length=1)
    licence: str | None = None


class ProfileSpec(StrictModel):
    """A profile as written.

    ``pairs`` holds the conditions between two of ``regions``, for every two of them. A ``default`` makes the profile
    fit datacenters of any name; a pair that has an entry as well takes the fields it leaves out from the default.
    """

    title: str = Field(min_length=1)
    source: tuple[SourceSpec, ...] = Field(min_length=1)
    regions: tuple[Name, ...] = ()
    default: WanSpec | None = None
    pairs: tuple[LinkSpec, ...] = ()

    @model_validator(mode="after")
    def _pairs_are_complete(self) -> Self:
        given: set[frozenset[str]] = set()
        for pair in self.pairs:
            ends = frozenset(pair.between)
            one, other = pair.between
            if one == other or not ends <= set(self.regions):
                raise ValueError(f"the pair {one}, {other} does not join two of the profile's regions")
            if ends in given:
                raise ValueError(f"the pair {one}, {other} is there twice, leave one of them out")
            given.add(ends)
        if self.default is None:
            if len(self.regions) < 2:
                raise ValueError("a profile holds a default, or at least two regions and the pairs between them")
            for one, other in combinations(self.regions, 2):
                if frozenset((one, other)) not in given:
                    raise ValueError(f"no entry in pairs for {one} and {other}: add one, or a default")
        return self

    def conditions(self, one: str, other: str) -> LinkConditions:
        """Return the conditions between two datacenters, in either order. Raises KeyError if there are no figures."""
        found = next((pair for pair in self.pairs if set(pair.between) == {one, other}), None)
        if found is None and self.default is None:
            raise KeyError((one, other))
        default = conditions_of(self.default or WanSpec())
        return default if found is None else conditions_of(found, default)


def read_profile(path: Path) -> ProfileSpec:
    """Read one profile's file. Raises InputError, one line that starts with the file."""
    return _parsed(one_line(str(path)), read_text(path))


@lru_cache(maxsize=16)
def _parsed(source: str, text: str) -> ProfileSpec:
    """Parse the text of a profile's file. It is cached, because a sweep reads the same for every cell."""
    return parse_model(ProfileSpec, parse_document(text, source), source)


@cache
def _entry_points(_searched: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the entry points of installed packages. Cached: a search takes milliseconds, for every cell of a sweep."""
    return tuple(entry_points(group=ENTRY_POINT_GROUP))


def _profile_paths() -> dict[str, Path]:
    """Return the path of every profile known by name. Raises InputError if two packages give one name."""
    paths = {path.stem: path for path in _SHIPPED.iterdir() if path.suffix in _SUFFIXES}
    for point in _entry_points(tuple(sys.path)):
        package = point.dist.name if point.dist else point.value
        if point.name in paths:
            raise InputError(
                f"profile {point.name!r}: the package {package} gives a profile whose name is taken, rename it"
            )
        try:
            paths[point.name] = Path(fspath(point.load()))
        except (ImportError, AttributeError, TypeError) as fault:
            raise InputError(
                f"profile {point.name!r}: the entry point {point.value} of {package} is no path to a file: {fault}"
            ) from None
    return paths


def profile_names() -> tuple[str, ...]:
    """Return the names of every known profile, shipped ones and those of other packages, sorted."""
    return tuple(sorted(_profile_paths()))


def load_profile_spec(name: str, *, relative_to: Path | None = None) -> ProfileSpec:
    """Load the profile of that name, or in the file of that path.

    A name that ends in .yaml or .yml, or holds a slash, is a path, taken from the folder ``relative_to`` (the working
    directory if None). Raises InputError naming the nearest profile for an unknown name, and for an unusable file.
    """
    if name.endswith(_SUFFIXES) or "/" in name:
        return read_profile((relative_to or Path()) / name)
    paths = _profile_paths()
    if name not in paths:
        raise InputError(f"profile: there is none of the name {name!r}, {_nearest(name, paths)}")
    return read_profile(paths[name])


def load_profile(
    name: str, datacenter_names: Collection[str], *, relative_to: Path | None = None
) -> Mapping[frozenset[str], LinkConditions]:
    """Return the conditions of every pair of the named datacenters, from the profile of that name or path.

    Raises InputError, one line, for an unknown profile or unusable file (see ``load_profile_spec``), and for a
    datacenter that is not one of the profile's regions, with the nearest region.
    """
    spec = load_profile_spec(name, relative_to=relative_to)
    names = tuple(datacenter_names)
    if spec.default is None and len(names) > 1:
        for datacenter in names:
            if datacenter not in spec.regions:
                raise InputError(
                    f"profile {name}: datacenter {datacenter!r} is not one of its regions, "
                    f"{_nearest(datacenter, spec.regions)}"
                )
    return {frozenset(pair): spec.conditions(*pair) for pair in combinations(dict.fromkeys(names), 2)}


def _nearest(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(sorted(known))}"
