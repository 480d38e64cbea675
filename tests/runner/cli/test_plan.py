"""Run ``wanbed plan``. Prices are those of Atlas' plan, which need no simulator."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import Result

from tests.support.runner.commands_here import wanbed
from tests.support.runner.planner_instances import ATLAS, document, planned_pricing
from wanbed.results.text import percent_text, three_digits
from wanbed.runner.planner.pricing import simulated_pricing
from wanbed.runner.planner.search_space import Candidate, Price, Pricing

SLOW = [{"between": ["east", "west"], "node_pair_rate": "100Mbit", "latency": "80ms"}]

THREE = {"east": 3, "west": 2, "north": 2}


@pytest.fixture(autouse=True)
def _prices_by_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanbed.runner.planner.planning.simulated_pricing", planned_pricing)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def planned(content: dict[str, Any], *arguments: str) -> Result:
    Path("exp.yaml").write_text(yaml.safe_dump(content))
    return wanbed("plan", "exp.yaml", *arguments)


@pytest.mark.usefixtures("folder")
def test_the_answer_names_datacenters_dp_cells_stages_and_unused_gpus() -> None:
    done = planned(document(THREE, 6, links=SLOW))
    assert done.exit_code == 0
    assert done.output.startswith("exp.yaml: atlas, 6 stages\n")
    assert "DP-cells            1 of 1 pipeline\n" in done.output
    assert "GPUs left unused    1 in " in done.output
    assert "no other that keeps a stage's replicas in one datacenter gives more" in done.output
    assert "greedy" in done.output


@pytest.mark.usefixtures("folder")
def test_a_script_gets_every_figure() -> None:
    answer = json.loads(planned(document(THREE, 7, links=SLOW), "--json").stdout)
    chosen = answer["chosen"]
    assert chosen.keys() == {
        "datacenters",
        "dp_cells",
        "pipelines_per_cell",
        "placement",
        "iteration_time_s",
        "tokens_per_s",
        "gpu_utilization",
        "wan_bytes",
        "sequences",
        "found_by",
        "bottleneck",
    }
    assert chosen["datacenters"][1] == "north"
    assert len(chosen["placement"]) == 7
    assert chosen["found_by"] == "better"
    assert [entry["found_by"] for entry in answer["alternatives"]] == ["greedy"]
    assert answer["unused_gpus"] == {"east": 0, "west": 0, "north": 0}
    assert answer["left_out"] == {}
    assert (answer["complete"], answer["cut_off"]) == (True, None)


def line(output: str, name: str) -> str:
    (found,) = [each for each in output.splitlines() if each.startswith(f"{name:<20}")]
    return found[20:]


@pytest.mark.usefixtures("folder")
def test_the_answer_says_that_the_batch_grows_with_the_pipelines() -> None:
    training = {"stages": 4, "pipelines": 1, "microbatches": 5}
    content = document({"east": 4, "west": 4}, 4, training=training)
    assert line(planned(content).output, "sequences") == (
        "10 an iteration, 5 microbatches a pipeline: the batch grows with the pipelines, with 1 pipeline as in the "
        "file it is 5"
    )
    assert json.loads(planned(content, "--json").stdout)["chosen"]["sequences"] == 10
    content = document({"east": 4, "west": 4}, 4, training={**training, "pipelines": 2})
    assert line(planned(content).output, "sequences") == "10 an iteration, 5 microbatches a pipeline"


@pytest.mark.usefixtures("folder")
def test_a_datacenter_without_a_stage_has_the_reason() -> None:
    content = document({"east": 4, "west": 4, "north": 1}, 4)
    north = json.loads(planned(content, "--json").stdout)["left_out"]["north"]
    assert (north["free_gpus"], north["best_with"], north["tokens_per_s_with"]) == (1, None, None)
    assert north["reason"] == (
        "1 GPU, too few for a stage of 2 pipelines; no plan with it gives more tokens a second, by the bounds"
    )
    assert line(planned(content).output, "why not north") == north["reason"]


@pytest.mark.usefixtures("folder")
def test_of_a_datacenter_left_out_the_best_plan_with_it_is_compared() -> None:
    content = document({"east": 4, "west": 4, "north": 1}, 4)
    answer = json.loads(planned(content, "--json", "--search", "exhaustive").stdout)
    north, chosen = answer["left_out"]["north"], answer["chosen"]
    assert "north" in north["best_with"]["datacenters"]
    less = percent_text(1 - north["tokens_per_s_with"] / chosen["tokens_per_s"])
    cells = f"{north['best_with']['dp_cells']} x {north['best_with']['pipelines_per_cell']}"
    assert north["reason"].endswith(f"; the best simulated plan with it ({cells}) gives {less} fewer tokens a second")


@pytest.mark.usefixtures("folder")
def test_a_search_cut_off_does_not_say_that_a_datacenter_left_out_cannot_be_better() -> None:
    content = document({"east": 4, "west": 4, "north": 4}, 4, links=SLOW)
    answer = json.loads(planned(content, "--json", "--search", "exhaustive", "--simulations", "1").stdout)
    assert {each["reason"] for each in answer["left_out"].values()} == {"no plan with it was simulated"}


@pytest.mark.usefixtures("folder")
def test_without_a_model_sequences_are_counted() -> None:
    content = {**document(THREE, 6, links=SLOW), "model": None}
    assert "\nsequences a second  " in planned(content).output
    chosen = json.loads(planned(content, "--json").stdout)["chosen"]
    assert "tokens_per_s" not in chosen
    assert chosen["sequences_per_s"] > 0


@pytest.mark.usefixtures("folder")
def test_the_three_searches_can_be_asked_for() -> None:
    tokens = [
        json.loads(planned(document(THREE, 7, links=SLOW), "--json", "--search", name).stdout)["chosen"]["tokens_per_s"]
        for name in ("greedy", "better", "exhaustive")
    ]
    assert tokens[0] < tokens[1] == tokens[2]


@pytest.mark.usefixtures("folder")
def test_a_file_whose_own_pipelines_do_not_fit_is_planned_all_the_same() -> None:
    content = document({"east": 4, "west": 4}, 4, training={"stages": 4, "pipelines": 64})
    assert json.loads(planned(content, "--json").stdout)["chosen"]["dp_cells"] == 2


@pytest.mark.usefixtures("folder")
def test_what_if_is_asked_with_set() -> None:
    content = document({"east": 4, "west": 4}, 4)
    more = json.loads(planned(content, "--json", "--set", "topology.datacenters.0.hosts=64").stdout)["chosen"]
    assert (more["datacenters"], more["dp_cells"] * more["pipelines_per_cell"]) == (["east"], 16)


@pytest.mark.usefixtures("folder")
def test_the_first_variant_that_follows_atlas_is_planned_unless_another_is_named() -> None:
    content = document({"east": 4}, 2, variants=[{"name": "pipe", "schedule": "gpipe"}, ATLAS])
    assert json.loads(planned(content, "--json").stdout)["variant"] == "atlas"
    unknown = planned(content, "--variant", "atals")
    assert (unknown.exit_code, unknown.stderr) == (2, "wanbed: --variant atals: exp.yaml has pipe and atlas\n")


@pytest.mark.usefixtures("folder")
def test_every_sweep_point_of_a_sweep_is_planned() -> None:
    content = document(THREE, 6, sweep={"topology.wan.latency": ["10ms", "40ms"]})
    points = json.loads(planned(content, "--json").stdout)["sweep_points"]
    assert [point["swept"] for point in points] == [
        {"topology.wan.latency": "10ms"},
        {"topology.wan.latency": "40ms"},
    ]
    assert points[0]["chosen"]["iteration_time_s"] < points[1]["chosen"]["iteration_time_s"]
    assert planned(content).output.count("topology.wan.latency=") == 2


@pytest.mark.usefixtures("folder")
def test_a_search_that_is_cut_off_says_so() -> None:
    done = planned(document(THREE, 7, links=SLOW), "--simulations", "1")
    assert "search cut off after 1 simulation: a better plan may exist" in done.output
    assert "gives more" not in done.output
    answer = json.loads(planned(document(THREE, 7, links=SLOW), "--simulations", "1", "--json").stdout)
    chosen, most = answer["chosen"]["tokens_per_s"], answer["tokens_per_s_at_most"]
    assert most > chosen
    assert answer["gap"] == pytest.approx(most / chosen - 1)
    more = percent_text(answer["gap"])
    assert f"no plan exceeds     {three_digits(most)} tokens a second, {more} more, by the bounds" in done.output


@pytest.mark.usefixtures("folder")
def test_a_proven_answer_has_no_gap() -> None:
    answer = json.loads(planned(document(THREE, 6, links=SLOW), "--json").stdout)
    assert (answer["gap"], answer["tokens_per_s_at_most"]) == (0, answer["chosen"]["tokens_per_s"])
    assert "no plan exceeds" not in planned(document(THREE, 6, links=SLOW)).output


@pytest.mark.usefixtures("folder")
def test_how_stages_were_chosen_is_reported_where_the_file_does_not_say() -> None:
    content = document({"east": 3, "west": 2}, 1, training={"microbatches": 4})
    assert "5 stages (training.stages is not given: one for every GPU that 1 pipeline would leave)" in planned(
        content
    ).output.replace("\n", " ")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("content", "arguments", "text"),
    [
        (
            document({"east": 2, "west": 2}, 5),
            [],
            "exp.yaml: training.stages: 5 stages need 5 GPUs, one each, and the hosts have 4 (east 2, west 2): add",
        ),
        (document({"east": 2}, 2), ["--search", "best"], "--search best: there are greedy, better and exhaustive"),
        (document({"east": 2}, 2), ["--time-limit", "soon"], "--time-limit: 'soon' is not a duration"),
        (document({"east": 2}, 2), ["--set", "topology.datacenters.3.hosts=1"], "--set topology.datacenters.3.hosts=1"),
        (document({"east": 2}, 2, surprise=1), [], "exp.yaml: surprise: "),
    ],
)
def test_bad_input_is_one_line(content: dict[str, Any], arguments: list[str], text: str) -> None:
    done = planned(content, *arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"wanbed: {text}")
    assert done.stderr.count("\n") == 1


def ended_after(candidates: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ctrl-C come after so many candidates are priced."""

    def pricing(*arguments: Any, **_: object) -> Pricing:
        price, asked = planned_pricing(*arguments), []

        def interrupted(candidate: Candidate) -> Price:
            if len(asked) == candidates:
                raise KeyboardInterrupt
            asked.append(candidate)
            return price(candidate)

        return interrupted

    monkeypatch.setattr("wanbed.runner.planner.planning.simulated_pricing", pricing)


@pytest.mark.usefixtures("folder")
def test_ctrl_c_ends_with_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    ended_after(2, monkeypatch)
    done = planned(document(THREE, 3, links=SLOW), "--search", "exhaustive")
    assert done.exit_code == 130
    assert "search cut off when interrupted, after 2 simulations: a better plan may exist\n" in done.stdout
    assert "chosen" in done.stdout
    assert done.stderr == "wanbed: interrupted, nothing of it is left running\n"
    swept = document(THREE, 3, sweep={"topology.wan.latency": ["10ms", "40ms"]})
    done = planned(swept, "--search", "exhaustive", "--json")
    answer = json.loads(done.stdout)
    assert done.exit_code == 130
    assert answer["complete"] is False
    assert [(point["complete"], point["simulations"]) for point in answer["sweep_points"]] == [(False, 2)]


@pytest.mark.usefixtures("folder")
def test_ctrl_c_before_the_first_simulation_shows_what_promises_the_most(monkeypatch: pytest.MonkeyPatch) -> None:
    ended_after(0, monkeypatch)
    done = planned(document(THREE, 3, links=SLOW))
    assert done.exit_code == 130
    assert "search cut off when interrupted, after 0 simulations: no candidate is simulated\n" in done.stdout
    assert "at most" in done.stdout


@pytest.mark.usefixtures("folder")
def test_a_time_limit_that_is_too_short_for_one_simulation_is_named() -> None:
    done = planned(document(THREE, 3, links=SLOW), "--time-limit", "1ns", "--json")
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["chosen"], answer["complete"]) == (4, None, False)
    assert answer["not_simulated"][0]["tokens_per_s_at_most"] > 0
    refusal = "no candidate was simulated in 1ns of processor time: give a longer --time-limit"
    assert done.stderr == f"wanbed: exp.yaml: {refusal}\n"


@pytest.mark.usefixtures("folder")
def test_every_candidate_that_is_shown_has_its_bottleneck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wanbed.runner.planner.planning.simulated_pricing", simulated_pricing)
    content = document({"east": 2, "west": 2}, 2, links=SLOW)
    shown = planned(content).output.replace("\xa0", " ")
    assert "\nbottleneck          " in shown
    assert "\ncritical path       computing " in shown
    answer = json.loads(planned(content, "--json", "--search", "exhaustive").stdout)
    for each in (answer["chosen"], *answer["alternatives"]):
        path = each["bottleneck"]["critical_path"]
        assert sum(part["share"] for part in path) == pytest.approx(1.0)
        assert path[0]["kind"] in {"computing", "link", "all_reduce", "schedule"}


def without_stages(memory: str) -> dict[str, Any]:
    """Return an experiment that leaves the number of stages to the planner."""
    written = document({"east": 6, "west": 6}, 1)
    training = {"microbatches": 4, "memory": memory}
    return {**written, "compute": {"profile": "a100"}, "training": training}


@pytest.mark.usefixtures("folder")
def test_without_stages_the_answer_has_the_best_number_and_what_each_number_gives() -> None:
    written = without_stages("40GiB")
    text = planned(written).stdout
    answer = json.loads(planned(written, "--json").stdout)
    best = len(answer["chosen"]["placement"])
    assert text.startswith(f"exp.yaml: atlas, {best} stages (training.stages is not given: the best of all numbers)\n")
    assert "memory at most      " in text
    assert " of 40GiB: stage " in text
    assert "Numbers of stages" in text
    assert [each["stages"] for each in answer["stages"]] == list(range(1, 13))
    whole, chosen = answer["stages"][0], answer["stages"][best - 1]
    assert (whole["best"], whole["tokens_per_s"]) == (None, None)
    assert whole["reason"].startswith("training.memory: stage 0 of 1 takes ")
    assert chosen["tokens_per_s"] == answer["chosen"]["tokens_per_s"]
    assert chosen["best"]["placement"] == answer["chosen"]["placement"]
    given = {**written, "training": {**written["training"], "stages": best}}
    assert json.loads(planned(given, "--json").stdout)["chosen"] == answer["chosen"]


PRICES = {
    "east": {"gpu_price": "2USD/h", "egress_price": "0.01USD/GB"},
    "west": {"gpu_price": "1USD/h", "egress_price": "0.01USD/GB"},
    "north": {"gpu_price": "4USD/h", "egress_price": "0.01USD/GB"},
}


@pytest.mark.usefixtures("folder")
def test_with_prices_a_script_gets_the_costs_of_each_plan() -> None:
    answer = json.loads(planned(document({"east": 2, "west": 1}, 3, prices=PRICES), "--json").stdout)
    chosen = answer["chosen"]
    assert chosen["gpus_usd_per_h"] == 2 * 2.0 + 1.0
    # Four microbatches of 1 MiB each way, and a tenth more for headers.
    egress_usd = 2 * 4 * 2**20 * 1.1 * 0.01 / 1e9
    assert chosen["egress_usd_per_iteration"] == pytest.approx(egress_usd)
    usd = 5 / 3600 * chosen["iteration_time_s"] + egress_usd
    assert chosen["usd_per_iteration"] == pytest.approx(usd)
    assert chosen["usd_per_h"] == pytest.approx(usd * 3600 / chosen["iteration_time_s"])
    assert chosen["usd_per_million_tokens"] == pytest.approx(usd * 1e6 / (4 * 4096))


@pytest.mark.usefixtures("folder")
def test_the_cheapest_tokens_are_found_and_the_dearer_datacenters_have_the_reason() -> None:
    content = document({"east": 4, "west": 2, "north": 2}, 2, prices=PRICES)
    done = planned(content, "--objective", "cost")
    assert line(done.output, "datacenters") == "west"
    text = done.output.replace("\N{NO-BREAK SPACE}", " ")
    assert line(text, "cost").endswith("; 2.00 USD an hour: 2.00 USD for GPUs, 0 USD for bytes sent over the WAN")
    assert "costs less a token" in line(text, "found by")
    assert line(text, "why not east").endswith(" costs 100 % more a token")
    answer = json.loads(planned(content, "--objective", "cost", "--json").stdout)
    assert answer["gap"] == 0
    assert answer["usd_per_million_tokens_at_least"] == pytest.approx(answer["chosen"]["usd_per_million_tokens"])


@pytest.mark.usefixtures("folder")
def test_a_plan_stays_within_what_it_may_cost() -> None:
    content = document({"east": 4, "west": 2, "north": 2}, 2, prices=PRICES)
    anything, limited = (
        json.loads(planned(content, "--json", *more).stdout)["chosen"] for more in ([], ["--max-cost", "4USD/h"])
    )
    assert limited["usd_per_h"] <= 4 < anything["usd_per_h"]
    assert limited["tokens_per_s"] < anything["tokens_per_s"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("limit", "least"), [("1USD/h", "2.00 USD an hour"), ("0.0001USD/Mtoken", "USD a million tokens")]
)
def test_where_every_plan_costs_more_the_answer_is_the_cheapest(limit: str, least: str) -> None:
    content = document({"east": 4, "west": 2, "north": 2}, 2, prices=PRICES)
    done = planned(content, "--max-cost", limit)
    assert done.exit_code == 1
    text = done.output.replace("\N{NO-BREAK SPACE}", " ")
    assert f"\nno plan costs {limit} at most: this is the cheapest, " in text
    assert least in text
    assert done.stderr.endswith(f"exp.yaml: no plan found costs {limit} at most: the cheapest is shown\n")
    answer = json.loads(planned(content, "--max-cost", limit, "--json").stdout)
    assert (answer["within_max_cost"], answer["max_cost"], answer["gap"]) == (False, limit, 0)
    assert answer["chosen"]["datacenters"] == ["west"]


@pytest.mark.usefixtures("folder")
def test_a_search_that_is_cut_off_says_how_much_cheaper_a_plan_can_be() -> None:
    content = document({"east": 5, "west": 4, "north": 4}, 4, prices=PRICES, links=SLOW)
    more = ("--objective", "cost", "--search", "exhaustive", "--simulations", "1")
    answer = json.loads(planned(content, *more, "--json").stdout)
    chosen, least = answer["chosen"]["usd_per_million_tokens"], answer["usd_per_million_tokens_at_least"]
    assert least < chosen
    assert answer["gap"] == pytest.approx(chosen / least - 1)
    less = percent_text(1 - least / chosen)
    assert line(planned(content, *more).output, "no plan is below").endswith(
        f", {less} less, by the bounds of what was not simulated"
    )
    beyond = json.loads(planned(content, *more[2:], "--max-cost", "0USD/h", "--json").stdout)
    assert beyond["gap"] is None
    assert beyond["usd_per_h_at_least"] == pytest.approx(4.0)


@pytest.mark.usefixtures("folder")
def test_without_a_model_a_million_sequences_have_a_cost() -> None:
    content = document({"east": 2, "west": 1}, 3, prices=PRICES, model=None)
    assert " a million sequences; " in line(planned(content).output, "cost")
    refusal = planned(content, "--max-cost", "1USD/Mtoken")
    assert refusal.exit_code == 2
    assert refusal.stderr.endswith("without a model no tokens are counted: give a model, or a cost like 40USD/h\n")


@pytest.mark.usefixtures("folder")
def test_costs_are_not_asked_for_without_prices() -> None:
    content = document({"east": 2, "west": 1}, 3)
    assert "cost" not in planned(content).output
    for option in (["--objective", "cost"], ["--max-cost", "4USD/h"]):
        done = planned(content, *option)
        assert (done.exit_code, "the file has no prices: give every datacenter a gpu_price" in done.stderr) == (2, True)
