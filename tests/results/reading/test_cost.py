from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.runner.called_wanbed import simulate_here
from wanbed.results.comparison.comparison import check, compare
from wanbed.results.comparison.markdown import markdown
from wanbed.results.reading.cost import TrialPrices
from wanbed.results.reading.headline import headline
from wanbed.results.reading.run import Run
from wanbed.results.report.headline_table import cost_figures, headline_table
from wanbed.results.report.reported_runs import ReportedRuns

PRICES = TrialPrices(7.2, {("a", "b"): 0.5, ("b", "a"): 0.25}, iterations=4)


def test_an_iteration_costs_its_time_on_the_gpus_and_its_part_of_what_was_sent() -> None:
    cost = PRICES.cost({("a", "b"): 8 * 10**9, ("b", "a"): 16 * 10**9}, 2.0)
    assert cost.gpus_usd == pytest.approx(7.2 * 2 / 3600)
    assert cost.egress_usd == (8 * 0.5 + 16 * 0.25) / 4
    assert cost.usd == pytest.approx(2.004)
    assert cost.usd_per_h == pytest.approx(2.004 * 1800)
    assert cost.usd_per_million(500_000) == pytest.approx(4.008)
    assert cost.usd_per_million(None) is None


def test_where_nothing_crosses_the_wan_gpus_alone_are_paid() -> None:
    cost = PRICES.cost({}, 3600.0)
    assert (cost.usd, cost.egress_usd, cost.usd_per_h) == (7.2, 0, 7.2)


WIRE = 1514 / 1448


def document(**changes: Any) -> dict[str, Any]:
    """Return two pipelines of two stages, one in each datacenter, which send 4 MB each way for a microbatch."""
    datacenter = {"gpus_per_host": 2, "serving_hosts": 1}
    return {
        "name": "priced",
        "topology": {
            "datacenters": [
                {"name": "east", "hosts": 4, "gpu_price": "3USD/h", "egress_price": "0.1USD/GB", **datacenter},
                {"name": "west", "hosts": 1, "gpu_price": "1USD/h", "egress_price": "0.2USD/GB", **datacenter},
            ],
            "wan": {"latency": "5ms", "rate": "10Gbit"},
        },
        "model": {"hidden": 64, "context": 1000, "layers": 2, "heads": 2, "vocabulary": 10},
        "compute": {"forward": "10ms", "activation": "4000000B", "gradient": "1B"},
        "training": {"stages": 2, "pipelines": 2, "microbatches": 3, "iterations": 5, "warmup": 2},
        "variants": [{"name": "v", "schedule": "gpipe", "placement": ["east", "west"]}],
        **changes,
    }


def simulated(folder: Path, content: dict[str, Any]) -> Run:
    folder.mkdir(exist_ok=True)
    return simulate_here(yaml.safe_dump(content), folder)


def test_a_run_has_the_costs_of_the_gpus_that_train_and_of_all_its_bytes(tmp_path: Path) -> None:
    (row,) = simulated(tmp_path, document()).summary.to_dict("records")
    each_way_gb = 2 * 3 * 0.004 * WIRE
    egress_usd = each_way_gb * (0.1 + 0.2)
    # Transfers have a header of their own.
    assert row["egress_usd_per_iteration"] == pytest.approx(egress_usd, rel=1e-3)
    assert row["egress_usd_per_iteration"] == pytest.approx(row["wan_bytes"] / 5 / 2 * 0.3 / 1e9, rel=1e-6)
    gpus_usd = (2 * 3 + 2 * 1) * row["iteration_time_s"] / 3600
    assert row["usd_per_iteration"] == pytest.approx(gpus_usd + row["egress_usd_per_iteration"])
    assert row["usd_per_h"] == pytest.approx(row["usd_per_iteration"] * 3600 / row["iteration_time_s"])
    assert row["usd_per_million_tokens"] == pytest.approx(row["usd_per_iteration"] / (2 * 3 * 1000) * 1e6)


def test_a_link_may_have_a_price_of_its_own_and_prices_may_be_swept(tmp_path: Path) -> None:
    content = document(sweep={"topology.links[east to west].egress_price": ["0USD/GB", "1USD/GB"]})
    free, dear = simulated(tmp_path, content).summary.to_dict("records")
    each_way_gb = 2 * 3 * 0.004 * WIRE
    assert free["egress_usd_per_iteration"] == pytest.approx(each_way_gb * 0.2, rel=1e-3)
    assert dear["egress_usd_per_iteration"] == pytest.approx(each_way_gb * 1.2, rel=1e-3)
    assert free["iteration_time_s"] == dear["iteration_time_s"]


def without_prices(content: dict[str, Any]) -> dict[str, Any]:
    for datacenter in content["topology"]["datacenters"]:
        del datacenter["gpu_price"], datacenter["egress_price"]
    return content


def test_without_prices_there_are_no_costs_and_nothing_says_so(tmp_path: Path) -> None:
    run = simulated(tmp_path, without_prices(document()))
    assert run.summary[["usd_per_iteration", "usd_per_h"]].isna().all(axis=None)
    reported = ReportedRuns.of({"run": run})
    table = headline_table(reported)
    assert table is not None
    assert "cost" not in table.markdown("")


def test_prefill_costs_nothing_more_in_bubbles_and_in_a_pool(tmp_path: Path) -> None:
    alone = simulated(tmp_path / "alone", document()).summary.iloc[0]
    prefill = {
        "prefill": {"trace": "poisson", "rate": "20/s"},
        "variants": [{"name": "v", "schedule": "gpipe", "placement": ["east", "west"], "pool": 2}],
    }
    served = simulated(tmp_path / "served", document(**prefill)).summary.iloc[0]
    for row in (alone, served):
        gpus_usd = row["usd_per_iteration"] - row["egress_usd_per_iteration"]
        assert gpus_usd * 3600 / row["iteration_time_s"] == pytest.approx(8.0)
    assert served["egress_usd_per_iteration"] == pytest.approx(alone["egress_usd_per_iteration"])


def test_each_of_several_jobs_pays_for_its_own(tmp_path: Path) -> None:
    variant = {"schedule": "gpipe", "training": {"pipelines": 1}}
    content = document(
        jobs=[
            {"name": "large", "hosts": {"east": 3, "west": 1}, "variants": ["v"]},
            {"name": "small", "hosts": {"east": 1}, "variants": ["w"]},
        ],
        variants=[{**variant, "name": "v", "placement": ["east", "west"]}, {**variant, "name": "w"}],
    )
    for row in simulated(tmp_path, content).summary.to_dict("records"):
        gpus_usd = row["usd_per_iteration"] - row["egress_usd_per_iteration"]
        crosses = row["variant"].startswith("v")
        assert gpus_usd * 3600 / row["iteration_time_s"] == pytest.approx(4.0 if crosses else 6.0)
        assert (row["egress_usd_per_iteration"] > 0) == crosses


def test_the_report_has_a_column_of_costs(tmp_path: Path) -> None:
    run = simulated(tmp_path, document())
    (row,) = headline(run)
    usd = run.summary["usd_per_million_tokens"].iloc[0]
    assert cost_figures(row)["usd_per_million_tokens"] == usd
    table = headline_table(ReportedRuns.of({"run": run}))
    assert table is not None
    text = table.markdown("").replace("\N{NO-BREAK SPACE}", " ")
    assert "cost of a million tokens" in text
    assert " USD an hour" in text
    assert " for bytes sent" in text


def test_prices_do_not_forbid_a_comparison_which_has_the_costs_of_both(tmp_path: Path) -> None:
    a = simulated(tmp_path / "a", document())
    dearer = document()
    dearer["topology"]["datacenters"][1]["egress_price"] = "2USD/GB"
    b = simulated(tmp_path / "b", dearer)
    comparison = compare(check(a, b))
    assert comparison.verdict == "same"
    (pair,) = comparison.document()["sweep_points"]
    costs = pair["usd_per_million_tokens"]
    assert costs == {"a": a.summary["usd_per_million_tokens"].iloc[0], "b": b.summary["usd_per_million_tokens"].iloc[0]}
    assert costs["b"] > costs["a"]
    assert "A and B have different prices: the costs of each are by its own." in comparison.check.caveats
    assert "USD a million tokens" in markdown(comparison)
    free = [simulated(tmp_path / name, without_prices(document())) for name in ("c", "d")]
    same = compare(check(*free))
    assert "usd_per_million_tokens" not in same.document()["sweep_points"][0]
    assert not any("prices" in each for each in same.check.caveats)
