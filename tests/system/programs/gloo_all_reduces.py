"""All-reduce by torch over Gloo in one of several processes; the first one prints the seconds that each took.

Its threads are a batch for the scheduler, so that one does not interrupt another that it waits for. Gloo's own thread
asks the kernel again and again while another one has a lock, which takes no time in virtual time.
"""

import os
import sys
import time
from itertools import pairwise

import torch
import torch.distributed as dist

TIMES = 3


def main(rank: int, ranks: int, first_host: str, sizes_bytes: list[int]) -> None:
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    os.environ.update(MASTER_ADDR=first_host, MASTER_PORT="29500", GLOO_SOCKET_IFNAME="eth0")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    for size_bytes in sizes_bytes:
        data = torch.ones(size_bytes // 4)
        ends_s = [time.monotonic()]
        for _ in range(TIMES):
            dist.all_reduce(data)
            ends_s.append(time.monotonic())
        assert (data == ranks**TIMES).all()
        if rank == 0:
            print(size_bytes, *[end_s - start_s for start_s, end_s in pairwise(ends_s)])
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], [int(size) for size in sys.argv[4:]])
