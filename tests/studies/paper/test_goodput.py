import pandas as pd
import pytest

from studies.paper.goodput import steady_goodput_bps
from wanbed.results.metrics import Window

S = 1_000_000_000
COLUMNS = ["kind", "host", "datacenter", "peer", "tensor", "iteration", "end_ns", "size_bytes"]


def spans(*received: tuple[str, str, int, float, int]) -> pd.DataFrame:
    """Received by (host, peer, iteration, end in s, bytes); hosts of one letter stand in datacenters of their own."""
    rows = [
        ("receive", host, host[0], peer, "activation", iteration, int(end_s * S), size)
        for host, peer, iteration, end_s, size in received
    ]
    present = [("forward", host, host[0], "", "", 0, 0, 0) for host in ("e", "w", "w2")]
    return pd.DataFrame([*rows, *present], columns=COLUMNS)


def test_the_first_half_in_which_windows_open_does_not_count() -> None:
    found = spans(*(("w", "e", 1, end_s, 1000) for end_s in (1.0, 4.0, 5.0, 6.0, 7.0)))
    assert steady_goodput_bps(found, Window(0, 10 * S)) == pytest.approx(8000)


def test_each_iteration_is_a_flow_of_its_own_and_their_median_is_reported() -> None:
    found = spans(
        *(("w", "e", 1, end_s, 1000) for end_s in (1.0, 2.0)),
        *(("w", "e", 2, end_s, 1000) for end_s in (8.0, 8.5)),
        *(("w", "e", 3, end_s, 1000) for end_s in (9.0, 9.25)),
    )
    assert steady_goodput_bps(found, Window(0, 10 * S)) == pytest.approx(16_000)


def test_what_does_not_cross_the_wan_or_is_outside_the_window_does_not_count() -> None:
    inside = [("w2", "w", 1, end_s, 1000) for end_s in (1.0, 2.0)]
    warming_up = [("w", "e", 0, end_s, 1000) for end_s in (0.1, 0.2)]
    assert steady_goodput_bps(spans(*inside, *warming_up), Window(S, 10 * S)) is None


def test_a_single_transfer_gives_no_goodput() -> None:
    assert steady_goodput_bps(spans(("w", "e", 1, 5.0, 1000)), Window(0, 10 * S)) is None
