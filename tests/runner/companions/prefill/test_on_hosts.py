import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.runner.small_experiment import sweep_point
from wanbed.ground.dataclass_json import read_config
from wanbed.runner.companions.prefill.on_hosts import (
    CONTROLLER,
    DECODE,
    POOL,
    ServingConfigs,
    ServingOutcome,
    configure_serving,
    gather,
)
from wanbed.runner.emulation.rank_configs import FIRST_PORT, SharedConfig, configure_ranks
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.testbed.network.address_book import AddressBook, LoopbackAddressBook
from wanbed.testbed.rack.clock_line import ClockLine
from wanbed.testbed.rack.driver.machine_clock import TimeLine
from wanbed.workloads.bubbletea.bubble_forecast import IterationPlan, PlannedAction
from wanbed.workloads.bubbletea.prefill_group import GroupGpus, SharedGpuMemory
from wanbed.workloads.bubbletea.prefill_profile import UNMEASURED, PrefillProfile
from wanbed.workloads.bubbletea.prefill_settings import PrefillSettings
from wanbed.workloads.bubbletea.request_source import RequestSource, SourceKind
from wanbed.workloads.bubbletea.service_config import DatacenterService, ServiceConfig, ServingGpu
from wanbed.workloads.compute.backends.torch_backend import TORCH_RENDEZVOUS_NS
from wanbed.workloads.compute.device_settings import DeviceSettings
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS, InferenceWork
from wanbed.workloads.rank_config import RankConfig, read_rank_config
from wanbed.workloads.serving.serving_configs import (
    ControllerConfig,
    DecodeConfig,
    Endpoint,
    GpuServingConfig,
    PoolGpuConfig,
    ServedStage,
    ServingPeers,
)

DILATION = 2.0

EPHEMERAL_PORTS_FROM = 32_768

ITERATION = IterationPlan((PlannedAction(("forward", 0), 0, 10), PlannedAction(("optimizer", -1), 30, 35)), 50)


def one_point(**variant: Any) -> SweepPoint:
    return sweep_point(
        {
            "topology": {
                "datacenters": [
                    {"name": "east", "hosts": 2, "serving_hosts": 2},
                    {"name": "west", "hosts": 2, "serving_hosts": 1},
                ],
                "wan": {"latency": "10ms"},
            },
            "compute": {"forward": "10ms", "activation": "1KiB"},
            "training": {"microbatches": 4, "iterations": 5},
            "prefill": {"rate": "4/s", "slo": "3s"},
            "variants": [{"name": "one", "schedule": "gpipe", **variant}],
        }
    )


def planned(**variant: Any) -> tuple[ServiceConfig, ServingConfigs, list[RankConfig]]:
    point = one_point(**variant)
    (one,) = point.variants
    setting = SharedConfig(
        addresses=AddressBook(point.topology, slot=3),
        connections={(first.host.name, other.host.name): 1 for first, other in one.pairs},
        dilation=DILATION,
        run_token="00112233445566778899aabbccddeeff",  # noqa: S106 - of no run
        epoch_ns=5,
        folder=Path("/trial"),
        parent_pid=7,
    )
    assert one.service is not None
    serving = configure_serving(one.service, setting, {0: ITERATION})
    return one.service, serving, configure_ranks(point, one, replace(setting, serving=serving.gpus))


def test_every_prefilling_gpu_is_in_its_ranks_config(tmp_path: Path) -> None:
    _, serving, ranks = planned()
    assert set(serving.gpus) == {0, 1, 2, 3}
    for rank in ranks:
        assert rank.serving == serving.gpus[rank.rank]
        rank.write(tmp_path / "plan.json")
        assert read_rank_config(tmp_path / "plan.json") == rank


def test_each_datacenter_has_a_controller_and_its_decode_hosts() -> None:
    _, serving, _ = planned()
    assert [(process.host, process.program) for process in serving.processes] == [
        ("east-serving-0", CONTROLLER),
        ("east-serving-0", DECODE),
        ("east-serving-1", DECODE),
        ("west-serving-0", CONTROLLER),
        ("west-serving-0", DECODE),
    ]


def test_a_chunk_goes_from_each_stage_to_the_next_of_the_same_datacenter() -> None:
    service, serving, _ = planned()
    for datacenter in service.datacenters:
        for group in datacenter.groups:
            for gpu, following in pairwise(group.gpus):
                assert serving.gpus[gpu].peers.following == serving.gpus[following].peers.listen
            assert serving.gpus[group.gpus[-1]].peers.following is None


def test_caches_go_where_the_service_says() -> None:
    service, serving, _ = planned()
    for datacenter in service.datacenters:
        plan = serving.gpus[datacenter.groups[0].gpus[0]]
        for request in range(12):
            assert plan.peers.decodes[plan.peers.decode(request)].host == service.decode_host(datacenter, request)
        assert plan.served.kv_sent_bytes(5, 100) == service.kv_sent_bytes(5, 100)


def test_all_processes_listen_on_different_ports_below_the_ephemeral_ones() -> None:
    _, serving, ranks = planned(pool=2)
    listening = [process.config for process in serving.processes]
    ends = [plan.listen for plan in listening if isinstance(plan, ControllerConfig | DecodeConfig)]
    ends += [plan.serving.peers.listen for plan in listening if isinstance(plan, PoolGpuConfig)]
    ends += [plan.peers.listen for plan in serving.gpus.values()]
    taken = [(end.address, end.port) for end in ends] + [
        (rank.rendezvous.listen_address, rank.rendezvous.listen_port) for rank in ranks
    ]
    assert len(taken) == len(set(taken))
    assert all(port < EPHEMERAL_PORTS_FROM for _, port in taken)
    assert all(end.port < FIRST_PORT for end in ends)


def test_every_time_is_dilated() -> None:
    service, serving, _ = planned()
    plan = serving.gpus[0]
    assert plan.settings.slo_ns == DILATION * service.settings.slo_ns
    assert plan.profile.chunk_ns(1, 512, 0) == pytest.approx(DILATION * service.profile.chunk_ns(1, 512, 0), abs=2)


def test_the_planned_iteration_goes_to_its_own_gpu_only() -> None:
    _, serving, _ = planned()
    assert serving.gpus[0].training == IterationPlan(
        (PlannedAction(("forward", 0), 0, 20), PlannedAction(("optimizer", -1), 60, 70)), 100
    )
    assert serving.gpus[1].training is None


def test_the_controller_plans_from_the_same_service_as_the_gpus(tmp_path: Path) -> None:
    _, serving, _ = planned()
    plan = serving.processes[0].config
    plan.write(tmp_path / "plan.json")
    read = read_config(ControllerConfig, tmp_path / "plan.json")
    assert read == plan
    assert read.service.settings == serving.gpus[0].settings


def test_pool_gpus_have_their_own_processes(tmp_path: Path) -> None:
    _, serving, ranks = planned(prefill="none", pool=2)
    assert serving.gpus == {}
    assert all(rank.serving is None for rank in ranks)
    pool = [process for process in serving.processes if process.program == POOL]
    assert [process.host for process in pool] == ["east-serving-0", "east-serving-1"]
    for process in pool:
        process.config.write(tmp_path / "plan.json")
        assert read_config(PoolGpuConfig, tmp_path / "plan.json") == process.config
        assert isinstance(process.config, PoolGpuConfig)
        assert process.config.serving.pooled
        assert process.config.serving.gpu >= len(ranks)


def test_with_torch_processes_get_the_inference_work_and_a_longer_rendezvous(
    tmp_path: Path,
) -> None:
    service, _, _ = planned()
    work = InferenceWork(service.model, seed=4, device=DeviceSettings("cpu"))
    setting = SharedConfig(AddressBook(one_point().topology, slot=3), {}, 1.0, "00" * 16, 5, Path("/trial"), 7)
    serving = configure_serving(replace(service, inference=work), setting)
    for datacenter in service.datacenters:
        for group in datacenter.groups:
            layers = [serving.gpus[gpu].served.layers for gpu in group.gpus]
            assert [layer for each in layers for layer in each] == list(range(service.model.layers))
    decodes = [process.config for process in serving.processes if isinstance(process.config, DecodeConfig)]
    assert {plan.inference for plan in (*serving.gpus.values(), *decodes)} == {work}
    assert {plan.rendezvous_timeout_ns for plan in (*(gpu.peers for gpu in serving.gpus.values()), *decodes)} == {
        TORCH_RENDEZVOUS_NS
    }
    decodes[0].write(tmp_path / "decode.json")
    assert read_config(DecodeConfig, tmp_path / "decode.json") == decodes[0]


def test_an_unmeasured_profile_raises_value_error() -> None:
    service, _, _ = planned()
    setting = SharedConfig(AddressBook(one_point().topology, slot=3), {}, 1.0, "00" * 16, 5, Path("/trial"), 7)
    with pytest.raises(ValueError, match=r"^profile: it is still to be measured$"):
        configure_serving(replace(service, profile=UNMEASURED), setting)


def test_over_a_relay_every_process_has_the_addresses_at_which_it_reaches_the_others() -> None:
    service, _, _ = planned()
    addresses = LoopbackAddressBook(one_point().topology, slot=3)
    setting = SharedConfig(addresses, {}, 1.0, "00" * 16, 5, Path("/trial"), 7, models_tcp=True)
    serving = configure_serving(service, setting)
    hosts = {gpu.number: gpu.host for datacenter in service.datacenters for gpu in datacenter.gpus}
    for number, gpu in serving.gpus.items():
        peers = gpu.peers
        assert peers.listen.address == addresses.address(addresses.topology.host(hosts[number]))
        for peer in (peers.controller, *peers.decodes, *([] if peers.following is None else [peers.following])):
            assert peer.address.startswith("127.6." if peer.host == hosts[number] else "127.7.")


MEMORY = SharedGpuMemory(80 * 10**9, 0)

SERVICE = ServiceConfig(
    (
        DatacenterService(
            "east", (GroupGpus((0,), (MEMORY,)),), (ServingGpu(0, "east-0", 0),), "east-0", ("east-1",), 1
        ),
    ),
    INFERENCE_MODELS["llama-8b"],
    PrefillProfile(1.0, 1.0, 0.0, "test", measured=False),
    PrefillSettings(slo_ns=1_000),
    RequestSource("poisson", SourceKind.POISSON, 4.0, seed=1),
    depth=1,
    kv_token_bytes=2048,
    activation_token_bytes=128,
)

MOVED: dict[str, Any] = {
    "number": 1,
    "datacenter": "east",
    "prompt_tokens": 10,
    "arrival_ns": 100,
    "outcome": "admitted",
    "reason": None,
    "was_held": True,
    "group": 0,
    "chunks": 1,
    "admitted_ns": 200,
    "promised_ns": 900,
    "started_ns": 300,
    "prefilled_ns": 600,
    "kv_moved_ns": 800,
    "output_tokens": 7,
}

REJECTED = {
    **{name: value if not name.endswith("_ns") else None for name, value in MOVED.items()},
    "number": 0,
    "arrival_ns": 20,
    "outcome": "rejected",
    "reason": "slo",
    "group": None,
    "chunks": 0,
}

COUNTS = {"gpu": 0, "deadline_overruns": 3, "overrun_ns": 50, "margins_ns": [20, 40], "kv_bytes": 1, "fault": ""}

RECORDS = {"requests": [MOVED, REJECTED], "latest_arrival_ns": 12}


def gathered(
    folder: Path,
    files: dict[str, object],
    faults: tuple[str, ...] = (),
    service: ServiceConfig = SERVICE,
    line: TimeLine | None = None,
) -> ServingOutcome:
    for name, document in files.items():
        (folder / name).write_text(json.dumps(document))
    end = Endpoint("east-0", "10.0.0.1", 1)
    gpu = GpuServingConfig(
        gpu=0,
        pooled=False,
        served=ServedStage(SERVICE.model, 1, 0, 2048, 128),
        peers=ServingPeers(end, end, (end,), None, 1),
        profile=SERVICE.profile,
        settings=SERVICE.settings,
        counts="",
        epoch_ns=0,
    )
    plans = ServingConfigs(
        {0: gpu}, (), {"east": folder / "records"}, {0: folder / "counts"}, {}, {"east-1": folder / "decode"}
    )
    return gather(service, plans, 2.0, faults, line)


def test_times_are_undilated_and_requests_are_in_order(tmp_path: Path) -> None:
    outcome = gathered(tmp_path, {"records": RECORDS, "counts": COUNTS, "decode": {"kv_bytes": 30}})
    first, second = outcome.requests
    assert (first.request, first.outcome, first.reason, first.arrival_ns) == (0, "rejected", "slo", 10)
    assert (second.arrival_ns, second.admitted_ns, second.promised_ns) == (50, 100, 450)
    assert (second.started_ns, second.prefilled_ns, second.kv_moved_ns) == (150, 300, 400)
    assert (second.output_tokens, second.kv_bytes) == (7, 20_480)


def test_over_machines_times_of_a_controller_are_put_on_the_drivers_clock(tmp_path: Path) -> None:
    files: dict[str, object] = {"records": RECORDS, "counts": COUNTS, "decode": {"kv_bytes": 30}}
    # The controller's clock has gained 40 ns since the trial's start.
    line = TimeLine(1000, {"east-0": "one"}, {"one": ClockLine(1000, 5040.0, 0.0, 3)}, {"one": 5000})
    _, second = gathered(tmp_path, files, line=line).requests
    assert (second.arrival_ns, second.kv_moved_ns) == (30, 380)


def test_the_facts_sum_up_what_workers_and_decode_hosts_counted(tmp_path: Path) -> None:
    facts = gathered(tmp_path, {"records": RECORDS, "counts": COUNTS, "decode": {"kv_bytes": 30}}).facts
    assert facts["counts"]["admitted"] == facts["counts"]["rejected_slo"] == 1
    assert (facts["deadline_overruns"], facts["overrun_ns"]) == (3, 25)
    assert facts["margin_ns"] == {"median": 20, "max": 20}
    assert (facts["kv_bytes"], facts["latest_arrival_ns"]) == (30, 6)
    assert facts["faults"] == []


def test_what_is_missing_is_reported_one_line_each(tmp_path: Path) -> None:
    outcome = gathered(tmp_path, {"records": "torn"} | {"decode": {"kv_bytes": 0}}, ("it ended with status -9",))
    assert outcome.requests == []
    assert outcome.facts["faults"] == [
        "it ended with status -9",
        "the prefill controller of east left no records: its requests are not counted",
        "the prefill worker of GPU 0 left no counts",
    ]


def test_a_worker_that_ended_early_is_reported_with_its_reason(tmp_path: Path) -> None:
    fault = "the controller on east-0 has gone"
    files: dict[str, object] = {"records": RECORDS, "counts": {**COUNTS, "fault": fault}}
    assert gathered(tmp_path, files).facts["faults"] == [f"the prefill worker of GPU 0 ended early: {fault}"]


def test_with_torch_tokens_and_profile_are_reported(tmp_path: Path) -> None:
    computed = replace(SERVICE, inference=InferenceWork(SERVICE.model, 1, DeviceSettings("cpu")))
    files: dict[str, object] = {
        "records": RECORDS,
        "counts": COUNTS,
        "decode": {"kv_bytes": 3, "tokens": {"1": [5, 7]}},
    }
    facts = gathered(tmp_path, files, service=computed).facts
    assert facts["tokens"] == {"1": [5, 7]}
    assert (facts["profile"]["fixed_ns"], facts["profile"]["source"]) == (1.0, "test")
    assert "tokens" not in gathered(tmp_path, files).facts
