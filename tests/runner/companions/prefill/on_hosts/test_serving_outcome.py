import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from wanbed.runner.companions.prefill.on_hosts.serving_configs import ServingConfigs
from wanbed.runner.companions.prefill.on_hosts.serving_outcome import ServingOutcome, gather
from wanbed.testbed.rack.clocks.clock_line import ClockLine
from wanbed.testbed.rack.driver.time_line import TimeLine
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS
from wanbed.workloads.inference.inference_work import InferenceWork
from wanbed.workloads.prefill.control.memory_ledger import SharedGpuMemory
from wanbed.workloads.prefill.control.prefill_group import GroupGpus
from wanbed.workloads.prefill.prefill_profile import PrefillProfile
from wanbed.workloads.prefill.prefill_settings import PrefillSettings
from wanbed.workloads.prefill.request_source import RequestSource, SourceKind
from wanbed.workloads.prefill.service_config import DatacenterService, ServiceConfig, ServingGpu
from wanbed.workloads.serving.serving_configs import Endpoint, GpuServingConfig

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
        model=SERVICE.model,
        profile=SERVICE.profile,
        settings=SERVICE.settings,
        stages=1,
        kv_token_bytes=2048,
        activation_token_bytes=128,
        listen=end,
        controller=end,
        decodes=(end,),
        following=None,
        datacenters=1,
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
    computed = replace(SERVICE, inference=InferenceWork(SERVICE.model, 1, "cpu"))
    files: dict[str, object] = {
        "records": RECORDS,
        "counts": COUNTS,
        "decode": {"kv_bytes": 3, "tokens": {"1": [5, 7]}},
    }
    facts = gathered(tmp_path, files, service=computed).facts
    assert facts["tokens"] == {"1": [5, 7]}
    assert (facts["profile"]["fixed_ns"], facts["profile"]["source"]) == (1.0, "test")
    assert "tokens" not in gathered(tmp_path, files).facts
