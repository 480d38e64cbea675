"""A network is kept up for the sweep points that follow, as long as theirs is the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from wanbed.runner.emulation.emulation import kept_testbed
from wanbed.testbed.running_testbed import RunningTestbed


@dataclass(frozen=True)
class Named:
    """A network of which only its name counts, and which notes when it comes up and goes down."""

    name: str
    noted: list[str] = field(compare=False)

    @contextmanager
    def up(self, dilation: float) -> Iterator[RunningTestbed]:
        self.noted.append(f"{self.name} up, dilated by {dilation:g}")
        try:
            yield cast("Any", object())
        finally:
            self.noted.append(f"{self.name} down")


def test_the_same_network_stays_up_and_another_one_takes_its_place() -> None:
    noted: list[str] = []
    with kept_testbed(2.0) as kept:
        first = kept.of(Named("near", noted))
        assert kept.of(Named("near", noted)) is first
        assert kept.of(Named("far", noted)) is not first
    assert noted == ["near up, dilated by 2", "near down", "far up, dilated by 2", "far down"]


def test_a_network_that_was_taken_down_is_brought_up_anew() -> None:
    noted: list[str] = []
    with kept_testbed(1.0) as kept:
        first = kept.of(Named("near", noted))
        kept.take_down()
        assert noted == ["near up, dilated by 1", "near down"]
        assert kept.of(Named("near", noted)) is not first
    assert noted == 2 * ["near up, dilated by 1", "near down"]


def ended_early(noted: list[str]) -> None:
    with kept_testbed(1.0) as kept:
        kept.of(Named("near", noted))
        raise KeyError("why")


def test_what_is_up_goes_down_if_the_run_ends_early() -> None:
    noted: list[str] = []
    with pytest.raises(KeyError, match="why"):
        ended_early(noted)
    assert noted[-1] == "near down"


def test_a_network_that_does_not_come_up_is_tried_again() -> None:
    noted: list[str] = []

    class Refused(Named):
        @contextmanager
        def up(self, dilation: float) -> Iterator[RunningTestbed]:
            raise OSError(self.name)
            yield

    with kept_testbed(1.0) as kept:
        kept.of(Named("near", noted))
        with pytest.raises(OSError, match="far"):
            kept.of(Refused("far", noted))
        assert noted[-1] == "near down"
        kept.of(Named("near", noted))
    assert noted[2:] == ["near up, dilated by 1", "near down"]
