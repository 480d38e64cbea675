"""Which variants' optimizer steps wait for all stages, and which cannot."""

from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.errors import InputError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.resolved_variant import ResolvedVariant


def variants(training: dict[str, Any], *written: dict[str, Any], **changes: Any) -> tuple[ResolvedVariant, ...]:
    return (
        parse_experiment(
            {
                "topology": {
                    "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
                    "wan": {"latency": "10ms", "rate": "1Gbit"},
                },
                "compute": {"forward": "1ms", "backward": "2ms", "activation": "1KB", "gradient": "1KB"},
                "training": {"pipelines": 2, "stages": 2, "iterations": 3, **training},
                "variants": [{"name": f"v{number}", **each} for number, each in enumerate(written)],
                **changes,
            },
            "exp.yaml",
            Path(),
        )
        .points()[0]
        .variants
    )


def test_a_variant_waits_as_the_experiment_says_unless_it_says_otherwise() -> None:
    own = {"training": {"optimizer_waits": "own"}}
    waiting, other = variants({"optimizer_waits": "all stages"}, {"schedule": "1f1b"}, {"schedule": "1f1b", **own})
    assert [waiting.waits_for_all, other.waits_for_all] == [True, False]
    assert [each.document().get("optimizer_waits") for each in (waiting, other)] == ["all stages", None]


def test_the_ring_of_the_norm_has_every_rank_and_enters_each_datacenter_once() -> None:
    waiting, other = variants(
        {}, {"schedule": "1f1b", "training": {"optimizer_waits": "all stages"}}, {"schedule": "1f1b"}
    )
    assert [place.datacenter for place in waiting.norm_ring] == ["east", "east", "west", "west"]
    assert other.norm_ring == ()
    assert len(waiting.pairs) > len(other.pairs)


def test_a_single_rank_has_no_ring() -> None:
    (alone,) = variants({"optimizer_waits": "all stages", "stages": 1, "pipelines": 1}, {"schedule": "gpipe"})
    assert alone.norm_ring == ()


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        ({"schedule": "diloco", "options": {"sync_every": 2}}, "the replicas of diloco train alone"),
        ({"schedule": "atom", "options": {"sync_every": 2, "swap": "12GB/s"}}, "the replicas of atom train alone"),
        ({"schedule": "torch-gpipe"}, "torch-gpipe is torch's own, which steps its optimizer itself"),
        ({"program": {"command": ["python", "train.py"]}}, "v0 runs a program, which steps its optimizer itself"),
    ],
)
def test_a_training_without_a_norm_of_all_stages_is_refused_with_the_field_that_says_so(
    schedule: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InputError) as refused:
        variants({"optimizer_waits": "all stages"}, schedule)
    assert f" training.optimizer_waits: all stages, but {reason}" in str(refused.value)
    assert str(refused.value).endswith(": give variants.0.training.optimizer_waits: own")
    with pytest.raises(InputError, match=r" variants\.0\.training\.optimizer_waits: all stages, but .*: give own$"):
        variants({}, {**schedule, "training": {"optimizer_waits": "all stages"}})


def test_the_hash_of_a_file_without_it_stays_what_it_was() -> None:
    document = {
        "topology": {"datacenters": [{"name": "east", "hosts": 2}]},
        "variants": [{"name": "v", "schedule": "1f1b", "training": {"stages": 2}}],
    }
    written = parse_experiment(document, "exp.yaml", Path()).spec.model_dump(mode="json")
    assert "optimizer_waits" not in str(written)
