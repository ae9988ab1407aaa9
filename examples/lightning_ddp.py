#!/usr/bin/env python3
"""Lightning with compressed gradients: another strategy.

    python examples/lightning_ddp.py --devices 2                  # Lightning starts the other process
    torchrun --standalone --nproc-per-node 2 examples/lightning_ddp.py --devices 2

The Trainer below differs from an ordinary one in its strategy alone.
"""

import argparse

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader

import fashion_mnist
from thinwire.torch.lightning import CompressedDDPStrategy


class Classifier(lightning.LightningModule):
    def __init__(self, arguments):
        super().__init__()
        self.network = fashion_mnist.network()
        self.arguments = arguments

    def training_step(self, batch, _):
        images, labels = batch
        return nn.functional.cross_entropy(self.network(images), labels)

    def test_step(self, batch, _):
        images, labels = batch
        right = (self.network(images).argmax(1) == labels).float().mean()
        self.log("accuracy", right, sync_dist=True, batch_size=len(labels))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.arguments.lr, momentum=0.9)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--devices", type=int, default=2, help="processes on this machine (%(default)s)")
    parser.add_argument("--method", default="quantized", help="how gradients are compressed (%(default)s)")
    parser.add_argument("--density", type=float, help="part of the gradient to send, if the method sends a part")
    parser.add_argument("--epochs", type=int, default=1, help="epochs in all, also with --resume (%(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="samples of a rank in a step (%(default)s)")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of weights and order of samples (%(default)s)")
    parser.add_argument("--save", metavar="FILE", help="write a checkpoint at the end")
    parser.add_argument("--resume", metavar="FILE", help="go on from a checkpoint")
    fashion_mnist.add_arguments(parser)
    arguments = parser.parse_args()

    lightning.seed_everything(arguments.seed)
    training, test = fashion_mnist.load(arguments)
    model = Classifier(arguments)
    # Its checkpoints hold what the ranks have not sent yet.
    strategy = CompressedDDPStrategy(arguments.method, arguments.density, process_group_backend="gloo")
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=arguments.devices,
        strategy=strategy,
        max_epochs=arguments.epochs,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    trainer.fit(model, DataLoader(training, arguments.batch, shuffle=True), ckpt_path=arguments.resume)
    if arguments.save:
        trainer.save_checkpoint(arguments.save)
    [result] = trainer.test(model, DataLoader(test, 500), verbose=False)
    if trainer.is_global_zero:
        print(f"accuracy {100 * result['accuracy']:.2f} %")
        print(strategy.compression.report())
    # Lightning leaves that open. A thread of Gloo may then still hold tensors when Python ends, and would end the
    # process with SIGABRT (pytorch/pytorch#190489).
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
