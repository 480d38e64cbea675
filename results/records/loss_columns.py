"""Define the table of a trial's losses."""

from typing import NamedTuple

import pyarrow as pa

from wanbed.results.records.schema import trial_schema

TRAINING, HELD_OUT = SPLITS = ("training", "held_out")
"""The sequences that a loss is measured on: ``training`` ones, which are learnt from, or ``held_out`` ones."""

LOSSES = trial_schema(
    ("iteration", pa.int32(), "training iteration, from 0, warm-up ones included"),
    (
        "split",
        pa.string(),
        "training: of the sequences of that iteration, before its update; held_out: of sequences that are never "
        "learnt from, after it",
    ),
    ("pipeline", pa.int32(), "the data-parallel replica that it is the loss of"),
    ("loss", pa.float64(), "mean cross entropy of the next tokens, in nats; NaN if the training diverged"),
)


class ReplicaLossRow(NamedTuple):
    """The loss of one replica in one iteration; the columns of ``LOSSES`` after the trial's."""

    iteration: int
    split: str
    pipeline: int
    loss: float
