"""The recurrent cell keeps the FIFO queue, and learns the traffic of others."""

import pytest

from tests.support.runner.known_links import KnownLink, known_log
from wanbed.runner.learnt_links.fitted_link import fit_link
from wanbed.runner.learnt_links.held_out import CELL, CONSTANT, learn

pytest.importorskip("torch", reason="torch is an optional dependency")


def test_alone_on_the_link_its_delays_are_those_of_the_queue() -> None:
    from wanbed.runner.learnt_links.recurrent_cell import learn_cell

    log = known_log(KnownLink(cross_bps=0.0), seconds=10)
    learnt = learn_cell(fit_link(log), log, windows=10, seed=1)
    assert learnt.loss_before_ns < 1e3
    assert learnt.cross_bps == pytest.approx([0] * 10, abs=1e5)


def test_training_brings_its_delays_nearer_and_its_replay_beats_the_constant_link() -> None:
    from wanbed.runner.learnt_links.recurrent_cell import learn_cell, replay_cell

    learnt = learn(known_log(KnownLink(), seconds=40), split=0.5, seed=1, cell=replay_cell)
    trained = learn_cell(learnt.link, learnt.fitted_log, windows=10, seed=1)
    assert trained.loss_after_ns < 0.9 * trained.loss_before_ns
    assert trained.model.rate_bps == pytest.approx(20e6, rel=0.03)
    assert learnt.truth is not None
    assert learnt.held_out[CELL].error_ns(learnt.truth) < learnt.held_out[CONSTANT].error_ns(learnt.truth)
