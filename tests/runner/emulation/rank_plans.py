"""Sweep points of small networks, and the plans that their ranks are given."""

from pathlib import Path
from typing import Any

from tests.support.runner.small_experiment import sweep_point
from wanbed.runner.emulation.rank_configs import SharedConfig, configure_ranks
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.testbed.network.address_book import AddressBook
from wanbed.workloads.rank_config import RankConfig

TOKEN = "00112233445566778899aabbccddeeff"  # noqa: S105 - of no run
ONE = {"name": "one", "schedule": "gpipe"}


def point(**changes: Any) -> SweepPoint:
    return sweep_point(
        {
            "topology": {
                "datacenters": [{"name": "east", "hosts": 1, "gpus_per_host": 2}, {"name": "west", "hosts": 2}],
                "wan": {"latency": "10ms"},
            },
            "compute": {"forward": ["1ms", "2ms", "3ms", "4ms"], "activation": ["1KiB", "2KiB", "3KiB"]},
            "training": {"microbatches": 8, "iterations": 5},
            **changes,
        }
    )


PAIR = {"name": "pair", "schedule": "gpipe"}
SHARED = {**PAIR, "transport": {"sharing": "temporal", "pipelines_per_cell": 2}}
PLANNED = {**SHARED, "schedule": "atlas"}


def four_by_two(variant: dict[str, Any]) -> SweepPoint:
    """Four stages in two datacenters, two pipelines of them."""
    return point(
        topology={
            "datacenters": [{"name": "east", "hosts": 4}, {"name": "west", "hosts": 4}],
            "wan": {"latency": "10ms", "node_pair_rate": "1Gbit"},
        },
        compute={"forward": "1ms", "activation": "1KiB", "gradient": "7KiB"},
        training={"microbatches": 3, "iterations": 2, "stages": 4, "pipelines": 2},
        variants=[variant],
    )


def planned(of: SweepPoint, folder: Path = Path("/trial"), dilation: float = 1.0, **changes: Any) -> list[RankConfig]:
    (variant,) = of.variants
    setting = SharedConfig(
        addresses=AddressBook(of.topology, slot=3),
        connections={(one.host.name, other.host.name): 1 + one.stage for one, other in variant.pairs},
        dilation=dilation,
        run_token=TOKEN,
        epoch_ns=123_456_789,
        folder=folder,
        parent_pid=4711,
        **changes,
    )
    return configure_ranks(of, variant, setting)
