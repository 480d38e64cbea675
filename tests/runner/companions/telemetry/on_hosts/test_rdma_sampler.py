"""What RDMA devices send during a trial is read on every machine of a rack; a folder plays their /sys."""

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from wanbed.runner.companions.telemetry.on_hosts.rdma_sampler import RdmaSampler
from wanbed.runner.companions.telemetry.on_hosts.sampling import sampling
from wanbed.testbed.hosts import hosts_here
from wanbed.testbed.hosts.hosts_here import HostsHere
from wanbed.testbed.kernel.rdma_devices import rdma_sent_bytes
from wanbed.testbed.running_testbed import RunningTestbed


def counter(devices: Path, device: str) -> Path:
    folder = devices / device / "ports/1/counters"
    folder.mkdir(parents=True)
    (folder / "port_xmit_data").write_text("1000")
    return folder / "port_xmit_data"


def racked(machines: Mapping[str, Path]) -> Any:
    def read() -> dict[str, int]:
        found = {name: rdma_sent_bytes(devices) for name, devices in machines.items()}
        return {f"{name} {port}": sent for name, ports in found.items() for port, sent in ports.items()}

    return SimpleNamespace(rdma_sent_bytes=read)


def test_what_every_port_has_sent_during_the_trial_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    used, idle = counter(tmp_path / "one", "mlx5_0"), counter(tmp_path / "other", "mlx5_0")
    testbed = racked({name: tmp_path / name for name in ("one", "other", "plain")})
    with sampling((RdmaSampler,), testbed, 0, 1.0) as samples:
        used.write_text("1000250")
    assert samples.facts == {"rdma_sent_bytes": {"one mlx5_0/1": 3_997_000, "other mlx5_0/1": 0}}
    assert idle.read_text() == "1000"


def test_without_devices_there_is_no_sampler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert RdmaSampler.of(racked({"one": tmp_path}), ExitStack()) is None
    monkeypatch.setattr(hosts_here, "rdma_sent_bytes", dict)
    assert RdmaSampler.of(cast("RunningTestbed", HostsHere()), ExitStack()) is None
