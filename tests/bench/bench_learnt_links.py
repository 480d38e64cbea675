"""What ``wanbed learn-link`` makes of logs whose truth is known: each kind of log, its truth, the fit, and the error.

``python -m tests.bench.bench_learnt_links`` prints the table of docs/learning-a-link.md, in some seconds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from tests.support.runner.known_links import KnownLink, known_log
from wanbed.ground.errors import InputError
from wanbed.results.text import percent_text, rate_text, seconds_text, size_text
from wanbed.runner.learnt_links.held_out import LEARNT, learn
from wanbed.runner.learnt_links.packet_log import PacketLog

SECONDS = 30
LINK = KnownLink(cross_bps=10e6, busy_s=1e6)


@dataclass(frozen=True)
class Kind:
    """A kind of log: the link, the sizes of packets, and by how much the receiver's clock is set half way."""

    link: KnownLink
    sizes_bytes: tuple[int, int] = (300, 1200)
    set_ns: int = 0

    def log(self) -> PacketLog:
        log = known_log(self.link, SECONDS, sizes_bytes=self.sizes_bytes)
        late = log.arrived & (log.arrival_ns > log.span_ns // 2)
        return replace(log, arrival_ns=np.where(late, log.arrival_ns + self.set_ns, log.arrival_ns))


KINDS: Mapping[str, Kind] = {
    "steady traffic of others": Kind(LINK),
    "bursts of others": Kind(replace(LINK, cross_bps=16e6, busy_s=0.8)),
    "nobody else": Kind(replace(LINK, cross_bps=0)),
    "2 % lost before the bottleneck": Kind(replace(LINK, random_loss=0.02, lost_behind=False)),
    "2 % lost behind it": Kind(replace(LINK, random_loss=0.02)),
    "begins with 2 MB queued": Kind(replace(LINK, standing_bytes=2_000_000, buffer_bytes=10**7)),
    "2 MB queued, which never go": Kind(replace(LINK, cross_bps=19.4e6, standing_bytes=2_000_000, buffer_bytes=10**7)),
    "others send more than the line": Kind(replace(LINK, cross_bps=24e6)),
    "packets of ten segments": Kind(replace(LINK, buffer_bytes=10**7), (1514, 15140)),
    "slower than its own log": Kind(replace(LINK, rate_bps=1e6, cross_bps=0, buffer_bytes=10**9)),
    "noise of 20 us": Kind(replace(LINK, noise_s=20e-6)),
    "a clock set by 0.5 s": Kind(LINK, set_ns=500_000_000),
}


def row(name: str, kind: Kind) -> str:
    link = kind.link
    cross_bps = link.cross_bps * (1 if link.busy_s > SECONDS else link.busy_s / (link.busy_s + link.idle_s))
    truth = ", ".join(
        (
            seconds_text(link.base_delay_s),
            rate_text(link.rate_bps),
            f"others {rate_text(cross_bps)}",
            f"lost {percent_text(link.random_loss)}",
            size_text(link.buffer_bytes),
        )
    )
    try:
        learnt = learn(kind.log(), 0.5, 1)
    except InputError as refusal:
        return f"| {name} | {truth} | refused: {refusal} | |"
    found, buffer = learnt.link, learnt.link.buffer
    size = "not known" if buffer.buffer_bytes is None else size_text(buffer.buffer_bytes)
    fit = ", ".join(
        (
            seconds_text(found.base_delay_ns / 1e9) + ("" if found.seen.ever_empty else " or less"),
            rate_text(found.rate_bps),
            f"others {rate_text(float(found.cross_traffic.rate_bps.mean()))}",
            f"lost {percent_text(buffer.random_loss)}",
            size + ("" if found.seen.ever_empty or buffer.buffer_bytes is None else " or more"),
        )
    )
    assert learnt.truth is not None
    error_s = learnt.held_out[LEARNT].error_ns(learnt.truth) / 1e9
    return f"| {name} | {truth} | {fit} | {seconds_text(error_s)} |"


if __name__ == "__main__":
    print("| log | truth | fit | error of replayed delays |")
    print("| --- | --- | --- | --- |")
    for each, of_kind in KINDS.items():
        print(row(each, of_kind), flush=True)
