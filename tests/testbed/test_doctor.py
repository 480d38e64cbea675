import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.testbed.fake_pynvml import FakeGpu, FakePynvml
from wanbed.testbed import doctor
from wanbed.testbed.doctor import Diagnosis, diagnose, rights_lacking, tier_of
from wanbed.testbed.gpus.gpus import Gpu
from wanbed.testbed.hosts.host_environment import HOST_PROGRAMS
from wanbed.testbed.rights import HostsAllowed
from wanbed.testbed.substrate.guest_device import GuestDevice
from wanbed.testbed.substrate.offer import GUEST, KERNEL, Offer

HAS_NETEM = Offer(KERNEL, True, "the kernel 6.1.0 accepted a netem qdisc")
NO_NETEM = Offer(KERNEL, False, "the kernel 6.1.0 has no sch_netem", "modprobe sch_netem")
HAS_GUEST = Offer(GUEST, True, "User-Mode Linux 6.1 with netem")
NO_GUEST = Offer(GUEST, False, "linux.uml is not on the PATH", "apt-get install user-mode-linux")


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shutil, "which", lambda program, **_: f"/usr/bin/{program}")
    monkeypatch.setattr(doctor, "NVIDIA_DRIVER", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SUDO_USER", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", None)


def on_a_machine(monkeypatch: pytest.MonkeyPatch, kernel: Offer, guest: Offer) -> Diagnosis:
    monkeypatch.setattr(doctor, "hosts_allowed", lambda: HostsAllowed(None))
    monkeypatch.setattr(doctor, "machine_offers", lambda _: (kernel, guest))
    return diagnose()


@pytest.mark.parametrize("guest", [HAS_GUEST, NO_GUEST])
def test_the_kernels_own_netem_comes_first(monkeypatch: pytest.MonkeyPatch, guest: Offer) -> None:
    diagnosis = on_a_machine(monkeypatch, HAS_NETEM, guest)
    assert (diagnosis.substrate, diagnosis.reason) == (KERNEL, HAS_NETEM.reason)
    assert diagnosis.missing == ()


def test_the_guest_is_chosen_for_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosis = on_a_machine(monkeypatch, NO_NETEM, HAS_GUEST)
    assert diagnosis.substrate == GUEST
    assert diagnosis.reason == "the kernel 6.1.0 has no sch_netem, so User-Mode Linux 6.1 with netem"
    assert diagnosis.missing == ()


def test_without_netem_both_ways_to_get_it_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosis = on_a_machine(monkeypatch, NO_NETEM, NO_GUEST)
    assert (diagnosis.substrate, diagnosis.reason) == (None, "no netem anywhere")
    assert [(each.why, each.install) for each in diagnosis.missing] == [
        (NO_NETEM.reason, NO_NETEM.install),
        (NO_GUEST.reason, NO_GUEST.install),
    ]


@pytest.mark.parametrize("program", HOST_PROGRAMS)
def test_a_program_that_hosts_need_is_reported_with_its_package(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(shutil, "which", lambda asked, **_: None if asked == program else asked)
    (missing,) = on_a_machine(monkeypatch, HAS_NETEM, HAS_GUEST).missing
    assert (missing.what, missing.install) == (program, f"apt-get install {HOST_PROGRAMS[program]}")


def test_python_without_distutils_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == "distutils" else object())
    (missing,) = on_a_machine(monkeypatch, HAS_NETEM, HAS_GUEST).missing
    assert (missing.what, missing.install) == ("distutils", "pip install setuptools")


def test_gpus_without_nvml_are_those_that_the_driver_lists(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for number, text in enumerate(["Model: \t\t NVIDIA A100-SXM4-80GB\nIRQ: 1\n", "IRQ: 2\n"]):
        card = tmp_path / "gpus" / f"0000:0{number}:00.0"
        card.mkdir(parents=True)
        (card / "information").write_text(text)
    diagnosis = on_a_machine(monkeypatch, HAS_NETEM, HAS_GUEST)
    assert diagnosis.gpus == (Gpu("NVIDIA A100-SXM4-80GB", None), Gpu("unknown", None))
    (missing,) = diagnosis.missing
    assert (missing.what, missing.install) == ("NVML", "pip install 'wanbed[gpu]'")


def test_gpus_are_reported_with_memory_driver_and_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakePynvml([FakeGpu("GPU-1", "NVIDIA H200", 141 * 2**30)]))
    diagnosis = on_a_machine(monkeypatch, HAS_NETEM, HAS_GUEST)
    assert diagnosis.missing == ()
    assert diagnosis.document()["gpus"] == [
        {"model": "NVIDIA H200", "driver": "570.1", "uuid": "GPU-1", "memory_bytes": 141 * 2**30}
    ]


def test_a_machine_without_a_driver_has_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_a_machine(monkeypatch, HAS_NETEM, HAS_GUEST).gpus == ()


def test_diagnosis_document_has_all_documented_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    document = on_a_machine(monkeypatch, NO_NETEM, NO_GUEST).document()
    assert json.loads(json.dumps(document)) == document
    assert set(document) == {"tier", "netem", "relay", "virtual_time", "simulator", "gpus", "missing"}
    assert set(document["tier"]) == {"name", "lacks", "rights"}
    assert document["netem"]["substrate"] is None
    assert document["netem"]["reason"] == "no netem anywhere"
    assert [offer["name"] for offer in document["netem"]["offers"]] == [KERNEL, GUEST]
    assert document["relay"]["available"] is True
    assert document["virtual_time"]["available"] is False
    assert document["virtual_time"]["reason"].endswith(": make virtual")
    assert document["virtual_time"]["path"] is None
    assert document["gpus"] == []
    assert all(set(each) == {"what", "why", "install"} for each in document["missing"])


def test_the_document_of_an_able_machine_names_its_substrate_and_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakePynvml([FakeGpu("GPU-1", "NVIDIA H100")]))
    document = on_a_machine(monkeypatch, HAS_NETEM, NO_GUEST).document()
    assert document["netem"]["substrate"] == "kernel"
    assert [gpu["model"] for gpu in document["gpus"]] == ["NVIDIA H100"]
    assert document["missing"] == []


DIRECTLY, ENTERING = HostsAllowed(None), HostsAllowed("refused", None, 1000)
NOWHERE = HostsAllowed("refused", "refused", 1000)
TAP, RAW = GuestDevice(None), GuestDevice("Permission denied")


@pytest.mark.parametrize(
    ("offers", "allowed", "name"),
    [
        ((HAS_NETEM, HAS_GUEST), DIRECTLY, "root, with the kernel's netem"),
        ((NO_NETEM, HAS_GUEST), DIRECTLY, "root, with the gateway guest"),
        ((HAS_NETEM, NO_GUEST), ENTERING, "user namespace, with the kernel's netem"),
        ((NO_NETEM, HAS_GUEST), ENTERING, "user namespace, with the gateway guest"),
        ((NO_NETEM, NO_GUEST), ENTERING, "hosts without a WAN, and simulation"),
        ((NO_NETEM, NO_GUEST), NOWHERE, "simulation"),
    ],
)
def test_the_tier_is_the_best_that_works(offers: tuple[Offer, ...], allowed: HostsAllowed, name: str) -> None:
    assert tier_of(offers, allowed, relay=False, virtual=False).name == name


def test_without_netem_virtual_time_is_the_tier() -> None:
    assert tier_of((NO_NETEM, NO_GUEST), ENTERING, relay=False, virtual=True).name == "virtual time and simulation"


@pytest.mark.parametrize(
    ("virtual", "name"), [(True, "the relay, virtual time and simulation"), (False, "the relay and simulation")]
)
def test_without_netem_the_relay_is_there_if_asked_for(virtual: bool, name: str) -> None:
    tier = tier_of((NO_NETEM, NO_GUEST), NOWHERE, relay=True, virtual=virtual)
    assert tier.name == name
    assert "TCP is modelled" in tier.lacks


def test_netem_comes_before_the_relay() -> None:
    tier = tier_of((NO_NETEM, HAS_GUEST), DIRECTLY, relay=True, virtual=True)
    assert tier.name == "root, with the gateway guest"


def test_a_guest_in_a_user_namespace_lacks_priority_and_netem_lacks_nothing() -> None:
    assert "without priority" in tier_of((NO_NETEM, HAS_GUEST), ENTERING, relay=True, virtual=False).lacks
    for allowed in (ENTERING, DIRECTLY):
        assert tier_of((HAS_NETEM, NO_GUEST), allowed, relay=True, virtual=False).lacks == ""


def rights(offers: tuple[Offer, ...], allowed: HostsAllowed, device: GuestDevice) -> list[str]:
    return [each.right for each in rights_lacking(offers, allowed, device)]


def test_root_with_netem_lacks_nothing() -> None:
    assert rights((HAS_NETEM, NO_GUEST), DIRECTLY, RAW) == []


def test_a_user_without_tap_devices_and_netem_lacks_three_rights() -> None:
    lacking = rights((NO_NETEM, HAS_GUEST), ENTERING, RAW)
    assert lacking == ["root, or sudo", "opening /dev/net/tun (Permission denied)", "modprobe sch_netem"]
    assert rights((NO_NETEM, HAS_GUEST), DIRECTLY, TAP) == ["modprobe sch_netem"]


def test_where_no_host_can_be_made_that_comes_first() -> None:
    assert rights((NO_NETEM, NO_GUEST), NOWHERE, RAW) == [NOWHERE.remedy]
