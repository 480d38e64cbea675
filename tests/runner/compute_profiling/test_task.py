import pytest

from wanbed.ground.errors import InputError, MissingError
from wanbed.runner.compute_profiling.task import PromptsTask, StagesTask, check_fits, profile_task

NUMBERS = "hidden=64,context=32,heads=4,vocabulary=100"


def stages_task(*models: str, device: str = "cpu", layers: int | None = None) -> StagesTask:
    task = profile_task(models, device, layers=layers)
    assert isinstance(task, StagesTask)
    return task


def prompts_task(model: str, device: str = "cpu", **options: int | list[int]) -> PromptsTask:
    task = profile_task([model], device, **options)  # type: ignore[arg-type]
    assert isinstance(task, PromptsTask)
    return task


@pytest.mark.parametrize(("model", "layers"), [("gpt-a", 2), ("gpt-b", 2), ("gpt-tiny", 1), (NUMBERS, 1)])
def test_a_model_is_measured_as_six_stages_would_cut_it(model: str, layers: int) -> None:
    (measured,) = stages_task(model).models
    assert [stage.position for stage in measured.stages] == ["first", "middle", "last"]
    assert [stage.layers for stage in measured.stages] == [layers] * 3


def test_the_layers_of_a_stage_are_as_many_as_asked() -> None:
    (measured,) = stages_task("gpt-a", layers=3).models
    assert [stage.layers for stage in measured.stages] == [3] * 3


def test_several_models_make_one_profile() -> None:
    assert [model.name for model in stages_task("gpt-a", "gpt-b").models] == ["gpt-a", "gpt-b"]


@pytest.mark.parametrize(("device", "precision"), [("cpu", "fp32"), ("cuda", "bf16")])
def test_the_precision_is_that_of_the_device_unless_asked_for(device: str, precision: str) -> None:
    assert stages_task("gpt-a", device=device).precision == precision
    assert profile_task(["gpt-a"], device, precision="fp32").precision == "fp32"
    with pytest.raises(InputError, match="--precision: torch trains in bf16 or fp32"):
        profile_task(["gpt-a"], device, precision="fp16")


def test_an_inference_model_is_measured_whole_in_its_own_precision() -> None:
    task = prompts_task("llama-8b", "cuda")
    assert (task.precision, task.layers, task.prompts[0], task.prompts[-1]) == ("bf16", range(32), 128, 8192)
    assert prompts_task("llama-tiny").precision == "fp32"


def test_some_layers_stand_for_all_without_the_embedding() -> None:
    assert prompts_task("llama-8b", layers=4).layers == range(1, 5)
    assert prompts_task("llama-8b", layers=32).layers == range(32)


def test_chunks_are_measured_after_every_length_that_leaves_room_in_the_longest_prompt() -> None:
    on_gpu = [(512, prior_tokens) for prior_tokens in (128, 256, 512, 1024, 2048, 4096)]
    assert list(prompts_task("llama-8b", "cuda").chunks) == on_gpu
    assert prompts_task("llama-tiny", prompts=[16, 64, 256], chunk=192).chunks == ((192, 16), (192, 64))
    assert prompts_task("llama-tiny", prompts=[16, 20, 24]).chunks == ((8, 16),)


def test_prompts_are_sorted_and_each_is_there_once() -> None:
    assert prompts_task("llama-tiny", prompts=[64, 16, 64, 256]).prompts == (16, 64, 256)


@pytest.mark.parametrize(
    ("models", "options", "refusal"),
    [
        (["gpt-c"], {}, r"^MODEL: 'gpt-c' is no model: known are gpt-a, gpt-b, gpt-tiny, llama-8b, .*like hidden=512,"),
        (["hidden=64,heads=4"], {}, r"^MODEL hidden=64,heads=4: context: this field is required"),
        (["hidden=64,context=8,hads=4"], {}, r"^MODEL .*: hads: unknown field, did you mean 'heads'\?"),
        (["hidden=64,context=8"], {}, r"^MODEL hidden=64,context=8: heads: 0 is below 1"),
        (["hidden=64,context=8,heads=5,vocabulary=9"], {}, r"^MODEL .*: heads: 5 heads do not share"),
        (["gpt-a", "gpt-a"], {}, r"^MODEL: two of them differ in nothing but layers"),
        (["gpt-a", "llama-8b"], {}, r"^MODEL: llama-8b makes a prefill profile, .*give it alone"),
        (["gpt-a"], {"layers": 0}, r"^--layers: 0 is below 1"),
        (["gpt-a"], {"prompts": [1, 2, 3]}, r"^--prompts: only a model for inference prefills: give llama-8b or "),
        (["llama-8b"], {"layers": 33}, r"^--layers: llama-8b has 1 to 32, not 33"),
        (["llama-8b"], {"precision": "fp32"}, r"^--precision: llama-8b is in bf16: leave --precision out"),
        (["llama-8b"], {"prompts": [128, 128, 256]}, r"^--prompts: give 3 lengths or more"),
        (["gpt-a"], {"chunk": 64}, r"^--chunk: only a model for inference prefills: give llama-8b or "),
        (["llama-8b"], {"prompts": [8, 16, 32], "chunk": 25}, r"^--chunk: a chunk of 25 tokens .*: give 1 to 24$"),
        (["llama-8b"], {"chunk": 0}, r"^--chunk: a chunk of 0 tokens"),
        (["llama-8b"], {"prompts": [0, 128, 256]}, r"^--prompts: give 3 lengths or more, each 1 or above"),
    ],
)
def test_what_cannot_be_measured_is_refused_with_a_remedy(
    models: list[str], options: dict[str, object], refusal: str
) -> None:
    with pytest.raises(InputError, match=refusal):
        profile_task(models, "cpu", **options)  # type: ignore[arg-type]


def test_tasks_larger_than_the_device_memory_are_refused() -> None:
    task = stages_task("gpt-b", device="cuda")
    check_fits(task, "cuda", "NVIDIA H200", 141 * 2**30, 64 * 2**30)
    with pytest.raises(
        MissingError,
        match=r"^memory: gpt-b, first stage of 2 layers: about \d+\.\d GiB, and NVIDIA A10 has 20\.0 GiB free: "
        r"give fewer --layers, free some, or take a larger device$",
    ):
        check_fits(task, "cuda", "NVIDIA A10", 20 * 2**30, 64 * 2**30)


def test_a_gpus_weights_have_to_fit_the_cpus_memory_first() -> None:
    task = stages_task("gpt-b", device="cuda")
    with pytest.raises(
        MissingError, match=r"its weights are made in the CPU's memory, about .*, of which 2\.0 GiB are"
    ):
        check_fits(task, "cuda", "NVIDIA H200", 141 * 2**30, 2 * 2**30)


def test_prompts_that_do_not_fit_are_refused_too() -> None:
    with pytest.raises(MissingError, match=r"^memory: llama-70b, a prompt of 8192 tokens: about 1\d\d\.\d GiB, and "):
        check_fits(prompts_task("llama-70b", "cuda"), "cuda", "NVIDIA H200", 80 * 2**30, 2**40)
