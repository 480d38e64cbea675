"""Cut the gradients of a stage into buckets, which are all-reduced one after the other while its backward goes on."""

from wanbed.workloads.transport.ring.ring_round import cut_segments


def bucket_count(total_bytes: int, bucket_bytes: int) -> int:
    """Return how many buckets ``total_bytes`` of gradients are cut into: as few as hold ``bucket_bytes`` at most."""
    return max(-(-total_bytes // bucket_bytes), 1)


def cut_buckets(total_bytes: int, element_bytes: int, buckets: int) -> tuple[tuple[int, int], ...]:
    """Return the start and end of each bucket in bytes, in the order in which a backward completes them.

    A backward computes gradients from the last layer to the first, so the last bytes come first. Sizes differ by one
    element at most. Raise ValueError if the data is not a whole number of elements.
    """
    return cut_segments(total_bytes, element_bytes, buckets)[::-1]


def complete_ns(start_ns: int, end_ns: int, bucket: int, buckets: int, virtual_stages: int = 1) -> int:
    """Return when a GPU's last backward, from ``start_ns`` to ``end_ns``, completes a bucket, counted from 0.

    A backward whose layers are not known is taken to compute gradients evenly over its time. Of several virtual stages
    it computes the last one's; the gradients of the others are complete when it begins.
    """
    computed = max((bucket + 1) * virtual_stages - (virtual_stages - 1) * buckets, 0)
    return start_ns + (end_ns - start_ns) * computed // buckets
