"""Which variants add gradients up over several flushes, and which cannot."""

from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.errors import InputError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.pipeline_variant import PipelineVariant
from wanbed.workloads.compute.backends.replay_backend import ReplayBackend
from wanbed.workloads.message import MessageKind


def variants(training: dict[str, Any], *written: dict[str, Any], **changes: Any) -> tuple[PipelineVariant, ...]:
    found = (
        parse_experiment(
            {
                "topology": {
                    "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
                    "wan": {"latency": "10ms", "rate": "1Gbit"},
                },
                "compute": {"forward": "1ms", "backward": "2ms", "activation": "1KB", "gradient": "1KB"},
                "training": {"pipelines": 2, "stages": 2, "microbatches": 4, "iterations": 5, **training},
                "variants": [{"name": f"v{number}", **each} for number, each in enumerate(written)],
                **changes,
            },
            "exp.yaml",
            Path(),
        )
        .points()[0]
        .variants
    )
    pipelines = tuple(each for each in found if isinstance(each, PipelineVariant))
    assert len(pipelines) == len(found)
    return pipelines


def test_an_iteration_has_the_microbatches_of_all_its_flushes() -> None:
    one, other = variants(
        {"accumulate": 3},
        {"schedule": "1f1b"},
        {"schedule": "gpipe", "training": {"accumulate": 1, "microbatches": 12}},
    )
    assert [each.microbatches for each in (one, other)] == [12, 12]
    assert [each.sequences_per_iteration for each in (one, other)] == [24, 24]
    assert [each.shape.flush.microbatches for each in (one, other)] == [4, 12]
    assert [each.document().get("accumulate") for each in (one, other)] == [3, None]


def test_replicas_sum_once_unless_it_says_otherwise() -> None:
    once, every = variants(
        {"accumulate": 2}, {"schedule": "1f1b"}, {"schedule": "1f1b", "training": {"summed": "every flush"}}
    )
    assert [each.sums_an_iteration for each in (once, every)] == [1, 2]
    assert [each.document().get("summed") for each in (once, every)] == [None, "every flush"]


def test_there_is_nothing_to_sum_of_one_pipeline_and_nothing_more_of_one_flush() -> None:
    every = {"summed": "every flush"}
    (alone,) = variants({"accumulate": 2, "pipelines": 1, **every}, {"schedule": "1f1b"})
    (single,) = variants(every, {"schedule": "1f1b"})
    assert [each.sums_an_iteration for each in (alone, single)] == [1, 1]


@pytest.mark.parametrize("schedule", ["atlas", "zb-2p"])
def test_the_turns_of_a_plan_repeat_in_each_flush(schedule: str) -> None:
    shared = {"sharing": "temporal", "pipelines_per_cell": 2}
    one, several = variants(
        {"accumulate": 3},
        {"schedule": schedule, "transport": shared, "training": {"accumulate": 1, "microbatches": 12}},
        {"schedule": schedule, "transport": shared},
    )
    assert one.plan is not None
    assert one.turns(MessageKind.ACTIVATION, 0) == one.plan.activation_turns[0]
    assert several.plan is not None
    for kind, planned in (
        (MessageKind.ACTIVATION, several.plan.activation_turns[0]),
        (MessageKind.GRADIENT, several.plan.gradient_turns[0]),
    ):
        assert {microbatch for _, microbatch in planned} == set(range(4))
        assert several.turns(kind, 0) == tuple(
            (mate, 4 * flush + microbatch) for flush in range(3) for mate, microbatch in planned
        )


@pytest.mark.parametrize(
    ("training", "variant", "message"),
    [
        (
            {"accumulate": 1024, "microbatches": 8},
            {"schedule": "1f1b"},
            "training.accumulate: 1024 flushes of 8 microbatches are 8192 an iteration, more than 4096: give fewer of "
            "either",
        ),
        (
            {"accumulate": 2},
            {"schedule": "torch-1f1b"},
            "training.accumulate: torch itself runs torch-1f1b, one flush an iteration: give 1, and as many more "
            "microbatches",
        ),
        (
            {},
            {
                "schedule": "atom",
                "options": {"sync_every": 2, "swap": "12GB/s"},
                "training": {"accumulate": 2},
            },
            "variants.0.training.accumulate: atom adds up gradients over the microbatches of a pass, through which "
            "each group of layers goes once: give 1, and as many more microbatches",
        ),
        (
            {"accumulate": 2, "summed": "every flush"},
            {"schedule": "diloco", "options": {"sync_every": 2}},
            "training.summed: replicas that train alone sum no gradients: give once",
        ),
        (
            {"accumulate": 2},
            {
                "schedule": "1f1b",
                "training": {"summed": "every flush"},
                "transport": {"all_reduce_overlap": True},
            },
            "variants.0.training.summed: all-reduces beside backwards follow the last backward of an iteration: give "
            "once, or leave transport.all_reduce_overlap out",
        ),
    ],
)
def test_what_it_does_not_go_with_is_refused_in_one_line(
    training: dict[str, Any], variant: dict[str, Any], message: str
) -> None:
    torch = {"compute": {"kind": "torch", "checkpointing": False}} if "torch" in variant["schedule"] else {}
    model = {"model": {"layers": 4, "hidden": 64, "context": 64, "heads": 4, "vocabulary": 256}}
    given = {**model, **torch} if variant["schedule"] in {"torch-1f1b", "atom"} else {}
    with pytest.raises(InputError) as refused:
        variants(training, variant, **given)
    assert message in str(refused.value)


def test_a_back_end_that_keeps_no_sum_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplayBackend, "sums_flushes", False)
    variants({"accumulate": 2}, {"schedule": "1f1b"})
    with pytest.raises(InputError, match=r"training\.summed: .* keeps no sum of a flush: give once"):
        variants({"accumulate": 2, "summed": "every flush"}, {"schedule": "1f1b"})


def test_replicas_that_train_alone_add_up_flushes_of_their_own() -> None:
    (alone,) = variants({"accumulate": 2}, {"schedule": "diloco", "options": {"sync_every": 2}})
    assert (alone.flushes, alone.microbatches, alone.sums_an_iteration) == (2, 8, 1)
