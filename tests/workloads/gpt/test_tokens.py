import random
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from wanbed.workloads.gpt.gpt_config import GptConfig
from wanbed.workloads.gpt.learnt_text import HeldOut
from wanbed.workloads.gpt.tokens import TokenSource

CONFIG = GptConfig(layers=1, hidden=8, context=12, heads=2, vocabulary=50)
PLACES = [(iteration, pipeline, microbatch) for iteration in range(3) for pipeline in range(2) for microbatch in (0, 7)]


@pytest.fixture(params=["synthetic", "text"])
def text(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    if request.param == "synthetic":
        return None
    path = tmp_path / "some.txt"
    path.write_bytes(bytes(range(256)) * 4)
    return str(path)


def test_every_process_gets_the_same_tokens(text: str | None) -> None:
    one, other = TokenSource(CONFIG, 3, text), TokenSource(CONFIG, 3, text)
    expected = [one.batch(*place) for place in PLACES]
    found = [other.batch(*place) for place in reversed(PLACES)][::-1]
    for (inputs, targets), (same_inputs, same_targets) in zip(expected, found, strict=True):
        assert torch.equal(inputs, same_inputs)
        assert torch.equal(targets, same_targets)


def test_every_place_and_seed_has_tokens_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "long.txt").write_bytes(random.Random(1).randbytes(100_000))
    texts = (None, str(tmp_path / "long.txt"))
    sources = [TokenSource(CONFIG, seed, text) for seed in (3, 4) for text in texts]
    batches = {tuple(source.batch(*place)[0][0].tolist()) for source in sources for place in PLACES}
    assert len(batches) == 4 * len(PLACES)


def test_a_target_is_the_token_after_its_input(text: str | None) -> None:
    inputs, targets = TokenSource(CONFIG, 3, text).batch(1, 0, 2)
    assert inputs.shape == targets.shape == (1, 12)
    assert inputs.dtype == targets.dtype == torch.int64
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert min(inputs.min(), targets.min()) >= 0
    assert max(inputs.max(), targets.max()) < 50


def test_the_next_synthetic_token_is_one_of_eight() -> None:
    source = TokenSource(CONFIG, 3)
    steps = {
        int(step) for place in PLACES for step in ((source.batch(*place)[1] - source.batch(*place)[0]) % 50).flatten()
    }
    assert steps == set(range(1, 9))


def test_the_tokens_of_a_text_are_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "exact.txt").write_bytes(b"Hello, world!")
    inputs, targets = TokenSource(CONFIG, 3, str(tmp_path / "exact.txt")).batch(0, 0, 0)
    assert inputs[0].tolist() == [byte % 50 for byte in b"Hello, world"]
    assert targets[0].tolist() == [byte % 50 for byte in b"ello, world!"]


@pytest.mark.parametrize("size_bytes", [0, 12])
def test_a_text_shorter_than_a_sequence_is_refused(tmp_path: Path, size_bytes: int) -> None:
    (tmp_path / "short.txt").write_bytes(bytes(size_bytes))
    with pytest.raises(ValueError, match=rf"^text: .*short\.txt holds {size_bytes} bytes, .* take 13$"):
        TokenSource(CONFIG, 3, str(tmp_path / "short.txt"))


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^seed: -1 is negative"):
        TokenSource(CONFIG, -1)


@given(st.integers(40, 400), st.floats(0.1, 0.6), st.integers(1, 40))
def test_no_batch_has_a_byte_that_is_held_out(size: int, fraction: float, sequences: int) -> None:
    held_out = HeldOut(fraction, sequences)
    begin = held_out.first_byte(size)
    config = GptConfig(layers=1, hidden=8, context=3, heads=2, vocabulary=2)
    with NamedTemporaryFile() as file:
        # What is held out is ones, and all else zeros.
        file.write(bytes(begin) + b"\x01" * (size - begin))
        file.flush()
        source = TokenSource(config, 3, file.name, held_out)
        learnt = [source.batch(*place) for place in PLACES]
        evaluated = [source.evaluation_batch(number) for number in range(sequences)]
    assert not any(part.any() for batch in learnt for part in batch)
    assert all(part.all() for batch in evaluated for part in batch)


def test_held_out_sequences_are_the_same_for_every_seed_and_none_is_learnt(text: str | None) -> None:
    sources = [TokenSource(CONFIG, seed, text, HeldOut(0.2, 4)) for seed in (3, 4)]
    one, other = ([source.evaluation_batch(number)[0].tolist() for number in range(4)] for source in sources)
    assert one == other
    assert len({str(sequence) for sequence in one}) == 4
    learnt = [source.batch(*place)[0].tolist() for source in sources for place in PLACES]
    assert text is not None or not any(sequence in learnt for sequence in one)


def test_a_text_of_which_a_part_is_too_short_is_refused(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_bytes(bytes(100))
    with pytest.raises(ValueError, match=r"10 of the 100 bytes of .*short\.txt are held out, .* take 13"):
        TokenSource(CONFIG, 3, str(tmp_path / "short.txt"), HeldOut(0.1))
    with pytest.raises(ValueError, match="held_out: None"):
        TokenSource(CONFIG, 3).evaluation_batch(0)
