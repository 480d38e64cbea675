"""Name what a testbed adds to the manifest of a run."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class ManifestFacts(NamedTuple):
    """Entries of the manifest about the machines that carry a testbed, in plain JSON types.

    ``of_run`` are the same for all networks of a run, ``of_point`` are those of one sweep point.
    """

    of_run: Mapping[str, Any] = _NOTHING
    of_point: Mapping[str, Any] = _NOTHING
