from dataclasses import asdict

from wanbed.runner.experiment.transport_spec import TransportSpec
from wanbed.runner.resolve.tcp_effects import effects_of


def test_an_ideal_transport_has_no_effect_of_tcp_and_any_other_all_of_them() -> None:
    ideal, real = (effects_of(TransportSpec.model_validate({"model": model})) for model in ("ideal", "auto"))
    assert set(asdict(ideal).values()) == {False}
    assert set(asdict(real).values()) == {True}
