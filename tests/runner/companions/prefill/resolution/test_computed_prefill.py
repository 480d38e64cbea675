from pathlib import Path
from typing import Any

import pytest

from wanbed.ground.strict_model import InputError
from wanbed.runner.companions.prefill.resolution import check_memory_for_weights
from wanbed.runner.planner.experiment_file import parse_experiment
from wanbed.runner.resolve.experiment import SweepPoint
from wanbed.workloads.bubbletea.prefill_profile import UNMEASURED
from wanbed.workloads.bubbletea.service_config import ServiceConfig
from wanbed.workloads.inference.inference_model import INFERENCE_MODELS, InferenceWork

TINY = INFERENCE_MODELS["llama-tiny"]
REPLAY = {"compute": {"forward": "5ms"}}


def point(
    *, variant: dict[str, Any] | None = None, prefill: dict[str, Any] | None = None, **changes: Any
) -> SweepPoint:
    document = {
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
    }
    return parse_experiment(document, "exp.yaml", Path()).points()[0]


def service(**changes: Any) -> ServiceConfig:
    found = point(**changes).variants[1].service
    assert found is not None
    return found


def test_where_torch_trains_it_computes_prefill_too_with_the_experiments_seed() -> None:
    assert service().inference == InferenceWork(TINY, seed=9, device="cpu", threads=2)


def test_prefill_times_are_measured_or_from_a_named_profile() -> None:
    assert service().profile == UNMEASURED
    named = service(prefill={"model": "llama-8b", "profile": "a100"})
    assert named.profile.source.startswith("Prefill on NVIDIA A100")
    assert named.inference is not None


def test_replayed_or_simulated_prefill_is_not_computed() -> None:
    profile = {"model": "llama-8b", "profile": "a100"}
    for changes in (REPLAY, {"engine": "simulate"}):
        of = point(prefill=profile, **changes).variants[1]
        assert of.service is not None
        assert of.service.inference is None
        assert "inference" not in of.document()["prefill"]
    assert point().variants[1].document()["prefill"]["inference"]["seed"] == 9


def test_a_profile_that_does_not_fit_is_refused_with_the_measured_one_as_remedy() -> None:
    with pytest.raises(InputError, match=r"^exp\.yaml: prefill\.profile: .* one precision, or give measured$"):
        point(prefill={"profile": "a100"})


@pytest.mark.parametrize("changes", [REPLAY, {"engine": "simulate"}])
def test_there_is_nothing_to_measure_where_nothing_is_computed(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"^exp\.yaml: prefill\.profile: measured: .* or the name of a profile$"):
        point(**changes)


@pytest.mark.parametrize("name", ["kv", "activation"])
def test_tensors_that_were_computed_are_not_scaled_down(name: str) -> None:
    with pytest.raises(InputError, match=rf"^exp\.yaml: prefill\.{name}: .*: leave {name} out, or give compute"):
        point(prefill={name: "2KiB"})


def test_the_bubbles_of_torchs_own_schedules_are_not_filled() -> None:
    refusal = r"^exp\.yaml: variants\.1\.prefill: torch-gpipe is run by torch itself.*, or another schedule$"
    with pytest.raises(InputError, match=refusal):
        point(variant={"schedule": "torch-gpipe"})
    pooled = service(variant={"schedule": "torch-gpipe", "prefill": "none", "pool": 2})
    assert pooled.inference is not None


def test_weights_that_do_not_fit_into_the_machine_are_refused_with_their_size() -> None:
    of = service(prefill={"model": "llama-8b", "profile": "a100"})
    with pytest.raises(
        InputError, match=r"^prefill\.model: llama-8b 4 times, .* takes 59\.8 of this machine's 32\.0 GiB: give"
    ):
        check_memory_for_weights([service(), of], 32 * 2**30)
    check_memory_for_weights([service(), of], 64 * 2**30)
    check_memory_for_weights([service()])
