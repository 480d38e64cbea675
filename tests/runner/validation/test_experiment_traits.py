from pathlib import Path
from typing import Any

import pytest

from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.validation.experiment_traits import traits


def traits_of(variant: dict[str, Any], hosts: int = 2, gpus: int = 1, **sections: dict[str, Any]) -> set[str]:
    document = {
        "topology": {
            "datacenters": [
                {"name": "east", "hosts": hosts, "gpus_per_host": gpus},
                {"name": "west", "hosts": hosts, "gpus_per_host": gpus},
            ],
            "intra": {"latency": "50us", "rate": "1Gbit"},
            "wan": {"latency": "10ms", "rate": "100Mbit", "node_pair_rate": "100Mbit"},
            **sections.pop("topology", {}),
        },
        "compute": {"activation": "4KiB", "gradient": "1MiB", **sections.pop("compute", {})},
        "training": {"stages": 2, "pipelines": 2, "microbatches": 2, **sections.pop("training", {})},
        "variants": [{"name": "one", "schedule": "gpipe", **variant}],
        "clock": "virtual",
    }
    (point,) = parse_experiment(document, "test", Path()).points()
    return set(traits(point))


APART = {"placement": [["east", "east"], ["west", "west"]]}


def test_replicas_in_several_datacenters_all_reduce_over_the_wan() -> None:
    apart, together = traits_of(APART), traits_of({})
    assert {"rings over the WAN", "several rings over the WAN", "placed pipeline by pipeline"} <= apart
    assert {"rings inside a datacenter", "default placement"} <= together
    assert "rings over the WAN" not in together


def test_a_single_byte_is_no_all_reduce() -> None:
    found = traits_of(APART, compute={"gradient": "1B"})
    assert "no sums of gradients" in found
    assert "rings over the WAN" not in found


def test_one_pipeline_fills_no_trunk_that_two_fill() -> None:
    assert "a trunk that is full" in traits_of({})
    assert "a trunk with room" in traits_of({}, training={"pipelines": 1})


def test_gpus_of_one_host() -> None:
    assert "ranks share hosts" in traits_of({}, hosts=1, gpus=2)
    assert "ranks share hosts" not in traits_of({})


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ("64KiB", "activations up to 64 KiB"),
        ("65KiB", "activations 64 KiB to 1 MiB"),
        ("16MiB", "activations 1 to 16 MiB"),
        ("1GiB", "activations above 16 MiB"),
    ],
)
def test_sizes_are_sorted_by_the_largest(size: str, words: str) -> None:
    assert words in traits_of({}, compute={"activation": size})


def test_windows_limit_what_they_do_not_fill() -> None:
    assert "windows limit" in traits_of({"transport": {"window": "96KiB"}})
    assert "rates limit" in traits_of({"transport": {"window": "16MiB"}})
    assert "rates limit" in traits_of({"transport": {"window": "96KiB", "connections": "auto"}})


def test_dp_cells_share() -> None:
    sharing = {"transport": {"sharing": "temporal", "pipelines_per_cell": 2}}
    assert "temporal sharing" in traits_of(sharing)
    assert "several cells" in traits_of(sharing, hosts=4, training={"pipelines": 4})
