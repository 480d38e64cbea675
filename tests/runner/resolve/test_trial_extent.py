"""Products of quantities beyond the limits are refused before a run, whichever of them is large."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.runner.chakra_traces import all_reduce, computation, message, write_trace
from wanbed.ground.errors import InputError
from wanbed.results.chakra.node import NodeType
from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import Experiment
from wanbed.runner.resolve.tcp_effects import effects_of
from wanbed.runner.resolve.trial_extent import MAX_TRIAL_NS
from wanbed.runner.simulator.variant_simulation import simulate_variant

SMALL: dict[str, Any] = {
    "topology": {
        "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
        "wan": {"latency": "20ms", "rate": "100Mbit"},
    },
    "compute": {"forward": "20ms", "activation": "1MiB", "gradient": "1MiB"},
    "training": {"stages": 2, "pipelines": 2, "microbatches": 2},
}

LONG = {"iterations": 10_000, "microbatches": 64}


def changed(document: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """The document with ``changes`` by dotted path."""
    for path, value in changes.items():
        head, _, rest = path.partition(".")
        document = {**document, head: changed(document.get(head, {}), {rest: value}) if rest else value}
    return document


def parsed(**changes: Any) -> Experiment:
    return parse_experiment(changed(SMALL, changes), "exp.yaml", Path())


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "gigabytes over a link that loses packets, segment by segment": (
        {
            "engine": "simulate",
            "topology.wan": {"latency": "20ms", "rate": "1Gbit", "loss": "0.1%"},
            "compute.activation": "16GiB",
        },
        "topology.wan: ",
    ),
    "days of computing, a million times": (
        {"compute.forward": "10000s", "compute.backward": "10000s", "training": {**SMALL["training"], **LONG}},
        "compute.forward: one after the other, all work takes 1.62e+03 years, and 100 at most are run",
    ),
    "terabytes at a bit a second": (
        {"topology.wan": {"latency": "20ms", "rate": "1bit"}, "compute.activation": "1000GiB"},
        "compute.activation: one after the other, all work takes ",
    ),
    "terabytes at a bit a second that pipelines would share": (
        {
            "topology.wan": {"latency": "1ns", "rate": "1bit"},
            "compute.activation": "100GiB",
            "variants": [
                {
                    "name": "a",
                    "schedule": "gpipe",
                    "transport": {"window": "511MiB", "connections": 64, "sharing": "temporal"},
                }
            ],
        },
        "compute.activation: one after the other, all work takes ",
    ),
    "a sum of terabytes at a bit a second": (
        {
            "topology.intra": {"rate": "1bit"},
            "compute.gradient": "1000GiB",
        },
        "compute.gradient: one after the other, all work takes ",
    ),
    "more bytes than 64 bits hold": (
        {
            "topology.wan": {"latency": "20ms"},
            "compute.activation": "4096GiB",
            "training": {**SMALL["training"], **LONG},
            "variants": [{"name": "a", "schedule": "gpipe", "transport": {"model": "ideal"}}],
        },
        "compute.activation: 9.77 EiB are sent in all, more than 2",
    ),
    "windows by the hundred million": (
        {
            "topology.wan": {"latency": "20ms"},
            "compute.activation": "1000GiB",
            "variants": [{"name": "a", "schedule": "gpipe", "transport": {"window": "4KiB"}}],
        },
        "compute.activation: one connection or group of them fills 1572864000 windows one after the other, more than "
        "10000000: give less of it, a larger transport.window, or more connections",
    ),
    "buckets by the hundred million": (
        {
            "compute.gradient": "1000GiB",
            "variants": [
                {
                    "name": "a",
                    "schedule": "gpipe",
                    "transport": {"model": "ideal", "all_reduce_overlap": True, "bucket": "4KiB"},
                }
            ],
        },
        "variants.0.transport.bucket: 3.15e+09 spans of all-reduces to keep, more than 1e+08: give larger buckets",
    ),
    "more spans than memory holds": (
        {"training": {**SMALL["training"], "iterations": 10_000, "microbatches": 4096}},
        "training.iterations: 6.55e+08 spans to keep, more than 1e+08: give fewer iterations",
    ),
    "requests without an end": (
        {
            "topology.datacenters": [
                {"name": "east", "hosts": 2, "serving_hosts": 1},
                {"name": "west", "hosts": 2, "serving_hosts": 1},
            ],
            "compute.forward": "86400s",
            "prefill": {"trace": "poisson", "rate": "1000000/s"},
        },
        "prefill.rate: 1.56e+12 requests or more come while this trains, 1e+07 at most are kept",
    ),
    "a prompt in a million chunks": (
        {"prefill": {"trace": "poisson", "rate": "1/s", "prompt": 1_000_000, "chunk": 1}},
        "prefill.chunk: a prompt of 1000000 tokens is more than 10000 chunks of 1: give larger ones",
    ),
    "trials by the million": (
        {
            "sweep": {"topology.wan.latency": [f"{millis}ms" for millis in range(1, 201)]},
            "repeats": 1000,
            "training": {"stages": 2, "pipelines": 1, "microbatches": 1},
        },
        "repeats: 200000 trials at all points of all variants, more than the 100000 of one run: give fewer repeats",
    ),
    "hosts by the million": (
        {"topology.datacenters": [{"name": f"dc{index}", "hosts": 65_536} for index in range(17)]},
        "topology.datacenters: they have 1114112 hosts together, more than 1048576: give fewer",
    ),
    "a profile's times of a model beyond all": (
        {
            "model": {"hidden": 2**20, "context": 10**6, "layers": 2**16, "heads": 1, "vocabulary": 1},
            "compute": {"profile": "a100", "activation": "1B", "gradient": "1B"},
        },
        "compute.profile: by a100 the forward of stage 0 takes 6.",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_products_beyond_the_limits_name_their_field(case: str) -> None:
    changes, text = REFUSED[case]
    with pytest.raises(InputError) as refused:
        parsed(**changes)
    line = str(refused.value)
    assert line.removeprefix("exp.yaml: ").startswith(text)
    assert len(line) < 300


def test_a_trace_that_takes_centuries_is_refused(tmp_path: Path) -> None:
    day = [computation(number, 86_400 * 10**6) for number in range(2)]
    write_trace(tmp_path / "t", {0: day, 1: day})
    document = {"topology": SMALL["topology"], "compute": {"trace": "t"}, "variants": [{"name": "t"}]}
    with pytest.raises(InputError, match=r"compute.trace: one after the other, all work takes \S+ years"):
        parse_experiment({**document, "training": {"iterations": 10_000}}, "exp.yaml", tmp_path)


def test_all_sweep_points_and_variants_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep = {"topology.wan.latency": ["1ms", "2ms", "3ms"]}
    monkeypatch.setattr("wanbed.runner.resolve.experiment.MAX_PLACES", 24)
    parsed(sweep=sweep)
    monkeypatch.setattr("wanbed.runner.resolve.experiment.MAX_PLACES", 23)
    with pytest.raises(InputError, match=r"training.stages: 24 hosts and GPUs that compute a stage, .*, more than 23:"):
        parsed(sweep=sweep)


durations = st.sampled_from(["0ns", "1ns", "20ms", "1s", "3600s", "86400s"])

sizes = st.sampled_from(["1B", "1MiB", "1GiB", "100GiB", "4096GiB"])

rates = st.sampled_from(["1bit", "1kbit", "1Mbit", "10Gbit", "1000Tbit", "unlimited"])

changes_of_everything = st.fixed_dictionaries(
    {
        "topology.wan": st.fixed_dictionaries(
            {"latency": st.sampled_from(["0ns", "1ns", "20ms", "60s"]), "rate": rates},
        ),
        "topology.intra": st.fixed_dictionaries({"rate": rates}),
        "compute": st.fixed_dictionaries(
            {"forward": durations, "recompute": durations, "activation": sizes, "gradient": sizes}
        ),
        "training.iterations": st.just(2),
        "variants": st.tuples(
            st.fixed_dictionaries(
                {
                    "name": st.just("a"),
                    "schedule": st.sampled_from(["gpipe", "varuna", "atlas"]),
                    "transport": st.fixed_dictionaries(
                        {
                            "window": st.sampled_from(["16KiB", "6MiB", "511MiB"]),
                            "connections": st.sampled_from([1, 64, "auto"]),
                            "sharing": st.sampled_from(["none", "temporal"]),
                        }
                    ),
                }
            )
        ),
    }
)


@given(changes_of_everything)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_accepted_trials_stay_within_the_limits(changes: dict[str, Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("wanbed.runner.resolve.trial_extent.MAX_WINDOWS", 10_000)
        try:
            experiment = parsed(**changes)
        except InputError as refused:
            assert "give less" in str(refused)  # noqa: PT017 - either way is right
            return
    (point,) = experiment.points()
    variant = point.variants[0]
    simulation = simulate_variant(point.topology, variant, 2, effects=effects_of(variant.transport))
    assert int(simulation.spans.start_ns.min()) >= 0
    assert int(simulation.spans.end_ns.max()) <= MAX_TRIAL_NS
    for traffic in simulation.traffic:
        assert (traffic.wire_bytes[1:] >= traffic.wire_bytes[:-1]).all()


EXTENT = "wanbed.runner.resolve.trial_extent."

BY_HAND: dict[str, Any] = {
    "topology.wan": {"latency": "0ns", "rate": "100Mbit"},
    "topology.intra": {"latency": "0ns", "rate": "1Gbit"},
    "compute": {
        "forward": "20ms",
        "backward": "40ms",
        "recompute": "10ms",
        "optimizer": "5ms",
        "activation": "1MB",
        "gradient": "1MB",
    },
    "variants": [{"name": "a", "schedule": "gpipe", "transport": {"model": "ideal"}}],
    "engine": "simulate",
}
"""Two pipelines of two stages, two microbatches and three iterations: 12 microbatches at each stage and boundary."""


def with_transport(schedule: str = "gpipe", **transport: Any) -> dict[str, Any]:
    return {"variants": [{"name": "a", "schedule": schedule, "transport": transport}]}


def refused_field(monkeypatch: pytest.MonkeyPatch, limit: str, value: float, **changes: Any) -> str | None:
    """Return the field that is refused with this limit, None if all is taken."""
    monkeypatch.setattr(EXTENT + limit, value)
    try:
        parsed(**{**BY_HAND, **changes})
    except InputError as refused:
        return str(refused).removeprefix("exp.yaml: ").split(": ")[0]
    return None


def assert_limits(monkeypatch: pytest.MonkeyPatch, limit: str, sums: dict[str, int], **changes: Any) -> None:
    """Assert that each field's sum, with those of the fields before, is taken exactly up to the limit."""
    for field, total in sums.items():
        assert refused_field(monkeypatch, limit, total - 1, **changes) == field
        assert refused_field(monkeypatch, limit, total, **changes) != field
    assert refused_field(monkeypatch, limit, total, **changes) is None


def test_the_time_of_a_trial_is_all_its_work_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each of 2 x 2 ranks computes 2 x 70 ms and 5 ms in an iteration; 24 transfers of 1 MB take 80 ms each; in rings
    # of 2 each of the 4 ranks sends 2 x 0.5 MB at 1 Gbit/s, three times.
    computed_ns, sent_ns, summed_ns = 12 * 145 * 10**6, 24 * 80 * 10**6, 4 * 3 * 2 * 4 * 10**6
    sums = {
        "compute.forward": computed_ns,
        "compute.activation": computed_ns + sent_ns,
        "compute.gradient": computed_ns + sent_ns + summed_ns,
    }
    assert_limits(monkeypatch, "MAX_TRIAL_NS", sums)


def test_transfers_of_a_cell_are_scattered_and_gathered_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    # The last stage of Atlas does not recompute its microbatches, of 10 ms each.
    alone_ns = 12 * 135 * 10**6 + 24 * 80 * 10**6 + 96 * 10**6
    twice_inside_ns = 24 * 2 * 8 * 10**6
    changes = with_transport("atlas", model="ideal", sharing="temporal")
    assert refused_field(monkeypatch, "MAX_TRIAL_NS", alone_ns + twice_inside_ns - 1, **changes) == "compute.gradient"
    assert refused_field(monkeypatch, "MAX_TRIAL_NS", alone_ns + twice_inside_ns, **changes) is None


def test_the_longer_of_a_backward_and_its_parts_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    compute = {**BY_HAND["compute"], "forward": "1ms", "recompute": "0ms", "optimizer": "0ms"}
    changes = {"compute": compute, "training": {**SMALL["training"], "pipelines": 1, "stages": 1}}
    assert refused_field(monkeypatch, "MAX_TRIAL_NS", 6 * 41 * 10**6 - 1, **changes) == "compute.forward"
    assert refused_field(monkeypatch, "MAX_TRIAL_NS", 6 * 41 * 10**6, **changes) is None


def test_the_bytes_of_a_trial_are_those_of_all_transfers_and_rings(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = {"compute.activation": 24 * 10**6, "compute.gradient": 24 * 10**6 + 4 * 3 * 2 * 500_000}
    assert_limits(monkeypatch, "MAX_TRIAL_BYTES", sums)


def test_spans_are_two_a_microbatch_and_stage_its_recompute_and_four_a_boundary(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert_limits(monkeypatch, "MAX_SPANS", {"training.iterations": 12 * (2 * 2 + 2 + 4)})
    compute = {**BY_HAND["compute"], "recompute": "0ms"}
    assert_limits(monkeypatch, "MAX_SPANS", {"training.iterations": 12 * (2 * 2 + 4)}, compute=compute)


def test_each_bucket_of_each_rank_and_iteration_has_a_span(monkeypatch: pytest.MonkeyPatch) -> None:
    # 1 MB in buckets of 4 KiB: 245 at most.
    changes = with_transport(model="ideal", all_reduce_overlap=True, bucket="4KiB")
    assert_limits(monkeypatch, "MAX_SPANS", {"variants.0.transport.bucket": 245 * 4 * 3}, **changes)


def test_windows_are_counted_along_one_direction_of_a_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    window_bytes = TransportSpec.model_validate({"window": "64KiB"}).window
    changes = {
        "topology.wan": {"latency": "20ms", "rate": "1Gbit"},
        "compute": {**BY_HAND["compute"], "activation": f"{10 * window_bytes}B"},
    }
    for connections, windows in ((1, 10), (2, 5)):
        assert_limits(
            monkeypatch,
            "MAX_WINDOWS",
            {"compute.activation": windows * 6},
            **changes,
            **with_transport(window="64KiB", connections=connections),
        )
    near = {**changes, "topology.wan": {"latency": "0ns", "rate": "1Gbit"}}
    assert refused_field(monkeypatch, "MAX_WINDOWS", 0, **near, **with_transport(window="64KiB")) is None


def test_segments_are_counted_where_packets_are_drawn_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    lossy = {"topology.wan": {"latency": "0ns", "rate": "100Mbit", "loss": "0.1%"}, **with_transport()}
    # 24 MB in segments of 1448 bytes.
    assert_limits(monkeypatch, "MAX_SEGMENTS", {"topology.wan": 24_000_000 // 1448}, **lossy)
    assert refused_field(monkeypatch, "MAX_SEGMENTS", 0, **with_transport()) is None
    assert refused_field(monkeypatch, "MAX_SEGMENTS", 0, **{**lossy, **with_transport(model="ideal")}) is None
    assert refused_field(monkeypatch, "MAX_SEGMENTS", 0, **{**lossy, "engine": "emulate"}) is None


def test_requests_are_at_least_those_that_come_while_the_slowest_stage_computes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes = {
        "topology.datacenters": [{"name": name, "hosts": 2, "serving_hosts": 1} for name in ("east", "west")],
        "prefill": {"rate": "100/s", "warmup": 1},
    }
    # Three iterations of two microbatches of 60 ms.
    assert_limits(monkeypatch, "MAX_REQUESTS", {"prefill.rate": 36}, **changes)


def trace_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: float, wan: dict[str, Any] | None = None
) -> str | None:
    """Return the field that is refused where a trace of 3 iterations is replayed with this limit, None for none.

    Rank 0 computes for 5 us and sends 1 MB to rank 1, which computes for 7 us; both all-reduce 2 MB.
    """
    ranks = {
        0: [computation(0, 5), message(NodeType.COMM_SEND_NODE, 1, (0, 1), 10**6, [0]), all_reduce(2, 2 * 10**6, [1])],
        1: [message(NodeType.COMM_RECV_NODE, 0, (0, 1), 10**6), computation(1, 7, [0]), all_reduce(2, 2 * 10**6, [1])],
    }
    write_trace(tmp_path / "t", ranks)
    document = {
        "topology": {
            "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
            "wan": wan or BY_HAND["topology.wan"],
        },
        "compute": {"trace": "t"},
        "variants": [{"name": "t", "transport": {} if wan else {"model": "ideal"}}],
        "engine": "simulate",
    }
    monkeypatch.setattr(EXTENT + limit, value)
    try:
        parse_experiment(document, "exp.yaml", tmp_path)
    except InputError as refused:
        return str(refused).removeprefix("exp.yaml: ").split(": ")[0]
    return None


@pytest.mark.parametrize(
    ("limit", "total", "field"),
    [
        # 80 ns a byte: 80 ms for the message, and 1 MB on both ways of a ring of two, twice.
        ("MAX_TRIAL_NS", 3 * (12_000 + 80 * 10**6 + 4 * 80 * 10**6), "compute.trace"),
        ("MAX_TRIAL_BYTES", 3 * (10**6 + 4 * 10**6), "compute.trace"),
        ("MAX_SPANS", 3 * 6, "training.iterations"),
    ],
)
def test_a_trace_is_limited_by_all_its_nodes_in_all_iterations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, total: int, field: str
) -> None:
    assert trace_field(tmp_path, monkeypatch, limit, total - 1) == field
    assert trace_field(tmp_path, monkeypatch, limit, total) is None


def test_segments_and_windows_of_a_trace_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lossy = {"latency": "20ms", "rate": "10Gbit", "loss": "0.1%"}
    segments = 15 * 10**6 // 1448
    assert trace_field(tmp_path, monkeypatch, "MAX_SEGMENTS", segments - 1, lossy) == "topology.wan"
    assert trace_field(tmp_path, monkeypatch, "MAX_SEGMENTS", segments, lossy) is None
    monkeypatch.undo()
    windows = 3 * 5 * (10**6 // TransportSpec().window)
    assert trace_field(tmp_path, monkeypatch, "MAX_WINDOWS", windows, lossy) is None
