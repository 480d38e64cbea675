"""The size of the pieces that replicas pass on: a piece is sent on once all of it has come."""

from typing import Any

import pytest

from tests.runner.simulator.rings.replicas_apart import replicas_apart, simulated
from tests.runner.simulator.variants import all_reduces_ns
from wanbed.runner.resolve.tcp_effects import TcpEffects

MS = 1_000_000
KIB_MS = 1024 / 1e4
"""What 1 KiB takes at 80 Mbit/s."""


def took_ms(all_reduce: str, gradient: str, latency_ms: int, **transport: Any) -> float:
    wan = {"node_pair_rate": "80Mbit", "latency": f"{latency_ms}ms"}
    return max(all_reduces_ns(simulated(replicas_apart(all_reduce, gradient, 4, wan=wan, transport=transport)))) / MS


@pytest.mark.parametrize("latency_ms", [10, 200])
@pytest.mark.parametrize(("piece", "kib"), [("auto", 256), ("1MiB", 1024), ("512KiB", 512), ("64KiB", 64)])
def test_each_step_of_a_ring_takes_a_latency_and_a_piece(piece: str, kib: int, latency_ms: int) -> None:
    # Segments of 1 MiB: a line is busy with all six of them, or waits in each step for the first piece of the next.
    busy_ms = 6 * 1024 * KIB_MS + latency_ms
    waiting_ms = 6 * (latency_ms + kib * KIB_MS) + (1024 - kib) * KIB_MS
    assert took_ms("ring", "4MiB", latency_ms, piece=piece) == pytest.approx(max(busy_ms, waiting_ms), rel=1e-6)


def test_a_chain_is_a_piece_behind_at_each_further_hop() -> None:
    for kib in (1024, 64):
        expected_ms = 2 * 4096 * KIB_MS + 2 * 2 * kib * KIB_MS + 6 * 10
        assert took_ms("chain", "4MiB", 10, piece=f"{kib}KiB") == pytest.approx(expected_ms, rel=1e-6)


def test_an_owner_sums_a_butterflys_part_piece_by_piece() -> None:
    # The first sum follows the first piece of each part. With a single piece all parts have to come first.
    parts_ms = 2 * 1024 * KIB_MS
    assert took_ms("butterfly", "4MiB", 200, piece="1MiB") == pytest.approx(parts_ms + 2 * 200, rel=1e-6)
    assert took_ms("butterfly", "4MiB", 200, piece="64KiB") == pytest.approx(
        1024 * KIB_MS + 64 * KIB_MS + 2 * 200, rel=1e-6
    )


def test_packets_and_their_mean_take_the_same_pieces() -> None:
    by_model = {}
    for model in ("packets", "mean"):
        written = replicas_apart("ring", "4MiB", 4, transport={"piece": "1MiB", "model": model})
        by_model[model] = max(all_reduces_ns(simulated(written, TcpEffects())))
    assert by_model["packets"] == pytest.approx(by_model["mean"], rel=0.03)
