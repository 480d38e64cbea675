import json
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from wanbed.ground.errors import InputError
from wanbed.workloads.profiles import catalogue
from wanbed.workloads.profiles.catalogue import load_profile, profile_names

ROOT = Path(__file__).resolve().parents[3]
SHIPPED = ("a100", "cpu", "h200")


def a100_with(**changes: object) -> str:
    document = json.loads((ROOT / "workloads/profiles/a100.json").read_text())
    return json.dumps({**document, **changes})


def entry_point(name: str, target: object) -> SimpleNamespace:
    package = SimpleNamespace(name="somebody")
    return SimpleNamespace(name=name, value="somebody:profile", dist=package, load=lambda: target)


def test_the_shipped_profiles_are_known_by_name() -> None:
    assert profile_names() == SHIPPED


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_profile_says_where_its_figures_come_from_and_is_packaged(name: str) -> None:
    assert all(source.figures and source.origin for source in load_profile(name).source)
    packaged = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert "*.json" in packaged["wanbed.workloads.profiles"]


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"^compute\.profile: there is none of the name 'a10', did you mean 'a100'\?"):
        load_profile("a10")
    with pytest.raises(InputError, match=r"'zzz', known: a100, cpu, h200$"):
        load_profile("zzz")


def test_a_users_own_file_works_as_well_as_a_name(tmp_path: Path) -> None:
    (tmp_path / "own.json").write_text(a100_with(title="our own"))
    assert load_profile(str(tmp_path / "own.json")).title == "our own"
    assert load_profile("own.json", relative_to=tmp_path).title == "our own"


@pytest.mark.parametrize(
    ("text", "refusal"),
    [
        (a100_with(effciency=1), r"own\.json: effciency: unknown field, did you mean 'efficiency'\?"),
        (a100_with(efficiency=1.5), r"own\.json: efficiency: "),
        (a100_with(precision="fp8"), r"own\.json: precision: .*'fp8' is none of fp32, bf16"),
        (a100_with(source=[]), r"own\.json: source: "),
        (a100_with(basis="guessed"), r"own\.json: basis: write whether the profile is estimated or measured"),
        (a100_with(basis=["measured"]), r"own\.json: basis: write whether"),
        (a100_with(basis="measured"), r"own\.json: .*unknown field"),
        ("[]", r"own\.json: a profile is an object"),
        ("{", r"own\.json: not JSON: "),
        ("[" * 100_000, r"own\.json: not JSON: "),
        ("\x00", r"own\.json: not JSON: "),
    ],
)
def test_an_unusable_file_is_refused_in_one_line(tmp_path: Path, text: str, refusal: str) -> None:
    (tmp_path / "own.json").write_text(text)
    with pytest.raises(InputError, match=refusal) as refused:
        load_profile("own.json", relative_to=tmp_path)
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.json: No such file"):
        load_profile("missing.json", relative_to=tmp_path)


def test_another_package_adds_a_profile_by_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs.json").write_text(a100_with(title="theirs"))
    points = [entry_point("b200", tmp_path / "theirs.json"), entry_point("a-wan", tmp_path / "wan.yaml")]
    monkeypatch.setattr(catalogue, "installed", lambda _: points)
    assert profile_names() == ("a100", "b200", "cpu", "h200")
    assert load_profile("b200").title == "theirs"


def test_another_package_cannot_take_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "installed", lambda _: [entry_point("a100", tmp_path / "theirs.json")])
    with pytest.raises(InputError, match="somebody gives a profile whose name is taken"):
        load_profile("a100")


def test_an_entry_point_that_leads_to_no_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "installed", lambda _: [entry_point("theirs", 7)])
    with pytest.raises(InputError, match="'theirs': the entry point somebody:profile of somebody"):
        profile_names()


def test_a_long_name_that_no_profile_has_is_cut() -> None:
    with pytest.raises(InputError, match=rf"^compute.profile: there is none of the name '{60 * 'x'}\.\.\.', "):
        load_profile(3000 * "x")
