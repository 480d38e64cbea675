from dataclasses import replace
from typing import Any

import numpy as np
from rich.console import Console

from wanbed.results.report.prefill.prefill_service import PrefillRow
from wanbed.runner.cli.prefill_outcome import prefill_table, prefill_warnings
from wanbed.runner.cli.terminal import print_table

COUNTS = {"offered": 200, "admitted": 90, "off_loaded": 10, "unfinished": 5}


def row(**changes: Any) -> PrefillRow:
    ttft_ns = np.array([1_000_000_000, 2_000_000_000, 3_000_000_000])
    whole = PrefillRow(
        run="",
        point=0,
        values={"prefill.rate": "4/s"},
        variant="planned",
        policy="planned",
        repeats=1,
        window_s=50.0,
        counts=COUNTS,
        ttft_ns=ttft_ns,
        ttft_without_kv_ns=ttft_ns,
        ttft_of_repeats_ns=(ttft_ns,),
        slo_s=10.0,
        deadline_overruns=0,
        overrun_ns=0,
        gpus=4,
        pool_gpus=1,
        tokens_per_gpu_hour=None,
        pool_equivalent=1.0,
    )
    return replace(whole, **changes)


def shown(*rows: PrefillRow) -> str:
    console = Console(width=120)
    with console.capture() as captured:
        print_table(prefill_table(rows), console)
    return captured.get().replace("\u00a0", " ")


def test_the_line_has_ttft_and_the_shares_admitted_and_unfinished() -> None:
    (line,) = (line for line in shown(row()).splitlines() if "planned" in line)
    cells = [cell.strip() for cell in line.split("│")[1:-1]]
    assert cells == ["request rate 4/s", "planned", "2.00 s", "3.00 s", "200", "100 (50.0 %)", "5 (5.00 %)"]


def test_without_requests_there_are_no_shares_and_a_warning_says_that_none_arrived() -> None:
    none = row(counts=dict.fromkeys(COUNTS, 0), ttft_ns=np.array([], np.int64))
    assert "0 (n/a)" in shown(none)
    (warning,) = prefill_warnings([row(), none])
    assert warning.startswith("prefill: no request arrived in the 50 s after training's warm-up (request rate 4/s, p")


def test_more_than_one_in_twenty_unfinished_is_a_warning_that_names_where() -> None:
    many = row(counts={**COUNTS, "unfinished": 6}, variant="greedy")
    assert not list(prefill_warnings([row()]))
    (warning,) = prefill_warnings([row(), many])
    assert "(request rate 4/s, greedy)" in warning
    assert "planned" not in warning
