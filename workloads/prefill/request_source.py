"""Describe the source of a trial's requests. A description can be written down and always gives the same requests."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from workloads.prefill.request import Request
from workloads.prefill.sources.arrivals import gamma, poisson
from workloads.prefill.sources.lengths import LogNormalLengths
from workloads.prefill.sources.trace import scaled
from workloads.prefill.sources.trace_file import read_trace


class SourceKind(StrEnum):
    """The kind of arrivals: a Poisson process, gaps of a Gamma distribution, or a trace's file."""

    POISSON = "poisson"
    GAMMA = "gamma"
    FILE = "file"


@dataclass(frozen=True)
class TokenCount:
    """A number of tokens, drawn from a log-normal distribution; always ``median`` with a ``spread`` of 1."""

    median: int
    spread: float = 1.0


@dataclass(frozen=True)
class RequestSource:
    """The source of a trial's requests, from a seed or a file.

    ``rate_per_s`` is the mean rate of arrivals, of a file too; ``stretched`` means that a file is scaled to it.

    ``variation`` is Gamma's coefficient of variation. A file brings its own lengths; ``skipped_lines`` is the number of
    its lines that are unusable and skipped. ``digest`` is the file's SHA-256. ``stretch`` multiplies every arrival, as
    in an emulation that is dilated by as much.
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
    stretched: bool = False
    skipped_lines: int = 0
    stretch: float = 1.0

    def requests(self) -> Iterator[Request]:
        """Yield all requests in order of arrival: those of a file, or without an end.

        Raises InputError, one line, for a file that cannot be read any more.
        """
        for request in self._requests():
            if self.stretch == 1.0:
                yield request
            else:
                arrival_ns = round(request.arrival_ns * self.stretch)
                yield Request(request.number, arrival_ns, request.prompt_tokens, request.output_tokens)

    def _requests(self) -> Iterator[Request]:
        if self.kind is SourceKind.FILE:
            trace = read_trace(Path(self.path), skip_bad_lines=self.skipped_lines > 0)
            return iter((scaled(trace, self.rate_per_s) if self.stretched else trace).requests)
        lengths = LogNormalLengths(self.prompt.median, self.prompt.spread, self.output.median, self.output.spread)
        if self.kind is SourceKind.GAMMA:
            return gamma(self.rate_per_s, self.variation, lengths, seed=self.seed)
        return poisson(self.rate_per_s, lengths, seed=self.seed)


def striped(requests: Iterator[Request], weights: Sequence[int]) -> Iterator[tuple[int, Request]]:
    """Deal requests to as many receivers as there are ``weights``, in turns and in proportion to these.

    Each goes to the receiver that has least for its weight, the first of equals. Raises ValueError if no weight is > 0.
    """
    if not any(weights):
        raise ValueError("weights: nobody takes a request")
    had = [0] * len(weights)
    takers = [number for number, weight in enumerate(weights) if weight > 0]
    for request in requests:
        taker = min(takers, key=lambda number: ((had[number] + 1) / weights[number], number))
        had[taker] += 1
        yield taker, request
