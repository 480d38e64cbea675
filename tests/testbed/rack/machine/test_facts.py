import json
import os
from pathlib import Path

from wanbed.testbed.rack.machine.facts import find_card, read_machine_facts, sources_hash


def test_the_facts_of_this_machine_can_be_stored() -> None:
    facts = read_machine_facts("127.0.0.1")
    assert json.loads(json.dumps(facts.document())) == facts.document()
    assert (facts.kernel, facts.cores) == (os.uname().release, len(os.sched_getaffinity(0)))
    assert facts.card is not None
    assert (facts.card.interface, facts.card.address) == ("lo", "127.0.0.1")


def test_an_address_that_no_card_has_is_no_card() -> None:
    assert find_card("192.0.2.77") is None


def test_the_same_sources_have_the_same_hash_wherever_they_lie(tmp_path: Path) -> None:
    hashes = []
    for name, content in (("one", "a = 1\n"), ("other", "a = 1\n"), ("changed", "a = 2\n")):
        package = tmp_path / name / "ground"
        package.mkdir(parents=True)
        (package / "units.py").write_text(content)
        hashes.append(sources_hash(tmp_path / name))
    assert hashes[0] == hashes[1] != hashes[2]
