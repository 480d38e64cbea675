"""schedule: atom: its groups, the time of its iterations, and what it is refused with."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.refused import refused
from tests.support.runner.small_experiment import sweep_point
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.resolve.tcp_effects import IDEAL
from wanbed.runner.simulator.variant_simulation import simulate_variant
from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.grouping import Grouping, SwappedLayer, SwappedModel, best_grouping
from wanbed.workloads.profiles.catalogue import load_profile

MODEL = {"layers": 12, "hidden": 256, "context": 128, "heads": 4, "vocabulary": 1000}

CONFIG = GptConfig(**MODEL)

OPTIONS = {"sync_every": 2, "swap": "500MB/s", "memory": "8MB"}

MS = 10**6


def document(options: dict[str, Any], **changes: Any) -> dict[str, Any]:
    variant = {"name": "atom", "schedule": "atom", "options": options, **changes.pop("variant", {})}
    return {
        "engine": "simulate",
        "topology": {
            "datacenters": [{"name": name, "hosts": 1} for name in ("east", "central", "west")],
            "wan": {"latency": "20ms", "rate": "1Gbit"},
        },
        "model": MODEL,
        "compute": {"forward": "24ms", "backward": "48ms", "optimizer": "2ms"},
        "training": {"pipelines": 3, "microbatches": 4, "iterations": 5, "warmup": 1},
        "variants": [variant],
        **changes,
    }


def point(options: dict[str, Any], **changes: Any) -> SweepPoint:
    return sweep_point(document(options, **changes))


def refusal(options: dict[str, Any], **changes: Any) -> str:
    return refused(lambda: point(options, **changes)).removeprefix("exp.yaml: ")


def grouping(options: dict[str, Any], **changes: Any) -> Grouping:
    (variant,) = point(options, **changes).variants
    assert variant.grouping is not None
    return variant.grouping


def test_layers_share_written_times_and_have_the_weights_of_the_model() -> None:
    found = grouping(OPTIONS)
    layers = tuple(SwappedLayer(2 * MS, 4 * MS, CONFIG.gradient_bytes(layer, 12, "bf16")) for layer in range(12))
    assert found == best_grouping(SwappedModel(layers, 4, 500 * 10**6, 8 * 10**6))
    assert len(found.sizes) > 1


def test_layers_have_the_times_of_a_profile() -> None:
    found = grouping(OPTIONS, compute={"profile": "a100"})
    each = load_profile("a100", relative_to=Path()).stage_times(CONFIG, 12)
    assert [layer.forward_ns for layer in found.model.layers] == [layer.forward_ns for layer in each]
    assert [layer.backward_ns for layer in found.model.layers] == [
        layer.backward_ns + layer.recompute_ns for layer in each
    ]


@pytest.mark.parametrize("swap", ["20MB/s", "500MB/s", "12GB/s"])
@pytest.mark.parametrize("memory", [None, "5MB", "8MB"])
@pytest.mark.parametrize("compute", [{"forward": "24ms", "recompute": "7ms", "optimizer": "2ms"}, {"profile": "a100"}])
def test_a_simulated_iteration_takes_the_time_of_the_formula(
    swap: str, memory: str | None, compute: dict[str, str]
) -> None:
    options = {"sync_every": 2, "swap": swap, **({} if memory is None else {"memory": memory})}
    found = point(options, compute=compute)
    (variant,) = found.variants
    assert variant.grouping is not None
    simulated = simulate_variant(found.topology, variant, 1, effects=IDEAL)
    # An iteration after which nothing is synchronised.
    (begin_ns, end_ns) = simulated.windows_ns[0]
    assert end_ns - begin_ns == variant.grouping.iteration_ns + variant.work.optimizer_ns[0]


def test_a_period_takes_its_iterations_and_the_way_of_the_average_there_and_back() -> None:
    found = point({**OPTIONS, "quorum": 3})
    (variant,) = found.variants
    assert variant.grouping is not None
    ends_ns = [end_ns for _, end_ns in simulate_variant(found.topology, variant, 4, effects=IDEAL).windows_ns]
    # Both replicas have a trunk of their own to the one that gathers.
    (size_bytes,) = variant.fragments_bytes(0)
    there_and_back_ns = 2 * (size_bytes * 8 + 20 * MS)
    iteration_ns = variant.grouping.iteration_ns + variant.work.optimizer_ns[0]
    assert ends_ns[3] - ends_ns[1] == pytest.approx(2 * iteration_ns + there_and_back_ns, abs=10)


def test_with_a_quorum_no_one_waits_for_a_replica_far_away() -> None:
    links = [{"between": ["east", "west"], "latency": "400ms"}]
    topology = {**document(OPTIONS)["topology"], "links": links}
    ends_ns = []
    for quorum in (3, 2):
        found = point({**OPTIONS, "quorum": quorum}, topology=topology)
        (variant,) = found.variants
        spans = simulate_variant(found.topology, variant, 4, effects=IDEAL).spans
        ends_ns.append([int(spans.end_ns[spans.rank == rank].max()) for rank in range(3)])
    all_three, two = ends_ns
    assert all_three[0] - two[0] == pytest.approx(2 * 380 * MS + 380 * MS, rel=0.01)
    assert two[2] > two[0]


def test_the_document_has_the_groups() -> None:
    (variant,) = point(OPTIONS).variants
    written = variant.document()["swapping"]
    assert sum(written["layers_of_groups"]) == 12
    assert written["rate_bytes_per_s"] == 500 * 10**6


@pytest.mark.parametrize(
    ("options", "changes", "fault"),
    [
        ({"sync_every": 2}, {}, "variants.0.options.swap: "),
        ({**OPTIONS, "swap": "12GB"}, {}, "write it like 12GB/s"),
        ({**OPTIONS, "swap": "0B/s"}, {}, "is below 1B/s"),
        ({**OPTIONS, "memory": "1MB"}, {}, "variants.0.options.memory: 1000000B hold no group of the model's layers"),
        ({**OPTIONS, "inner": "1f1b"}, {}, "variants.0.options.inner"),
        ({**OPTIONS, "quorum": 4}, {}, "variants.0.options.quorum: 4, of 3 replicas: give 3 or less"),
        ({**OPTIONS, "quorum": 2, "topology": "ring"}, {}, "variants.0.options.quorum: a ring waits for all"),
        (
            OPTIONS,
            {"model": None, "compute": {"forward": "24ms", "gradient": "20MB"}},
            "model: schedule: atom, which swaps layers, needs one",
        ),
        (OPTIONS, {"variant": {"training": {"stages": 2}}}, "variants.0.training.stages: atom has the whole model"),
        (OPTIONS, {"variant": {"training": {"virtual_stages": 2}}}, "leave training.virtual_stages out"),
        (
            OPTIONS,
            {"compute": {"forward": "24ms", "jitter": {"distribution": "gamma", "spread": "5%"}}},
            "compute.jitter: atom groups layers",
        ),
        (
            OPTIONS,
            {"compute": {"forward": "24ms", "slower": [{"datacenter": "west", "factor": 1.5}]}},
            "compute.slower: atom groups layers",
        ),
        (
            OPTIONS,
            {"compute": {"kind": "torch", "checkpointing": False}, "engine": "emulate"},
            "compute.checkpointing: a group of atom computes its forward again",
        ),
        (
            OPTIONS,
            {"model": "gpt-a", "compute": {"profile": "a100", "checkpointing": [True]}},
            "compute.checkpointing: a list says it stage by stage, and atom has no stages: give true or false for all",
        ),
    ],
)
def test_what_atom_does_not_go_with_is_refused_in_one_line(
    options: dict[str, Any], changes: dict[str, Any], fault: str
) -> None:
    assert fault in refusal(options, **changes)
