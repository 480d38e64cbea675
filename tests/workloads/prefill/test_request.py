import pytest

from wanbed.workloads.prefill.request import Request


def test_a_request_may_arrive_at_once_with_one_token_each_way() -> None:
    request = Request(0, 0, 1, 1)
    assert (request.number, request.arrival_ns, request.prompt_tokens, request.output_tokens) == (0, 0, 1, 1)


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ((-1, 0, 1, 1), "number: -1 is negative"),
        ((0, -1, 1, 1), "arrival_ns: -1 is negative"),
        ((0, 0, 0, 1), "prompt_tokens: 0 is below 1"),
        ((0, 0, 1, 0), "output_tokens: 0 is below 1"),
    ],
)
def test_a_request_that_cannot_be_names_its_field(fields: tuple[int, int, int, int], refusal: str) -> None:
    with pytest.raises(ValueError, match=f"^{refusal}$"):
        Request(*fields)
