"""Load network presets: named WANs, each with the latencies, rates and impairments of its links and their sources.

A preset is a YAML file. Those shipped with wanbed are beside this module. Other packages add theirs by an entry point
of the group ``wanbed.profiles`` that gives the path of such a file. A user's own file is given by its path.
"""

from collections.abc import Collection, Mapping
from functools import lru_cache
from itertools import combinations
from os import fspath
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from wanbed.ground.entry_points import installed
from wanbed.ground.errors import InputError, did_you_mean
from wanbed.ground.strict_model import StrictModel, parse_model
from wanbed.ground.yaml_document import parse_document, read_text
from wanbed.testbed.network.links.link_spec import FiguresSpec, conditions_of
from wanbed.testbed.network.links.wan_link import LinkConditions
from wanbed.testbed.network.topology_spec import Name, PairSpec

ENTRY_POINT_GROUP = "wanbed.profiles"

_SHIPPED = Path(__file__).parent
_SUFFIXES = (".yaml", ".yml")


class SourceSpec(StrictModel):
    """The source of some figures of a preset: which figures, their origin, and their licence if known."""

    figures: str = Field(min_length=1)
    origin: str = Field(min_length=1)
    licence: str | None = None


class PresetSpec(StrictModel):
    """A network preset as written.

    ``pairs`` has the link between two of ``regions``, for every two of them. With a ``default`` the preset fits
    datacenters of any name; then a pair need not have an entry, and an entry takes fields left out from the default.
    """

    title: str = Field(min_length=1)
    source: tuple[SourceSpec, ...] = Field(min_length=1)
    regions: tuple[Name, ...] = ()
    default: FiguresSpec | None = None
    pairs: tuple[PairSpec, ...] = ()

    @model_validator(mode="after")
    def _pairs_are_complete(self) -> Self:
        given: set[frozenset[str]] = set()
        for pair in self.pairs:
            ends = frozenset(pair.between)
            one, other = pair.between
            if one == other or not ends <= set(self.regions):
                raise ValueError(f"the pair {one}, {other} does not join two of the preset's regions")
            if ends in given:
                raise ValueError(f"the pair {one}, {other} is given twice, leave one of them out")
            given.add(ends)
        if self.default is None:
            if len(self.regions) < 2:
                raise ValueError("a network preset needs a default, or at least two regions and the pairs between them")
            for one, other in combinations(self.regions, 2):
                if frozenset((one, other)) not in given:
                    raise ValueError(f"no entry in pairs for {one} and {other}: add one, or a default")
        return self

    def conditions(self, one: str, other: str) -> LinkConditions:
        """Return the link between two datacenters, in either order. Raise KeyError if the preset has no figures."""
        found = next((pair for pair in self.pairs if set(pair.between) == {one, other}), None)
        if found is None and self.default is None:
            raise KeyError((one, other))
        default = conditions_of(self.default or FiguresSpec())
        return default if found is None else conditions_of(found, default)


def read_preset(path: Path) -> PresetSpec:
    """Read the file of a preset. Raise InputError, one line that starts with the path."""
    return _parsed(str(path), read_text(path))


@lru_cache(maxsize=16)
def _parsed(source: str, text: str) -> PresetSpec:
    """Parse the text of a preset's file. Cached, because a sweep reads the same file for every sweep point."""
    return parse_model(PresetSpec, parse_document(text, source), source)


def _preset_paths() -> dict[str, Path]:
    """Return the path of every preset by its name. Raise InputError if a name is used twice or leads to no path."""
    paths = {path.stem: path for path in _SHIPPED.iterdir() if path.suffix in _SUFFIXES}
    for point in installed(ENTRY_POINT_GROUP):
        package = point.dist.name if point.dist else point.value
        if point.name in paths:
            raise InputError(
                f"network preset {point.name!r}: the name is taken already, rename the preset of the package {package}"
            )
        try:
            paths[point.name] = Path(fspath(point.load()))
        except (ImportError, AttributeError, TypeError) as fault:
            raise InputError(
                f"network preset {point.name!r}: the entry point {point.value} of {package} does not give the path of "
                f"a file: {fault}"
            ) from None
    return paths


def preset_names() -> tuple[str, ...]:
    """Return the names of all presets, shipped ones and those of other packages, sorted."""
    return tuple(sorted(_preset_paths()))


def load_preset_spec(name: str, *, relative_to: Path | None = None) -> PresetSpec:
    """Load a preset by its name or by the path of its file.

    A name that ends in .yaml or .yml, or contains a slash, is a path relative to the folder ``relative_to`` (the
    working directory if None). Raise InputError for an unknown name, with the nearest one, and for an unusable file.
    """
    if name.endswith(_SUFFIXES) or "/" in name:
        return read_preset((relative_to or Path()) / name)
    paths = _preset_paths()
    if name not in paths:
        raise InputError(f"profile: no network preset is called {name!r}, {_nearest(name, paths)}")
    return read_preset(paths[name])


def load_preset(
    name: str, datacenter_names: Collection[str], *, relative_to: Path | None = None
) -> Mapping[frozenset[str], LinkConditions]:
    """Return the link of every pair of the named datacenters, from the preset of that name or path.

    Raise InputError, one line, for an unknown preset or an unusable file (see ``load_preset_spec``), and for a
    datacenter that is not one of the preset's regions, with the nearest region.
    """
    spec = load_preset_spec(name, relative_to=relative_to)
    names = tuple(datacenter_names)
    if spec.default is None and len(names) > 1:
        for datacenter in names:
            if datacenter not in spec.regions:
                raise InputError(
                    f"network preset {name}: datacenter {datacenter!r} is not one of its regions, "
                    f"{_nearest(datacenter, spec.regions)}"
                )
    return {frozenset(pair): spec.conditions(*pair) for pair in combinations(dict.fromkeys(names), 2)}


def _nearest(name: str, known: Collection[str]) -> str:
    return did_you_mean(name, known, f"known: {', '.join(sorted(known))}")
