#!/usr/bin/env python3
"""Data-parallel training without DistributedDataParallel: one call between backward() and step().

    torchrun --standalone --nproc-per-node 2 examples/plain_loop.py

For loops that have reasons of their own not to use DDP: several backward passes with different losses, gradients that
are changed before they are exchanged, parameters that are exchanged in some steps only. Nothing overlaps with the
backward pass here, so where DDP fits, ddp_fashion_mnist.py is the faster way.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

import fashion_mnist
import thinwire.torch as tw


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="gaussian-k", help="how gradients are compressed (%(default)s)")
    parser.add_argument("--density", type=float, default=0.01, help="part of the gradient to send (%(default)s)")
    parser.add_argument("--epochs", type=int, default=1, help="passes over the training set (%(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="samples of a rank in a step (%(default)s)")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of weights and order of samples (%(default)s)")
    fashion_mnist.add_arguments(parser)
    arguments = parser.parse_args()

    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    training, test = fashion_mnist.load(arguments)
    sampler = DistributedSampler(training, seed=arguments.seed)
    loader = DataLoader(training, arguments.batch, sampler=sampler)

    # The same seed gives the same first weights on every rank. A model from elsewhere: broadcast its parameters.
    torch.manual_seed(arguments.seed)
    model = fashion_mnist.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    # The names are what a checkpoint of sync.state_dict() goes by.
    sync = tw.Synchronizer(model.named_parameters(), arguments.method, arguments.density)

    for epoch in range(arguments.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            sync.synchronize()  # every gradient becomes the mean over all ranks
            optimizer.step()

    right = fashion_mnist.count_right(model, test, rank, ranks)
    dist.all_reduce(right)
    if rank == 0:
        print(f"accuracy {100 * right.item() / len(test):.2f} %")
        print(sync.report())
    sync.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
