"""What is true of a source tree with the page's packet reordering; ``test_extending_impairment`` runs this in one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyroute2.netlink.rtnl.tcmsg import tcmsg

from wanbed import results
from wanbed.ground.errors import InputError
from wanbed.ground.impairments import Impairments
from wanbed.netem_profiles.preset import load_preset
from wanbed.results.records.run_store import RunStore
from wanbed.results.records.schema import CalibrationRow
from wanbed.results.report.calibration_table import calibration_table as calibration_section
from wanbed.results.report.reported_runs import ReportedRun
from wanbed.runner.cli.calibrate import _document, calibration_table
from wanbed.runner.emulation.measured_network import _row
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.runner.runs.manifest import gather_manifest
from wanbed.runner.runs.not_modelled import as_written, links_without
from wanbed.testbed.hosts.ping import PingResult
from wanbed.testbed.kernel.qdiscs import netem_options, read_back
from wanbed.testbed.measurement.calibration import LinkMeasurement
from wanbed.testbed.measurement.impairment_measures import compare, udp_goodput_bps
from wanbed.testbed.network.gateway_layout import plan_gateways
from wanbed.testbed.network.gateway_plan import GatewayPlan

EXPERIMENT: dict[str, Any] = {
    "name": "reordered",
    "topology": {
        "datacenters": [{"name": "east", "hosts": 1}, {"name": "west", "hosts": 1}],
        "wan": {"latency": "20ms", "rate": "100Mbit", "reordering": "5%"},
    },
    "compute": {"forward": "20ms", "backward": "40ms", "activation": "1MiB"},
    "training": {"microbatches": 4},
}
FIVE_PERCENT = Impairments(reordering=0.05)  # type: ignore[call-arg]


def point(**wan: str) -> SweepPoint:
    topology = {**EXPERIMENT["topology"], "wan": {**EXPERIMENT["topology"]["wan"], **wan}}
    (only,) = parse_experiment({**EXPERIMENT, "topology": topology}, "exp.yaml", Path()).points()
    return only


def measured(echoes: PingResult) -> LinkMeasurement:
    goodput_bps = udp_goodput_bps(100e6, FIVE_PERCENT)
    impairments = compare(FIVE_PERCENT, FIVE_PERCENT, echoes)
    return LinkMeasurement("east", "west", "wan", 40.0, 40.0, goodput_bps, goodput_bps, impairments, echoes.sent)


OVERTAKING = PingResult(1000, (20.1,) * 98 + (40.1,) * 902)
IN_ORDER = PingResult(1000, (40.1,) * 1000)


def test_an_experiment_file_asks_for_it() -> None:
    assert point().topology.conditions("east", "west").impairments == FIVE_PERCENT


def test_more_than_all_packets_is_refused_in_one_line() -> None:
    with pytest.raises(InputError, match=r"^exp.yaml: topology.wan.reordering: '101%' is above 100%$"):
        point(reordering="101%")


def test_a_network_preset_may_have_it(tmp_path: Path) -> None:
    preset = tmp_path / "own.yaml"
    preset.write_text("title: x\nsource: [{figures: a, origin: b}]\ndefault: {latency: 20ms, reordering: 5%}\n")
    assert {each.impairments for each in load_preset(str(preset), ("east", "west")).values()} == {FIVE_PERCENT}


def test_a_qdisc_is_reported_and_reads_back_the_same() -> None:
    plan = GatewayPlan.from_json(plan_gateways(point().topology, slot=1).to_json())
    assert plan.exact_packets
    netem = plan.gateways[0].wan_ports[0].netem
    for asked in (netem, replace(netem, impairments=Impairments())):
        sent = tcmsg()
        sent["attrs"] = [("TCA_KIND", "netem"), ("TCA_OPTIONS", netem_options(asked))]
        sent.encode()
        received = tcmsg(sent.data)
        received.decode()
        options = received.get_attr("TCA_OPTIONS")
        share = options.get_attr("TCA_NETEM_REORDER")["prob_reorder"] / (2**32 - 1)
        assert (options["gap"], pytest.approx(share)) == ((1, 0.05) if asked is netem else (0, 0.0))
        assert read_back(received) == asked


@pytest.mark.parametrize(("echoes", "within"), [(OVERTAKING, True), (IN_ORDER, False)])
def test_calibration_judges_it_by_echoes(echoes: PingResult, within: bool) -> None:
    assert measured(echoes).within_tolerance is within


def test_goodput_has_what_skips_the_rate() -> None:
    assert measured(OVERTAKING).configured_goodput_bps == pytest.approx(1.05 * 100e6 * 1448 / 1490)


def test_calibrate_prints_it() -> None:
    link = measured(OVERTAKING)
    (document,) = _document([(point(), link)], 1.0)["links"]
    assert (document["configured"]["reordering"], document["measured"]["reordering"]) == (
        0.05,
        pytest.approx(0.05, abs=1e-3),
    )
    table = calibration_table([link], "title", 1.0)
    assert table is not None
    assert "reordering" in table.columns


def test_a_run_and_its_report_have_it(tmp_path: Path) -> None:
    experiment = parse_experiment(EXPERIMENT, "exp.yaml", tmp_path)
    store = RunStore.create(tmp_path, experiment.name, gather_manifest(experiment), experiment.config_hash)
    row = _row(measured(OVERTAKING), 0)
    store.write_calibration(0, [row, CalibrationRow(*row[:7], {}, within_tolerance=True)])
    run = results.load(store.path)
    assert run.manifest["sweep_points"][0]["wan"][0]["reordering"] == 0.05
    table = calibration_section(ReportedRun(run))
    assert table is not None
    assert list(table.columns[1:-1]) == ["RTT measured", "goodput measured", "reordering measured"]
    assert table.rows[0][3].beneath == ("5.00\u00a0%",)


def test_a_simulation_says_that_it_has_none() -> None:
    (lacking,) = as_written(links_without(point().topology))
    assert lacking == {
        "field": "topology.wan.reordering", "asked": "5%", "links": [["east", "west"]], "variants": []
    }  # fmt: skip
