from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.errors import InputError
from wanbed.runner.emulation.relay_limits import check_relay
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint


def points(variant: dict[str, Any], *, fail: tuple[Any, ...] = (), **wan: str) -> tuple[SweepPoint, ...]:
    return parse_experiment(
        {
            **({"fail": list(fail)} if fail else {}),
            "topology": {
                "datacenters": [{"name": "east", "hosts": 2}, {"name": "west", "hosts": 2}],
                "wan": {"latency": "10ms", **wan},
            },
            "model": {"layers": 4, "hidden": 64, "context": 64, "heads": 2, "vocabulary": 256},
            "compute": {"kind": "torch", "device": "cpu", "checkpointing": False},
            "training": {"stages": 2, "pipelines": 2, "microbatches": 4},
            "variants": [{"name": "one", **variant}],
        },
        "exp.yaml",
        Path(),
    ).points()


def test_what_a_relay_carries_is_accepted() -> None:
    check_relay(points({"schedule": "gpipe", "transport": {"congestion": "reno"}}), "relay")


def test_hosts_of_a_relay_do_not_fail() -> None:
    with pytest.raises(InputError, match=r"^--substrate relay: fail: .*--substrate kernel or guest"):
        check_relay(points({"schedule": "gpipe"}, fail=({"rank": 0, "at": "1s"},)), "relay")


def test_another_substrate_has_no_such_limits() -> None:
    check_relay(points({"schedule": "gpipe"}, loss="1%"), "guest")


@pytest.mark.parametrize(
    ("variant", "wan", "words"),
    [
        ({"schedule": "torch-gpipe"}, {}, "torch-gpipe opens connections of its own"),
        ({"schedule": "gpipe", "transport": {"all_reduce": "gloo"}}, {}, "transport.all_reduce: gloo opens"),
        ({"schedule": "gpipe", "transport": {"congestion": "bbr"}}, {}, "bbr is not modelled: give cubic or reno"),
        ({"schedule": "gpipe"}, {"loss": "1%"}, "has loss, which a relay does not model"),
    ],
)
def test_what_a_relay_cannot_carry_is_refused_by_name_with_a_remedy(
    variant: dict[str, Any], wan: dict[str, str], words: str
) -> None:
    with pytest.raises(InputError, match=f"^--substrate relay: .*{words}.*--substrate kernel or guest"):
        check_relay(points(variant, **wan), "relay")
