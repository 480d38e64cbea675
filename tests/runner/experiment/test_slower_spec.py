from tests.support.runner.taken_values import taken, takes_from_to, words_of_refusal
from wanbed.runner.experiment.jitter_spec import JitterSpec
from wanbed.runner.experiment.slower_spec import SlowerSpec


def test_a_factor_is_a_number_from_a_thousandth_to_a_thousand() -> None:
    assert taken(SlowerSpec, "factor", 0.001, 1.6, 2, 1000, stage=0) == [0.001, 1.6, 2.0, 1000.0]
    for written in (0.00099, 1000.1, 0, -1, True, "2", None):
        assert "is no factor: give a number from 0.001 to 1000" in words_of_refusal(SlowerSpec, factor=written, stage=0)


def test_it_is_about_gpus_of_a_datacenter_host_pipeline_or_stage() -> None:
    named = {"datacenter": "west", "host": "west-0", "pipeline": 0, "stage": 0}
    for name, value in named.items():
        assert SlowerSpec.model_validate({name: value, "factor": 2}).choice == f"{name} {value}"
    everything = SlowerSpec.model_validate({**named, "factor": 2})
    assert everything.choice == "datacenter west, host west-0, pipeline 0, stage 0"
    assert "name the GPUs that it is about" in words_of_refusal(SlowerSpec, factor=2)


def test_pipelines_and_stages_count_from_0_to_one_less_than_there_can_be() -> None:
    assert takes_from_to(SlowerSpec, "pipeline", 0, 1023, factor=2)
    assert takes_from_to(SlowerSpec, "stage", 0, 1023, factor=2)


def test_a_spread_is_limited_where_times_would_reach_zero() -> None:
    assert taken(JitterSpec, "spread", "30%") == [0.3]
    assert "at most 30%" in words_of_refusal(JitterSpec, spread="30.1%")
    assert taken(JitterSpec, "spread", "57%", distribution="uniform") == [0.57]
    assert "at most 57%" in words_of_refusal(JitterSpec, spread="57.1%", distribution="uniform")
    for distribution in ("gamma", "lognormal"):
        assert taken(JitterSpec, "spread", "100%", distribution=distribution) == [1.0]
