"""Activations that are encoded over the WAN: bytes on the wire, times of actions, memory, and what is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.present import present
from tests.support.refused import refused
from tests.support.runner.small_experiment import small, sweep_point
from wanbed.runner.resolve.cell_costs import cell_costs
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.runner.resolve.stage_memory import StageMemory
from wanbed.workloads.compute.activation_wire import ActivationWire, EncodedBoundaries
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.schedules.pipeline_shape import VirtualStages
from wanbed.workloads.synchronization.synchronization import WireFormat

MS = 10**6
MIB = 2**20
INT8 = {"wire": "int8"}


def resolved(activation: dict[str, Any] | None, schedule: str = "1f1b", **sections: Any) -> PipelineVariant:
    transport = {**sections.pop("transport", {}), **({} if activation is None else {"activation": activation})}
    variant = {"name": "v", "schedule": schedule, "transport": transport, **sections.pop("variant", {})}
    sections.setdefault("training", {"stages": 4, "microbatches": 4})
    (found,) = sweep_point(small(variants=[variant], **sections)).variants
    assert isinstance(found, PipelineVariant)
    return found


@pytest.mark.parametrize(
    ("activation", "precision", "block_bytes"),
    [
        (INT8, "bf16", 4 + 1024),
        ({"wire": "fp8"}, "fp32", 4 + 1024),
        ({"wire": "fp4"}, "bf16", 4 + 512),
        ({"wire": "bf16"}, "fp32", 2048),
        ({"wire": "fp16"}, "fp32", 2048),
        # 10.24 of 1024 numbers, each of 2 bytes after a place of 2.
        ({"wire": "topk", "kept": "1%"}, "bf16", 10 * 4),
        ({"wire": "topk", "kept": "0.01%"}, "bf16", 4),
        ({"wire": "topk", "kept": "25%"}, "fp32", 256 * 4),
    ],
)
def test_what_crosses_the_wan_has_the_bytes_of_its_format(
    activation: dict[str, Any], precision: str, block_bytes: int
) -> None:
    training = {"stages": 4, "microbatches": 4, "precision": precision}
    blocks = MIB // {"bf16": 2, "fp32": 4}[precision] // 1024
    work = resolved(activation, training=training).work
    assert work.activation_bytes == (MIB, blocks * block_bytes, MIB)


def test_encoding_and_decoding_are_parts_of_the_actions_that_make_and_take_a_message() -> None:
    # 1 MiB takes 1 ms to encode, and half of that to decode.
    activation = {**INT8, "encode": "1000MiB/s", "decode": "2000MiB/s"}
    plain, encoded = resolved(None, "zb-h1").work, resolved(activation, "zb-h1").work
    added = {
        name: tuple(later - before for before, later in zip(getattr(plain, name), getattr(encoded, name), strict=True))
        for name in ("forward_ns", "backward_ns", "backward_input_ns", "backward_weight_ns", "recompute_ns")
    }
    none = (0,) * 4
    assert added == {
        "forward_ns": (0, MS, MS // 2, 0),
        "backward_ns": (0, MS // 2, MS, 0),
        "backward_input_ns": (0, MS // 2, MS, 0),
        "backward_weight_ns": none,
        "recompute_ns": none,
    }


def test_decoding_takes_as_long_as_encoding_unless_it_has_a_rate_and_neither_takes_time_by_default() -> None:
    assert resolved({**INT8, "encode": "1000MiB/s"}).work.forward_ns == (10 * MS, 11 * MS, 11 * MS, 10 * MS)
    assert resolved(INT8).work.forward_ns == (10 * MS,) * 4
    assert resolved({**INT8, "decode": "1000MiB/s"}).work.forward_ns == (10 * MS, 10 * MS, 11 * MS, 10 * MS)


def test_the_format_of_the_precision_encodes_nothing() -> None:
    activation = {"wire": "bf16", "encode": "1MB/s"}
    assert resolved(activation).work == resolved(None).work
    assert resolved(activation).encoded is None


def test_a_boundary_that_crosses_the_wan_in_one_pipeline_is_encoded_in_all() -> None:
    places = [["east", "east", "west", "west"], ["east", "west", "west", "west"]]
    topology = {
        "datacenters": [{"name": "east", "hosts": 3}, {"name": "west", "hosts": 5}],
        "wan": {"latency": "40ms", "rate": "1Gbit"},
    }
    variant = resolved(
        INT8,
        topology=topology,
        compute={"forward": "10ms", "activation": "1MiB", "gradient": "1MiB"},
        training={"stages": 4, "microbatches": 4, "pipelines": 2},
        variant={"placement": places},
    )
    assert present(variant.encoded).boundaries == (0, 1)


def test_virtual_stages_encode_each_time_that_the_model_crosses_the_wan() -> None:
    training = {"stages": 4, "microbatches": 4, "virtual_stages": 2}
    activation = {**INT8, "encode": "1000MiB/s"}
    plain, variant = (resolved(each, "interleaved-1f1b", training=training) for each in (None, activation))
    # Parts 0 and 1 are in the east, 2 and 3 in the west, 4 and 5 in the east again, 6 and 7 in the west.
    assert present(variant.encoded).boundaries == (1, 3, 5)
    parts = present(variant.work.virtual)
    before = present(plain.work.virtual).forward_ns
    added = [after_ns - before_ns for before_ns, after_ns in zip(before, parts.forward_ns, strict=True)]
    assert added == [0, MS, MS, MS, MS, MS, MS, 0]
    assert parts.activation_bytes == variant.work.activation_bytes
    assert variant.work.forward_ns == tuple(parts.forward_ns[stage] + parts.forward_ns[stage + 4] for stage in range(4))


def test_ranks_and_plans_know_what_is_encoded() -> None:
    variant = resolved({"wire": "topk", "kept": "10%", "error_feedback": True}, "atlas")
    assert variant.encoded == EncodedBoundaries(ActivationWire(WireFormat.BF16, 102, error_feedback=True), (1,))
    point = sweep_point(small(training={"stages": 4, "microbatches": 4}))
    occupied = [each.occupancy_ns for each in cell_costs(point.topology, variant).boundaries]
    plain = [each.occupancy_ns for each in cell_costs(point.topology, resolved(None, "atlas")).boundaries]
    assert [occupied[0], occupied[2]] == [plain[0], plain[2]]
    # 10 % of 16-bit numbers, with places of 16 bits.
    assert occupied[1] == pytest.approx(plain[1] * 102 * 4 / 2048, rel=1e-3)
    # Variants are compared by what they compute and send before it is encoded.
    assert variant.document()["work"] == resolved(None, "atlas").document()["work"]
    assert variant.document()["activation"] == {
        "encoded_bytes": [512 * 102 * 4],
        "wire": "topk",
        "kept_of_1024": 102,
        "error_feedback": True,
        "boundaries": [1],
    }


@given(
    st.sampled_from(["int8", "fp8", "fp4", "topk"]), st.integers(1, 40), st.integers(1, 100), st.sampled_from([2, 4])
)
def test_no_size_is_larger_than_the_numbers_and_one_more_block(
    wire: str, kept: int, kibibytes: int, element_bytes: int
) -> None:
    activation = {"wire": wire, **({"kept": f"{kept}%"} if wire == "topk" else {})}
    size_bytes = kibibytes * 1024 + kept
    precision = {2: "bf16", 4: "fp32"}[element_bytes]
    training = {"stages": 2, "microbatches": 1, "precision": precision}
    compute = {"forward": "10ms", "activation": f"{size_bytes}B"}
    (found,) = resolved(activation, training=training, compute=compute).work.activation_bytes
    assert found < size_bytes + 1024 * element_bytes


def test_error_feedback_takes_the_memory_of_what_a_stage_sends_in_an_iteration() -> None:
    def memory(activation: dict[str, Any] | None) -> list[int]:
        variant = resolved(
            activation,
            model="gpt-b",
            compute={"profile": "a100", "checkpointing": False},
            training={"stages": 4, "microbatches": 4, "accumulate": 2, "memory": "2000GiB"},
        )
        return list(present(variant.memory).first_bytes)

    plain, without = memory(None), memory({"wire": "topk", "kept": "1%"})
    fed_back = memory({"wire": "topk", "kept": "1%", "error_feedback": True})
    numbers = 6144 * 8192
    assert plain == without
    added = [after - before for before, after in zip(plain, fed_back, strict=True)]
    # Stage 1 sends 8 activations over the WAN, and stage 2 as many gradients: fp32, and a tenth more for fragmentation.
    assert added == [0, *[pytest.approx(1.1 * 8 * numbers * 4, abs=2)] * 2, 0]


def test_the_memory_of_a_stage_has_the_residues_of_its_parts() -> None:
    config = GptConfig(layers=12, hidden=8192, context=6144, heads=64, vocabulary=50_304)
    memory = StageMemory(config, "bf16", VirtualStages(2, 2), (False,) * 2, splits=False)
    kept = StageMemory(
        config, "bf16", VirtualStages(2, 2), (False,) * 2, splits=False, residues_bytes=(1, 20, 300, 4000)
    )
    added = [kept.of(stage, 1).activation_bytes - memory.of(stage, 1).activation_bytes for stage in range(2)]
    assert added == [301, 4020]


ONE_DATACENTER = {"datacenters": [{"name": "east", "hosts": 4}]}


@pytest.mark.parametrize(
    ("activation", "sections", "refusal"),
    [
        (
            {"wire": "fp32"},
            {},
            "activation: fp32 takes 4096 bytes where the bf16 of training.precision takes 2048: give a smaller format, "
            "or leave activation out",
        ),
        ({"wire": "fp16"}, {}, "activation: fp16 takes 2048 bytes where the bf16 of training.precision takes 2048"),
        (
            {"wire": "topk", "kept": "50%"},
            {},
            "activation.kept: topk takes 2048 bytes where the bf16 of training.precision takes 2048: give a smaller "
            "share, or leave activation out",
        ),
        (
            {"wire": "bf16", "error_feedback": True},
            {},
            "activation.error_feedback: bf16 of training.precision goes as it is, and nothing is lost: give another",
        ),
        (
            INT8,
            {"topology": ONE_DATACENTER},
            "activation: no two neighbouring stages are in different datacenters, and nothing is encoded inside one: "
            "give a placement, or leave activation out",
        ),
        (
            INT8,
            {"variant": {"schedule": "dp"}, "training": {"stages": 1}},
            "activation: dp has no stages, between which activations go: leave activation out",
        ),
        (
            INT8,
            {
                "variant": {"schedule": "atom", "options": {"swap": "12GB/s", "sync_every": 1}},
                "training": {"stages": 1, "pipelines": 2},
            },
            "activation: atom has no stages, between which activations go: leave activation out",
        ),
        (
            INT8,
            {"variant": {"schedule": "torch-gpipe"}, "compute": {"kind": "torch", "checkpointing": False}},
            "activation: torch's Gloo makes its own connections: leave activation out",
        ),
    ],
)
def test_what_cannot_be_encoded_is_refused_in_one_line(
    activation: dict[str, Any], sections: dict[str, Any], refusal: str
) -> None:
    line = refused(lambda: resolved(activation, **sections))
    assert line.removeprefix("exp.yaml: ").startswith(f"variants.0.transport.{refusal}")
