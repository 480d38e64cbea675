"""The options of ``schedule: diloco``, and the page that describes them."""

import re
from pathlib import Path

import pytest

from tests.support.runner.taken_values import taken, words_of_refusal
from wanbed.ground.errors import InputError
from wanbed.runner.trainings.local_updates.spec import (
    AtomOptions,
    DilocoOptions,
    OuterSpec,
    parse_atom_options,
    parse_diloco_options,
)

PAGE = Path(__file__).resolve().parents[4] / "docs" / "local-updates.md"


def test_defaults_are_those_of_diloco_s_paper() -> None:
    options = parse_diloco_options({"sync_every": 500}, "variants.0.options")
    assert (options.outer.lr, options.outer.momentum, options.alpha, options.delay) == (0.7, 0.9, 0.0, 0)


def test_the_page_has_every_option_and_its_default() -> None:
    section = PAGE.read_text(encoding="utf-8").split("## Options")[1].split("## ")[0]
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert {name for names, *_ in rows for name in re.findall(r"`(\w+)`", names)} == set(DilocoOptions.model_fields)
    for names, default, _ in rows:
        (name, *_) = re.findall(r"`(\w+)`", names)
        written = DilocoOptions.model_fields[name].default
        if isinstance(written, int | float):
            assert default == f"{written:g}"


def test_options_are_taken_from_end_to_end_of_their_range() -> None:
    ranges: dict[str, tuple[float, float]] = {
        "sync_every": (1, 10_000),
        "fragments": (1, 10_000),
        "delay": (0, 10_000),
        "alpha": (0.0, 1.0),
        "quorum": (1, 1024),
    }
    for name, (least, most) in ranges.items():
        assert taken(DilocoOptions, name, least, most, **{"sync_every": 20, name: least}) == [least, most]
        for beyond in (least - 1, most + 1):
            assert f"{name}: " in words_of_refusal(DilocoOptions, **{"sync_every": 20, name: beyond})
    assert taken(OuterSpec, "lr", 0.001, 10.0) == [0.001, 10.0]
    assert taken(OuterSpec, "momentum", 0.0, 0.999) == [0.0, 0.999]
    for name, value in (("lr", 0.0), ("lr", 10.1), ("momentum", -0.1), ("momentum", 1.0), ("lr", True)):
        assert f"{name}: " in words_of_refusal(OuterSpec, **{name: value})


def test_everything_is_synchronised_at_once_in_full_precision_around_a_ring_by_default() -> None:
    options = parse_diloco_options({"sync_every": 20}, "variants.0.options")
    assert (options.fragments, options.wire, options.topology, options.quorum) == (1, "fp32", "ring", None)
    assert (options.inner, options.inner_options) == ("1f1b", {})


def test_mistakes_begin_with_the_path_of_the_option() -> None:
    for parse in (parse_diloco_options, parse_atom_options):
        with pytest.raises(InputError) as caught:
            parse({"sync_every": 0, "swap": "1GB/s", "inner": "1f1b"} if parse is parse_diloco_options else {}, "at")
        assert all(line.startswith("at.") for line in str(caught.value).splitlines())


def test_a_swap_rate_is_bytes_per_second_of_one_at_least() -> None:
    assert taken(AtomOptions, "swap", "12GB/s", "1B/s", "3KiB/s ", sync_every=1) == [12 * 10**9, 1, 3072]
    for written in ("12GB", "0B/s", "12Gbit/s", 12, "/s"):
        assert "swap: " in words_of_refusal(AtomOptions, sync_every=1, swap=written)
    assert "is below 1B/s" in words_of_refusal(AtomOptions, sync_every=1, swap="0B/s")
    options = parse_atom_options({"sync_every": 1, "swap": "12GB/s"}, "variants.0.options")
    assert (options.memory, options.topology) == (None, "star")
    assert parse_atom_options(options.model_dump(mode="json"), "again") == options
