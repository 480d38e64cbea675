from wanbed.workloads.transport.frames.buffer_pool import BufferPool


def test_new_buffers_use_the_preferred_memory() -> None:
    special = memoryview(bytearray(64))
    pool = BufferPool()
    pool.prefer(lambda size_bytes: special if size_bytes == 64 else None)
    assert pool.take(64) is special
    other = pool.take(32)
    assert other.nbytes == 32
    pool.give_back(special)
    pool.give_back(other)
    assert pool.take(64) is special
    assert pool.take(32) is other
