from pathlib import Path

import pytest

from tests.support import third_party
from wanbed.workloads.compute.backends import registry
from wanbed.workloads.compute.backends.backend import create_backend, load_backend
from wanbed.workloads.compute.backends.registry import backend_class_path, backend_names
from wanbed.workloads.compute.backends.replay_backend import ReplayBackend
from wanbed.workloads.compute.backends.torch_backend import TorchBackend


@pytest.fixture
def third_party_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package of somebody else's that brings the back end ``still``, and a second ``torch``."""
    code = (
        "from wanbed.workloads.compute.backends.replay_backend import ReplayBackend\n"
        "class Still(ReplayBackend):\n    pass\n"
    )
    entries = {"still": "their_compute:Still", "torch": "their_compute:Still"}
    third_party.install(tmp_path, monkeypatch, "their_compute", registry.ENTRY_POINT_GROUP, entries, code=code)


@pytest.mark.parametrize(("name", "expected"), [("replay", ReplayBackend), ("torch", TorchBackend)])
def test_the_back_ends_of_this_package_are_known_by_name(name: str, expected: type) -> None:
    assert load_backend(backend_class_path(name)) is expected


@pytest.mark.usefixtures("third_party_package")
def test_a_back_end_in_another_package_is_known_by_its_name() -> None:
    assert backend_names() == ("replay", "still", "torch")
    assert type(create_backend(backend_class_path("still"), {})).__name__ == "Still"


@pytest.mark.usefixtures("third_party_package")
def test_a_name_that_two_packages_have_is_refused() -> None:
    both = r"^several packages bring a back end 'torch' \(their_compute:Still, wanbed\.workl"
    with pytest.raises(ValueError, match=both):
        backend_class_path("torch")


def test_an_unknown_name_lists_all() -> None:
    with pytest.raises(ValueError, match=r"^'jax' is not known: give 'replay' or 'torch'$"):
        backend_class_path("jax")


def test_a_module_without_the_class_lists_its_back_ends() -> None:
    module = "wanbed.workloads.compute.backends.torch_backend"
    with pytest.raises(ValueError, match=rf"^{module}:Turch: {module} has no class 'Turch': it has TorchBackend$"):
        load_backend(f"{module}:Turch")
    with pytest.raises(ValueError, match=r"has no class 'TorchBakend': did you mean 'TorchBackend'\?$"):
        load_backend(f"{module}:TorchBakend")


def test_a_class_that_is_no_back_end_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^pathlib:Path: Path is not a subclass of .*\.ComputeBackend$"):
        load_backend("pathlib:Path")


def test_options_that_a_back_end_does_not_have_are_refused() -> None:
    with pytest.raises(ValueError, match=r"replay_backend:ReplayBackend: no option 'speed': it takes none$"):
        create_backend(backend_class_path("replay"), {"speed": 2})
