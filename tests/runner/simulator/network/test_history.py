"""What had been sent by a few times is what all changes of rate together say, to the bit."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runner.simulator.variants import sweep_point
from wanbed.runner.simulator.event_queue import EventQueue
from wanbed.runner.simulator.network.history import History, ServedStreams
from wanbed.runner.simulator.network.stream import Sender, Stream
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.testbed.network.flow_model.line import FRAME_BYTES, PAYLOAD_BYTES


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


@given(
    st.integers(1, 3000),
    st.lists(st.tuples(st.integers(1, 9), st.integers(1, 40)), min_size=1, max_size=8),
    st.booleans(),
)
def test_whole_bytes_have_left_by_each_change_of_a_streams_rate(
    size_bytes: int, changes: list[tuple[int, int]], headers: bool
) -> None:
    frame, payload = (FRAME_BYTES, PAYLOAD_BYTES) if headers else (1, 1)
    events = EventQueue()
    stream = Stream(events, 0, payload)
    sender = Sender(events, headers=headers)
    now_ns, carried_bits_ns = 10, 0
    stream.set_rate(8, 5, 1)
    sender.load(size_bytes, 0, now_ns)
    sender.join(stream, now_ns, 2)
    # By each change, in bits x 10^9, and the whole bytes of payload that these are.
    expected, rate_bps = [(now_ns, 0)], 8
    for gap_ds, rate in changes:
        carried_bits_ns += rate_bps * gap_ds * 10**8
        now_ns, rate_bps = now_ns + gap_ds * 10**8, 8 * rate if rate_bps != 8 * rate else 8 * rate + 1
        gone = carried_bits_ns * payload // (8 * 10**9 * frame)
        if gone >= size_bytes:
            break
        stream.set_rate(rate_bps, now_ns, 2)
        expected.append((now_ns, gone))
    stream.arm(now_ns)
    while events.handle_next_instant():
        pass
    history = History(
        sender.history, sender.varied, ServedStreams([stream]), sender.bits_ns_per_byte, sender.payload_share
    )
    assert not sender.stream
    whole = history.whole()
    assert [(int(begin_ns), int(whole[:number, 2].sum())) for number, (begin_ns, _, _) in enumerate(whole)] == expected
    assert int(whole[:, 2].sum()) == size_bytes
    for at_ns, gone in expected[1:]:
        around = history.around(np.array([at_ns]))
        assert int(around[around[:, 1] <= at_ns, 2].sum()) == gone
