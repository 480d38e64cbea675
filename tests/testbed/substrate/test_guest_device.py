import fcntl
from pathlib import Path

import pytest

from wanbed.testbed.substrate import guest_device as module
from wanbed.testbed.substrate.guest_device import GuestDevice, guest_device


def test_a_device_that_opens_gives_tap_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tun").touch()
    monkeypatch.setattr(module, "TAP_DEVICE", tmp_path / "tun")
    monkeypatch.setattr(fcntl, "ioctl", lambda *_: 0)
    device = guest_device()
    assert (device.name, device.text) == ("tap", "TAP devices")
    assert device.card(3) == "vec3:transport=tap,ifname=tap3"


def test_a_device_that_exists_but_does_not_open_gives_veth_pairs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A folder is refused to everybody, root included.
    monkeypatch.setattr(module, "TAP_DEVICE", tmp_path)
    device = guest_device()
    assert (device.name, device.text) == ("raw veth", f"veth pairs ({tmp_path}: Is a directory)")
    assert device.card(3) == "vec3:transport=raw,ifname=uml3"


def test_another_device_in_its_place_gives_veth_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TAP_DEVICE", Path("/dev/null"))
    assert guest_device() == GuestDevice("Inappropriate ioctl for device")


def test_a_device_that_is_not_there_gives_veth_pairs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "TAP_DEVICE", tmp_path / "tun")
    assert guest_device() == GuestDevice("No such file or directory")
