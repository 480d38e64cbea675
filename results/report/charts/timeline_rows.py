"""Order the rows of a timeline, one for each GPU or each rank of a program, and label them."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from wanbed.results.metrics.gpu_time import Gpus
from wanbed.results.report.charts.drawing.fitted_text import text_width_pt, wrapped
from wanbed.results.text import visible

MAX_GPUS = 24
LABEL_SHARE = 0.25
"""The share of a picture's width that a GPU's label may take. A longer one gives only the host's number."""
HEADING_ROWS = 0.7
"""The height of a datacenter's name above its GPUs, as a share of a GPU's row."""


def gpu_rows(spans: pd.DataFrame) -> pd.DataFrame:
    """Return one row per GPU, datacenters in the order of their first stage; ``row`` counts from the top.

    GPUs of a pool, which have no stage, come after the other GPUs of their datacenter.
    """
    gpus = _gpus(spans)
    gpus.loc[gpus["stage"] < 0, ["pipeline", "stage"]] = np.iinfo(np.int32).max
    gpus["first_stage"] = gpus.groupby("datacenter", observed=True)["stage"].transform("min")
    gpus = gpus.sort_values(["first_stage", "datacenter", "pipeline", "stage", "host", "gpu"], ignore_index=True)
    return gpus.assign(row=range(len(gpus)))[:MAX_GPUS]


def _gpus(spans: pd.DataFrame) -> pd.DataFrame:
    """Return one row per GPU: its datacenter, host and number, and its first stage and pipeline."""
    numbered = Gpus.of(spans)
    span_of_gpu = np.zeros(len(numbered.index), np.int64)
    span_of_gpu[numbered.of_span] = np.arange(len(spans))
    found = spans[["datacenter", "host", "gpu"]].iloc[span_of_gpu].reset_index(drop=True)
    for name in ("stage", "pipeline"):
        least = np.full(len(found), np.iinfo(np.int32).max, np.int32)
        np.minimum.at(least, numbered.of_span, spans[name].to_numpy())
        found[name] = least
    return found


def rank_rows(spans: pd.DataFrame) -> pd.DataFrame:
    """Return one row per rank of a program, datacenters in the order of their first rank, numbered likewise."""
    ranks = spans.groupby("rank", as_index=False).agg(
        datacenter=("datacenter", "first"), host=("host", "first"), gpu=("gpu", "first")
    )
    ranks["first_rank"] = ranks.groupby("datacenter", observed=True)["rank"].transform("min")
    ranks = ranks.sort_values(["first_rank", "rank"], ignore_index=True)
    return ranks.assign(row=range(len(ranks)))[:MAX_GPUS]


def places(rows: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Return the upper end of each GPU's row, with a row's height as unit: each datacenter's name takes its own."""
    datacenters = (rows["datacenter"] != rows["datacenter"].shift()).cumsum().to_numpy(float)
    places: npt.NDArray[np.float64] = rows["row"].to_numpy(float) + HEADING_ROWS * datacenters
    return places


def row_labels(rows: pd.DataFrame, width_pt: float) -> list[str]:
    """Return each rank with its host, or each GPU's host, with the GPU's number if hosts have several.

    A label that is too long is without the rank's host, or without the GPU's datacenter.
    """
    several = rows["gpu"].nunique() > 1
    labels = []
    for row in rows.itertuples():
        gpu = f":{row.gpu}" if several else ""
        if "rank" in rows:
            label, short = visible(f"rank {row.rank} on {row.host}"), f"rank {row.rank}"
        else:
            label, short = visible(f"{row.host}{gpu}"), f"host {str(row.host).removeprefix(f'{row.datacenter}-')}{gpu}"
        labels.append(label if text_width_pt(label) <= width_pt else wrapped(short, width_pt, 1))
    return labels
