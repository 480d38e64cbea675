"""Summarise what became of a log's packets, in reality or in a model: quantiles of the delay, and loss."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wanbed.runner.learnt_links.logs.packet_log import PacketLog

QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class ReplayOutcome:
    """The quantiles ``QUANTILES`` of the delay of the packets that arrived, and the fraction that did not."""

    delay_ns: tuple[float, ...]
    loss: float

    def error_ns(self, truth: "ReplayOutcome") -> float:
        """Return the mean distance of the delay's quantiles from the true ones."""
        pairs = zip(self.delay_ns, truth.delay_ns, strict=True)
        return sum(abs(own - true) for own, true in pairs) / len(QUANTILES)


def outcome(delay_ns: npt.NDArray[np.float64], sent: int) -> ReplayOutcome:
    """Return the outcome of ``sent`` packets, of which those arrived that have a delay. Without any, it is infinite."""
    quantiles = np.quantile(delay_ns, QUANTILES) if len(delay_ns) else np.full(len(QUANTILES), np.inf)
    return ReplayOutcome(tuple(float(each) for each in quantiles), 1 - len(delay_ns) / sent)


def outcome_of(log: PacketLog) -> ReplayOutcome:
    """Return what became of a log's packets in reality."""
    return outcome(log.delay_ns.astype(np.float64), len(log))
