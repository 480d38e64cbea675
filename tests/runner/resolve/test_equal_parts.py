"""Into how many parts a training divides that do the same at the same time."""

from typing import Any

import pytest

from tests.support.runner.small_experiment import sweep_point
from wanbed.runner.resolve.equal_parts import equal_parts


def parts(
    *, pipelines: int = 4, hosts: int = 4, gpus: int = 1, stages: int = 2, gradient: str = "1MiB", **changes: Any
) -> int:
    """Pipelines of a stage in the east and one in the west, each on hosts of its own."""
    return equal_parts(
        sweep_point(
            {
                "topology": {
                    "datacenters": [{"name": name, "hosts": hosts, "gpus_per_host": gpus} for name in ("east", "west")],
                    "wan": {"latency": "10ms", "rate": "1Gbit"},
                },
                "compute": {
                    "forward": "10ms",
                    "activation": "1KiB",
                    "gradient": gradient,
                    **changes.pop("compute", {}),
                },
                "training": {"stages": stages, "pipelines": pipelines, "microbatches": 4, "iterations": 1, "warmup": 0},
                "engine": "simulate",
                "variants": [
                    {"name": "v", "schedule": "gpipe", "placement": ["east", "west"], **changes.pop("variant", {})}
                ],
            }
        ).variants[0]
    )


def in_cells(of: int) -> dict[str, Any]:
    return {"variant": {"schedule": "atlas", "transport": {"sharing": "temporal", "pipelines_per_cell": of}}}


EAST, WEST = ["east", "west"], ["west", "east"]


@pytest.mark.parametrize(
    ("changes", "equal"),
    [
        # Pipelines on hosts of their own are all equal.
        *(({"pipelines": count}, count) for count in (1, 2, 3, 4)),
        # Those that share hosts are one part.
        *(({"pipelines": count, "hosts": count // 2, "gpus": 2}, count // 2) for count in (2, 4, 8)),
        # Two hosts of two GPUs hold three pipelines: two and one.
        ({"pipelines": 3, "hosts": 2, "gpus": 2}, 1),
        # Drawn times make every pipeline differ.
        ({"compute": {"jitter": {"distribution": "gamma", "spread": "20%"}}}, 1),
        # A ring of equal parts has no empty segment.
        ({"gradient": "3B"}, 1),
        ({"gradient": "4B"}, 4),
        # A stage in two datacenters is not cut, and no cell is.
        ({"variant": {"placement": [EAST, EAST, WEST, WEST]}}, 1),
        (in_cells(1), 4),
        (in_cells(2), 2),
        (in_cells(4), 1),
    ],
)
def test_equal_parts_have_equal_hosts_times_segments_and_cells(changes: dict[str, Any], equal: int) -> None:
    assert parts(**changes) == equal


@pytest.mark.parametrize(
    ("slower", "equal"), [([0], 1), ([0, 1], 1), ([0, 2], 2), ([1, 3], 2), ([0, 1, 2], 1), ([0, 1, 2, 3], 4)]
)
def test_parts_have_equal_gpus(slower: list[int], equal: int) -> None:
    assert parts(compute={"slower": [{"pipeline": each, "factor": 2} for each in slower]}) == equal
