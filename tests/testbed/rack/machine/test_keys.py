"""Machines draw keys of WireGuard's form, or say what they lack for it."""

import base64
import shutil
from pathlib import Path

import pytest

from wanbed.testbed.kernel.missing import MissingError
from wanbed.testbed.rack.machine.keys import make_key_pair, missing_for_tunnel


def test_keys_are_two_of_32_bytes_and_drawn_anew() -> None:
    one, other = make_key_pair(), make_key_pair()
    assert {len(base64.b64decode(key)) for pair in (one, other) for key in (pair.private, pair.public)} == {32}
    assert len({one.private, one.public, other.private, other.public}) == 4


def test_a_key_pair_is_not_printed() -> None:
    pair = make_key_pair()
    assert pair.private not in repr(pair)


def test_a_machine_without_the_programs_says_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda program, **_: None if program == "wireguard-go" else program)
    assert missing_for_tunnel() == "no wireguard-go for wireguard: apt install wireguard-go"
    with pytest.raises(MissingError, match=r"^no wireguard-go for wireguard: apt install wireguard-go$"):
        make_key_pair()


def test_a_machine_without_tun_says_how_to_load_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("wanbed.testbed.rack.machine.keys.TAP_DEVICE", tmp_path / "tun")
    assert missing_for_tunnel() == f"no {tmp_path}/tun for wireguard: modprobe tun"
