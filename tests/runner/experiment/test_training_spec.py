from tests.support.runner.taken_values import taken, takes_from_to, words_of_refusal
from wanbed.runner.experiment.training_spec import TrainingSpec, VariantTrainingSpec


def test_counts_are_taken_from_end_to_end_of_their_range() -> None:
    for field, least, most in (
        ("iterations", 1, 10_000),
        ("warmup", 0, 10_000),
        ("evaluate_every", 1, 10_000),
        ("held_out_sequences", 1, 65_536),
    ):
        assert takes_from_to(TrainingSpec, field, least, most), field
    for section in (TrainingSpec, VariantTrainingSpec):
        assert takes_from_to(section, "stages", 1, 1024)
        assert takes_from_to(section, "pipelines", 1, 1024)
        assert takes_from_to(section, "microbatches", 1, 4096)
        assert takes_from_to(section, "memory_bound", 1, 4096)
        assert takes_from_to(section, "virtual_stages", 1, 64)


def test_what_is_left_out_is_as_the_page_of_the_experiment_file_says() -> None:
    spec = TrainingSpec()
    assert (spec.pipelines, spec.microbatches, spec.iterations, spec.warmup) == (1, 16, 3, 1)
    assert (spec.stages, spec.memory_bound, spec.virtual_stages, spec.precision) == (None, None, 1, "bf16")
    assert (spec.learning_rate, spec.text, spec.evaluate_every) == (0.0003, None, None)
    assert (spec.held_out, spec.held_out_sequences, spec.vary_seed) == (0.1, 16, False)


def test_a_learning_rate_is_above_zero_and_at_most_one() -> None:
    assert taken(TrainingSpec, "learning_rate", 1, 1e-9) == [1.0, 1e-9]
    for written in (0, 1.001, True, "0.1"):
        assert "is no learning rate" in words_of_refusal(TrainingSpec, learning_rate=written)


def test_fields_that_came_later_are_written_only_where_they_are_not_the_default() -> None:
    later = {"virtual_stages": 2, "evaluate_every": 5, "held_out": "5%", "held_out_sequences": 8, "vary_seed": True}
    written = TrainingSpec.model_validate(later).model_dump(mode="json")
    assert written.items() >= later.items()
    assert TrainingSpec().model_dump(mode="json").keys() == written.keys() - later.keys()
    for name, value in later.items():
        assert TrainingSpec.model_validate({name: value}).model_dump(mode="json")[name] == value
    assert "virtual_stages" not in VariantTrainingSpec().model_dump(mode="json")
    assert VariantTrainingSpec(virtual_stages=1).model_dump(mode="json")["virtual_stages"] == 1
