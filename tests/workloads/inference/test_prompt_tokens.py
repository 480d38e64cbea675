from wanbed.workloads.inference.prompt_tokens import prompt_tokens


def test_a_prompt_is_the_same_in_every_process() -> None:
    assert prompt_tokens(3, 7, 40, 512) == prompt_tokens(3, 7, 40, 512)


def test_requests_and_seeds_have_prompts_of_their_own() -> None:
    assert len({tuple(prompt_tokens(seed, request, 40, 512)) for seed in range(4) for request in range(4)}) == 16


def test_tokens_are_all_of_the_vocabulary() -> None:
    assert set(prompt_tokens(3, 7, 1000, 16)) == set(range(16))
