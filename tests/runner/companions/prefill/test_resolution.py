import re
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.support.present import present
from tests.support.refused import refused
from tests.support.runner.prefill_documents import document, point, with_prefill
from wanbed.ground.dataclass_json import read_config, write_config
from wanbed.ground.errors import InputError
from wanbed.runner.companions.prefill.resolution import OPTIMIZER, check_memory_for_weights, planned_bubbles
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.workloads.bubbletea.prefill_profile import UNMEASURED
from wanbed.workloads.bubbletea.request_source import RequestSource, TokenCount
from wanbed.workloads.bubbletea.service_config import ServiceConfig
from wanbed.workloads.compute.device_settings import DeviceSettings
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS, InferenceWork

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.0,4808,10\n{}2023-11-16 18:17:07.0,300,20\n"


def service(directory: Path = Path(), **changes: Any) -> ServiceConfig:
    return present(point(directory, **changes).variants[0].service)


def variant(**fields: Any) -> dict[str, Any]:
    return {"variants": [{"name": "any", "schedule": "1f1b", **fields}]}


def test_groups_have_replicas_of_the_same_stage() -> None:
    places = point().variants[0].placement.places
    for datacenter in service().datacenters:
        for group in datacenter.groups:
            assert len({places[gpu].stage for gpu in group.gpus}) == 1
            assert {places[gpu].datacenter for gpu in group.gpus} == {datacenter.name}


def test_every_training_gpu_is_in_one_group() -> None:
    gpus = [gpu for datacenter in service().datacenters for group in datacenter.groups for gpu in group.gpus]
    assert sorted(gpus) == list(range(8))


def test_a_policy_of_none_without_a_pool_is_no_service() -> None:
    assert point(**variant(prefill="none")).variants[0].service is None
    assert point(prefill=None).variants[0].service is None


def test_the_pool_is_on_hosts_that_serve_and_numbered_after_the_ranks() -> None:
    found = service(**variant(prefill="none", pool=4))
    assert [[gpu.number for gpu in each.gpus] for each in found.datacenters] == [[8, 9], [10, 11]]
    assert [gpu.host for gpu in found.datacenters[0].gpus] == ["east-serving-0", "east-serving-1"]
    assert all(group.pooled for each in found.datacenters for group in each.groups)


def test_a_pool_of_one_group_leaves_the_other_datacenter_out() -> None:
    found = service(**variant(prefill="none", pool=2))
    assert [each.name for each in found.datacenters] == ["east"]
    assert {datacenter.name for datacenter, _ in islice(found.arrivals(), 10)} == {"east"}


def test_a_pool_beside_planned_prefill_has_groups_after_the_others() -> None:
    found = service(**variant(pool=2))
    assert [[group.pooled for group in each.groups] for each in found.datacenters] == [
        [False, False, True],
        [False] * 2,
    ]
    assert [each.weight for each in found.datacenters] == [3, 2]


def test_smaller_transfers_are_planned_on_a_faster_path() -> None:
    whole, small = (
        service(**with_prefill(kv=None, activation=None)),
        service(**with_prefill(kv="2KiB", activation="128B")),
    )
    assert whole.kv_token_bytes == 64 * small.kv_token_bytes == 128 * 1024
    assert whole.activation_token_bytes == 64 * small.activation_token_bytes
    assert small.settings.transfer_rate_bps == pytest.approx(64 * whole.settings.transfer_rate_bps)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            with_prefill(depth=8),
            "exp.yaml: prefill.depth: 8 GPUs a request, where east trains on 4: give a smaller depth",
        ),
        (with_prefill(training_memory="79GiB"), "exp.yaml: prefill.memory: "),
        (
            with_prefill(profile="a10"),
            "exp.yaml: prefill.profile: there is none of the name 'a10', did you mean 'a100'?",
        ),
        (with_prefill(model="llama-tiny"), "exp.yaml: prefill.profile: prefill profile 'Prefill on NVIDIA A100"),
        (with_prefill(trace="poison"), "exp.yaml: prefill.trace: poison is no file: did you mean 'poisson'?"),
        (
            variant(pool=3),
            "exp.yaml: variants.0.pool: 3 GPUs make no whole groups of 2: give a multiple of prefill.depth",
        ),
        (
            variant(pool=6),
            "exp.yaml: variants.0.pool: 6 GPUs in groups of 2, where the hosts that serve have room for 2",
        ),
        (
            with_prefill(profile="measured"),
            "exp.yaml: prefill.profile: measured: there are times to measure where torch",
        ),
        (
            {
                "topology": {
                    **document()["topology"],
                    "datacenters": [document()["topology"]["datacenters"][0], {"name": "west", "hosts": 4}],
                }
            },
            "exp.yaml: topology.datacenters.1.serving_hosts: prefill in west needs a host",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_its_field(changes: dict[str, Any], text: str) -> None:
    changes = {key: dict(value) if key == "prefill" else value for key, value in changes.items()}
    if "trace" in changes.get("prefill", {}):
        del changes["prefill"]["prompt"]
    assert refused(lambda: point(**changes)).startswith(text)


def of_file(**more: Any) -> dict[str, Any]:
    return {"prefill": {"trace": "trace.csv", "slo": "2s", "kv": "2KiB", "activation": "128B", **more}}


def test_a_trace_keeps_its_rate_or_is_scaled_to_the_one_given(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(AZURE.format(""))
    own, scaled = service(tmp_path, **of_file()), service(tmp_path, **of_file(rate="1/s"))
    assert own.source.rate_per_s == 0.25
    assert [request.arrival_ns for request in own.source.requests()] == [0, 4 * 10**9]
    assert [request.arrival_ns for request in scaled.source.requests()] == [0, 10**9]
    assert [request.prompt_tokens for _, request in scaled.arrivals()] == [4808, 300]


def test_the_columns_of_a_trace_may_have_names_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("sent,in,out\n1.5,300,8\n2,400,9\n")
    columns = {"arrival": "sent", "prompt": "in", "output": "out", "unit": "s"}
    source = service(tmp_path, **of_file(columns=columns)).source
    write_config(source, tmp_path / "config.json")
    for read in (source, read_config(RequestSource, tmp_path / "config.json")):
        assert [(request.arrival_ns, request.prompt_tokens) for request in read.requests()] == [
            (0, 300),
            (5 * 10**8, 400),
        ]


def test_a_bad_line_of_a_trace_is_reported_with_file_and_line(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text(AZURE.format("nonsense\n"))
    with pytest.raises(InputError, match=r"trace\.csv:3: 1 columns, 3 are wanted") as caught:
        point(tmp_path, **of_file())
    assert str(caught.value).startswith(f"{tmp_path}/trace.csv:3: ")
    skipping = service(tmp_path, **of_file(skip_bad_lines=True))
    assert skipping.source.skipped_lines == 1
    assert len(list(skipping.source.requests())) == 2


def test_another_content_of_the_trace_is_another_experiment(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(AZURE.format(""))
    before = point(tmp_path, **of_file()).resolved()
    path.write_text(AZURE.format("").replace("300", "3000"))
    assert point(tmp_path, **of_file()).resolved() != before


def test_settings_follow_the_section_and_the_network_inside_a_datacenter() -> None:
    own = service(**with_prefill(guard="3ms", chunk=256, warmup=2, slo="2s")).settings
    assert (own.policy, own.guard_ns, own.chunk_tokens, own.warmup_iterations) == ("planned", 3 * 10**6, 256, 2)
    assert (own.slo_ns, own.dispatch_ns, own.transfer_latency_ns) == (2 * 10**9, 50_000, 50_000)
    ideal = variant(transport={"model": "ideal"})
    assert service(**with_prefill(kv=None, activation=None), **ideal).settings.transfer_rate_bps == 10**10
    # A token's cache is 128 KiB and its activation 8 KiB: the slower of the two is planned with.
    half = service(**with_prefill(kv="64KiB", activation="1KiB"), **ideal)
    assert half.settings.transfer_rate_bps == 2 * 10**10
    eighth = service(**with_prefill(kv="16KiB", activation="4KiB"), **ideal)
    assert eighth.settings.transfer_rate_bps == 2 * 10**10
    topology = {**document()["topology"], "intra": {"latency": "50us"}}
    unlimited = service(topology=topology, **with_prefill(kv=None, activation=None), **ideal)
    assert unlimited.settings.transfer_rate_bps == 10**15


def test_gpus_that_fill_no_whole_group_are_not_used_and_a_depth_may_be_all_of_a_datacenter() -> None:
    topology = document()["topology"]
    three = [{"name": name, "hosts": 3, "serving_hosts": 1} for name in ("east", "west")]
    training = {"stages": 6, "pipelines": 1, "microbatches": 4, "iterations": 8, "warmup": 4}
    found = service(topology={**topology, "datacenters": three}, training=training)
    assert [len(each.gpus) for each in found.datacenters] == [2, 2]
    assert [len(each.groups) for each in service(**with_prefill(depth=4)).datacenters] == [1, 1]


def test_groups_of_a_pool_go_to_datacenters_in_turn_as_far_as_there_is_room() -> None:
    topology = document()["topology"]
    datacenters = [
        {"name": "east", "hosts": 4, "serving_hosts": 1, "gpus_per_host": 2},
        {"name": "west", "hosts": 4, "serving_hosts": 3, "gpus_per_host": 2},
    ]
    changes: dict[str, Any] = {"topology": {**topology, "datacenters": datacenters}}
    pooled = {}
    for pool in (2, 4, 6, 8):
        found = service(**changes, **variant(prefill="none", pool=pool))
        pooled[pool] = {each.name: len(each.groups) for each in found.datacenters}
    assert pooled == {
        2: {"east": 1},
        4: {"east": 1, "west": 1},
        6: {"east": 1, "west": 2},
        8: {"east": 1, "west": 3},
    }
    west = found.datacenters[1]
    seats = [(gpu.host, gpu.index) for gpu in west.gpus]
    assert seats == [(f"west-serving-{host}", index) for host in range(3) for index in range(2)]
    assert (west.controller_host, west.weight) == ("west-serving-0", 3)
    with pytest.raises(InputError, match="room for 4 such groups"):
        service(**changes, **variant(prefill="none", pool=10))


def test_requests_are_drawn_with_the_seed_of_the_file_and_what_the_section_says() -> None:
    plain = service(**with_prefill(prompt=None), seed=7).source
    assert (plain.kind, plain.rate_per_s, plain.seed, plain.variation) == ("poisson", 40.0, 7, 1.0)
    assert (plain.prompt, plain.output) == (TokenCount(1024, 1.0), TokenCount(128, 1.0))
    drawn = service(
        **with_prefill(trace="gamma", variation=3, prompt={"median": 9, "spread": 2}, output=5), seed=7
    ).source
    assert (drawn.kind, drawn.variation) == ("gamma", 3.0)
    assert (drawn.prompt, drawn.output) == (TokenCount(9, 2.0), TokenCount(5, 1.0))


def test_a_burst_has_no_rate_above_one_a_nanosecond_and_none_that_could_be_scaled(tmp_path: Path) -> None:
    lines = "2023-11-16 18:17:03.0,48,10\n" * 3
    (tmp_path / "trace.csv").write_text(AZURE.split("{}", maxsplit=1)[0].split("\n", maxsplit=1)[0] + "\n" + lines)
    assert service(tmp_path, **of_file()).source.rate_per_s == 1e9
    with pytest.raises(InputError, match=r"prefill\.rate: trace 'trace': its requests arrive at one moment"):
        service(tmp_path, **of_file(rate="1/s"))


def test_memory_beside_training_must_hold_the_weights_and_a_pools_needs_not(tmp_path: Path) -> None:
    tight = with_prefill(memory="20GiB", training_memory="19GiB")
    with pytest.raises(InputError, match=r"prefill\.memory: .* take a deeper pipeline, or more memory"):
        point(**tight)
    found = service(**tight, **variant(prefill="none", pool=2))
    assert {
        memory.training_bytes for each in found.datacenters for group in each.groups for memory in group.memories
    } == {0}


TINY = INFERENCE_MODELS["llama-tiny"]

REPLAY = {"compute": {"forward": "5ms"}}


def torch_point(
    *, variant: dict[str, Any] | None = None, prefill: dict[str, Any] | None = None, **changes: Any
) -> SweepPoint:
    return parse_experiment(
        {
            "topology": {
                "datacenters": [{"name": "east", "hosts": 4, "serving_hosts": 2}],
            },
            "compute": {"kind": "torch", "device": "cpu", "threads": 2, "checkpointing": False},
            "model": {"layers": 4, "hidden": 128, "context": 128, "heads": 4, "vocabulary": 256},
            "training": {"stages": 4, "microbatches": 4, "iterations": 5, "precision": "fp32"},
            "prefill": {"rate": "4/s", "model": "llama-tiny", "profile": "measured", **(prefill or {})},
            "variants": [
                {"name": "alone", "schedule": "gpipe", "prefill": "none"},
                {"name": "filled", "schedule": "gpipe", **(variant or {})},
            ],
            "seed": 9,
            **changes,
        },
        "exp.yaml",
        Path(),
    ).points()[0]


def torch_service(**changes: Any) -> ServiceConfig:
    return present(torch_point(**changes).variants[1].service)


def test_where_torch_trains_it_computes_prefill_too_with_the_experiments_seed() -> None:
    assert torch_service().inference == InferenceWork(TINY, seed=9, device=DeviceSettings("cpu", 2))


def test_prefill_times_are_measured_or_from_a_named_profile() -> None:
    assert torch_service().profile == UNMEASURED
    named = torch_service(prefill={"model": "llama-8b", "profile": "a100"})
    assert named.profile.source.startswith("Prefill on NVIDIA A100")
    assert named.inference is not None


def test_replayed_or_simulated_prefill_is_not_computed() -> None:
    profile = {"model": "llama-8b", "profile": "a100"}
    for changes in (REPLAY, {"engine": "simulate"}):
        of = torch_point(prefill=profile, **changes).variants[1]
        assert present(of.service).inference is None
        assert "inference" not in of.document()["prefill"]
    assert torch_point().variants[1].document()["prefill"]["inference"]["seed"] == 9


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"prefill": {"profile": "a100"}}, r"prefill\.profile: .* one precision, or give measured$"),
        *(
            (elsewhere, r"prefill\.profile: measured: .* or the name of a profile$")
            for elsewhere in (REPLAY, {"engine": "simulate"})
        ),
        *(
            ({"prefill": {name: "2KiB"}}, rf"prefill\.{name}: .*: give compute: .*, or leave {name} out$")
            for name in ("kv", "activation")
        ),
        (
            {"variant": {"schedule": "torch-gpipe"}},
            r"variants\.1\.prefill: torch-gpipe is run by torch itself.*, or another schedule$",
        ),
    ],
)
def test_what_does_not_go_with_prefill_that_is_computed_is_refused(changes: dict[str, Any], text: str) -> None:
    assert re.match(rf"exp\.yaml: {text}", refused(lambda: torch_point(**changes)))


def test_beside_torchs_own_schedules_a_pool_computes() -> None:
    pooled = torch_service(variant={"schedule": "torch-gpipe", "prefill": "none", "pool": 2})
    assert pooled.inference is not None


def test_weights_that_do_not_fit_into_the_machine_are_refused_with_their_size() -> None:
    of = torch_service(prefill={"model": "llama-8b", "profile": "a100"})
    with pytest.raises(
        InputError, match=r"^prefill\.model: llama-8b 4 times, .* takes 59\.8 of this machine's 32\.0 GiB: give"
    ):
        check_memory_for_weights([torch_service(), of], 32 * 2**30)
    check_memory_for_weights([torch_service(), of], 64 * 2**30)
    check_memory_for_weights([torch_service()])


SHARED = {"connections": "auto", "sharing": "temporal"}


def test_the_optimizer_follows_the_actions_of_a_rank() -> None:
    of = point(variants=[{"name": "any", "schedule": "atlas", "options": {"split": "never"}, "transport": SHARED}])
    plans = planned_bubbles(of.topology, of.variants[0])
    assert sorted(plans) == list(range(8))
    for plan in plans.values():
        assert [action.key for action in plan.actions].count(OPTIMIZER) == 1
        assert plan.actions[-1].key == OPTIMIZER
        assert len(plan.actions) == 2 * 4 + 1
        assert plan.actions[-1].end_ns - plan.actions[-1].start_ns == 3_000_000
        assert plan.period_ns >= plan.actions[-1].end_ns


def test_an_unplanned_schedule_has_no_forecast() -> None:
    of = point()
    assert planned_bubbles(of.topology, of.variants[0]) == {}
