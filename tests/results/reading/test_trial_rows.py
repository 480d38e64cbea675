"""The rows of a data frame are divided among trials, and copied only where they lie apart."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wanbed.results.reading.trial_rows import chosen_rows, rows_by_trial
from wanbed.results.records.trial_id import TrialId

KEYS = st.tuples(st.integers(0, 1), st.sampled_from(["atlas", "gpipe"]), st.integers(0, 1))


def frame_of(keys: list[tuple[int, str, int]], kind: str) -> pd.DataFrame:
    columns = [list(column) for column in zip(*keys, strict=True)] if keys else [[], [], []]
    frame = pd.DataFrame(dict(zip(("sweep_point", "variant", "repeat"), columns, strict=True)))
    return frame.assign(variant=frame["variant"].astype(kind), row=range(len(frame)))


@pytest.mark.parametrize("kind", ["str", "category"])
@given(keys=st.lists(KEYS))
def test_every_trial_has_its_rows_in_order(kind: str, keys: list[tuple[int, str, int]]) -> None:
    found = rows_by_trial(frame_of(keys, kind))
    assert {key: own["row"].tolist() for key, own in found.items()} == {
        TrialId(*key): [row for row, each in enumerate(keys) if each == key] for key in set(keys)
    }


def test_rows_that_lie_together_are_not_copied() -> None:
    frame = frame_of([(0, "gpipe", 0)] * 3 + [(1, "gpipe", 0)] * 2, "str")
    for own in (rows_by_trial(frame)[TrialId(1, "gpipe", 0)], chosen_rows(frame, frame["sweep_point"].to_numpy() == 1)):
        assert np.shares_memory(own["row"].to_numpy(), frame["row"].to_numpy())
        assert own["row"].tolist() == [3, 4]


@given(st.lists(st.booleans()))
def test_the_flagged_rows_are_chosen_wherever_they_lie(flags: list[bool]) -> None:
    frame = pd.DataFrame({"row": range(len(flags))})
    chosen = chosen_rows(frame, np.array(flags, bool))
    assert chosen["row"].tolist() == [row for row, flag in enumerate(flags) if flag]
