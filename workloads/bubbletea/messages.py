"""The messages between a controller and the GPUs of its DC: plain values that survive a round trip through JSON.

Times are of the clock of whoever has the message. On the way they count from the trial's start, ``epoch_ns`` on either
clock, because the two may be on machines whose clocks differ.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

ENDLESS_NS = 1 << 62
"""Stands for "never" wherever a time in nanoseconds is expected."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One chunk of one request at one stage.

    ``tokens`` are the chunk's, ``prior_tokens`` those of the chunks before it, ``prompt_tokens`` those of the whole
    prompt. ``layers`` is the number of layers of the stage. ``last`` is true for the prompt's last chunk.
    """

    request: int
    stage: int
    chunk: int
    tokens: int
    prior_tokens: int
    layers: int
    last: bool
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class QueuePiece:
    """Sent by the controller to a GPU: run this piece after those commanded before."""

    gpu: int
    piece: Piece


@dataclass(frozen=True, slots=True)
class PieceDone:
    """Sent by a GPU to the controller: the piece began at ``started_ns`` and left its last layer at ``ended_ns``."""

    request: int
    stage: int
    chunk: int
    started_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True)
class BubbleReport:
    """Sent by a GPU to the controller once an iteration: its predicted bubbles.

    ``bubbles`` are pairs of start and end in nanoseconds after ``anchor_ns``, in order and disjoint, with ``margin_ns``
    already taken off each end. They repeat every ``period_ns``. A GPU that does not train has a ``period_ns`` of 0 and
    no pairs.
    """

    gpu: int
    anchor_ns: int
    period_ns: int
    margin_ns: int
    bubbles: tuple[tuple[int, int], ...]


Message = QueuePiece | PieceDone | BubbleReport


def to_document(message: Message, epoch_ns: int = 0) -> dict[str, Any]:
    """Convert the message to a JSON-serializable dict, with times that count from ``epoch_ns``."""
    return {"message": type(message).__name__, **asdict(_later(message, -epoch_ns))}


def from_document(document: dict[str, Any], epoch_ns: int = 0) -> Message:
    """Convert ``document`` back to its message, whose times count from 0. Raises ValueError if it is not a message."""
    return _later(_message(document), epoch_ns)


def _later(message: Message, by_ns: int) -> Message:
    match message:
        case PieceDone():
            return replace(message, started_ns=message.started_ns + by_ns, ended_ns=message.ended_ns + by_ns)
        case BubbleReport():
            return replace(message, anchor_ns=message.anchor_ns + by_ns)
        case QueuePiece():
            return message


def _message(document: dict[str, Any]) -> Message:
    fields = {name: value for name, value in document.items() if name != "message"}
    try:
        match document.get("message"):
            case "QueuePiece":
                return QueuePiece(fields["gpu"], Piece(**fields["piece"]))
            case "PieceDone":
                return PieceDone(**fields)
            case "BubbleReport":
                bubbles = tuple((start_ns, end_ns) for start_ns, end_ns in fields.pop("bubbles"))
                return BubbleReport(bubbles=bubbles, **fields)
    except (KeyError, TypeError) as fault:
        raise ValueError(f"not a prefill message: {fault}") from None
    raise ValueError(f"not a prefill message: {document.get('message')!r}")
