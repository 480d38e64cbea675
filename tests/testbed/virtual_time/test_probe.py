from pathlib import Path

import pytest

from wanbed.ground.errors import MissingError
from wanbed.testbed.virtual_time import probe
from wanbed.testbed.virtual_time.kernel_cache import KernelRecord, VirtualKernel, configuration_hash
from wanbed.testbed.virtual_time.probe import probe_virtual_time

KERNEL = VirtualKernel(Path("/cache/linux"), KernelRecord("6.1.192", "source", configuration_hash(), 0x60000000))


def able(
    monkeypatch: pytest.MonkeyPatch, *, user: int = 0, refusal: str | None = None, advice: str | None = None
) -> None:
    monkeypatch.setattr(probe, "virtual_kernel", lambda: KERNEL)
    monkeypatch.setattr(probe, "_namespaces_refused", lambda: refusal)
    monkeypatch.setattr(probe, "memory_for_virtual_time", lambda: (Path("/dev/shm"), 2**31))
    monkeypatch.setattr(probe, "map_count_advice", lambda: advice)
    monkeypatch.setattr(probe.os, "geteuid", lambda: user)


def test_a_kernel_that_is_built_is_offered_with_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    able(monkeypatch)
    offer = probe_virtual_time()
    assert (offer.available, offer.kernel, offer.path) == (True, "6.1.192", "/cache/linux")
    assert offer.configuration_hash == configuration_hash()
    assert offer.reason == "the kernel 6.1.192 boots as root"


def test_without_a_kernel_the_remedy_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("SUDO_USER", raising=False)
    offer = probe_virtual_time()
    assert not offer.available
    assert offer.reason.endswith(": make virtual")


def test_steps_that_need_root_are_listed_for_other_users(monkeypatch: pytest.MonkeyPatch) -> None:
    able(monkeypatch, user=1000, advice="raise it")
    offer = probe_virtual_time()
    assert (offer.available, offer.root_for) == (True, ("raise it",))
    able(monkeypatch, user=0, advice="raise it")
    assert probe_virtual_time().root_for == ()


def test_user_without_namespaces_gets_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    able(monkeypatch, user=1000, refusal="Operation not permitted")
    offer = probe_virtual_time()
    assert (offer.available, offer.reason) == (False, "no namespaces for a guest: Operation not permitted")
    assert offer.root_for[0].startswith("run as root, or as root: sysctl")


def test_too_little_memory_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    able(monkeypatch)

    def lack() -> None:
        raise MissingError("virtual time takes 1365 MiB")

    monkeypatch.setattr(probe, "memory_for_virtual_time", lack)
    assert probe_virtual_time().reason == "virtual time takes 1365 MiB"
