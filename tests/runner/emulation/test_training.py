from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.runner.two_jobs import two_jobs
from wanbed.runner.emulation import training
from wanbed.runner.emulation.rank_configs import SharedConfig
from wanbed.runner.emulation.training import NumberedPlan, train_at_once
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.connections import count_connections
from wanbed.testbed.network.address_book import AddressBook
from wanbed.testbed.running_testbed import RunningTestbed

(POINT,) = parse_experiment(two_jobs(), "file", Path()).points()

BESIDE = next(variant for variant in POINT.variants if variant.name == "theirs beside ours")


def test_ranks_of_all_jobs_log_beside_their_plans_where_a_rack_looks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[NumberedPlan] = []
    monkeypatch.setattr(training, "run_ranks", lambda _, __, plans, *___, **____: started.extend(plans))
    setting = SharedConfig(
        addresses=AddressBook(POINT.topology, 0),
        connections=count_connections(POINT.topology, BESIDE.pairs, BESIDE.transport),
        dilation=1.0,
        run_token="0" * 32,
        epoch_ns=0,
        folder=tmp_path,
        parent_pid=1,
    )
    testbed = cast("RunningTestbed", SimpleNamespace(gate=lambda *_, **__: nullcontext()))
    nothing: Any = lambda: None  # noqa: E731
    others = train_at_once(testbed, POINT, BESIDE, setting, begin=nothing, meanwhile=nothing)
    assert [plan.rank for plan in started] == [*range(8)]
    logs = [Path(plan.plan.process.span_log) for plan in started]
    assert logs == [tmp_path / f"rank-{rank}.spans" for rank in range(8)]
    # The variant's own ranks come first, under their own numbers; each job finds its peers by its own.
    assert [plan.plan.rank for plan in started] == [*range(4)] * 2
    assert {plan.host for plan in started[:4]} == {place.host.name for place in BESIDE.placement.places}
    assert others == [[tmp_path / f"rank-{rank}.spans" for rank in range(4, 8)]]
