"""The plans of ranks, and the time that ranks wait for silent peers."""

import socket
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runner.emulation.rank_plans import ONE, PAIR, PLANNED, SHARED, TOKEN, four_by_two, planned, point
from tests.support.present import present
from wanbed.runner.companions.prefill.resolution import inference_work
from wanbed.runner.emulation.rank_configs import FIRST_PORT, RankPatience, SharedConfig, configure_ranks, peer_timeout_s
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.testbed.network.address_book import LoopbackAddressBook
from wanbed.testbed.network.links.wan_link import course_of
from wanbed.testbed.network.topology import Topology
from wanbed.workloads.compute.backends.torch_backend import torch_work
from wanbed.workloads.compute.device_settings import SwapSettings
from wanbed.workloads.compute.replay import ReplayDurations
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS
from wanbed.workloads.message import Message, MessageKind
from wanbed.workloads.rank_config import RankConfig, read_rank_config
from wanbed.workloads.schedules.action import Action, ActionKind
from wanbed.workloads.schedules.pipeline_shape import PipelineShape
from wanbed.workloads.transport.frame import CHUNK_BYTES
from wanbed.workloads.transport.socket_options import PEER_TIMEOUT_S, make_socket

MS = 1_000_000

EPHEMERAL_PORTS_FROM = 32_768


def durations(plan: RankConfig) -> ReplayDurations:
    return plan.compute.costs.durations


def test_every_stage_has_a_rank_on_its_gpu() -> None:
    plans = planned(point())
    assert [(plan.rank, plan.place.stage, plan.place.pipeline) for plan in plans] == [(n, n, 0) for n in range(4)]
    assert [(plan.host, plan.place.datacenter, plan.gpu) for plan in plans] == [
        ("east-0", "east", 0),
        ("east-0", "east", 1),
        ("west-0", "west", 0),
        ("west-1", "west", 0),
    ]


def test_every_pipeline_has_its_ranks() -> None:
    plans = planned(four_by_two(PAIR))
    assert [(plan.rank, plan.place.pipeline, plan.place.stage) for plan in plans] == [
        (n, n // 4, n % 4) for n in range(8)
    ]
    assert [plan.host for plan in plans] == [
        f"{dc}-{n}" for half in (0, 2) for dc in ("east", "west") for n in (half, half + 1)
    ]


def test_every_rank_knows_what_is_the_same_for_all() -> None:
    eager = point(variants=[{**ONE, "schedule": "1f1b", "options": {"warmup_depth": 2}}])
    for plan in planned(eager):
        assert plan.shape == PipelineShape(4, 8, recompute=(False,) * 4)
        assert (plan.iterations, plan.process.epoch_ns, plan.process.parent_pid) == (5, 123_456_789, 4711)
        assert plan.schedule.class_path == "wanbed.workloads.schedules.one_forward_one_backward:OneForwardOneBackward"
        assert plan.schedule.options == {"warmup_depth": 2}
        assert plan.rendezvous.run_token == TOKEN


@pytest.mark.parametrize(
    "compute", [{"kind": "replay", "profile": "a100"}, {"kind": "torch", "device": "cpu"}], ids=["replay", "torch"]
)
def test_a_rank_s_schedule_is_made_with_the_variant_s_options_whatever_computes(compute: dict[str, Any]) -> None:
    variant = {**ONE, "schedule": "varuna", "options": {"recompute": "on-gradient"}}
    of = point(model="gpt-tiny" if compute["kind"] == "torch" else "gpt-a", compute=compute, variants=[variant])
    for plan in planned(of):
        schedule = plan.schedule.create()
        schedule.arrived(1, Message(MessageKind.ACTIVATION, 0))
        forward = schedule.next(1)
        assert forward == Action(ActionKind.FORWARD, 0)
        schedule.finished(1, forward)
        assert schedule.next(1) is None, "the gap stays idle"


def test_a_rank_computes_for_its_own_stages_times() -> None:
    for plan, forward in zip(planned(point()), (1, 2, 3, 4), strict=True):
        assert durations(plan) == ReplayDurations(forward * MS, 2 * forward * MS, 0, forward * MS, forward * MS)


def test_dilated_times_are_those_of_the_ranks() -> None:
    slow = planned(point(compute={"forward": "3ms", "recompute": "1ms", "activation": "1MiB"}), dilation=2.5)
    assert {(durations(plan).forward_ns, durations(plan).recompute_ns) for plan in slow} == {(7_500_000, 2_500_000)}


def test_peers_agree_on_their_boundary() -> None:
    plans = planned(point())
    for boundary, (one, other) in enumerate(pairwise(plans)):
        towards, back = one.links.boundaries.following, other.links.boundaries.previous
        assert towards is not None
        assert back is not None
        assert (towards.rank, back.rank) == (other.rank, one.rank)
        assert towards.transfer_bytes == back.transfer_bytes == (1 + boundary) * 1024
        assert (towards.mates, back.mates) == ((), ())
        assert one.compute.costs.sizes.following_bytes == towards.transfer_bytes


def test_the_rank_with_the_lower_number_calls_where_the_other_listens() -> None:
    plans = planned(four_by_two(SHARED))
    by_rank = {plan.rank: plan for plan in plans}
    assert [plan.rendezvous.listen_port for plan in plans] == [FIRST_PORT + rank for rank in range(8)]
    for plan in plans:
        for peer in plan.links.peers:
            other = by_rank[peer.rank]
            assert (peer.host, peer.address) == (other.host, other.rendezvous.listen_address)
            assert peer.port == (other.rendezvous.listen_port if peer.rank > plan.rank else None)
            (back,) = [entry for entry in other.links.peers if entry.rank == plan.rank]
            assert back.connections == peer.connections


def test_only_the_boundary_that_crosses_the_wan_is_shared() -> None:
    plans = planned(four_by_two(SHARED))
    mates = [{name: boundary.mates for name, boundary in plan.links.boundaries.named} for plan in plans]
    assert mates[:4] == mates[4:]
    assert mates[:4] == [
        {"following": ()},
        {"previous": (), "following": (1, 5)},
        {"previous": (2, 6), "following": ()},
        {"previous": ()},
    ]


def test_a_planned_schedule_gives_each_rank_its_list_and_the_turns_of_its_cell() -> None:
    plans = planned(four_by_two(PLANNED))
    for plan in plans:
        orders = plan.schedule.options["orders"]
        assert [stage for stage, order in enumerate(orders) if order is not None] == [plan.place.stage]
    sender, receiver = plans[1].links.boundaries.following, plans[2].links.boundaries.previous
    assert sender is not None
    assert receiver is not None
    whole = {(pipeline, microbatch) for pipeline in (0, 1) for microbatch in range(3)}
    assert set(sender.outgoing_turns) == set(receiver.outgoing_turns) == whole
    mate = plans[5].links.boundaries.following
    assert mate is not None
    assert mate.outgoing_turns == sender.outgoing_turns
    assert planned(four_by_two(SHARED))[1].links.boundaries.following is not None


def test_torch_recomputes_and_splits_as_its_schedule_does_at_its_stage() -> None:
    def works(schedule: str, **compute: Any) -> Iterator[tuple[bool, bool]]:
        of = point(
            model="gpt-tiny",
            compute={"kind": "torch", "device": "cpu", **compute},
            training={"precision": "fp32"},
            variants=[{**ONE, "schedule": schedule}],
        )
        for plan in planned(of):
            made = plan.schedule.create()
            work = torch_work(plan.compute, made.kinds(plan.place.stage))
            yield work.recompute, work.split_backward

    assert list(works("gpipe")) == [(True, False)] * 4
    assert list(works("varuna")) == [(True, False)] * 3 + [(False, False)]
    assert list(works("zb-h1", checkpointing=False)) == [(False, True)] * 4


def test_torch_is_reported_which_iteration_the_profiler_watches() -> None:
    training = {"precision": "fp32", "iterations": 4, "warmup": 3}
    of = point(model="gpt-tiny", compute={"kind": "torch", "check_iteration": 1}, training=training)
    assert [plan.compute.device.check_iteration for plan in planned(of)] == [1] * 4
    of = point(model="gpt-tiny", compute={"kind": "torch"}, training=training)
    assert [plan.compute.device.check_iteration for plan in planned(of)] == [None] * 4


@pytest.mark.parametrize(("written", "deterministic"), [({}, False), ({"deterministic": True}, True)])
def test_torch_is_told_whether_kernels_are_to_be_deterministic(written: dict[str, bool], deterministic: bool) -> None:
    of = point(model="gpt-tiny", compute={"kind": "torch", **written}, training={"precision": "fp32"})
    works = [torch_work(plan.compute, tuple(ActionKind)) for plan in planned(of)]
    assert {work.device.deterministic for work in works} == {deterministic}
    assert present(inference_work(of.spec, INFERENCE_MODELS["llama-tiny"])).device.deterministic is deterministic


def test_gradients_are_kept_where_asked(tmp_path: Path) -> None:
    of = point(model="gpt-tiny", compute={"kind": "torch"}, training={"precision": "fp32"})
    assert {plan.kept.gradients for plan in planned(of)} == {None}
    kept = planned(of, tmp_path, keep_gradients=True)
    assert [plan.kept.gradients for plan in kept] == [str(tmp_path / f"rank-{rank}.gradients.npz") for rank in range(4)]


def test_ranks_are_bound_to_the_addresses_of_the_testbeds_slot() -> None:
    assert [plan.rendezvous.listen_address for plan in planned(point())] == [
        "10.3.0.2",
        "10.3.0.2",
        "10.3.1.2",
        "10.3.1.3",
    ]


def test_no_two_ranks_share_a_socket_or_a_log(tmp_path: Path) -> None:
    plans = planned(point(), tmp_path)
    assert len({(plan.rendezvous.listen_address, plan.rendezvous.listen_port) for plan in plans}) == len(plans)
    assert len({plan.process.span_log for plan in plans}) == len(plans)
    assert {Path(plan.process.span_log).parent for plan in plans} == {tmp_path}


@pytest.mark.parametrize("clock", ["real", "virtual"])
def test_a_window_is_held_and_a_quarter_of_it_may_wait_unread_on_either_clock(
    clock: str,
) -> None:
    of = point(variants=[{**ONE, "transport": {"connections": 1, "window": "6MiB"}}], clock=clock)
    in_flight_bytes = of.variants[0].tcp.window_bytes
    for plan in planned(of):
        assert plan.links.window_bytes == in_flight_bytes
        assert {peer.unread_bytes for peer in plan.links.peers} == {in_flight_bytes // 4}


def test_much_is_held_unsent_only_where_it_goes_at_once_and_by_no_other_connection() -> None:
    of = point(
        topology={
            "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
            "intra": {"latency": "50us", "rate": "100Gbit"},
            "wan": {"latency": "40ms", "node_pair_rate": "5Gbit"},
        },
        variants=[{**ONE, "transport": {"connections": 1, "window": "6MiB"}}],
    )
    (variant,) = of.variants
    middle = planned(of)[1]
    assert {peer.rank: peer.unsent_bytes for peer in middle.links.peers} == {
        0: CHUNK_BYTES,
        2: variant.tcp.window_bytes // 8,
    }


def test_a_single_stage_has_nobody_to_talk_to() -> None:
    (plan,) = planned(point(training={"stages": 1}, compute={}))
    assert (plan.links.peers, plan.links.boundaries.named) == ((), ())


def test_the_ports_of_the_longest_pipeline_stay_below_the_ephemeral_ones() -> None:
    topology = {"datacenters": [{"name": "east", "hosts": 16, "gpus_per_host": 64}]}
    plans = planned(point(topology=topology, compute={}))
    assert len(plans) == 1024
    assert max(plan.rendezvous.listen_port for plan in plans) < EPHEMERAL_PORTS_FROM


@given(st.lists(st.sampled_from(["0ms", "1ns", "2ms"]), min_size=4, max_size=4), st.floats(1, 100))
def test_a_stage_recomputes_where_its_time_for_it_is_above_zero(recompute: list[str], dilation: float) -> None:
    plans = planned(point(compute={"recompute": recompute, "activation": "1KiB"}), dilation=dilation)
    assert plans[0].shape.recompute == tuple(text != "0ms" for text in recompute)
    assert [durations(plan).recompute_ns > 0 for plan in plans] == [text != "0ms" for text in recompute]


def test_a_placement_that_returns_to_a_datacenter_is_planned_as_it_is() -> None:
    back_and_forth = point(variants=[{**ONE, "placement": ["east", "west", "west", "east"]}])
    assert [plan.host for plan in planned(back_and_forth)] == ["east-0", "west-0", "west-1", "east-0"]


@pytest.mark.parametrize("of", [point(), four_by_two(PLANNED)], ids=["one pipeline", "a sweep point of two"])
def test_a_plan_reads_back_from_the_file_that_a_rank_is_given(tmp_path: Path, of: SweepPoint) -> None:
    for plan in planned(of):
        plan.write(tmp_path / f"rank-{plan.rank}.json")
        assert read_rank_config(tmp_path / f"rank-{plan.rank}.json") == plan


@pytest.mark.parametrize("device", ["cpu", "cuda", None])
def test_every_rank_is_given_the_device_that_was_decided(device: str | None) -> None:
    of = point(model="gpt-tiny", compute={"kind": "torch", "device": "auto"}, training={"precision": "fp32"})
    assert {plan.compute.device.name for plan in planned(of, device=device)} == {device or "auto"}


def test_ranks_on_several_machines_have_a_minute_for_their_rendezvous() -> None:
    limits_ns = {
        slowly: planned(point(), patience=RankPatience(slowly))[0].rendezvous.timeout_ns for slowly in (False, True)
    }
    assert limits_ns == {False: 8_000_000_000, True: 60_000_000_000}


def test_over_a_relay_peers_have_the_addresses_at_which_they_are_reached_and_hold_no_windows() -> None:
    of = point()
    (variant,) = of.variants
    connections = {(one.host.name, other.host.name): 1 for one, other in variant.pairs}
    addresses = LoopbackAddressBook(of.topology, slot=3)
    setting = SharedConfig(addresses, connections, 1.0, TOKEN, 1, Path("/trial"), 4711, models_tcp=True)
    plans = configure_ranks(of, variant, setting)
    assert {plan.links.window_bytes for plan in plans} == {None}
    assert [plan.rendezvous.listen_address for plan in plans] == ["127.6.0.2", "127.6.0.2", "127.6.1.2", "127.6.1.3"]
    # The first two ranks share a host, where no relay is between them.
    assert [[peer.address for peer in plan.links.peers] for plan in plans] == [
        ["127.6.0.2"],
        ["127.6.0.2", "127.7.1.2"],
        ["127.7.0.2", "127.7.1.3"],
        ["127.7.1.2"],
    ]


@pytest.mark.parametrize("profile", [None, "cpu"])
def test_ranks_that_swap_measure_their_groups_unless_a_profile_is_named(profile: str | None) -> None:
    of = point(
        topology={
            "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
            "wan": {"latency": "10ms"},
        },
        model="gpt-tiny",
        compute={"kind": "torch", **({} if profile is None else {"profile": profile})},
        training={"pipelines": 2, "microbatches": 2, "iterations": 4, "warmup": 1},
        variants=[{"name": "one", "schedule": "atom", "options": {"swap": "1GB/s", "memory": "1GB", "sync_every": 1}}],
    )
    (variant,) = of.variants
    assert variant.grouping is not None
    sizes = None if profile is None else variant.grouping.sizes
    for plan in planned(of):
        assert plan.compute.device.swapping == SwapSettings(sizes, 10**9)
        assert plan.shape.virtual_stages == 1


S = 10**9

LOOPBACK = "127.0.0.1"


def with_outage(length_ns: int) -> Topology:
    """A network whose link is down for so long."""
    topology = point(variants=[ONE]).topology
    (link,) = topology.wan
    up = link.conditions
    course = course_of([(0, up), (S, replace(up, up=False)), (S + length_ns, up)])
    return replace(topology, wan=(replace(link, courses=(course, course)),))


def test_where_no_link_is_ever_down_a_failure_is_told_as_soon_as_ever() -> None:
    assert peer_timeout_s(point(variants=[ONE]).topology) == PEER_TIMEOUT_S == 8


@pytest.mark.parametrize(("outage_ns", "expected_s"), [(15 * S, 38), (S // 2, 9), (S // 1000, 9)])
def test_a_configured_outage_is_outlasted_with_the_wait_of_tcp_after_it(outage_ns: int, expected_s: int) -> None:
    assert peer_timeout_s(with_outage(outage_ns)) == expected_s


def test_a_dilated_outage_is_outlasted_as_it_is_emulated() -> None:
    assert peer_timeout_s(with_outage(10 * S).dilated(3)) == 68


def test_ranks_are_told_and_have_longer_to_meet_after_a_restart() -> None:
    of = point(variants=[ONE])
    plain, patient = planned(of)[0], planned(of, patience=RankPatience(peer_timeout_s=38))[0]
    assert (plain.rendezvous.peer_timeout_s, patient.rendezvous.peer_timeout_s) == (8, 38)
    assert patient.rendezvous.timeout_ns - plain.rendezvous.timeout_ns == 30 * S


@pytest.mark.parametrize("timeout_s", [8, 38, 3600])
def test_the_kernel_takes_it(timeout_s: int) -> None:
    with make_socket(LOOPBACK, 0, peer_timeout_s=timeout_s) as made:
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == timeout_s * 1000
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) <= 127
