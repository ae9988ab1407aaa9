#!/usr/bin/env python3
"""Trains a small network on Fashion-MNIST with DistributedDataParallel and compressed gradients.

    torchrun --standalone --nproc-per-node 4 examples/ddp_fashion_mnist.py
    torchrun --standalone --nproc-per-node 4 examples/ddp_fashion_mnist.py --method none     # plain DDP, to compare
    torchrun --standalone --nproc-per-node 4 examples/ddp_fashion_mnist.py --save model.pt   # after every epoch
    torchrun --standalone --nproc-per-node 4 examples/ddp_fashion_mnist.py --resume model.pt # go on from there

The lines that thinwire adds to an ordinary DDP script are marked with (thinwire).
"""

import argparse
import json
import os
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import fashion_mnist
import thinwire.torch as tw  # (thinwire)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--method", default="topk:density=0.01", metavar="NAME[:PARAMETER=VALUE,...]",
        help="how gradients are compressed, such as gaussian-k or redsync:quantize=true; none: plain DDP (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--density", type=float, help="part of the gradient to send, such as 0.01 (the method's own)")
    parser.add_argument("--epochs", type=int, default=3, help="epochs in all, also with --resume (%(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="samples of a rank in a backward pass (%(default)s)")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate, falling to 0 by a cosine (%(default)s)")
    parser.add_argument("--adam", action="store_true", help="Adam instead of SGD with momentum; --lr 0.001 suits it")
    parser.add_argument("--seed", type=int, default=1, help="of weights and order of samples (%(default)s)")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16 by autocast")
    parser.add_argument(
        "--accumulate", type=int, default=1, metavar="N", help="backward passes for one exchange (%(default)s)"
    )
    parser.add_argument(
        "--save", metavar="FILE", help="write a checkpoint after every epoch; model-{epoch}.pt keeps all of them"
    )
    parser.add_argument("--resume", metavar="FILE", help="go on from a checkpoint; the number of ranks may be another")
    parser.add_argument("--json", metavar="FILE", help="write accuracy, bytes and seconds")
    fashion_mnist.add_arguments(parser)
    return parser.parse_args()


def main():
    arguments = parse()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(arguments.seed)
    training, test = fashion_mnist.load(arguments)
    sampler = DistributedSampler(training, seed=arguments.seed, drop_last=True)
    loader = DataLoader(training, arguments.batch, sampler=sampler, drop_last=True)
    steps = len(loader) // arguments.accumulate

    ddp = DistributedDataParallel(fashion_mnist.network())
    if arguments.adam:
        optimizer = torch.optim.Adam(ddp.parameters(), lr=arguments.lr)
    else:
        optimizer = torch.optim.SGD(ddp.parameters(), lr=arguments.lr, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.epochs * steps)
    sync = None
    if arguments.method != "none":
        # Steps of an epoch are only needed by methods with a warm-up.
        sync = tw.compress(ddp, arguments.method, arguments.density, steps_per_epoch=steps)  # (thinwire)

    begin = 0
    if arguments.resume:
        begin = resume(arguments.resume, ddp, optimizer, schedule, sync)
    seconds = 0.0
    for epoch in range(begin, arguments.epochs):
        sampler.set_epoch(epoch)
        started = time.perf_counter()
        loss = train_epoch(ddp, loader, steps, optimizer, schedule, arguments)
        seconds += time.perf_counter() - started
        accuracy = evaluate(ddp.module, test)
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {loss:.4f}, accuracy {100 * accuracy:.2f} %, {seconds:.1f} s", flush=True)
        if arguments.save:
            save(arguments.save.format(epoch=epoch + 1), epoch + 1, ddp, optimizer, schedule, sync)

    accuracy = evaluate(ddp.module, test)
    if rank == 0:
        print(f"accuracy {100 * accuracy:.2f} %")
        if sync is not None:
            print(sync.report())  # (thinwire)
        if arguments.json:
            with open(arguments.json, "w") as file:
                steps *= arguments.epochs - begin
                json.dump(figures(arguments, ddp, sync, steps, accuracy, seconds), file, indent=1)
    if sync is not None:
        sync.close()  # (thinwire)
    dist.destroy_process_group()


def train_epoch(ddp, loader, steps, optimizer, schedule, arguments):
    batches, loss = iter(loader), torch.zeros(())
    for _ in range(steps):
        optimizer.zero_grad()
        for part in range(arguments.accumulate):
            images, labels = next(batches)
            # Only the last backward pass of a step exchanges gradients.
            with nullcontext() if part == arguments.accumulate - 1 else ddp.no_sync():
                with torch.autocast("cpu", torch.bfloat16, enabled=arguments.bf16):
                    loss = nn.functional.cross_entropy(ddp(images), labels) / arguments.accumulate
                loss.backward()
        optimizer.step()
        schedule.step()
    return arguments.accumulate * loss.item()


def evaluate(model, test):
    """The accuracy on the test set, of which every rank looks at a part."""
    right = fashion_mnist.count_right(model, test, dist.get_rank(), dist.get_world_size())
    dist.all_reduce(right)
    return right.item() / len(test)


def save(path, epoch, ddp, optimizer, schedule, sync):
    """One file for all ranks: what each rank has not sent yet comes to rank 0."""
    waiting = sync.state_dict(all_ranks=True) if sync is not None else None  # (thinwire): all ranks call it
    if dist.get_rank() == 0:
        state = {"epoch": epoch, "model": ddp.module.state_dict(), "thinwire": waiting}
        state |= {"optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
        # Written beside and renamed: an interruption leaves the checkpoint before.
        torch.save(state, f"{path}.new")
        os.replace(f"{path}.new", path)
    dist.barrier()


def resume(path, ddp, optimizer, schedule, sync):
    """Every rank reads the file, and takes its part of what was not sent."""
    state = torch.load(path)
    ddp.module.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    schedule.load_state_dict(state["schedule"])
    if sync is not None and state["thinwire"] is not None:
        sync.load_state_dict(state["thinwire"])  # (thinwire)
    return state["epoch"]


def figures(arguments, ddp, sync, steps, accuracy, seconds):
    """What is written with --json; bytes are those that a rank has sent."""
    weights = [weight.detach() for weight in ddp.parameters()]
    # A ring all-reduce of 32-bit floats sends the gradient twice, but for each rank's own part.
    dense = 2 * (dist.get_world_size() - 1) * 4 * sum(weight.numel() for weight in weights) // dist.get_world_size()
    return {
        "method": sync.method if sync is not None else "none",
        **{name: getattr(arguments, name) for name in ("seed", "epochs", "batch", "lr", "adam", "accumulate", "bf16")},
        "ranks": dist.get_world_size(),
        "steps": steps,
        "accuracy": accuracy,
        "bytes": sync.report().sent if sync is not None else dense * steps,
        "seconds": seconds,
        "sum_of_weights": sum(weight.double().sum().item() for weight in weights),
        "report": sync.report().as_dict() if sync is not None else None,
    }


if __name__ == "__main__":
    main()
