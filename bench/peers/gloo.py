"""Gloo's collectives, through torch.distributed: one line of JSON from rank 0.

Started once for each rank with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Measures as `thinwire bench
collective` does: a barrier, then the collective; the time of a repetition is that of the slowest rank.
"""

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

CASES = json.loads(sys.argv[1])  # [[collective, bytes, repetitions], ...]


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    size = dist.get_world_size()
    rows = []
    for collective, length, repeats in CASES:
        values = torch.zeros(length // 4)
        others = [torch.zeros(length // 4) for _ in range(size)]

        def once() -> None:
            if collective == "all-reduce":
                dist.all_reduce(values)
            elif collective == "all-gather":
                dist.all_gather(others, values)
            elif collective == "broadcast":
                dist.broadcast(values, 0)

        for _ in range(3):
            once()
        times = torch.zeros(repeats, dtype=torch.float64)
        for repeat in range(repeats):
            dist.barrier()
            begun = time.perf_counter()
            once()
            times[repeat] = time.perf_counter() - begun
        dist.all_reduce(times, op=dist.ReduceOp.MAX)
        p50 = statistics.median(times.tolist()) * 1e3
        rows.append({"collective": collective, "bytes": length, "p50_ms": p50})
    if dist.get_rank() == 0:
        print(json.dumps(rows), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    assert "RANK" in os.environ, "start one process for each rank, with RANK set"
    main()
