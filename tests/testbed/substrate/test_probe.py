import errno
import json
import os
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pyroute2.netlink.exceptions import NetlinkError

from wanbed.ground.errors import InputError, MissingError
from wanbed.testbed.kernel.user_mode_linux import GuestMemoryError
from wanbed.testbed.rights import ENTER, HostsAllowed
from wanbed.testbed.substrate import probe
from wanbed.testbed.substrate.guest_device import GuestDevice
from wanbed.testbed.substrate.guest_kernel import GUEST_PROGRAM, MODULES
from wanbed.testbed.substrate.offer import GUEST, KERNEL, RELAY, Offer
from wanbed.testbed.substrate.probe import choose_substrate, machine_offers, probe_guest, probe_kernel, probe_relay

HAS_NETEM = Offer(KERNEL, True, "the kernel 6.1.0 accepted a netem qdisc")
NO_NETEM = Offer(KERNEL, False, "the kernel 6.1.0 has no sch_netem", "modprobe sch_netem")
HAS_GUEST = Offer(GUEST, True, "User-Mode Linux 6.1 with netem")
HAS_RELAY = Offer(RELAY, True, "TCP is modelled")
NO_RELAY = Offer(RELAY, False, "127.251.0.1: Cannot assign requested address", "set the loopback interface up")
NO_GUEST = Offer(GUEST, False, "linux.uml is not on the PATH", "apt-get install user-mode-linux")


class Netlink:
    """Refuses qdiscs as the kernel does, by its error number; 0 takes them."""

    def __init__(self, error: int) -> None:
        self._error = error
        self.closed = False

    def link(self, *_: object, **__: object) -> None:
        pass

    def link_lookup(self, **_: object) -> list[int]:
        return [2]

    def tc(self, command: str, kind: str, *_: object, **__: object) -> None:
        assert (command, kind) == ("add", "netem")
        if self._error:
            raise NetlinkError(self._error, os.strerror(self._error))

    def close(self) -> None:
        self.closed = True


def probes_offer(monkeypatch: pytest.MonkeyPatch, kernel: Offer, guest: Offer, relay: Offer = NO_RELAY) -> None:
    monkeypatch.setattr(probe, "probe_kernel", lambda: kernel)
    monkeypatch.setattr(probe, "probe_guest", lambda: guest)
    monkeypatch.setattr(probe, "probe_relay", lambda: relay)


def kernel_that(monkeypatch: pytest.MonkeyPatch, error: int) -> tuple[Offer, Netlink]:
    """Return the offer of a kernel that answers with an error number, and the socket that was used."""
    netlink = Netlink(error)
    held: list[int] = []

    def namespace() -> int:
        held.append(os.open(os.devnull, os.O_RDONLY))
        return held[0]

    monkeypatch.setattr(probe, "hosts_allowed", lambda: HostsAllowed(None))
    monkeypatch.setattr(probe, "anonymous_namespace", namespace)
    monkeypatch.setattr(probe, "open_netlink", lambda _: netlink)
    offer = probe_kernel()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(held[0])
    return offer, netlink


def able_guest(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    modules = root / "6.1.0" / "kernel"
    for module in MODULES:
        (modules / module).parent.mkdir(parents=True, exist_ok=True)
        (modules / module).touch()
    monkeypatch.setattr(probe, "hosts_allowed", lambda: HostsAllowed(None))
    monkeypatch.setattr(shutil, "which", lambda program: f"/usr/bin/{program}")
    monkeypatch.setattr(probe, "MODULES_ROOT", root)
    monkeypatch.setattr(probe, "guest_device", lambda: GuestDevice(None))


@pytest.mark.parametrize("guest", [HAS_GUEST, NO_GUEST])
def test_the_kernels_own_netem_is_chosen_where_it_is(monkeypatch: pytest.MonkeyPatch, guest: Offer) -> None:
    probes_offer(monkeypatch, HAS_NETEM, guest)
    assert choose_substrate() == HAS_NETEM


def test_guest_is_chosen_with_the_reason_if_the_kernel_has_no_netem(monkeypatch: pytest.MonkeyPatch) -> None:
    probes_offer(monkeypatch, NO_NETEM, HAS_GUEST)
    chosen = choose_substrate()
    assert (chosen.name, chosen.available) == (GUEST, True)
    assert chosen.reason == "the kernel 6.1.0 has no sch_netem, so User-Mode Linux 6.1 with netem"


def test_no_netem_anywhere_is_an_error_with_both_reasons_and_both_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    probes_offer(monkeypatch, NO_NETEM, NO_GUEST)
    with pytest.raises(MissingError) as missing:
        choose_substrate()
    assert str(missing.value) == (
        "no netem anywhere: the kernel 6.1.0 has no sch_netem; linux.uml is not on the PATH "
        "(apt-get install user-mode-linux; or modprobe sch_netem)"
    )


def test_a_reason_that_both_share_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    probes_offer(
        monkeypatch, *(Offer(name, False, "no namespaces for hosts", "run as root") for name in (KERNEL, GUEST))
    )
    with pytest.raises(MissingError, match=r"^no netem anywhere: no namespaces for hosts \(run as root\)$"):
        choose_substrate()


def test_a_remedy_that_both_share_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    needs_root = [Offer(name, False, f"{name} needs root", "run as root, or with sudo") for name in (KERNEL, GUEST)]
    probes_offer(monkeypatch, *needs_root)
    with pytest.raises(MissingError, match=r"\(run as root, or with sudo\)$") as missing:
        choose_substrate()
    assert str(missing.value).count("run as root") == 1


@pytest.mark.parametrize(("asked", "offer"), [(KERNEL, HAS_NETEM), (GUEST, HAS_GUEST)])
def test_requested_substrate_is_used_regardless_of_the_other(
    monkeypatch: pytest.MonkeyPatch, asked: str, offer: Offer
) -> None:
    probes_offer(monkeypatch, HAS_NETEM, HAS_GUEST)
    assert choose_substrate(asked) == offer


@pytest.mark.parametrize(("asked", "offer"), [(KERNEL, NO_NETEM), (GUEST, NO_GUEST)])
def test_unavailable_requested_substrate_is_an_error(monkeypatch: pytest.MonkeyPatch, asked: str, offer: Offer) -> None:
    probes_offer(monkeypatch, *((NO_NETEM, HAS_GUEST) if asked == KERNEL else (HAS_NETEM, NO_GUEST)))
    with pytest.raises(MissingError) as missing:
        choose_substrate(asked)
    assert str(missing.value) == f"no netem in the {asked} substrate: {offer.reason} ({offer.install})"


def test_a_name_that_is_no_substrate_is_bad_input() -> None:
    with pytest.raises(
        InputError, match=r"^--substrate: 'qemu' is not a substrate, give auto, kernel, guest or relay$"
    ):
        choose_substrate("qemu")


@pytest.mark.parametrize("attempt", [probe_kernel, probe_guest])
def test_where_no_host_can_be_made_neither_substrate_works_whoever_the_user_is(
    monkeypatch: pytest.MonkeyPatch, attempt: Any
) -> None:
    refused = HostsAllowed("unshare: Operation not permitted", "unshare: Operation not permitted", 0)
    monkeypatch.setattr(probe, "hosts_allowed", lambda: refused)
    offer = attempt()
    assert not offer.available
    assert offer.reason == f"no namespaces for hosts: {refused.reason}"
    assert offer.install == refused.remedy


def test_a_kernel_that_takes_a_netem_qdisc_has_netem(monkeypatch: pytest.MonkeyPatch) -> None:
    offer, netlink = kernel_that(monkeypatch, 0)
    assert offer.available
    assert netlink.closed


def test_kernel_without_netem_is_reported_with_the_module_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    offer, netlink = kernel_that(monkeypatch, errno.ENOENT)
    assert not offer.available
    assert offer.reason == f"the kernel {os.uname().release} has no sch_netem"
    assert offer.install.startswith("modprobe sch_netem, or a kernel package that has it")
    assert netlink.closed


def test_a_kernel_that_refuses_for_another_reason_is_reported_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    offer, _ = kernel_that(monkeypatch, errno.EOPNOTSUPP)
    assert not offer.available
    assert "Operation not supported" in offer.reason


def test_forbidden_namespaces_are_reported_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise PermissionError(errno.EPERM, "making a network namespace: Operation not permitted")

    monkeypatch.setattr(probe, "hosts_allowed", lambda: HostsAllowed(None))
    monkeypatch.setattr(probe, "anonymous_namespace", refuse)
    offer = probe_kernel()
    assert (offer.available, offer.reason) == (False, "making a network namespace: Operation not permitted")


def test_a_guest_with_its_modules_and_a_tap_device_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    able_guest(monkeypatch, tmp_path)
    offer = probe_guest()
    assert offer.available
    assert "6.1.0" in offer.reason


def test_a_guest_program_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    able_guest(monkeypatch, tmp_path)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    offer = probe_guest()
    assert (offer.available, offer.reason) == (False, f"{GUEST_PROGRAM} is not on the PATH")
    assert "user-mode-linux" in offer.install


def test_a_module_that_the_guest_lacks_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    able_guest(monkeypatch, tmp_path)
    next(tmp_path.rglob("sch_netem.ko")).unlink()
    offer = probe_guest()
    assert (offer.available, offer.reason) == (False, f"{tmp_path} lacks sch_netem.ko")


def test_too_little_memory_for_the_guest_is_named_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    able_guest(monkeypatch, tmp_path)

    def lack() -> None:
        raise GuestMemoryError("the gateway guest", 192 * 2**20, ["/dev/shm has 64 MiB to spare"])

    monkeypatch.setattr(probe, "gateway_guest_memory", lack)
    offer = probe_guest()
    assert (offer.available, offer.reason) == (
        False,
        "the gateway guest takes 256 MiB of memory: /dev/shm has 64 MiB to spare",
    )
    assert "docker run --shm-size=256m" in offer.install


def test_a_machine_without_tap_devices_has_the_guest_over_veth_pairs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    able_guest(monkeypatch, tmp_path)
    monkeypatch.setattr(probe, "guest_device", lambda: GuestDevice("Permission denied"))
    offer = probe_guest()
    assert offer.available
    assert offer.reason.endswith(", over veth pairs (/dev/net/tun: Permission denied)")


def test_the_relay_is_never_chosen_by_itself_but_named(monkeypatch: pytest.MonkeyPatch) -> None:
    probes_offer(monkeypatch, NO_NETEM, NO_GUEST, HAS_RELAY)
    with pytest.raises(MissingError, match=r"; or `wanbed run --substrate relay`, where TCP is modelled\)$"):
        choose_substrate()


def test_the_relay_is_used_on_request_whatever_else_works(monkeypatch: pytest.MonkeyPatch) -> None:
    probes_offer(monkeypatch, HAS_NETEM, HAS_GUEST, HAS_RELAY)
    assert choose_substrate(RELAY) == HAS_RELAY


def test_a_relay_without_a_loopback_is_an_error_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    probes_offer(monkeypatch, HAS_NETEM, HAS_GUEST, NO_RELAY)
    with pytest.raises(MissingError, match=r"^no relay: 127\.251\.0\.1: .* \(set the loopback interface up\)$"):
        choose_substrate(RELAY)


def test_a_relay_needs_no_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert probe_relay().available


REFUSED = HostsAllowed("Operation not permitted", "Operation not permitted", 1000)
ONLY_INSIDE = HostsAllowed("Operation not permitted", None, 1000)
HERE, INSIDE = Offer(KERNEL, False, "asked here"), Offer(GUEST, True, "asked inside")


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_PROBES", (lambda: HERE,))


def test_substrates_are_asked_inside_a_user_namespace_if_hosts_can_be_made_only_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(argv: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        assert argv[: len(ENTER)] == list(ENTER)
        return subprocess.CompletedProcess(argv, 0, json.dumps([asdict(INSIDE)]), "")

    monkeypatch.setattr(subprocess, "run", run)
    assert machine_offers(ONLY_INSIDE) == (INSIDE,)


@pytest.mark.parametrize("allowed", [HostsAllowed(None), REFUSED])
def test_otherwise_they_are_asked_here(allowed: HostsAllowed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a process was started"))
    assert machine_offers(allowed) == (HERE,)


def test_a_question_that_fails_inside_is_asked_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(argv: list[str], *, timeout: float, **_: Any) -> None:
        raise subprocess.TimeoutExpired(argv, timeout)

    monkeypatch.setattr(subprocess, "run", hang)
    assert machine_offers(ONLY_INSIDE) == (HERE,)
