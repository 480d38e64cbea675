"""Bytes that replicas sum over the WAN, by the recorded ratio, are those that links carried but for headers."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runner.called_wanbed import simulate_here


@pytest.mark.parametrize(
    ("hosts", "transport", "variant"),
    [
        ((2, 1), {}, {}),
        ((2, 2, 2), {"all_reduce": "hierarchical"}, {}),
        ((2, 1), {"all_reduce_overlap": True, "bucket": "1MiB"}, {}),
        ((1, 2, 1), {}, {"schedule": "diloco", "options": {"sync_every": 2}}),
        ((1, 2, 1), {}, {"schedule": "diloco", "options": {"sync_every": 2, "wire": "int8"}}),
        ((1, 2, 1), {}, {"schedule": "diloco", "options": {"sync_every": 2, "topology": "star"}}),
    ],
)
def test_links_carry_what_is_summed(
    tmp_path: Path, hosts: tuple[int, ...], transport: dict[str, Any], variant: dict[str, Any]
) -> None:
    names = [f"dc{number}" for number in range(len(hosts))]
    replicas = sum(hosts)
    training: dict[str, Any] = {"stages": 1, "pipelines": replicas, "microbatches": 1, "iterations": 6, "warmup": 2}
    experiment = {
        "topology": {
            "datacenters": [{"name": name, "hosts": count} for name, count in zip(names, hosts, strict=True)],
            "wan": {"latency": "5ms", "rate": "1Gbit"},
        },
        "compute": {"forward": "10ms", "activation": "1B", "gradient": "6000000B"},
        "training": training,
        "variants": [{"name": "v", "schedule": "dp", "transport": {"connections": 2, **transport}, **variant}],
    }
    (row,) = simulate_here(yaml.safe_dump(experiment), tmp_path).summary.to_dict("records")
    payload_bytes = row["wan_goodput_bps"] / 8 * row["iteration_time_s"] * training["iterations"]
    assert payload_bytes == pytest.approx(row["wan_bytes"] * 1448 / 1514, rel=0.01)
