"""An experiment whose WAN others use as well."""

from typing import Any

TO_WEST = {"name": "flow", "from": "east", "to": "west"}


def with_background(*flows: dict[str, Any], wan: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Return the document of an experiment of one pipeline over two datacenters, beside these flows."""
    return {
        "name": "background",
        "topology": {
            "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
            "wan": {"latency": "10ms", "rate": "100Mbit", **(wan or {})},
        },
        "compute": {"forward": "5ms", "backward": "10ms", "activation": "512KiB"},
        "training": {"stages": 2, "microbatches": 8, "iterations": 4, "warmup": 1},
        "variants": [{"name": "1f1b", "schedule": "1f1b"}],
        "background": list(flows),
        **changes,
    }
