import pytest

from wanbed.workloads.bubbletea.request import Outcome, Reason, Request, RequestRecord, count_outcomes


def test_a_request_may_arrive_at_once_with_one_token_each_way() -> None:
    request = Request(0, 0, 1, 1)
    assert (request.number, request.arrival_ns, request.prompt_tokens, request.output_tokens) == (0, 0, 1, 1)


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ((-1, 0, 1, 1), "number: -1 is negative"),
        ((0, -1, 1, 1), "arrival_ns: -1 is negative"),
        ((0, 0, 0, 1), "prompt_tokens: 0 is below 1"),
        ((0, 0, 1, 0), "output_tokens: 0 is below 1"),
    ],
)
def test_a_request_that_cannot_be_names_its_field(fields: tuple[int, int, int, int], refusal: str) -> None:
    with pytest.raises(ValueError, match=f"^{refusal}$"):
        Request(*fields)


def record(number: int, outcome: Outcome, reason: Reason | None = None, **times: int) -> RequestRecord:
    return RequestRecord(number, "dc", 10, 100, outcome, reason, **times)  # type: ignore[arg-type]


def test_every_request_counts_once_and_late_ones_beside_that() -> None:
    records = [
        record(0, Outcome.ADMITTED, promised_ns=150, kv_moved_ns=150),
        record(1, Outcome.ADMITTED, promised_ns=150, kv_moved_ns=151),
        record(2, Outcome.OFF_LOADED, promised_ns=140, kv_moved_ns=145),
        record(3, Outcome.REJECTED, Reason.SLO, was_held=True),
        record(4, Outcome.HELD, Reason.MEMORY, was_held=True),
        record(5, Outcome.ADMITTED, promised_ns=150),
    ]
    counts = count_outcomes(records, slo_ns=50)
    assert {name: count for name, count in counts.items() if count} == {
        "admitted": 3,
        "off_loaded": 1,
        "rejected_slo": 1,
        "held": 1,
        "late": 1,
        "broken_promises": 2,
        "unfinished": 1,
        "was_held": 2,
    }


def test_times_to_the_first_token_are_from_arrival_with_and_without_the_move() -> None:
    done = record(0, Outcome.ADMITTED, started_ns=110, prefilled_ns=130, kv_moved_ns=145)
    assert (done.queue_ns, done.ttft_without_kv_ns, done.ttft_ns) == (10, 30, 45)
    waiting = record(1, Outcome.HELD)
    assert (waiting.queue_ns, waiting.ttft_without_kv_ns, waiting.ttft_ns) == (None, None, None)
