import json

import pytest

from wanbed.workloads.user_programs.hook.wanbed_hook.collectives import (
    Collective,
    Launch,
    find_collectives,
    groups_of_threads,
    kind_of,
    read_flight_recorder,
)
from wanbed.workloads.user_programs.hook.wanbed_hook.trace import Event, Trace

WORLD, PAIR = {"0": (0, 1, 2)}, {"0": (0, 1, 2), "1": (0, 2)}


def gloo(name: str, thread: int, start_ns: int, end_ns: int, elements: int, *, type_name: str = "float") -> Event:
    arguments = {"Input Dims": [[elements]], "Input type": [type_name]}
    return Event("user_annotation", f"gloo:{name}", thread, start_ns, end_ns, arguments)


def launch(group: str, at_ns: int, elements: int, name: str = "all_reduce") -> Launch:
    return Launch(f"gloo:{name}", ((elements,),), group, at_ns)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("all_reduce", "all_reduce"),
        ("allreduce_coalesced", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("broadcast", "broadcast"),
        ("all_to_allv", "all_to_all"),
        ("barrier", "barrier"),
        ("send", "send"),
        ("recv", "receive"),
        ("reduce", "collective"),
        ("gather", "collective"),
        ("scatter", "collective"),
    ],
)
def test_names_of_torch_have_kinds(name: str, kind: str) -> None:
    assert kind_of(name) == kind


@pytest.mark.parametrize(
    ("type_name", "size_bytes"),
    [("float", 4), ("double", 8), ("c10::BFloat16", 2), ("c10::Half", 2), ("long int", 8), ("unsigned char", 1)],
)
def test_bytes_are_those_of_the_input(type_name: str, size_bytes: int) -> None:
    trace = Trace((gloo("all_reduce", 7, 10, 30, 5, type_name=type_name),), WORLD, 0)
    assert find_collectives(trace, [launch("0", 8, 5)]) == [
        Collective("all_reduce", 8, 10, 30, 5 * size_bytes, "0,1,2")
    ]


def test_groups_are_told_apart_by_what_their_threads_did() -> None:
    """Both groups sum the same sizes at once; each has two threads, which were created one group after the other."""
    launches = [launch(group, at, size) for at, (group, size) in enumerate([("0", 5), ("0", 6), ("1", 5), ("1", 6)])]
    events = [gloo("all_reduce", 11, 4, 9, 5), gloo("all_reduce", 12, 5, 9, 6), gloo("all_reduce", 20, 4, 9, 6)]
    events.append(gloo("all_reduce", 21, 3, 9, 5))
    assert groups_of_threads(events, launches) == {11: "0", 12: "0", 20: "1", 21: "1"}


def test_a_thread_of_a_later_group_may_have_the_lower_number() -> None:
    launches = [launch("0", 1, 5), launch("1", 2, 6)]
    assert groups_of_threads([gloo("all_reduce", 40, 3, 9, 5), gloo("all_reduce", 3, 4, 9, 6)], launches) == {
        40: "0",
        3: "1",
    }


def test_operations_come_in_the_order_of_their_launches_and_so_do_their_starts() -> None:
    """Two threads took them from the queue in order, but the second was quicker."""
    trace = Trace((gloo("all_reduce", 8, 20, 90, 6), gloo("all_reduce", 7, 25, 80, 5)), WORLD, 0)
    found = find_collectives(trace, [launch("0", 1, 5), launch("0", 2, 6)])
    assert [(each.size_bytes, each.start_ns, each.end_ns) for each in found] == [(20, 20, 80), (24, 20, 90)]


def test_the_first_of_operations_that_are_alike_begins_first_and_ends_first() -> None:
    """Two threads took them from the queue in order, but the second was quicker, and only its end tells so."""
    launches = [launch("0", 1, 5), launch("0", 2, 5)]
    overtaken = Trace((gloo("all_reduce", 8, 20, 90, 5), gloo("all_reduce", 7, 25, 40, 5)), WORLD, 0)
    in_order = Trace((gloo("all_reduce", 7, 15, 45, 5), gloo("all_reduce", 8, 50, 95, 5)), WORLD, 0)
    here, there = (find_collectives(trace, launches) for trace in (overtaken, in_order))
    assert [(each.launched_ns, each.start_ns, each.end_ns) for each in here] == [(1, 20, 40), (2, 25, 90)]
    assert all(
        max(one.start_ns, other.start_ns) <= min(one.end_ns, other.end_ns)
        for one, other in zip(here, there, strict=True)
    )


def test_without_a_flight_recorder_the_only_group_is_known() -> None:
    event = gloo("broadcast", 7, 10, 30, 5)
    assert [each.ranks for each in find_collectives(Trace((event,), WORLD, 0), [])] == ["0,1,2"]
    assert [each.ranks for each in find_collectives(Trace((event,), PAIR, 0), [])] == [""]


def test_a_send_lasts_from_the_call_and_knows_its_peer() -> None:
    call = Event("cpu_op", "c10d::send", 1, 5, 8, {"Concrete Inputs": ["", "", "2", "0"]})
    other = Event("cpu_op", "c10d::recv_", 1, 6, 9, {"Concrete Inputs": ["", "", "1", "0"]})
    events = (call, other, gloo("recv", 1, 20, 50, 10), gloo("send", 1, 21, 40, 10))
    assert find_collectives(Trace(events, WORLD, 0), []) == [
        Collective("send", 5, 5, 40, 40, "", 2),
        Collective("receive", 6, 6, 50, 40, "", 1),
    ]
    assert [each.peer for each in find_collectives(Trace(events, PAIR, 0), [])] == [-1, -1]


def test_what_the_flight_recorder_kept_of_gloo_is_on_this_clock() -> None:
    entry = {"input_sizes": [[5]], "process_group": ["1", "undefined"], "time_created_ns": 1_000}
    text = json.dumps(
        {"entries": [{**entry, "profiling_name": name} for name in ("gloo:all_reduce", "nccl:all_reduce")]}
    )
    assert read_flight_recorder(text, -900) == [Launch("gloo:all_reduce", ((5,),), "1", 100)]


def nccl(number: int, start_ns: int, end_ns: int, **arguments: object) -> tuple[Event, Event]:
    """A launch and its kernel, with the arguments that Kineto writes."""
    return (
        Event("cuda_runtime", "cudaLaunchKernelExC", 1, start_ns - 5, start_ns - 4, {"correlation": number}),
        Event("kernel", "ncclDevKernel", 20, start_ns, end_ns, {"correlation": number, **arguments}),
    )


def test_nccls_kernels_name_operation_bytes_and_group() -> None:
    meta = {"dtype": "BFloat16", "In msg nelems": 100, "Process Group Name": "1", "Process Group Ranks": "[0, 2]"}
    shortened = {"Process Group Name": "9", "Process Group Ranks": "[0, ..., 9]"}
    events = (
        *nccl(1, 10, 20, **{**meta, "Collective name": "_allgather_base"}),
        *nccl(2, 30, 40, **{**meta, "Collective name": "allreduce", "Process Group Name": "9"}),
        *nccl(3, 50, 60, **{**meta, "Collective name": "allreduce", **shortened}),
        *nccl(4, 70, 80, **{**meta, "Collective name": "send", "Dst Rank": 2, "Src Rank": 0}),
    )
    assert find_collectives(Trace(events, PAIR, 0), []) == [
        Collective("all_gather", 5, 10, 20, 200, "0,2"),
        Collective("all_reduce", 25, 30, 40, 200, "0,2"),
        Collective("all_reduce", 45, 50, 60, 200, ""),
        Collective("send", 65, 70, 80, 200, "", 2),
    ]
