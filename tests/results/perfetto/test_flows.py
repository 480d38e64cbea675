import numpy as np
import pytest

from tests.results.perfetto.spans_on_paper import receive, send, spans
from wanbed.results.perfetto.flows import Flows, carried_text, match_transfers

GRADIENT = {"tensor": "gradient"}


def pairs(flows: Flows) -> list[tuple[int, int]]:
    return [(int(one), int(other)) for one, other in zip(flows.send, flows.receive, strict=True)]


def test_an_activation_goes_to_the_next_stage_and_a_gradient_to_the_one_before() -> None:
    of = spans(
        receive(2, 15, 30),
        send(1, 10, 20),
        receive(0, 40, 50),
        send(1, 10, 20, **GRADIENT),
        receive(0, 40, 50, **GRADIENT),
    )
    assert pairs(match_transfers(of)) == [(1, 0), (3, 4)]


@pytest.mark.parametrize("field", ["pipeline", "iteration", "microbatch"])
def test_a_receive_of_another_tensor_is_not_matched(field: str) -> None:
    of = spans(send(0, 10, 20), receive(1, 15, 30, **{field: 1}))
    assert pairs(match_transfers(of)) == []


def test_a_send_without_its_receive_gets_no_arrow_nor_the_reverse() -> None:
    of = spans(send(0, 10, 20), receive(1, 15, 30, microbatch=1), send(0, 30, 40, microbatch=2))
    assert pairs(match_transfers(of)) == []


def test_a_transfer_of_an_unknown_tensor_gets_no_arrow() -> None:
    assert pairs(match_transfers(spans(send(0, 10, 20, tensor=""), receive(1, 15, 30, tensor="")))) == []


def test_a_message_between_any_two_ranks_gets_its_arrow() -> None:
    of = spans(
        send(0, 10, 20, tensor="0,3", microbatch=4),
        send(0, 30, 40, tensor="0,3"),
        send(0, 10, 20, tensor="0,2"),
        receive(3, 35, 50, tensor="0,3"),
        receive(3, 15, 30, tensor="0,3"),
        receive(2, 15, 30, tensor="0,2", iteration=1),
    )
    assert pairs(match_transfers(of)) == [(0, 4), (1, 3)]


def test_the_text_of_an_arrow_says_what_is_known_of_its_message() -> None:
    assert [carried_text(tensor) for tensor in ("gradient", "0,3", "")] == ["gradient", "from rank 0 to 3", ""]


def test_something_sent_twice_is_received_in_the_order_of_sending() -> None:
    of = spans(receive(1, 70, 80), receive(1, 20, 30), send(0, 10, 15), send(0, 60, 65), send(0, 90, 95))
    assert pairs(match_transfers(of)) == [(2, 1), (3, 0)]


def test_nothing_arrives_before_it_was_sent() -> None:
    assert pairs(match_transfers(spans(send(0, 10, 20), receive(1, 9, 30)))) == []


@pytest.mark.parametrize(
    ("sent", "received", "leaves_ns"),
    [((10, 20), (30, 40), 11), ((10, 20), (11, 40), 11), ((10, 20), (10, 40), 10), ((10, 11), (12, 13), 10),
     ((10, 10), (10, 10), 10)],
)  # fmt: skip
def test_an_arrow_leaves_inside_its_send_where_it_can(
    sent: tuple[int, int], received: tuple[int, int], leaves_ns: int
) -> None:
    flows = match_transfers(spans(send(0, *sent), receive(1, *received)))
    assert (flows.leaves_ns.tolist(), flows.arrives_ns.tolist()) == ([leaves_ns], [received[0]])


def test_numbers_too_large_to_be_combined_are_distinguished_all_the_same() -> None:
    largest = 2**31 - 1
    far = {"pipeline": largest, "iteration": largest, "microbatch": largest}
    of = spans(
        send(0, 10, 20), send(0, 10, 20, **far), receive(1, 15, 30, **far), receive(1, 15, 30, **far | {"pipeline": 0})
    )
    assert pairs(match_transfers(of)) == [(1, 2)]


def test_a_trial_without_transfers_has_no_arrows() -> None:
    flows = match_transfers(spans({"kind": "forward"}))
    assert all(column.dtype == np.int64 and len(column) == 0 for column in flows)


def test_between_virtual_stages_arrows_follow_the_model_and_not_the_stages() -> None:
    # A V over two stages: stage 1 has virtual stages 1 and 2, stage 0 has 0 and 3.
    of = spans(
        send(0, 10, 20, virtual_stage=0),
        receive(1, 25, 30, virtual_stage=1),
        send(1, 10, 20, virtual_stage=2),
        receive(0, 25, 30, virtual_stage=3),
    )
    assert pairs(match_transfers(of)) == [(0, 1), (2, 3)]
