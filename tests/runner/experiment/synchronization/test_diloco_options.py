"""The options of ``schedule: diloco``, and the page that describes them."""

import re
from pathlib import Path

from runner.experiment.synchronization.diloco_options import DilocoOptions, parse_diloco_options

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
