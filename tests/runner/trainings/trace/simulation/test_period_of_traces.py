"""A replayed trace takes its period, whatever ends an iteration, and however far a rank runs ahead."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runner.called_wanbed import simulate_here
from tests.support.runner.chakra_traces import computation, message, write_trace
from wanbed.results.chakra.node import ChakraNode, NodeType

SEND, RECEIVE = NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE


def replayed(folder: Path, ranks: dict[int, list[ChakraNode]], iterations: int = 6, rate: str = "100Mbit") -> Any:
    """The summary of two ranks 10 ms apart."""
    folder.mkdir()
    write_trace(folder / "t", ranks)
    experiment = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
            "wan": {"latency": "10ms", "rate": rate},
        },
        "compute": {"trace": "t"},
        "training": {"iterations": iterations, "warmup": 2},
        "variants": [{"name": "t", "transport": {"model": "ideal"}}],
    }
    (row,) = simulate_here(yaml.safe_dump(experiment), folder).summary.to_dict("records")
    return row


@pytest.mark.parametrize(("rate", "period_s"), [("100Mbit", 1.01), ("10Mbit", 10.01)])
def test_a_message_that_nobody_computes_on_is_part_of_its_iteration(tmp_path: Path, rate: str, period_s: float) -> None:
    # 10 ms, and then 12.5 MB.
    ends = (0, 1)
    ranks = {
        0: [computation(0, 10_000), message(SEND, 1, ends, 12_500_000, [0])],
        1: [message(RECEIVE, 0, ends, 12_500_000)],
    }
    row = replayed(tmp_path / "parcel", ranks, rate=rate)
    assert row["iteration_time_s"] == pytest.approx(period_s)
    assert row["makespan_s"] == pytest.approx(period_s + 0.01), "and the message is on its way"


@pytest.mark.parametrize("iterations", [6, 60])
def test_a_rank_that_runs_ahead_makes_no_difference(tmp_path: Path, iterations: int) -> None:
    # The second rank takes 50 ms for what the first one makes in 10.
    ends = (0, 1)
    ranks = {
        0: [computation(0, 10_000), message(SEND, 1, ends, 1000, [0])],
        1: [message(RECEIVE, 0, ends, 1000), computation(1, 50_000, [0])],
    }
    row = replayed(tmp_path / "ahead", ranks, iterations)
    assert row["iteration_time_s"] == pytest.approx(0.05)
    assert row["gpu_utilization"] == pytest.approx((10 + 50) / (2 * 50))
