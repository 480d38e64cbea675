from tests.support.present import present
from wanbed.runner.experiment.model_spec import NAMED_MODELS, ModelSpec
from wanbed.workloads.gpt.gpt_config import Architecture, GptConfig

PLAIN = {"hidden": 8, "context": 4, "layers": 2, "heads": 2, "vocabulary": 11}


def test_what_is_not_written_is_null_so_that_runs_from_before_there_was_such_a_field_compare() -> None:
    written = ModelSpec(**PLAIN).model_dump()
    assert {name: value for name, value in written.items() if value is not None} == PLAIN


def test_what_is_not_written_is_that_of_the_plain_model() -> None:
    assert ModelSpec(**PLAIN).config == GptConfig(2, 8, 4, 2, 11, Architecture.GPT, None, None, tied_head=False)


def test_the_head_of_gpt_2_is_tied_unless_the_file_says_otherwise() -> None:
    for written, tied in ((None, True), (True, True), (False, False)):
        config = present(ModelSpec(**PLAIN, architecture="gpt-2", tied_head=written).config)
        assert (config.architecture, config.tied_head) == (Architecture.GPT_2, tied)
    llama = ModelSpec(**PLAIN, architecture="llama", kv_heads=1, feed_forward=20).config
    assert llama == GptConfig(2, 8, 4, 2, 11, Architecture.LLAMA, 1, 20, tied_head=False)


def test_a_model_with_a_dimension_left_out_is_none_to_build() -> None:
    for left_out in ("layers", "heads", "vocabulary"):
        assert ModelSpec(**{name: value for name, value in PLAIN.items() if name != left_out}).config is None


def test_named_models_are_plain() -> None:
    assert all(model.config is not None and model.config.trains_in_torch for model in NAMED_MODELS.values())
