"""Into how many parts a training divides that do the same at the same time."""

from typing import Any

import pytest

from tests.runner.simulator.variants import sweep_point
from wanbed.runner.simulator.equal_parts import equal_parts


def parts(
    *, pipelines: int = 4, hosts: int = 4, gpus: int = 1, stages: int = 2, gradient: str = "1MiB", **changes: Any
) -> int:
    """Pipelines of a stage in the east and one in the west, each on hosts of its own."""
    document = {
        "topology": {
            "datacenters": [{"name": name, "hosts": hosts, "gpus_per_host": gpus} for name in ("east", "west")],
            "wan": {"latency": "10ms", "rate": "1Gbit"},
        },
        "compute": {"forward": "10ms", "activation": "1KiB", "gradient": gradient, **changes.pop("compute", {})},
        "training": {"stages": stages, "pipelines": pipelines, "microbatches": 4, "iterations": 1, "warmup": 0},
        "engine": "simulate",
        "variants": [{"name": "v", "schedule": "gpipe", "placement": ["east", "west"], **changes.pop("variant", {})}],
    }
    return equal_parts(sweep_point(document).variants[0])


def test_pipelines_on_hosts_of_their_own_are_all_equal() -> None:
    assert [parts(pipelines=count) for count in (1, 2, 3, 4)] == [1, 2, 3, 4]


@pytest.mark.parametrize(("pipelines", "equal"), [(2, 1), (4, 2), (8, 4)])
def test_pipelines_that_share_hosts_are_one_part(pipelines: int, equal: int) -> None:
    assert parts(pipelines=pipelines, hosts=pipelines // 2, gpus=2) == equal


def test_hosts_that_hold_unequal_numbers_of_pipelines_make_parts_unequal() -> None:
    # Two hosts of two GPUs hold three pipelines: two and one.
    assert parts(pipelines=3, hosts=2, gpus=2) == 1


@pytest.mark.parametrize(
    ("slower", "equal"), [([0], 1), ([0, 1], 1), ([0, 2], 2), ([1, 3], 2), ([0, 1, 2], 1), ([0, 1, 2, 3], 4)]
)
def test_parts_have_equal_gpus(slower: list[int], equal: int) -> None:
    assert parts(compute={"slower": [{"pipeline": each, "factor": 2} for each in slower]}) == equal


def test_drawn_times_make_every_pipeline_differ() -> None:
    assert parts(compute={"jitter": {"distribution": "gamma", "spread": "20%"}}) == 1


@pytest.mark.parametrize(("gradient", "equal"), [("3B", 1), ("4B", 4)])
def test_a_ring_of_equal_parts_has_no_empty_segment(gradient: str, equal: int) -> None:
    assert parts(gradient=gradient) == equal


def test_a_stage_in_two_datacenters_is_not_cut() -> None:
    assert parts(variant={"placement": [["east", "west"], ["east", "west"], ["west", "east"], ["west", "east"]]}) == 1


@pytest.mark.parametrize(("cell", "equal"), [(1, 4), (2, 2), (4, 1)])
def test_a_cell_is_never_cut(cell: int, equal: int) -> None:
    assert (
        parts(variant={"schedule": "atlas", "transport": {"sharing": "temporal", "pipelines_per_cell": cell}}) == equal
    )
