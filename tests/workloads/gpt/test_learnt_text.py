"""Texts that come with Python."""

from pathlib import Path
from pydoc_data.topics import topics

import pytest

from wanbed.workloads.gpt.learnt_text import CORPORA, PYTHON_TOPICS, HeldOut, digest, text_bytes


def test_every_corpus_is_there_without_a_download_and_names_its_licence() -> None:
    for name, corpus in CORPORA.items():
        assert len(text_bytes(name)) > 100_000
        assert corpus.licence
        assert corpus.title


def test_python_topics_is_the_text_of_help() -> None:
    text = text_bytes(PYTHON_TOPICS).tobytes().decode()
    assert all(topic in text for topic in topics.values())


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "own.txt").write_bytes(b"abc")
    assert text_bytes(str(tmp_path / "own.txt")).tobytes() == b"abc"
    (tmp_path / "same.txt").write_bytes(b"abc")
    assert digest(str(tmp_path / "own.txt")) == digest(str(tmp_path / "same.txt")) != digest(PYTHON_TOPICS)
    (tmp_path / "empty.txt").touch()
    assert len(text_bytes(str(tmp_path / "empty.txt"))) == 0


@pytest.mark.parametrize(("fields", "fault"), [({"fraction": 0.0}, "fraction"), ({"sequences": 0}, "sequences")])
def test_what_holds_nothing_out_is_refused(fields: dict[str, float], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        HeldOut(**fields)  # type: ignore[arg-type]
