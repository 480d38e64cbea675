from typing import Any

import pytest

from wanbed.workloads.bubbletea.prefill_settings import FillPolicy, PrefillSettings


@pytest.mark.parametrize(
    ("name", "least", "word"),
    [
        *((name, 1, "below 1") for name in ("slo_ns", "chunk_tokens", "window", "candidates", "transfer_rate_bps")),
        *((name, 0, "negative") for name in ("switch_ns", "guard_ns", "warmup_iterations", "hold_limit")),
        *((name, 0, "negative") for name in ("dispatch_ns", "transfer_latency_ns")),
    ],
)
def test_a_number_has_a_least_value_and_is_refused_below_it(name: str, least: int, word: str) -> None:
    def made(value: int) -> PrefillSettings:
        fields: dict[str, Any] = {"slo_ns": 1, name: value}
        return PrefillSettings(**fields)

    assert getattr(made(least), name) == least
    with pytest.raises(ValueError, match=f"^{name}: {least - 1} is {word}"):
        made(least - 1)


def test_a_quantile_is_from_0_to_1() -> None:
    for quantile in (0, 1):
        assert PrefillSettings(1, early_quantile=quantile).early_quantile == quantile
    for wrong in (-0.01, 1.01):
        with pytest.raises(ValueError, match=r"^early_quantile: .* is not between 0 and 1"):
            PrefillSettings(1, early_quantile=wrong)


def test_a_service_is_planned_and_watches_six_iterations_unless_told_otherwise() -> None:
    own = PrefillSettings(1)
    assert (own.policy, own.warmup_iterations, own.chunk_tokens) == (FillPolicy.PLANNED, 6, 512)
    assert (own.switch_ns, own.guard_ns, own.dispatch_ns) == (100_000, 0, 0)
    assert (own.window, own.early_quantile, own.hold_limit, own.candidates) == (8, 0.95, 256, 8)
    # 50 us, and 100 Gbit/s: 12.5 bytes a nanosecond.
    assert own.transfer_ns(125) == 50_000 + 10


def test_a_transfer_takes_the_latency_and_its_bits_at_the_rate_rounded_up() -> None:
    own = PrefillSettings(1, transfer_latency_ns=7, transfer_rate_bps=8_000_000_000)
    assert [own.transfer_ns(size) for size in (0, 1, 10)] == [7, 8, 17]
    slow = PrefillSettings(1, transfer_latency_ns=0, transfer_rate_bps=3)
    assert slow.transfer_ns(1) == 2_666_666_667
