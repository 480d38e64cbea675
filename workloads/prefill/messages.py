"""The messages between the controller and the GPUs of its DC: plain values, which become JSON and come back equal."""

from dataclasses import asdict, dataclass
from typing import Any

ENDLESS_NS = 1 << 62
"""A time that never comes."""


@dataclass(frozen=True, slots=True)
class Piece:
    """One chunk of one request through the layers of one stage.

    ``prior_tokens`` of the ``prompt_tokens`` came in the chunks before; ``last`` where no chunk follows.
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
    """The controller to a GPU: do this piece after those commanded before."""

    gpu: int
    piece: Piece


@dataclass(frozen=True, slots=True)
class PieceDone:
    """A GPU to the controller: a piece has gone through its last layer here; it began at ``started_ns``."""

    request: int
    stage: int
    chunk: int
    started_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True)
class BubbleReport:
    """A GPU to the controller, once an iteration: its bubbles, ``margin_ns`` taken off the end of each.

    ``bubbles`` are pairs of start and end after ``anchor_ns``, apart from each other and in order, and come again every
    ``period_ns``; a GPU that does not train at all has a ``period_ns`` of 0 and no pairs.
    """

    gpu: int
    anchor_ns: int
    period_ns: int
    margin_ns: int
    bubbles: tuple[tuple[int, int], ...]


Message = QueuePiece | PieceDone | BubbleReport


def to_document(message: Message) -> dict[str, Any]:
    """Convert the message to what JSON can hold."""
    return {"message": type(message).__name__, **asdict(message)}


def from_document(document: dict[str, Any]) -> Message:
    """Convert ``document`` back to its message. Raises ValueError if it is none."""
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
        raise ValueError(f"no message of prefill: {fault}") from None
    raise ValueError(f"no message of prefill: {document.get('message')!r}")
