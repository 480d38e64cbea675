"""A Chakra trace made by hand, emulated in virtual time: as long as its simulation, whatever the load."""

from pathlib import Path

import pytest
import yaml

from tests.support.runner.called_wanbed import run_here, simulate_here
from tests.support.runner.chakra_traces import all_reduce, computation, message, write_trace
from tests.system.virtual_time.inside_virtual_time import kernel_or_skip
from wanbed.results.chakra.node import ChakraNode, CollectiveType, NodeType

SEND, RECEIVE = NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE
MIB = 2**20


def collectives(first: int, after: int) -> list[ChakraNode]:
    """An all-gather of 16 MiB, an all-reduce, and a reduce-scatter."""
    return [
        all_reduce(first, 4 * MIB, [after], kind=CollectiveType.ALL_GATHER),
        all_reduce(first + 1, 32 * MIB, [first]),
        all_reduce(first + 2, 16 * MIB, [first + 1], kind=CollectiveType.REDUCE_SCATTER),
    ]


RANKS: dict[int, list[ChakraNode]] = {
    0: [
        computation(0, 30_000),
        message(SEND, 1, (0, 3), 8 * MIB, [0]),
        computation(2, 20_000, [0]),
        message(SEND, 3, (0, 2), 2 * MIB, [2], tag=5),
        *collectives(4, 2),
    ],
    1: [computation(0, 50_000), *collectives(1, 0)],
    2: [message(RECEIVE, 0, (0, 2), 2 * MIB, tag=5), computation(1, 10_000, [0]), *collectives(2, 1)],
    3: [message(RECEIVE, 0, (0, 3), 8 * MIB), computation(1, 10_000, [0]), *collectives(2, 1)],
}

TOLERANCE = 0.03


def test_an_emulated_replay_takes_as_long_as_its_simulation(tmp_path: Path) -> None:
    kernel_or_skip()
    write_trace(tmp_path / "t", RANKS)
    experiment = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
            "wan": {"latency": "20ms", "rate": "1Gbit"},
        },
        "compute": {"trace": "t"},
        "training": {"iterations": 3},
        "variants": [{"name": "t"}],
        "clock": "virtual",
    }
    text = yaml.safe_dump(experiment)
    emulated, simulated = run_here(text, tmp_path), simulate_here(text, tmp_path)
    for run in (emulated, simulated):
        kinds = run.spans.groupby("kind").size().to_dict()
        assert kinds == {
            "forward": 15,
            "send": 6,
            "receive": 6,
            **dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter"), 12),
        }
    times_s = [float(run.summary["iteration_time_s"].iloc[0]) for run in (emulated, simulated)]
    assert times_s[0] == pytest.approx(times_s[1], rel=TOLERANCE)
