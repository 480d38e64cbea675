from tests.support.runner.taken_values import taken, takes_from_to, words_of_refusal
from wanbed.runner.experiment.variant_spec import VariantSpec


def test_what_is_left_out_is_a_schedule_over_one_connection_that_prefills_nothing() -> None:
    spec = VariantSpec(name="a", schedule="gpipe")
    assert (spec.options, spec.placement, spec.prefill, spec.pool, spec.program) == ({}, None, None, 0, None)
    assert spec.transport.connections == 1
    assert spec.training.stages is None


def test_a_pool_has_up_to_65536_gpus() -> None:
    assert takes_from_to(VariantSpec, "pool", 0, 65_536, name="a", schedule="gpipe")


def test_a_variant_has_a_schedule_or_a_program_and_not_both() -> None:
    program = {"command": ["true"]}
    assert VariantSpec.model_validate({"name": "a", "program": program}).schedule == "program"
    assert taken(VariantSpec, "schedule", "program", name="a", program=program) == ["program"]
    for schedule in (None, "program"):
        assert "schedule: this field is required" in words_of_refusal(VariantSpec, name="a", schedule=schedule)
    assert "leave program or schedule out" in words_of_refusal(VariantSpec, name="a", schedule="gpipe", program=program)


def test_a_placement_is_auto_one_list_or_one_for_each_pipeline() -> None:
    one, each = ["east", "west"], [["east", "west"], ["west", "west"]]
    assert taken(VariantSpec, "placement", "auto", one, each, name="a", schedule="gpipe") == [
        "auto",
        ("east", "west"),
        (("east", "west"), ("west", "west")),
    ]
    wrong: list[object] = [[], [[]], ["east", 5], [["east"], []], [["east"], "west"], 5]
    for written in wrong:
        words = words_of_refusal(VariantSpec, name="a", schedule="gpipe", placement=written)
        assert "placement: " in words
        assert "is not run here, give a list" in words
    for placement in ("auto", one, each):
        read = VariantSpec.model_validate({"name": "a", "schedule": "gpipe", "placement": placement})
        assert read.model_dump(mode="json")["placement"] == placement


def test_diloco_runs_its_inner_schedule_as_well() -> None:
    def schedules(schedule: str, **options: object) -> tuple[str, ...]:
        return VariantSpec.model_validate({"name": "a", "schedule": schedule, "options": options}).schedules

    assert schedules("diloco", inner="zb-h1") == ("diloco", "zb-h1")
    assert schedules("diloco") == ("diloco",)
    assert schedules("diloco", inner=5) == ("diloco",)
    assert schedules("gpipe", inner="zb-h1") == ("gpipe",)
