"""Activations that are encoded over the WAN take as long as messages of their size, and actions of their length."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.runner.small_experiment import sweep_point
from wanbed.runner.resolve.pipeline_resolution import Layout, resolve_pipeline
from wanbed.runner.resolve.written_variant import WrittenVariant
from wanbed.runner.simulator.simulation import Simulation
from wanbed.runner.simulator.variant_simulation import simulate_variant

US = 1000
BLOCK_BYTES = {"int8": 1028, "fp8": 1028, "fp4": 516, "topk": 32 * 4}
"""The bytes on the wire of 1024 numbers; of topk with 32 of them."""
SCHEDULES = ("gpipe", "1f1b", "eager-1f1b", "varuna", "zb-h1", "atlas", "zb-2p")
KiB = 2**10


def document(schedule: str, homes: list[str], times: Mapping[str, Any], **transport: Any) -> dict[str, Any]:
    pipelines = 2 if transport.get("sharing") == "temporal" else 1
    return {
        "topology": {
            "datacenters": [{"name": name, "hosts": pipelines * homes.count(name)} for name in dict.fromkeys(homes)],
            "intra": {"latency": "100us", "rate": "10Gbit"},
            "wan": {"latency": "8ms", "node_pair_rate": "200Mbit"},
        },
        "compute": {"gradient": "1kB", **times},
        "training": {"stages": len(homes), "pipelines": pipelines, "microbatches": 4},
        "variants": [{"name": "v", "schedule": schedule, "placement": homes, "transport": transport}],
    }


def simulated(described: Mapping[str, Any]) -> Simulation:
    point = sweep_point(described)
    return simulate_variant(point.topology, point.variants[0], 2)


def durations(times_us: list[int]) -> list[str]:
    return [f"{each}us" for each in times_us]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_simulation_is_that_of_the_sizes_and_times_written_out(data: st.DataObject) -> None:
    schedule, wire = data.draw(st.sampled_from(SCHEDULES)), data.draw(st.sampled_from(sorted(BLOCK_BYTES)))
    east, west = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    homes, last = ["east"] * east + ["west"] * west, east + west - 1
    # Whole blocks of 16-bit numbers, and rates by which each takes whole microseconds.
    blocks = [data.draw(st.integers(1, 60)) for _ in range(last)]
    encode_us, decode_us = (data.draw(st.integers(0, 5)) for _ in range(2))
    rates = {
        name: f"{2 * KiB * 10**6 // each_us}B/s"
        for name, each_us in (("encode", encode_us), ("decode", decode_us))
        if each_us and 2 * KiB * 10**6 % each_us == 0
    }
    encode_us = encode_us if "encode" in rates else 0
    decode_us = decode_us if "decode" in rates else encode_us
    forward, backward = ([data.draw(st.integers(1, 40)) * 1000 for _ in homes] for _ in range(2))
    weight = [each // 2 for each in backward]
    transport: dict[str, Any] = {"connections": data.draw(st.sampled_from([1, 4]))}
    if schedule != "zb-h1" and data.draw(st.booleans()):
        transport |= {"sharing": "temporal", "pipelines_per_cell": 2}
    activation = {"wire": wire, **({"kept": "3.125%"} if wire == "topk" else {}), **rates}
    plain = {
        "forward": durations(forward),
        "backward": durations(backward),
        "backward_weight": durations(weight),
        "activation": [f"{2 * each}KiB" for each in blocks],
    }
    encoded = simulated(document(schedule, homes, plain, activation=activation, **transport))

    crossing, count = east - 1, blocks[east - 1]
    forward[crossing] += count * encode_us
    forward[crossing + 1] += count * decode_us
    backward[crossing] += count * decode_us
    backward[crossing + 1] += count * encode_us
    sizes = [f"{2 * KiB * each}B" for each in blocks]
    sizes[crossing] = f"{count * BLOCK_BYTES[wire]}B"
    written = plain | {"forward": durations(forward), "backward": durations(backward), "activation": sizes}
    by_hand = simulated(document(schedule, homes, written, **transport))
    for column in fields(encoded.spans):
        np.testing.assert_array_equal(
            getattr(encoded.spans, column.name), getattr(by_hand.spans, column.name), err_msg=column.name
        )


@pytest.mark.parametrize("schedule", ["atlas", "zb-2p"])
def test_a_plan_is_made_with_the_bytes_on_the_wire(schedule: str) -> None:
    times = {"forward": "1ms", "activation": "1MiB"}

    def planned_ms(**transport: Any) -> float:
        (variant,) = sweep_point(document(schedule, ["east", "west"], times, **transport)).variants
        plan = getattr(variant, "plan", None)
        assert plan is not None
        return plan.period_ns / 1e6

    # 1 MiB over 200 Mbit/s lasts 44 ms, far longer than a stage computes.
    assert planned_ms(activation={"wire": "topk", "kept": "1%"}) < 0.7 * planned_ms(activation={"wire": "int8"})
    assert planned_ms(activation={"wire": "int8"}) < 0.7 * planned_ms()


def test_a_placement_of_the_planner_inside_one_datacenter_encodes_nothing() -> None:
    described = document(
        "gpipe", ["east", "west"], {"forward": "10ms", "activation": "1MiB"}, activation={"wire": "int8"}
    )
    described["topology"]["datacenters"] = [{"name": name, "hosts": 2} for name in ("east", "west")]
    point = sweep_point(described)
    written = WrittenVariant(point.spec, 0, point.topology, Path())
    inside = resolve_pipeline(written, Layout(2, 1, 1, ("east", "east")))
    across = resolve_pipeline(written, Layout(2, 1, 1, ("east", "west")))
    assert (inside.encoded, inside.work.activation_bytes) == (None, (2**20,))
    assert across.work.activation_bytes == (512 * 1028,)
