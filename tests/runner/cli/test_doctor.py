"""The report of ``wanbed doctor`` as text, as JSON and by its exit status."""

import json
import sys

import pytest

from tests.support.runner.commands_here import called, wanbed
from tests.support.testbed.fake_pynvml import FakeGpu, FakePynvml
from wanbed.runner.cli.doctor import print_rack
from wanbed.runner.rack_runs.cluster import Node
from wanbed.runner.rack_runs.diagnosis import MachineDiagnosis, RackDiagnosis
from wanbed.testbed.kernel.rdma_devices import RdmaPort
from wanbed.testbed.rack.machine.survey import survey_machine
from wanbed.testbed.rights import HostsAllowed
from wanbed.testbed.substrate.offer import GUEST, KERNEL, Offer

NO_NETEM = Offer(KERNEL, False, "the kernel 6.1.0 has no sch_netem", "modprobe sch_netem")

NO_GUEST = Offer(GUEST, False, "linux.uml is not on the PATH", "apt-get install user-mode-linux kmod")


def test_doctor_reports_missing_netem_in_json_and_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanbed.testbed.doctor.hosts_allowed", lambda: HostsAllowed(None))
    monkeypatch.setattr("wanbed.testbed.doctor.machine_offers", lambda _: (NO_NETEM, NO_GUEST))
    done = wanbed("doctor", "--json")
    assert (done.exit_code, done.stderr) == (5, "")
    document = json.loads(done.stdout)
    assert document["netem"]["substrate"] is None
    assert {"modprobe sch_netem", "apt-get install user-mode-linux kmod"} <= {
        missing["install"] for missing in document["missing"]
    }
    text = called("doctor", status=5)
    assert "apt-get install user-mode-linux kmod" in text.stdout
    assert "netem         none: no WAN can be emulated with real TCP here; " in text.stdout
    assert "`wanbed exec --no-wan`" in text.stdout


def test_doctor_lists_gpus_with_memory_driver_and_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [FakeGpu("GPU-1", "NVIDIA H200", 141 * 2**30), FakeGpu("GPU-2", "NVIDIA A10", 24 * 2**30)]
    monkeypatch.setitem(sys.modules, "pynvml", FakePynvml(gpus))
    lines = wanbed("doctor").stdout.splitlines()
    place = lines.index("GPUs          NVIDIA H200, 141 GiB, driver 570.1, GPU-1")
    assert lines[place + 1] == "              NVIDIA A10, 24 GiB, driver 570.1, GPU-2"


def test_doctor_succeeds_on_a_machine_with_netem(monkeypatch: pytest.MonkeyPatch) -> None:
    guest = Offer(GUEST, True, "User-Mode Linux 6.1 [x] with netem")
    monkeypatch.setattr("wanbed.testbed.doctor.hosts_allowed", lambda: HostsAllowed(None))
    monkeypatch.setattr("wanbed.testbed.doctor.machine_offers", lambda _: (NO_NETEM, guest))
    monkeypatch.setattr("shutil.which", lambda program, **_: f"/usr/bin/{program}")
    done = called("doctor")
    assert (
        "netem         guest: the kernel 6.1.0 has no sch_netem, so User-Mode Linux 6.1 [x] with netem" in done.stdout
    )
    assert "tier          root, with the gateway guest (one core carries all links)" in done.stdout
    assert "  more with   modprobe sch_netem: links on every core" in done.stdout


def test_doctor_offers_no_hosts_where_none_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = HostsAllowed("Operation not permitted", "Operation not permitted", 0)
    monkeypatch.setattr("wanbed.testbed.doctor.hosts_allowed", lambda: refused)
    monkeypatch.setattr("wanbed.testbed.doctor.machine_offers", lambda _: (NO_NETEM, NO_GUEST))
    done = called("doctor", status=5)
    assert "--no-wan" not in done.stdout
    assert f"  more with   {refused.remedy}: hosts in network namespaces" in done.stdout


def test_rdma_devices_and_who_else_may_write_rays_folder_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    port = RdmaPort("mlx5_0", 1, "4: ACTIVE", "400 Gb/sec (4X NDR)", "InfiniBand").document()
    survey = {**survey_machine(None), "rdma": [port], "exposed": "/tmp/ray can be written by everybody"}
    cluster = {"address": "10.0.0.1:6379", "ray": "2", "token_authentication": True, "sources_sent": False}
    diagnosis = RackDiagnosis(cluster, (MachineDiagnosis(Node("east", "1", "10.0.0.2"), survey=survey),), (), ())
    print_rack(diagnosis, "test")
    printed = capsys.readouterr().out
    assert "RDMA mlx5_0/1 at 400 Gb/sec (4X NDR), which is kept unused" in printed
    exposed = "  exposed     other users can replace what Ray runs: /tmp/ray can be written by everybody; `ray start "
    assert exposed in printed
