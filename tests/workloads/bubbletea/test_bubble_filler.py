import pytest

from wanbed.workloads.bubbletea.bubble_filler import BubbleFiller
from wanbed.workloads.bubbletea.bubble_forecast import BubbleForecast, IterationPlan, PlannedAction
from wanbed.workloads.bubbletea.messages import Piece, PieceDone
from wanbed.workloads.bubbletea.prefill_profile import PrefillProfile
from wanbed.workloads.bubbletea.prefill_settings import FillPolicy, PrefillSettings

TEN_A_TOKEN = PrefillProfile(fixed_ns=0, per_token_ns=10, per_token_pair_ns=0, source="paper", measured=False)

PLAN = IterationPlan((PlannedAction(("forward", 0), 0, 100), PlannedAction(("backward", 0), 1100, 1300)), 2000)

FORWARD, BACKWARD = ("forward", 0), ("backward", 0)


def piece(request: int = 0, *, stage: int = 0, chunk: int = 0, tokens: int = 30, layers: int = 4) -> Piece:
    return Piece(request, stage, chunk, tokens, chunk * tokens, layers, last=True, prompt_tokens=(chunk + 1) * tokens)


def after_the_forward(policy: FillPolicy = FillPolicy.PLANNED) -> BubbleFiller:
    """A GPU with a bubble from 100 to 1100."""
    forecast = BubbleForecast(PrefillSettings(slo_ns=1, switch_ns=0, warmup_iterations=0), PLAN)
    filler = BubbleFiller(forecast, TEN_A_TOKEN, policy)
    assert filler.training_wants(0) == 0
    filler.training_started(0, 0, FORWARD)
    filler.training_ended(100, 0, FORWARD)
    return filler


def test_a_run_takes_as_many_layers_as_end_in_time() -> None:
    filler = after_the_forward()
    filler.enqueue(piece())
    run = filler.next_run(100, idle=True)
    assert run is not None
    assert (run.layers, run.end_ns) == (3, 1000), "a fourth layer of 300 would end after training is back"


def test_the_layers_that_did_not_fit_come_in_the_next_bubble() -> None:
    filler = after_the_forward()
    filler.enqueue(piece())
    assert filler.next_run(100, idle=True) is not None
    assert filler.run_ended(1000) is None
    assert filler.next_run(1000, idle=True) is None, "a layer takes 300, and 100 are left"
    assert filler.training_wants(1100) == 1100
    filler.training_started(1100, 0, BACKWARD)
    filler.training_ended(1300, 0, BACKWARD)
    run = filler.next_run(1300, idle=True)
    assert run is not None
    assert (run.layers, run.end_ns) == (1, 1600)
    assert filler.run_ended(1600) == PieceDone(request=0, stage=0, chunk=0, started_ns=100, ended_ns=1600)
    assert (filler.queued_pieces, filler.deadline_overruns) == (0, 0)


def test_when_training_comes_early_the_layer_under_way_is_the_last_and_the_wait_is_counted() -> None:
    filler = after_the_forward()
    filler.enqueue(piece())
    assert filler.next_run(100, idle=True) is not None
    assert filler.training_wants(450) == 700
    assert filler.run_under_way is not None
    assert (filler.run_under_way.layers, filler.run_under_way.end_ns) == (2, 700)
    assert filler.run_ended(700) is None
    assert (filler.deadline_overruns, filler.overrun_ns) == (1, 250)


def test_at_the_boundary_of_two_layers_the_gpu_is_free_at_once() -> None:
    filler = after_the_forward()
    filler.enqueue(piece())
    assert filler.next_run(100, idle=True) is not None
    assert filler.training_wants(400) == 400
    assert filler.run_ended(400) is None
    assert filler.deadline_overruns == 0


def test_a_piece_whose_last_layer_training_waited_for_is_done() -> None:
    filler = after_the_forward()
    filler.enqueue(piece(layers=2))
    assert filler.next_run(100, idle=True) is not None
    assert filler.training_wants(500) == 700
    assert filler.run_ended(700) == PieceDone(0, 0, 0, 100, 700)


def test_a_run_that_took_longer_than_its_profile_is_counted_by_what_it_really_took() -> None:
    filler = after_the_forward()
    filler.enqueue(piece())
    assert filler.next_run(100, idle=True) is not None
    assert filler.training_wants(1050) == 1050, "by the profile it is over"
    assert filler.run_ended(1080, layers=2) is None
    assert (filler.deadline_overruns, filler.overrun_ns) == (1, 30)
    filler.training_started(1080, 0, BACKWARD)
    filler.training_ended(1280, 0, BACKWARD)
    run = filler.next_run(1280, idle=True)
    assert run is not None
    assert run.layers == 2


def test_nothing_starts_between_a_release_and_the_end_of_the_action() -> None:
    filler = after_the_forward()
    filler.enqueue(piece())
    filler.training_wants(500)
    assert filler.next_run(500, idle=True) is None
    filler.training_started(500, 0, BACKWARD)
    assert filler.next_run(600, idle=True) is None
    filler.training_ended(700, 0, BACKWARD)
    assert filler.next_run(700, idle=True) is not None


def test_greedy_filling_runs_whole_pieces_whenever_the_gpu_is_idle() -> None:
    filler = after_the_forward(FillPolicy.GREEDY)
    filler.enqueue(piece())
    filler.enqueue(piece(1))
    assert filler.next_run(1090, idle=False) is None
    run = filler.next_run(1090, idle=True)
    assert run is not None
    assert (run.layers, run.end_ns) == (4, 2290)
    assert filler.training_wants(1100) == 1390
    filler.run_ended(1390)
    assert (filler.deadline_overruns, filler.overrun_ns) == (1, 290)


def test_the_policy_none_never_runs() -> None:
    filler = after_the_forward(FillPolicy.NONE)
    filler.enqueue(piece())
    assert filler.next_run(100, idle=True) is None


def test_pieces_keep_their_order_and_wait_for_their_input() -> None:
    filler = after_the_forward()
    filler.input_arrived(1, 0)
    filler.enqueue(piece(0, stage=1, layers=1))
    filler.enqueue(piece(1, stage=1, layers=1))
    assert filler.next_run(100, idle=True) is None
    filler.input_arrived(0, 0)
    for request in (0, 1):
        run = filler.next_run(100, idle=True)
        assert run is not None
        assert run.piece.request == request
        filler.run_ended(run.end_ns)


def test_a_chunk_of_which_no_layer_fits_any_bubble_is_cut_and_is_one_piece_to_others() -> None:
    filler = after_the_forward()
    filler.enqueue(piece(tokens=250, layers=1))
    run = filler.next_run(100, idle=True)
    assert run is not None
    assert run.end_ns == 1100, "100 of the 250 tokens"
    assert filler.run_ended(1100) is None
    assert filler.training_wants(1100) == 1100
    filler.training_started(1100, 0, BACKWARD)
    filler.training_ended(1300, 0, BACKWARD)
    ends = []
    filler.training_over()
    while filler.queued_pieces:
        run = filler.next_run(1300 if not ends else ends[-1], idle=True)
        assert run is not None
        ends.append(run.end_ns)
        done = filler.run_ended(run.end_ns)
    assert ends[-1] == 1300 + 1500
    assert done == PieceDone(0, 0, 0, 100, 2800)


def test_a_piece_under_way_is_not_cut() -> None:
    filler = after_the_forward()
    filler.enqueue(piece(tokens=90, layers=3))
    assert filler.next_run(100, idle=True) is not None
    assert filler.run_ended(1000) is None
    shorter = IterationPlan((PlannedAction(FORWARD, 0, 100), PlannedAction(BACKWARD, 200, 1900)), 2000)
    filler.forecast = BubbleForecast(PrefillSettings(slo_ns=1, switch_ns=0, warmup_iterations=0), shorter)
    filler.training_started(2000, 0, FORWARD)
    filler.training_ended(2100, 0, FORWARD)
    assert filler.next_run(2100, idle=True) is None


def test_a_run_ends_once() -> None:
    with pytest.raises(ValueError, match="no run is under way"):
        after_the_forward().run_ended(100)


def test_the_second_part_of_a_cut_piece_attends_to_the_first_ones_tokens() -> None:
    profile = PrefillProfile(fixed_ns=0, per_token_ns=0, per_token_pair_ns=0.1, source="paper", measured=False)
    forecast = BubbleForecast(PrefillSettings(slo_ns=1, switch_ns=0, warmup_iterations=0), PLAN)
    filler = BubbleFiller(forecast, profile, FillPolicy.PLANNED)
    assert filler.training_wants(0) == 0
    filler.training_started(0, 0, FORWARD)
    filler.training_ended(100, 0, FORWARD)
    filler.enqueue(piece(tokens=150, layers=1))
    first = filler.next_run(100, idle=True)
    assert first is not None
    assert first.end_ns - first.start_ns == 0.1 * 141 * 141 // 2 + 1, "the most tokens that fit into 1000"
    assert filler.run_ended(first.end_ns) is None
    filler.training_started(1100, 0, BACKWARD)
    filler.training_ended(1300, 0, BACKWARD)
    second = filler.next_run(1300, idle=True)
    assert second is not None
    pairs = 9 * (2 * 141 + 9) / 2
    assert second.end_ns - second.start_ns == 0.1 * pairs // 1 + 1
