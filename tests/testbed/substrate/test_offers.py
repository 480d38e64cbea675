import json
import subprocess
from dataclasses import asdict
from typing import Any

import pytest

from wanbed.testbed.rights.hosts_allowed import ENTER, HostsAllowed
from wanbed.testbed.substrate import offers
from wanbed.testbed.substrate.offer import GUEST, KERNEL, Offer
from wanbed.testbed.substrate.offers import machine_offers

REFUSED = HostsAllowed("Operation not permitted", "Operation not permitted", 1000)
ONLY_INSIDE = HostsAllowed("Operation not permitted", None, 1000)
HERE, INSIDE = Offer(KERNEL, False, "asked here"), Offer(GUEST, True, "asked inside")


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offers, "_PROBES", (lambda: HERE,))


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
