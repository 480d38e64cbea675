"""Read from a run's manifest whether its TCP is a model's, and say what that means for its figures."""

from collections.abc import Mapping
from typing import Any

MODELLED = "modelled"
"""The value of the manifest's ``substrate.tcp`` for a run over the relay. It is absent where a kernel's TCP ran."""

MODELLED_TCP = (
    "TCP is modelled: a relay imposed latency, rates, windows and slow start, not a kernel. Compare these figures only "
    "with those of other runs over the relay."
)


def tcp_is_modelled(manifest: Mapping[str, Any]) -> bool:
    """Return whether an emulated run's TCP is a model's and not a kernel's."""
    return (manifest.get("substrate") or {}).get("tcp") == MODELLED
