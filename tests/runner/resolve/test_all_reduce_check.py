"""Sums of NCCL over the GPUs that a machine has."""

from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.errors import InputError, MissingError
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.all_reduce_check import check_collective_gpus
from wanbed.runner.resolve.resolved_variant import ResolvedVariant
from wanbed.testbed.gpus.gpu_assignment import GpuAssignment
from wanbed.workloads.compute.backends.replay_backend import ReplayBackend


def variants(all_reduce: str, *, hosts: int, gpus: int) -> tuple[ResolvedVariant, ...]:
    """Two replicas of one stage in one datacenter, behind a variant that uses no library."""
    transport: dict[str, Any] = {"transport": {"all_reduce": all_reduce}}
    return (
        parse_experiment(
            {
                "topology": {"datacenters": [{"name": "east", "hosts": hosts, "gpus_per_host": gpus}]},
                "model": "gpt-tiny",
                "compute": {"kind": "torch", "device": "cuda"},
                "training": {"stages": 1, "pipelines": 2, "microbatches": 2},
                "variants": [{"name": "a", "schedule": "dp"}, {"name": "b", "schedule": "dp", **transport}],
            },
            "exp.yaml",
            Path(),
        )
        .points()[0]
        .variants
    )


APART = GpuAssignment({"east-0": ("A",), "east-1": ("B",)})

SHARED = GpuAssignment({"east-0": ("A",), "east-1": ("A",)})

PARTS = GpuAssignment({"east-0": ("M1",), "east-1": ("M2",)}, {"M1": "A", "M2": "A"})

ONE_HOST = GpuAssignment({"east-0": ("A", "A")})

TWO_OF_A_HOST = GpuAssignment({"east-0": ("A", "B")})


def test_replicas_with_a_gpu_each_may_use_nccl() -> None:
    for name in ("nccl", "nccl-shared"):
        check_collective_gpus(variants(name, hosts=2, gpus=1), APART)
        check_collective_gpus(variants(name, hosts=1, gpus=2), TWO_OF_A_HOST)
    check_collective_gpus(variants("gloo", hosts=2, gpus=1), None)


@pytest.mark.parametrize("shared", [SHARED, PARTS], ids=["one GPU", "two instances of one"])
def test_replicas_that_share_a_gpu_on_two_hosts_may_try_it_and_not_otherwise(shared: GpuAssignment) -> None:
    check_collective_gpus(variants("nccl-shared", hosts=2, gpus=1), shared)
    with pytest.raises(
        MissingError, match=r"variants\.1\.transport\.all_reduce: nccl needs .* the 2 of stage 0 share 1"
    ):
        check_collective_gpus(variants("nccl", hosts=2, gpus=1), shared)


def test_replicas_on_one_host_need_gpus_of_their_own() -> None:
    with pytest.raises(MissingError, match="two of stage 0 on one host share a GPU here"):
        check_collective_gpus(variants("nccl-shared", hosts=1, gpus=2), ONE_HOST)


def test_a_machine_without_gpus_has_none_to_sum_on() -> None:
    for name in ("nccl", "nccl-shared"):
        with pytest.raises(MissingError, match="this machine offers none"):
            check_collective_gpus(variants(name, hosts=2, gpus=1), None)


@pytest.mark.parametrize(
    ("lacks", "variant", "words"),
    [
        (
            "completes_buckets",
            {"schedule": "dp", "transport": {"all_reduce_overlap": True}},
            "hands over its gradients after the last backward only",
        ),
        ("synchronizes", {"schedule": "diloco", "options": {"sync_every": 1}}, "does not synchronise replicas"),
        (
            "virtual_stages",
            {"schedule": "zb-v", "training": {"stages": 2, "virtual_stages": 2}},
            "computes undivided stages only",
        ),
    ],
)
def test_a_back_end_that_lacks_something_is_refused_where_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, lacks: str, variant: dict[str, Any], words: str
) -> None:
    def parse(**changes: Any) -> None:
        document = {
            "topology": {"datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}], "wan": {}},
            "compute": {"forward": "1ms", "activation": "1KiB", "gradient": "1KiB"},
            "training": {"stages": 1, "pipelines": 2, "microbatches": 4},
            "variants": [{"name": "v", **variant, **changes}],
        }
        parse_experiment(document, "exp.yaml", Path())

    parse()
    monkeypatch.setattr(ReplayBackend, lacks, False)
    with pytest.raises(InputError, match=words):
        parse()
    if lacks == "completes_buckets":
        parse(training={"pipelines": 1})
