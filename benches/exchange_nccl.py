#!/usr/bin/env python3
"""Measures NCCL's grouped send and receive among the GPUs of a host, to compare the exchange of `sidereal bench scale` with.

    benches/exchange_nccl.py [GPUS] [BYTES]

BYTES (by default 2^30) are cut into as many equal parts as there are GPUs, and each GPU sends one part to every other GPU; the best of 11
runs counts. Needs PyTorch. NVLink multicast is off unless NCCL_NVLS_ENABLE says otherwise.
"""

import os
import socket
import sys
import time

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing

RUNS = 10


def run(rank, count, bytes_sent, port):
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    torch.cuda.set_device(rank)
    address = f"tcp://127.0.0.1:{port}"
    distributed.init_process_group("nccl", init_method=address, rank=rank, world_size=count)
    part = bytes_sent // count
    sent = torch.full((count, part), rank + 1, dtype=torch.uint8, device="cuda")
    received = torch.zeros((count, part), dtype=torch.uint8, device="cuda")
    others = [(rank + step) % count for step in range(1, count)]
    calls = [distributed.P2POp(distributed.isend, sent[other], other) for other in others]
    calls += [distributed.P2POp(distributed.irecv, received[other], other) for other in others]
    best = float("inf")
    for _ in range(RUNS + 1):
        distributed.barrier()
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for request in distributed.batch_isend_irecv(calls):
            request.wait()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begun)
    for other in others:
        if not bool((received[other] == other + 1).all()):
            sys.exit(f"GPU {rank}: the bytes of GPU {other} are wrong")
    if rank == 0:
        rate = (count - 1) * part / best
        print(f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}, {count} GPUs: each receives {1e-9 * rate:.1f} GB/s")
    distributed.destroy_process_group()


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else torch.cuda.device_count()
    bytes_sent = int(sys.argv[2]) if len(sys.argv) > 2 else 1 << 30
    if count < 2 or count > torch.cuda.device_count():
        sys.exit(f"there are {torch.cuda.device_count()} GPUs, and an exchange takes two or more")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(run, args=(count, bytes_sent, port), nprocs=count)


if __name__ == "__main__":
    main()
