"""The messages between a controller and the GPUs of its DC: plain values that survive a round trip through JSON."""

from dataclasses import asdict, dataclass
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


def to_document(message: Message) -> dict[str, Any]:
    """Convert the message to a JSON-serializable dict."""
    return {"message": type(message).__name__, **asdict(message)}


def from_document(document: dict[str, Any]) -> Message:
    """Convert ``document`` back to its message. Raises ValueError if it is not a message."""
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
