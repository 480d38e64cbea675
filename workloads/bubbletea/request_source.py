"""Describe the source of a trial's requests. A description is serializable and always yields the same requests."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from wanbed.workloads.bubbletea.request import Request
from wanbed.workloads.bubbletea.request_traces import scaled
from wanbed.workloads.bubbletea.trace_formats import TraceColumns

LEAST_CV = 0.01
MOST_CV = 100.0
"""The bounds of Gamma's coefficient of variation."""


class SourceKind(StrEnum):
    """The kind of arrivals: a Poisson process, gaps of a Gamma distribution, or a trace file."""

    POISSON = "poisson"
    GAMMA = "gamma"
    FILE = "file"


@dataclass(frozen=True)
class TokenCount:
    """A log-normal distribution of token counts. With a ``spread`` of 1 every count is ``median``."""

    median: int
    spread: float = 1.0


@dataclass(frozen=True)
class RequestSource:
    """The source of a trial's requests: a random process with a seed, or a trace file.

    ``rate_per_s`` is the mean arrival rate, also for a file; ``stretched`` means that the file is scaled to this rate.
    ``variation`` is Gamma's coefficient of variation. ``prompt`` and ``output`` are unused for a file, which has its
    own lengths, in ``columns`` if these are named. ``skipped_lines`` is the number of unusable lines of the file, which
    are skipped; ``digest`` is its SHA-256. ``stretch`` multiplies every arrival time, for an emulation dilated by this
    factor.
    """

    name: str
    kind: SourceKind
    rate_per_s: float
    seed: int
    variation: float = 1.0
    prompt: TokenCount = TokenCount(1024)
    output: TokenCount = TokenCount(128)
    path: str = ""
    digest: str = ""
    columns: TraceColumns | None = None
    stretched: bool = False
    skipped_lines: int = 0
    stretch: float = 1.0

    def requests(self) -> Iterator[Request]:
        """Yield all requests in order of arrival. A random process never ends.

        Raises InputError, one line, if the file has become unreadable.
        """
        for request in self._requests():
            if self.stretch == 1.0:
                yield request
            else:
                arrival_ns = round(request.arrival_ns * self.stretch)
                yield Request(request.number, arrival_ns, request.prompt_tokens, request.output_tokens)

    def _requests(self) -> Iterator[Request]:
        # numpy comes with these, and most experiments have no requests.
        from wanbed.workloads.bubbletea.drawn_requests import LogNormalLengths, gamma, poisson  # noqa: PLC0415
        from wanbed.workloads.bubbletea.trace_reading import read_trace  # noqa: PLC0415

        if self.kind is SourceKind.FILE:
            trace = read_trace(Path(self.path), skip_bad_lines=self.skipped_lines > 0, columns=self.columns)
            return iter((scaled(trace, self.rate_per_s) if self.stretched else trace).requests)
        lengths = LogNormalLengths(self.prompt.median, self.prompt.spread, self.output.median, self.output.spread)
        if self.kind is SourceKind.GAMMA:
            return gamma(self.rate_per_s, self.variation, lengths, seed=self.seed)
        return poisson(self.rate_per_s, lengths, seed=self.seed)


def striped(requests: Iterator[Request], weights: Sequence[int]) -> Iterator[tuple[int, Request]]:
    """Distribute requests over ``len(weights)`` receivers, in proportion to their weights. Yield (receiver, request).

    Each request goes to the receiver r with the least (received + 1) / weight, the lowest r of equals. Raises
    ValueError if no weight is > 0.
    """
    if not any(weights):
        raise ValueError("weights: none is above 0")
    received = [0] * len(weights)
    receivers = [number for number, weight in enumerate(weights) if weight > 0]
    for request in requests:
        receiver = min(receivers, key=lambda number: ((received[number] + 1) / weights[number], number))
        received[receiver] += 1
        yield receiver, request
