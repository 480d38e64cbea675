import pytest

from tests.support.runner.taken_values import taken, words_of_refusal
from wanbed.runner.experiment.transport_spec import TransportSpec


def test_what_is_left_out_is_one_connection_of_cubic_as_a_stock_debian_has_it() -> None:
    spec = TransportSpec()
    assert (spec.model, spec.connections, spec.window, spec.congestion) == ("auto", 1, 4300 * 1024, "cubic")
    assert (spec.slow_start_after_idle, spec.overlap, spec.sharing) == (True, True, "none")
    assert (spec.pipelines_per_cell, spec.all_reduce) == ("auto", "ring")
    assert (spec.all_reduce_overlap, spec.bucket) == (False, 25 * 2**20)


def test_connections_and_pipelines_of_a_cell_are_auto_or_a_number_in_their_range() -> None:
    assert taken(TransportSpec, "connections", 1, 64, "auto") == [1, 64, "auto"]
    assert taken(TransportSpec, "pipelines_per_cell", 1, 1024, "auto", sharing="temporal") == [1, 1024, "auto"]
    for written in (0, 1025, True):
        words = words_of_refusal(TransportSpec, sharing="temporal", pipelines_per_cell=written)
        assert "is neither auto nor a whole number from 1 to 1024" in words


@pytest.mark.parametrize(
    ("field", "taken_values", "read", "refused_values", "words"),
    [
        (
            "window",
            ("4KiB", "511MiB"),
            [4096, 511 * 2**20],
            ("4095B", "535822337B"),
            "is not from 4KiB to 511MiB",
        ),
        (
            "congestion",
            ("x" * 15, "a_b-1"),
            ["x" * 15, "a_b-1"],
            ("x" * 16, "", "BBR", 7),
            "is no congestion control's name",
        ),
    ],
)
def test_a_window_is_what_the_kernel_can_hold_and_a_congestion_controls_name_has_up_to_15_characters(
    field: str, taken_values: tuple[object, ...], read: list[object], refused_values: tuple[object, ...], words: str
) -> None:
    assert taken(TransportSpec, field, *taken_values) == read
    for written in refused_values:
        assert words in words_of_refusal(TransportSpec, **{field: written})


@pytest.mark.parametrize(
    ("all_reduce", "hierarchical", "buckets"),
    [
        ("ring", False, True),
        ("hierarchical", True, True),
        ("butterfly", False, True),
        ("chain", False, False),
        ("nccl", False, False),
        ("nccl-shared", False, False),
        ("gloo", False, False),
    ],
)
def test_rings_of_wanbeds_own_sum_in_buckets_where_they_overlap_and_libraries_never_do(
    all_reduce: str, hierarchical: bool, buckets: bool
) -> None:
    spec = TransportSpec.model_validate({"all_reduce": all_reduce})
    assert (spec.has_buckets, spec.is_hierarchical, spec.sums_in_buckets) == (buckets, hierarchical, False)
    assert spec.sums_over_transport(on_device=True) == (buckets or spec.is_chain)
    assert spec.sums_over_transport(on_device=False) == (buckets or spec.is_chain or spec.is_gloo)
    if buckets:
        assert TransportSpec.model_validate({"all_reduce": all_reduce, "all_reduce_overlap": True}).sums_in_buckets
    else:
        words = words_of_refusal(TransportSpec, all_reduce=all_reduce, all_reduce_overlap=True)
        assert f"all_reduce_overlap: {all_reduce} sums all gradients at once" in words


def test_a_bucket_is_given_only_where_there_are_buckets() -> None:
    assert "bucket: " in words_of_refusal(TransportSpec, bucket="5MiB")
    assert "bucket: " in words_of_refusal(TransportSpec, bucket="5MiB", all_reduce_overlap=False)
    assert taken(TransportSpec, "bucket", "25MiB") == [25 * 2**20]


def test_the_document_says_only_where_a_gpu_does_not_compute_while_it_sends() -> None:
    assert TransportSpec(overlap=False).model_dump(mode="json")["overlap"] is False
    assert "overlap" not in TransportSpec().model_dump(mode="json")


def test_the_document_says_only_where_a_receive_blocks() -> None:
    blocks = TransportSpec(receive="blocks")
    assert blocks.model_dump(mode="json")["receive"] == "blocks"
    assert not blocks.receives_into_buffers
    assert "receive" not in TransportSpec().model_dump(mode="json")
    assert TransportSpec().receives_into_buffers


def test_pieces_have_a_size_where_wanbeds_own_replicas_pass_them_on() -> None:
    assert taken(TransportSpec, "piece", "auto", "4KiB", "1MiB") == ["auto", 4096, 2**20]
    assert (TransportSpec().piece_bytes, TransportSpec(piece="4KiB").piece_bytes) == (None, 4096)
    assert "piece" not in TransportSpec().model_dump()
    for written in ("4095B", "1048577B", True, None):
        assert "piece" in words_of_refusal(TransportSpec, piece=written)
    for all_reduce in ("hierarchical", "butterfly", "chain"):
        assert taken(TransportSpec, "piece", "1MiB", all_reduce=all_reduce) == [2**20]
    for all_reduce in ("gloo", "nccl", "nccl-shared"):
        words = words_of_refusal(TransportSpec, piece="1MiB", all_reduce=all_reduce)
        assert f"piece: {all_reduce} has pieces of its own: give all_reduce: ring" in words
