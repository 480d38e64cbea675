"""How the figures of a metric are written."""

from wanbed.results.comparison.metric import ITERATION_TIME, parse_metric


def test_a_loss_is_written_with_four_digits_and_a_time_in_seconds() -> None:
    assert parse_metric(["loss-at", "60s"]).text(2.5) == "2.5000"
    assert parse_metric(["time-to", "2.5"]).text(2.5) == ITERATION_TIME.text(2.5) == "2.50\N{NO-BREAK SPACE}s"
