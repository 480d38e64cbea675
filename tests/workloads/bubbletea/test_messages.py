import json

import pytest

from wanbed.workloads.bubbletea.messages import (
    BubbleReport,
    Message,
    Piece,
    PieceDone,
    QueuePiece,
    from_document,
    to_document,
)


@pytest.mark.parametrize(
    "message",
    [
        QueuePiece(3, Piece(1, 0, 2, 512, 1024, 16, last=True, prompt_tokens=1536)),
        PieceDone(1, 0, 2, 10, 20),
        BubbleReport(3, 5, 100, 2, ((1, 2), (4, 9))),
        BubbleReport(3, 0, 0, 0, ()),
    ],
)
def test_a_message_comes_out_of_json_as_it_went_in(message: Message) -> None:
    assert from_document(json.loads(json.dumps(to_document(message)))) == message


@pytest.mark.parametrize(
    "document",
    [{}, {"message": "Hello"}, {"message": "PieceDone", "request": 1}, {"message": "QueuePiece", "gpu": 1}],
)
def test_what_is_no_message_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not a prefill message"):
        from_document(document)


def test_times_on_the_way_count_from_the_trials_start_whatever_the_clocks_show() -> None:
    done, report = PieceDone(1, 0, 2, 1010, 1020), BubbleReport(3, 1005, 100, 2, ((1, 2), (4, 9)))
    assert from_document(to_document(done, 1000), 70) == PieceDone(1, 0, 2, 80, 90)
    assert from_document(to_document(report, 1000), 70) == BubbleReport(3, 75, 100, 2, ((1, 2), (4, 9)))
