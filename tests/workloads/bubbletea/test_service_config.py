from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from wanbed.ground.dataclass_json import read_config, write_config
from wanbed.workloads.bubbletea.prefill_group import GroupGpus, SharedGpuMemory
from wanbed.workloads.bubbletea.prefill_profile import PrefillProfile
from wanbed.workloads.bubbletea.prefill_settings import FillPolicy, PrefillSettings
from wanbed.workloads.bubbletea.request_source import RequestSource, SourceKind
from wanbed.workloads.bubbletea.service_config import DatacenterService, ServiceConfig, ServingGpu
from wanbed.workloads.compute.device_settings import DeviceSettings
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS, InferenceWork

MEMORY = SharedGpuMemory(80 * 2**30, 30 * 2**30)


def service(name: str, first: int, groups: int) -> DatacenterService:
    gpus = range(first, first + 2 * groups)
    return DatacenterService(
        name,
        tuple(GroupGpus((gpu, gpu + 1), (MEMORY, MEMORY)) for gpu in gpus[::2]),
        tuple(ServingGpu(gpu, f"{name}-{gpu - first}", 0) for gpu in gpus),
        f"{name}-serving-0",
        (f"{name}-serving-0", f"{name}-serving-1"),
        groups,
    )


PLAN = ServiceConfig(
    (service("east", 0, 2), service("west", 4, 1)),
    INFERENCE_MODELS["llama-8b"],
    PrefillProfile(60_000.0, 2_500.0, 0.5, "paper", measured=False),
    PrefillSettings(slo_ns=10**10, policy=FillPolicy.GREEDY),
    RequestSource("poisson", SourceKind.POISSON, 4.0, seed=1),
    depth=2,
    kv_token_bytes=2048,
    activation_token_bytes=128,
)


def test_a_plan_comes_back_from_its_file_as_it_was(tmp_path: Path) -> None:
    write_config(PLAN, tmp_path / "plan.json")
    assert read_config(ServiceConfig, tmp_path / "plan.json") == PLAN


def test_a_policy_that_there_is_not_is_refused_by_its_field(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write_config(PLAN, path)
    path.write_text(path.read_text().replace('"greedy"', '"gredy"'))
    with pytest.raises(ValueError, match=r"settings\.policy: 'gredy' is none of none, planned, greedy"):
        read_config(ServiceConfig, path)


def test_requests_are_distributed_in_proportion_to_the_groups() -> None:
    striped = [datacenter.name for datacenter, _ in islice(PLAN.arrivals(), 300)]
    assert striped.count("east") == 200
    assert all(striped[start : start + 3].count("west") == 1 for start in range(0, 300, 3))


def test_a_dilated_service_has_every_time_stretched_alike() -> None:
    slow = PLAN.dilated(2)
    assert slow.settings.slo_ns == 2 * PLAN.settings.slo_ns
    assert slow.settings.transfer_ns(10**6) == 2 * PLAN.settings.transfer_ns(10**6)
    assert slow.profile.chunk_ns(4, 512, 100) == 2 * PLAN.profile.chunk_ns(4, 512, 100)
    pairs = zip(islice(slow.arrivals(), 50), islice(PLAN.arrivals(), 50), strict=True)
    assert all(later.arrival_ns == 2 * request.arrival_ns for (_, later), (_, request) in pairs)


def test_the_cache_of_all_stages_is_that_of_the_model() -> None:
    sent = [PLAN.kv_sent_bytes(layers, 1000) for layers in PLAN.model.stage_layers(2)]
    assert sum(sent) == 2048 * 1000


def test_decode_hosts_take_turns() -> None:
    east = PLAN.datacenters[0]
    hosts = [PLAN.decode_host(east, number) for number in range(8)]
    assert hosts.count("east-serving-0") == hosts.count("east-serving-1") == 4


def test_decode_hosts_of_a_datacenter_take_turns_by_rounds_of_requests_over_the_datacenters() -> None:
    # Requests alternate over two datacenters, so each has the same host for two numbers, and then the other one.
    west = PLAN.datacenters[1]
    assert [PLAN.decode_host(west, number)[-1] for number in range(6)] == ["0", "0", "1", "1", "0", "0"]


def test_bytes_on_the_network_grow_with_tokens_and_a_cache_is_never_nothing() -> None:
    assert PLAN.activation_sent_bytes(5) == 5 * 128
    assert PLAN.kv_sent_bytes(32, 3) == 3 * 2048
    assert PLAN.kv_sent_bytes(8, 3) == 3 * 2048 * 8 // 32
    assert replace(PLAN, kv_token_bytes=1).kv_sent_bytes(1, 31) == 1
    assert replace(PLAN, kv_token_bytes=1).kv_sent_bytes(1, 64) == 2


def test_a_document_names_the_work_of_torch_only_where_torch_computes() -> None:
    assert "inference" not in PLAN.document()
    assert PLAN.document()["depth"] == 2
    work = InferenceWork(INFERENCE_MODELS["llama-tiny"], 7, DeviceSettings("cpu"))
    assert replace(PLAN, inference=work).document()["inference"]["seed"] == 7


def test_every_time_of_a_dilated_service_is_stretched_and_its_counts_are_not() -> None:
    own = PrefillSettings(10**9, guard_ns=300, switch_ns=200, dispatch_ns=100, transfer_latency_ns=50)
    slow = replace(PLAN, settings=own).dilated(1.5)
    assert slow.settings == replace(
        own,
        slo_ns=1_500_000_000,
        guard_ns=450,
        switch_ns=300,
        dispatch_ns=150,
        transfer_latency_ns=75,
        transfer_rate_bps=66_666_666_667,
    )
    assert (slow.profile.fixed_ns, slow.profile.per_token_ns) == (90_000.0, 3_750.0)
    assert slow.profile.per_token_pair_ns == 0.75
    assert slow.dilated(2).source.stretch == 3.0
    assert replace(PLAN, settings=replace(own, transfer_rate_bps=1)).dilated(9).settings.transfer_rate_bps == 1
