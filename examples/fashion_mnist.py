"""What the examples share: Fashion-MNIST from its files, a made-up stand-in, a small network, and its accuracy."""

import gzip
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import TensorDataset

FOLDER = "/usr/share/datasets/fashion-mnist"
GET = "apt-get install -y dataset-fashion-mnist"


def add_arguments(parser):
    parser.add_argument("--data", default=FOLDER, metavar="DIR", help="folder of the four idx files (%(default)s)")
    parser.add_argument(
        "--synthetic", type=int, default=0, metavar="N", help="train on N made-up images instead, to try a set-up"
    )


def load(arguments):
    """The training and the test set."""
    if arguments.synthetic:
        return synthetic(arguments.synthetic, seed=1), synthetic(max(200, arguments.synthetic // 5), seed=2)
    return read(arguments.data, "train"), read(arguments.data, "t10k")


def read(folder, part):
    pixels = idx(Path(folder) / f"{part}-images-idx3-ubyte.gz").float()
    # Mean and deviation of the training set.
    images = (pixels / 255 - 0.2860) / 0.3530
    return TensorDataset(images.unsqueeze(1), idx(Path(folder) / f"{part}-labels-idx1-ubyte.gz").long())


def idx(path):
    """An idx file: two zeros, the type (8: bytes), the number of sides, the sides as 32-bit numbers, the values."""
    try:
        content = gzip.decompress(path.read_bytes())
    except FileNotFoundError:
        raise SystemExit(
            f"{path} is not there. Get it with '{GET}', name the folder with --data,"
            " or try the example with --synthetic 2000"
        ) from None
    sides = [int.from_bytes(content[4 + 4 * n : 8 + 4 * n], "big") for n in range(content[3])]
    return torch.frombuffer(bytearray(content[4 + 4 * len(sides) :]), dtype=torch.uint8).reshape(sides)


def synthetic(count, seed):
    """Ten patterns under noise, which a network can learn within a few dozen steps."""
    patterns = torch.randn(10, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(10, (count,), generator=generator)
    return TensorDataset(patterns[labels] + torch.randn(count, 1, 28, 28, generator=generator), labels)


def network():
    """Two convolutions and two linear layers, 206,922 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(32 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


@torch.no_grad()
def count_right(model, dataset, rank=0, ranks=1):
    """How many of this rank's share of the samples the model names rightly, as a tensor that can be summed."""
    images, labels = (tensor[rank::ranks] for tensor in dataset.tensors)
    model.eval()
    pieces = zip(images.split(500), labels.split(500))
    right = sum((model(piece).argmax(1) == wanted).sum() for piece, wanted in pieces)
    model.train()
    return torch.as_tensor(right)
