"""A document resolves to what it did: who changes that on purpose records it anew (``tests/support/recorded.py``)."""

import json
from pathlib import Path

from tests.support.recorded import check_recorded, digest
from tests.support.runner.drawn_points import drawn_points


def test_drawn_experiments_resolve_to_what_they_did() -> None:
    found = {}
    for name, point in drawn_points().items():
        hashed = digest(json.dumps(point.resolved(), sort_keys=True))
        demand = point.demand
        transfers = sum(each.size_bytes for variant in point.scheduled for each in variant.transfers())
        found[name] = (
            f"{hashed}, {point.repeats} repeats, {point.tokens_per_iteration} tokens, "
            f"demand {demand.total_bps} bit/s, transfers {transfers} bytes"
        )
    check_recorded(Path(__file__).with_name("recorded_resolution.txt"), found)
