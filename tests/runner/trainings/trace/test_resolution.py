"""Experiments that replay a trace: their placement, the traces that they read, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.refused import refused
from tests.support.runner.chakra_traces import all_reduce, computation, message, write_trace
from wanbed.ground.errors import InputError
from wanbed.results.chakra.node import DURATION_NS, ChakraNode, NodeType
from wanbed.results.chakra.rank_file import KIND, MICROBATCH, message_class, node_message, rank_bytes
from wanbed.results.records.span_log import NO_MICROBATCH
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.runner.trainings.trace import resolution
from wanbed.runner.trainings.trace.resolution import replayed_trace
from wanbed.workloads.trace_replay.replayed_trace import WorkKind

TOPOLOGY = {
    "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 1, "gpus_per_host": 2}],
    "wan": {"latency": "20ms"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_trace(tmp_path / "t", {rank: [computation(0, 9), all_reduce(1, 8, [0])] for rank in range(3)})
    return tmp_path


def document(**others: Any) -> dict[str, Any]:
    return {"topology": TOPOLOGY, "compute": {"trace": "t"}, **others}


def variants(folder: Path, **others: Any) -> tuple[ResolvedVariant, ...]:
    (point,) = parse_experiment(document(**others), "exp.yaml", folder).points()
    return point.variants


def places(variant: ResolvedVariant) -> list[str]:
    return [f"{place.host.name}/{place.gpu}" for place in variant.placement.places]


def refusal(folder: Path, **others: Any) -> str:
    return refused(lambda: parse_experiment(document(**others), "exp.yaml", folder))


def test_ranks_take_the_gpus_in_the_topologys_order(folder: Path) -> None:
    (variant,) = variants(folder)
    assert (variant.name, places(variant)) == ("trace", ["east-0/0", "east-1/0", "west-0/0"])


def test_variants_differ_in_transport_and_placement(folder: Path) -> None:
    written = [
        {"name": "one", "transport": {"connections": 4}},
        {"name": "two", "schedule": "trace", "placement": ["west", "east", "west"]},
    ]
    one, two = variants(folder, variants=written)
    assert one.transport.connections == 4
    assert places(two) == ["west-0/0", "east-0/0", "west-0/1"]


def test_the_ring_enters_each_datacenter_once(folder: Path) -> None:
    (variant,) = variants(folder, variants=[{"name": "v", "placement": ["east", "west", "east"]}])
    assert [[(one.stage, other.stage) for one, other in ring] for ring in variant.rings] == [[(0, 2), (2, 1), (1, 0)]]
    assert [(one.stage, other.stage) for one, other in variant.pairs] == [(0, 1), (0, 2), (1, 2)]


def test_the_hash_follows_the_contents_of_the_trace(folder: Path) -> None:
    first = parse_experiment(document(), "exp.yaml", folder).config_hash
    assert parse_experiment(document(), "exp.yaml", folder).config_hash == first
    write_trace(folder / "t", {2: [computation(0, 10), all_reduce(1, 8, [0])]})
    assert parse_experiment(document(), "exp.yaml", folder).config_hash != first


def test_the_document_reads_back_as_the_same_experiment(folder: Path) -> None:
    experiment = parse_experiment(document(), "exp.yaml", folder)
    assert parse_experiment(experiment.document(), "exp.yaml", folder).config_hash == experiment.config_hash


def test_a_trace_can_be_swept(folder: Path) -> None:
    write_trace(folder / "u", {0: [computation(0, 5)]})
    experiment = parse_experiment(document(sweep={"compute.trace": ["t", "u"]}), "exp.yaml", folder)
    assert [len(point.variants[0].placement.places) for point in experiment.points()] == [3, 1]


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ({"compute": {"trace": "t", "forward": "5ms"}}, "compute.forward: the trace has its own times and sizes"),
        ({"compute": {"trace": "t", "profile": "a100"}}, "compute.profile: the trace has its own times and sizes"),
        ({"compute": {"trace": "t", "kind": "torch"}}, "compute.trace: only kind: replay replays a trace"),
        ({"compute": {"trace": "u"}}, "/u: is no folder: give the folder of a Chakra trace"),
        ({"model": "gpt-a"}, "model: the trace has its own: leave model out"),
        ({"training": {"stages": 2}}, "training.stages: the trace has its own ranks and work: leave stages out"),
        (
            {"variants": [{"name": "v", "training": {"pipelines": 1}}]},
            "variants.0.training.pipelines: the trace has its own ranks and work: leave pipelines out",
        ),
        ({"training": {"microbatches": 2}}, "training.microbatches: the trace has its own ranks and work"),
        ({"variants": [{"name": "v", "schedule": "gpipe"}]}, "variants.0.schedule: compute.trace has its own order"),
        ({"variants": [{"name": "v", "options": {"a": 1}}]}, "variants.0.options: a trace takes none"),
        ({"variants": [{"name": "v", "placement": "auto"}]}, "variants.0.placement: auto: the planner places stages"),
        ({"variants": [{"name": "v", "placement": ["east"]}]}, "variants.0.placement: ['east'] for 3 ranks: name one"),
        (
            {"variants": [{"name": "v", "transport": {"sharing": "temporal"}}]},
            "variants.0.transport.sharing: each message of a trace goes over the connections of its own two",
        ),
        (
            {"variants": [{"name": "v", "transport": {"overlap": False}}]},
            "variants.0.transport.overlap: the trace has its own order of computations and messages: leave",
        ),
        (
            {"variants": [{"name": "v", "transport": {"receive": "blocks"}}]},
            "variants.0.transport.receive: the trace has its own order of computations and messages: leave",
        ),
        (
            {"variants": [{"name": "v", "transport": {"activation": {"wire": "int8"}}}]},
            "variants.0.transport.activation: the trace has its own messages and their sizes: leave activation",
        ),
        (
            {"variants": [{"name": "v", "transport": {"all_reduce": "nccl"}}]},
            "variants.0.transport.all_reduce: nccl all-reduces what torch computes",
        ),
        (
            {"variants": [{"name": "v", "transport": {"all_reduce_overlap": True}}]},
            "variants.0.transport.all_reduce_overlap: the trace has its own all-reduces",
        ),
        (
            {"topology": {"datacenters": [{"name": "east", "hosts": 2}]}},
            "compute.trace: it has 3 ranks, and the hosts have 2 GPUs: add hosts or GPUs",
        ),
        (
            {"compute": {"forward": "5ms", "activation": "1MiB"}, "variants": [{"name": "v", "schedule": "trace"}]},
            "variants.0.schedule: give compute.trace, which it replays, or another schedule",
        ),
        ({"training": {"iterations": 10_000}, "compute": {"trace": "long"}}, "compute.trace: one after the other, all"),
    ],
)
def test_what_does_not_go_with_a_trace_is_refused_in_one_line(folder: Path, others: dict[str, Any], text: str) -> None:
    day_us = 86_400 * 10**6
    write_trace(folder / "long", {0: [computation(number, day_us) for number in range(5)]})
    line = refusal(folder, **others)
    assert line.startswith("exp.yaml: ")
    assert text in line


def test_an_emulation_takes_one_group_a_rank(tmp_path: Path) -> None:
    ranks = {
        rank: [computation(0, 9), *(all_reduce(number, 8, group=f"g{number}") for number in (1, 2))] for rank in (0, 1)
    }
    write_trace(tmp_path / "t", ranks)
    assert refusal(tmp_path) == (
        "exp.yaml: compute.trace: rank 0 has collectives in 2 groups, and an emulation replays one group of a rank: "
        "give engine: simulate"
    )
    assert variants(tmp_path, engine="simulate")


SEND, RECEIVE = NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE


def both(size_bytes: int = 9) -> dict[int, list[ChakraNode]]:
    """Rank 0 computes and sends, rank 1 receives and computes, both all-reduce."""
    return {
        0: [computation(0, 5), message(SEND, 1, (0, 1), size_bytes, [0]), all_reduce(2, 40, [1])],
        1: [message(RECEIVE, 0, (0, 1), size_bytes), computation(1, 7, [0]), all_reduce(2, 40, [1])],
    }


def refused_folder(folder: Path) -> str:
    return refused(lambda: replayed_trace(folder)).replace(f"{folder}/", "")


def refused_ranks(tmp_path: Path, ranks: dict[int, list[ChakraNode]]) -> str:
    return refused_folder(write_trace(tmp_path / "bad", ranks))


def test_nodes_keep_their_times_sizes_and_order(tmp_path: Path) -> None:
    trace = replayed_trace(write_trace(tmp_path, both()))
    first, second = trace.ranks
    assert [node.kind for node in first] == [WorkKind.GPU, WorkKind.SEND, WorkKind.COLLECTIVE]
    assert [node.after for node in second] == [(), (0,), (1,)]
    assert (first[0].duration_ns, first[0].span, first[1].size_bytes, first[1].peer) == (5000, "forward", 9, 1)
    assert (second[0].peer, second[0].number, trace.groups, trace.pairs) == (0, 0, ((0, 1),), {(0, 1)})


def test_the_order_of_nodes_in_a_file_does_not_matter(tmp_path: Path) -> None:
    turned = {rank: list(reversed(nodes)) for rank, nodes in both().items()}
    one, other = (replayed_trace(write_trace(tmp_path / str(k), ranks)) for k, ranks in enumerate((both(), turned)))
    assert (one.ranks, one.groups) == (other.ranks, other.groups)
    assert one.digest != other.digest


def write_messages(folder: Path, *contents: Any, rank: int = 0, begin: bytes | None = None) -> None:
    """Write a rank's file as the format has it: each message behind its length, after those of an empty file."""
    framed = [rank_bytes([]) if begin is None else begin]
    for content in contents:
        data = content.SerializeToString()
        assert len(data) < 2**14
        framed += [bytes([len(data)] if len(data) < 2**7 else [len(data) & 0x7F | 0x80, len(data) >> 7]), data]
    (folder / f"t.{rank}.et").write_bytes(b"".join(framed))


@pytest.mark.parametrize(("exact_ns", "duration_ns"), [(5400, 5400), (4999, 4999), (9000, 5000), (-5, 5000)])
def test_an_exact_duration_counts_as_long_as_it_is_that_of_the_format(
    tmp_path: Path, exact_ns: int, duration_ns: int
) -> None:
    content = message_class("Node")(id=0, name="x", type=NodeType.COMP_NODE, duration_micros=5)
    content.attr.add(name=DURATION_NS, int64_val=exact_ns)
    write_messages(tmp_path, content)
    assert replayed_trace(tmp_path).ranks[0][0].duration_ns == duration_ns


def test_work_of_the_cpu_and_metadata_are_told_from_work_of_the_gpu(tmp_path: Path) -> None:
    nodes = [computation(0, 1), computation(1, 2, is_cpu_op=True), ChakraNode(2, "about", NodeType.METADATA_NODE)]
    (rank,) = replayed_trace(write_trace(tmp_path, {0: nodes})).ranks
    assert [node.kind for node in rank] == [WorkKind.GPU, WorkKind.CPU, WorkKind.NOTHING]


def test_whether_work_is_of_the_cpu_is_true_or_false(tmp_path: Path) -> None:
    content = message_class("Node")(id=0, name="x", type=NodeType.COMP_NODE, duration_micros=5)
    content.attr.add(name="is_cpu_op", string_val="no")
    write_messages(tmp_path, content)
    assert refused_folder(tmp_path).endswith("t.0.et: node 0 'x': its is_cpu_op is 'no': give true or false")


def test_messages_with_one_tag_keep_their_order(tmp_path: Path) -> None:
    ranks = {
        0: [computation(9, 1), *(message(SEND, each, (0, 1), 7 + each) for each in (1, 2))],
        1: [message(RECEIVE, each, (0, 1), 7 + each) for each in (1, 2)],
    }
    _, receives = replayed_trace(write_trace(tmp_path, ranks)).ranks
    assert [(node.number, node.size_bytes) for node in receives] == [(0, 8), (1, 9)]


def test_all_reduces_of_a_group_follow_one_another_and_a_lone_rank_sums_nothing(tmp_path: Path) -> None:
    ranks: dict[int, list[ChakraNode]] = {
        rank: [computation(0, 1), all_reduce(1, 8, group="pair"), all_reduce(2, 8, group="pair")] for rank in (0, 1)
    }
    ranks[2] = [computation(0, 1), all_reduce(1, 8, group="alone")]
    trace = replayed_trace(write_trace(tmp_path, ranks))
    assert trace.groups == ((0, 1),)
    assert [node.after for node in trace.ranks[0]] == [(), (), (1,)]
    assert [node.kind for node in trace.ranks[2]] == [WorkKind.GPU, WorkKind.NOTHING]


PAIRS = ((0, 1), (2, 3))


def in_pairs(*names: str, metadata: bool = False) -> dict[int, list[ChakraNode]]:
    """Four ranks in two groups, each of which a rank calls by its own name; metadata may say which ranks they have."""
    ranks: dict[int, list[ChakraNode]] = {}
    for rank, name in enumerate(names):
        groups = [{"pg_name": "0", "ranks": []}, {"pg_name": name, "ranks": list(PAIRS[rank // 2])}]
        # As the converter of PyTorch's traces writes it: a list of Python's, with text that is JSON.
        about = ChakraNode(
            7, "## process_group:init ##", NodeType.METADATA_NODE, input_values=str([json.dumps(groups)])
        )
        ranks[rank] = [computation(0, 1), all_reduce(1, 8, group=name), *([about] if metadata else [])]
    return ranks


@pytest.mark.parametrize("names", [("1", "5", "1", "6"), ("1", "1", "1", "1"), ("1", "1", "2", "2")])
def test_metadata_say_which_ranks_a_group_has_whatever_they_call_it(tmp_path: Path, names: tuple[str, ...]) -> None:
    assert replayed_trace(write_metadata(tmp_path, in_pairs(*names, metadata=True))).groups == PAIRS


def test_a_name_may_list_the_ranks(tmp_path: Path) -> None:
    ranks = in_pairs("0,1", "[0, 1]", "2,3", "2,3")
    ranks[1][1] = all_reduce(1, 8, group="0,1")
    assert replayed_trace(write_trace(tmp_path, ranks)).groups == PAIRS


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (
            ("a", "b", "2,3", "2,3"),
            "t.1.et: node 1 'sum 1': only rank 1 names the group 'b', and rank 0 does the same in 'a': give one group "
            "one pg_name, or its ranks as name, like '0,1'",
        ),
        (("0,1", "0,1", "2,4", "2,4"), "t.2.et: node 1 'sum 1': its group has rank 4, and there are 4 ranks"),
        (("0,1", "0,1", "0,1", "a"), "t.2.et: node 1 'sum 1': its group has the ranks 0, 1, and this is rank 2"),
        (("0,1", "b", "a", "a"), "t.0.et: node 1 'sum 1': rank 0 has 1 collectives of group '0,1', and rank 1 has 0"),
    ],
)
def test_a_group_whose_ranks_are_not_known_or_do_not_fit_is_refused(
    tmp_path: Path, names: tuple[str, ...], text: str
) -> None:
    assert refused_ranks(tmp_path, in_pairs(*names)) == text


def write_metadata(folder: Path, ranks: dict[int, list[ChakraNode]]) -> Path:
    """Write a trace whose metadata nodes hold something, which wanbed only reads."""
    for rank, nodes in ranks.items():
        about = [node_message(node) for node in nodes if node.input_values]
        for content, node in zip(about, [node for node in nodes if node.input_values], strict=True):
            content.inputs.values = node.input_values
        write_messages(folder, *about, rank=rank, begin=rank_bytes(node for node in nodes if not node.input_values))
    return folder


def with_node(rank: int, position: int, **changes: Any) -> dict[int, list[ChakraNode]]:
    ranks = both()
    node = ranks[rank][position]
    if "attributes" in changes:
        changes["attributes"] = {**node.attributes, **changes["attributes"]}
    ranks[rank][position] = replace(node, **changes)
    return ranks


def without(rank: int, position: int) -> dict[int, list[ChakraNode]]:
    ranks = both()
    del ranks[rank][position]
    return ranks


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (
            with_node(0, 2, name="xyz", attributes={"comm_type": 6}),
            "t.0.et: node 2 'xyz': type COLL ALL_TO_ALL is not replayed: computations, sends, receives, all-reduces, "
            "all-gathers and reduce-scatters are: write it as sends and receives, or leave it out",
        ),
        (with_node(0, 0, type=2), "t.0.et: node 0 'work 0': type MEM_LOAD_NODE is not replayed"),
        (with_node(0, 0, type=99), "t.0.et: node 0 'work 0': type 99, which is unknown, is not replayed"),
        (with_node(0, 0, control_dependencies=(8,)), "t.0.et: node 0 'work 0': it depends on node 8, which the file"),
        (with_node(0, 1, id=0), "t.0.et: node 0 'work 0': another node has this id"),
        (with_node(0, 0, data_dependencies=(2,)), "t.0.et: node 0 'work 0': it depends on itself, or on a node that"),
        (with_node(0, 0, duration_us=2**63), f"t.0.et: node 0 'work 0': its duration_micros is {2**63}: 86400s is the"),
        (with_node(0, 1, attributes={"comm_size": -1}), "t.0.et: node 1 'COMM_SEND_NODE 1': its comm_size is -1: give"),
        (with_node(0, 1, attributes={"comm_dst": 2}), "its comm_dst is 2, which is no other of the 2 ranks"),
        (with_node(0, 1, attributes={"comm_src": 1}), "its comm_src is 1 in the file of rank 0"),
        (with_node(0, 1, attributes={"comm_tag": 3}), "rank 0 sends nothing to it with tag 0"),
        (without(1, 0), "t.1.et: node 1 'work 1': it depends on node 0, which the file does not have"),
        (without(0, 1), "t.0.et: node 2 'sum 2': it depends on node 1, which the file does not have"),
        (with_node(1, 0, attributes={"comm_size": 8}), "its comm_size is 8, and node 1 of rank 0 sends it 9"),
        (without(1, 2), "rank 0 has 1 collectives of all ranks, and rank 1 has 0"),
        (with_node(1, 2, attributes={"comm_size": 8}), "its comm_size is 8, and rank 0 gives 40 to the same"),
        (
            with_node(1, 2, attributes={"comm_type": 2}),
            "t.1.et: node 2 'sum 2': its comm_type is all-gather, and rank 0 has all-reduce in its place, node 2",
        ),
        (
            {0: [computation(0, 0)]},
            "t.0.et: no rank computes on its GPU for any time, sends, or has a collective with others: there is "
            "nothing to measure",
        ),
        (
            with_node(0, 0, duration_us=0, attributes={"num_ops": 10**13}),
            "t.0.et: node 0 'work 0': it has 10000000000000 operations and no duration_micros: give durations",
        ),
        ({0: [computation(0, 1)], 2: []}, "bad: has no file for rank 1, and one for rank 2: give all ranks"),
        (
            {0: [computation(0, 1), message(SEND, 1, (0, 1), 5, tag=4)], 1: []},
            "t.0.et: node 1 'COMM_SEND_NODE 1': rank 1 receives nothing from it with tag 4",
        ),
        (
            {
                rank: [
                    message(RECEIVE, 0, (1 - rank, rank), 5),
                    message(SEND, 1, (rank, 1 - rank), 5, [0]),
                    computation(2, 1),
                ]
                for rank in (0, 1)
            },
            "t.0.et: node 0 'COMM_RECV_NODE 0': it waits for ever: messages and collectives of several ranks wait for "
            "each other in a circle",
        ),
    ],
)
def test_what_cannot_be_replayed_is_refused_in_one_line(
    tmp_path: Path, ranks: dict[int, list[ChakraNode]], text: str
) -> None:
    assert text in refused_ranks(tmp_path, ranks)


def test_a_computation_without_operations_may_take_no_time(tmp_path: Path) -> None:
    ranks = with_node(0, 0, duration_us=0, attributes={"num_ops": 0})
    assert replayed_trace(write_trace(tmp_path, ranks)).ranks[0][0].duration_ns == 0


def test_a_collective_alone_is_a_workload(tmp_path: Path) -> None:
    trace = replayed_trace(write_trace(tmp_path, {rank: [all_reduce(0, 40)] for rank in range(3)}))
    assert trace.groups == ((0, 1, 2),)


@pytest.mark.parametrize(("involved", "accepted"), [((True, True), True), ((True, False), False)])
def test_a_collective_over_some_dimensions_of_a_network_is_refused(
    tmp_path: Path, involved: tuple[bool, ...], accepted: bool
) -> None:
    content = node_message(all_reduce(0, 40))
    content.attr.add(name="involved_dim").bool_list.values.extend(involved)
    for rank in range(2):
        write_messages(tmp_path, content, rank=rank)
    if accepted:
        assert replayed_trace(tmp_path).groups == ((0, 1),)
    else:
        assert "t.0.et: node 0 'sum 0': its involved_dim leaves dimensions out" in refused_folder(tmp_path)


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], "has no file NAME.RANK.et: give the folder of a Chakra trace"),
        (["a.0.et", "b.1.et"], "has traces of two names, 'a' and 'b': keep one"),
        (["trace.et"], "trace.et: its name has no rank: name the files NAME.RANK.et"),
        (["a.0.et", "a.00.et"], "rank 0 has another file: keep one"),
    ],
)
def test_a_folder_without_one_file_a_rank_is_refused(tmp_path: Path, names: list[str], text: str) -> None:
    for name in names:
        (tmp_path / name).write_bytes(rank_bytes([computation(0, 1)]))
    assert text in refused_folder(tmp_path)


def test_a_later_version_and_what_is_no_folder_are_refused(tmp_path: Path) -> None:
    write_messages(tmp_path, message_class("GlobalMetadata")(version="2.0.0"), begin=b"")
    assert refused_folder(tmp_path) == "t.0.et: version '2.0.0' of the format is not read, 0.x and 1.x are"
    assert "is no folder" in refused_folder(tmp_path / "t.0.et")


@given(st.data())
def test_a_damaged_trace_is_replayed_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = write_trace(tmp_path_factory.mktemp("damaged"), both())
    path = folder / f"t.{data.draw(st.integers(0, 1))}.et"
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(content) - 1))
        match data.draw(st.sampled_from(["change", "insert", "remove"])):
            case "change":
                content[position] = data.draw(st.integers(0, 255))
            case "insert":
                content.insert(position, data.draw(st.integers(0, 255)))
            case _:
                del content[position:]
        if not content:
            break
    path.write_bytes(content)
    assert "\n" not in _outcome(folder)


def _outcome(folder: Path) -> str:
    try:
        trace = replayed_trace(folder)
    except InputError as refused:
        return str(refused)
    return trace.digest


def test_a_computation_has_the_microbatch_and_kind_that_the_trace_says(tmp_path: Path) -> None:
    def node(number: int, name: str, **attributes: Any) -> ChakraNode:
        return ChakraNode(number, name, NodeType.COMP_NODE, (), (), 0, 1, attributes)

    nodes = [
        node(0, "x", **{MICROBATCH: 0}),
        node(1, "backward 7", **{MICROBATCH: 2**31 - 1}),
        node(2, "recompute"),
        node(3, "backward 7", **{MICROBATCH: -1, KIND: "optimizer"}),
        node(4, "x", **{KIND: "x"}),
    ]
    (rank,) = replayed_trace(write_trace(tmp_path, {0: nodes})).ranks
    assert [each.microbatch for each in rank] == [0, 2**31 - 1, NO_MICROBATCH, NO_MICROBATCH, NO_MICROBATCH]
    assert [each.span for each in rank] == ["forward", "backward", "recompute", "optimizer", "forward"]


def test_sizes_are_of_one_byte_at_least_and_4_tib_at_most(tmp_path: Path) -> None:
    most = 4 * 2**40
    for size_bytes in (1, most):
        (first, _) = replayed_trace(write_trace(tmp_path / str(size_bytes), both(size_bytes))).ranks
        assert first[1].size_bytes == size_bytes
    for size_bytes in (0, most + 1):
        assert f"its comm_size is {size_bytes}: give 1 to 4TiB" in refused_ranks(tmp_path, both(size_bytes)).replace(
            "4096GiB", "4TiB"
        )


def test_a_day_is_the_longest_computation(tmp_path: Path) -> None:
    day_us = 86_400 * 10**6
    (rank,) = replayed_trace(write_trace(tmp_path / "day", {0: [computation(0, day_us)]})).ranks
    assert rank[0].duration_ns == day_us * 1000
    assert "86400s is the longest" in refused_ranks(tmp_path, {0: [computation(0, day_us + 1)]})


def test_files_of_a_trace_are_limited_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_trace(tmp_path, both())
    size_bytes = sum(path.stat().st_size for path in folder.iterdir())
    monkeypatch.setattr(resolution, "MAX_BYTES", size_bytes)
    assert len(replayed_trace(folder).ranks) == 2
    monkeypatch.setattr(resolution, "MAX_BYTES", size_bytes - 1)
    assert "its files have more than 0 GiB: cut the trace" in refused_folder(folder)


def test_ends_of_a_message_that_are_not_said_are_those_of_the_file(tmp_path: Path) -> None:
    ranks = both()

    def leave_out(rank: int, position: int, name: str) -> None:
        node = ranks[rank][position]
        kept = {each: value for each, value in node.attributes.items() if each != name}
        ranks[rank][position] = replace(node, attributes=kept)

    leave_out(0, 1, "comm_src")
    leave_out(1, 0, "comm_tag")
    first, second = replayed_trace(write_trace(tmp_path, ranks)).ranks
    assert (first[1].peer, second[0].peer) == (1, 0)
    leave_out(0, 1, "comm_dst")
    assert "it has no attribute comm_dst" in refused_ranks(tmp_path, ranks)
    assert "its comm_dst is 0, which is no other" in refused_ranks(
        tmp_path, with_node(0, 1, attributes={"comm_dst": 0})
    )
