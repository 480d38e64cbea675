"""Dependencies on paper: which ones follow from the times of spans."""

from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.errors import InputError
from wanbed.results.chakra.export import TrialIteration, TrialSpan, trial_nodes
from wanbed.results.chakra.node import ChakraNode, NodeType
from wanbed.results.reading.stored_trial import StoredTrial
from wanbed.results.records.trial_id import TrialId


def span(kind: str, start_ns: int, end_ns: int, rank: int = 1, **others: Any) -> TrialSpan:
    about = {
        "microbatch": -1,
        "size_bytes": 0,
        "pipeline": 0,
        "stage": rank,
        "host": f"h{rank}",
        "datacenter": "east",
        "peer": "",
        "tensor": "",
    }
    return TrialSpan(start_ns, end_ns, rank, kind, **{**about, **others})


def nodes_of(*spans: TrialSpan, program: bool = False) -> dict[int, dict[str, ChakraNode]]:
    facts = {"program": {}} if program else {}
    chosen = TrialIteration(StoredTrial(TrialId(0, "v", 0), Path(), {}, facts), 0, tuple(sorted(spans)))
    return {rank: {node.name: node for node in nodes} for rank, nodes in trial_nodes(chosen).items()}


def after(nodes: dict[str, ChakraNode], name: str) -> set[str]:
    by_id = {node.id: node.name for node in nodes.values()}
    return {by_id[each] for each in nodes[name].dependencies}


RECEIVED = span("receive", 0, 10, microbatch=0, tensor="activation", peer="h0", size_bytes=5)

FORWARD = span("forward", 10, 30, microbatch=0)

OTHER_RANK = span("forward", 0, 1, rank=0, microbatch=0)


def test_a_forward_follows_the_receive_of_its_activation() -> None:
    nodes = nodes_of(OTHER_RANK, RECEIVED, FORWARD)[1]
    assert after(nodes, "forward 0") == {"receive activation 0"}
    assert nodes["receive activation 0"].attributes == {
        "is_cpu_op": False,
        "comm_size": 5,
        "comm_src": 0,
        "comm_dst": 1,
        "comm_tag": 0,
        "wanbed_kind": "receive",
        "wanbed_microbatch": 0,
    }


def test_computations_follow_one_another_and_a_send_follows_what_it_carries() -> None:
    sent = span("send", 55, 60, microbatch=0, tensor="gradient", peer="h0", size_bytes=5)
    backward, later = span("backward", 30, 50, microbatch=0), span("backward", 50, 54, microbatch=1)
    nodes = nodes_of(OTHER_RANK, RECEIVED, FORWARD, backward, later, sent)[1]
    assert after(nodes, "backward 0") == {"forward 0"}
    assert after(nodes, "send gradient 0") == {"backward 0"}
    assert (nodes["send gradient 0"].attributes["comm_src"], nodes["send gradient 0"].attributes["comm_dst"]) == (1, 0)


def test_a_gpu_that_idled_until_a_message_came_waits_for_it() -> None:
    other = span("receive", 40, 45, microbatch=1, tensor="activation", peer="h0", size_bytes=5)
    recompute = span("recompute", 45, 50, microbatch=0)
    nodes = nodes_of(OTHER_RANK, RECEIVED, FORWARD, other, recompute)[1]
    assert after(nodes, "recompute 0") == {"forward 0", "receive activation 1"}


def test_the_optimizer_follows_what_is_sent_and_summed() -> None:
    sent = span("send", 30, 35, microbatch=0, tensor="gradient", peer="h0", size_bytes=5)
    reduced = span("all_reduce", 30, 90, size_bytes=9)
    nodes = nodes_of(OTHER_RANK, RECEIVED, FORWARD, sent, reduced, span("optimizer", 90, 95))[1]
    assert after(nodes, "optimizer") == {"forward 0", "send gradient 0", "all_reduce"}
    assert nodes["all_reduce"].type == NodeType.COMM_COLL_NODE
    assert nodes["all_reduce"].attributes["pg_name"] == "1"


def test_a_computation_is_cut_where_a_collective_begins() -> None:
    spans = (
        span("backward", 0, 100),
        span("all_gather", 40, 130, tensor="0,1", size_bytes=7),
        span("optimizer", 130, 150),
    )
    nodes = trial_nodes(TrialIteration(StoredTrial(TrialId(0, "v", 0), Path(), {}, {}), 0, spans))[1]
    first, second, gathered, optimizer = nodes
    assert [node.attributes.get("wanbed_duration_ns") for node in nodes] == [40, 60, None, 20]
    assert gathered.dependencies == {first.id}
    assert second.dependencies == {first.id}
    assert optimizer.dependencies == {second.id, gathered.id}
    assert gathered.attributes["pg_name"] == "0,1"


def test_time_on_the_host_is_work_of_the_cpu_in_a_program_and_left_out_elsewhere() -> None:
    spans = span("forward", 0, 10), span("backward", 30, 50)
    host = nodes_of(*spans, program=True)[1]["host"]
    assert (host.attributes["is_cpu_op"], host.attributes["wanbed_duration_ns"]) == (True, 20)
    assert "host" not in nodes_of(*spans)[1]


def host_times(*spans: TrialSpan, stated_ns: tuple[int, int]) -> list[tuple[int, int, set[str]]]:
    """When the host worked and for how long, and what each piece of it follows."""
    chosen = TrialIteration(
        StoredTrial(TrialId(0, "v", 0), Path(), {}, {"program": {}}), 0, tuple(sorted(spans)), {1: stated_ns}
    )
    nodes = trial_nodes(chosen)[1]
    names = {node.id: f"{node.name} {node.id}" if node.name == "host" else node.name for node in nodes}
    return [
        (node.start_us * 1000, int(node.attributes["wanbed_duration_ns"]), {names[each] for each in node.dependencies})
        for node in nodes
        if node.name == "host"
    ]


def test_the_host_works_from_the_begin_of_an_iteration_to_its_end() -> None:
    # A loader before the first operator, and something after the last one.
    spans = [span("forward", 500_000, 600_000), span("optimizer", 600_000, 700_000)]
    assert host_times(*spans, stated_ns=(0, 750_000)) == [
        (0, 500_000, set()),
        (700_000, 50_000, {"optimizer"}),
    ]


def test_no_time_of_the_host_counts_twice() -> None:
    # The second computation does not wait for the collective that began while the host prepared it.
    spans = [
        span("forward", 0, 10_000),
        span("all_reduce", 12_000, 90_000, size_bytes=8, tensor="0,1"),
        span("backward", 15_000, 20_000),
    ]
    assert host_times(*spans, stated_ns=(0, 20_000)) == [
        (10_000, 2_000, {"forward"}),
        (12_000, 3_000, {"forward", "host 3"}),
    ]


def test_a_programs_message_goes_from_the_rank_to_the_rank_that_it_names() -> None:
    # Two ranks on one host, which the name of the host would not tell apart.
    others = [span("forward", 0, 1, rank=rank, host="h7") for rank in (0, 2)]
    sent, received = span("send", 5, 6, tensor="1,2", size_bytes=9), span("receive", 1, 8, tensor="0,1", size_bytes=7)
    nodes = nodes_of(*others, sent, received, program=True)[1]
    ends = {name: [nodes[name].attributes[key] for key in ("comm_src", "comm_dst")] for name in ("send", "receive")}
    assert ends == {"send": [1, 2], "receive": [0, 1]}


def test_a_programs_message_without_a_peer_is_refused() -> None:
    with pytest.raises(InputError, match=r"^rank 1: a send at 0\.000000 s: to or from which rank it goes is not re"):
        nodes_of(span("send", 5, 6), program=True)


def test_a_peer_on_a_host_of_two_ranks_is_refused() -> None:
    two = [span("forward", 0, 1, rank=rank, host="h7") for rank in (2, 3)]
    with pytest.raises(InputError, match=r"rank 1: a send at 0\.000000 s names the host 'h7', on which 2 ranks run"):
        nodes_of(*two, span("send", 5, 6, peer="h7"))


def test_a_backward_that_a_sum_cuts_takes_its_gradient_in_the_first_part_and_makes_one_in_the_last() -> None:
    received = span("receive", 0, 10, microbatch=0, tensor="gradient", peer="h2", size_bytes=5)
    backward, bucket = span("backward", 10, 50, microbatch=0), span("all_reduce", 30, 60, size_bytes=8)
    sent = span("send", 50, 55, microbatch=0, tensor="gradient", peer="h0", size_bytes=5)
    last_stage = span("backward", 0, 1, rank=2, microbatch=0)
    chosen = TrialIteration(
        StoredTrial(TrialId(0, "v", 0), Path(), {}, {}),
        0,
        tuple(sorted((OTHER_RANK, received, backward, bucket, sent, last_stage))),
    )
    nodes = trial_nodes(chosen)[1]
    (receive,) = (node for node in nodes if node.name == "receive gradient 0")
    (send,) = (node for node in nodes if node.name == "send gradient 0")
    (bucket_node,) = (node for node in nodes if node.type is NodeType.COMM_COLL_NODE)
    first, last = (node for node in nodes if node.name == "backward 0")
    assert receive.id in first.dependencies
    assert receive.id not in last.dependencies
    assert (bucket_node.data_dependencies, send.data_dependencies) == ((first.id,), (last.id,))
