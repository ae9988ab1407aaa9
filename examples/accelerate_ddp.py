#!/usr/bin/env python3
"""Hugging Face Accelerate with compressed gradients: one line after accelerator.prepare().

    torchrun --standalone --nproc-per-node 2 examples/accelerate_ddp.py

(On the CPU, "accelerate launch" starts several processes through MPI only; torchrun needs nothing else.)

prepare() wraps the model in DistributedDataParallel, and thinwire takes it from there. On one process there is nothing
to wrap and nothing to compress; the script then trains as it would without thinwire.
"""

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import fashion_mnist
import thinwire.torch as tw


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="quantized", help="how gradients are compressed (%(default)s)")
    parser.add_argument("--density", type=float, help="part of the gradient to send, if the method sends a part")
    parser.add_argument("--epochs", type=int, default=1, help="passes over the training set (%(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="samples of a rank in a backward pass (%(default)s)")
    parser.add_argument("--accumulate", type=int, default=1, help="backward passes for one exchange (%(default)s)")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of weights and order of samples (%(default)s)")
    parser.add_argument("--save", metavar="DIR", help="save the state of the run at its end")
    parser.add_argument("--resume", metavar="DIR", help="go on from such a state")
    fashion_mnist.add_arguments(parser)
    arguments = parser.parse_args()

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=arguments.accumulate)
    set_seed(arguments.seed)
    training, test = fashion_mnist.load(arguments)
    model = fashion_mnist.network()
    optimizer = torch.optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    loader = DataLoader(training, arguments.batch, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    sync = None
    if isinstance(model, DistributedDataParallel):
        sync = tw.compress(model, arguments.method, arguments.density)  # the one line
        accelerator.register_for_checkpointing(sync)  # what all ranks have not sent yet
    if arguments.resume:
        accelerator.load_state(arguments.resume)

    for _ in range(arguments.epochs):
        for images, labels in loader:
            # Passes that only accumulate exchange nothing: Accelerate uses no_sync() for them.
            with accelerator.accumulate(model):
                accelerator.backward(nn.functional.cross_entropy(model(images), labels))
                optimizer.step()
                optimizer.zero_grad()

    if arguments.save:
        accelerator.save_state(arguments.save)

    module = accelerator.unwrap_model(model)
    right = fashion_mnist.count_right(module, test, accelerator.process_index, accelerator.num_processes)
    right = accelerator.reduce(right, "sum")
    accelerator.print(f"accuracy {100 * right.item() / len(test):.2f} %")
    if sync is not None:
        accelerator.print(sync.report())
        sync.close()
    accelerator.end_training()


if __name__ == "__main__":
    main()
