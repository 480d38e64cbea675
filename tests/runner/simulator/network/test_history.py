"""What had been sent by a few times is what all changes of rate together say, to the bit."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.simulator.variant_simulation import simulate_variant
from tests.runner.simulator.variants import sweep_point


def full_trunks(gpus_per_host: int, **transport: Any) -> dict[str, Any]:
    """Twelve pipelines over trunks that carry three node pairs at once."""
    return {
        "topology": {
            "datacenters": [{"name": name, "hosts": 12, "gpus_per_host": gpus_per_host} for name in ("east", "west")],
            "intra": {"latency": "10us", "rate": "10Gbit"},
            "wan": {"latency": "10ms", "rate": "3Gbit", "node_pair_rate": "1Gbit"},
        },
        "compute": {"forward": "7ms", "backward": "13ms", "activation": "1300KiB", "gradient": "10MiB"},
        "training": {
            "stages": 2 * gpus_per_host,
            "pipelines": 12,
            "microbatches": 6,
            "iterations": 1,
            "warmup": 0,
        },
        "engine": "simulate",
        "variants": [{"name": "any", "schedule": "1f1b", "transport": {"connections": 2, **transport}}],
    }


@pytest.mark.parametrize("gpus_per_host", [1, 2])
@settings(max_examples=25)
@given(st.data())
def test_what_is_asked_for_is_what_all_changes_say(gpus_per_host: int, data: st.DataObject) -> None:
    traffic = TRAFFIC[gpus_per_host]
    pair = data.draw(st.sampled_from(traffic))
    asked_ns = np.array(data.draw(st.lists(st.integers(0, pair.last_ns + 5), min_size=1, max_size=4)))
    assert pair.sent_by(asked_ns).tolist() == np.interp(asked_ns, pair.times_ns, pair.wire_bytes, left=0).tolist()


def _traffic(gpus_per_host: int) -> tuple[Any, ...]:
    point = sweep_point(full_trunks(gpus_per_host))
    return simulate_variant(point.topology, point.variants[0], 1, symmetry=False).traffic


TRAFFIC = {gpus_per_host: _traffic(gpus_per_host) for gpus_per_host in (1, 2)}
