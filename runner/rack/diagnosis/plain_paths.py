"""Measure the plain network between every two machines of a rack, a few at a time."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wanbed.runner.rack.host_placement import Node
from wanbed.runner.rack.ray_handle import answer_of
from wanbed.testbed.rack.machine_handle import MachineLostError

_PATIENCE_S = 60.0


@dataclass(frozen=True)
class PlainPath:
    """The measured performance of the plain network between two machines.

    ``there_bps`` is the bandwidth from ``one`` to ``other``, ``back_bps`` from ``other`` to ``one``. ``fault`` is the
    reason why it could not be measured, None if it was measured.
    """

    one: str
    other: str
    rtt_ms: float | None = None
    there_bps: float | None = None
    back_bps: float | None = None
    fault: str | None = None

    def bps(self, source: str) -> float | None:
        """Return the bandwidth from one of the two machines to the other."""
        return self.there_bps if source == self.one else self.back_bps


def rounds(names: Sequence[str]) -> Iterator[list[tuple[str, str]]]:
    """Yield every pair of names once, in rounds in which each name is in one pair at most."""
    circle: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    for _ in range(len(circle) - 1):
        pairs = zip(circle[: len(circle) // 2], circle[: len(circle) // 2 - 1 : -1], strict=True)
        yield [(one, other) for one, other in pairs if one is not None and other is not None]
        circle = [circle[0], circle[-1], *circle[1:-1]]


def measure_paths(nodes: Sequence[Node], surveyors: Mapping[str, Any]) -> list[PlainPath]:
    """Measure every path between the machines of ``nodes``, none of whose cards is in two measurements at a time."""
    address_of = {node.name: node.address for node in nodes}
    paths = []
    for pairs in rounds([node.name for node in nodes]):
        under_way = []
        for one, other in pairs:
            token = secrets.token_hex(16)
            try:
                port = answer_of(other, surveyors[other].listen.remote(address_of[other], token), _PATIENCE_S)
            except (OSError, MachineLostError) as fault:
                paths.append(PlainPath(one, other, fault=_line(fault)))
                continue
            answering = surveyors[other].answer.remote()
            measuring = surveyors[one].measure.remote(address_of[other], port, token)
            under_way.append((one, other, answering, measuring))
        for one, other, answering, measuring in under_way:
            paths.append(_path(one, other, answering, measuring))
    order = {node.name: place for place, node in enumerate(nodes)}
    return sorted(map(_the_first_first(order), paths), key=lambda path: (order[path.one], order[path.other]))


def _path(one: str, other: str, answering: Any, measuring: Any) -> PlainPath:
    try:
        found = answer_of(one, measuring, _PATIENCE_S)
        answer_of(other, answering, _PATIENCE_S)
    except (OSError, MachineLostError) as fault:
        return PlainPath(one, other, fault=_line(fault))
    return PlainPath(one, other, found["rtt_ms"], found["out_bps"], found["in_bps"])


def _the_first_first(order: Mapping[str, int]) -> Any:
    def turned(path: PlainPath) -> PlainPath:
        if order[path.one] < order[path.other]:
            return path
        return PlainPath(path.other, path.one, path.rtt_ms, path.back_bps, path.there_bps, path.fault)

    return turned


def _line(fault: BaseException) -> str:
    """Return what went wrong on the machine, without the traceback that Ray adds."""
    cause = getattr(fault, "cause", fault)
    return (str(cause).strip().splitlines() or [type(cause).__name__])[0]
