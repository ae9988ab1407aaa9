"""One training of ResNet-20 on Fashion-MNIST, as one rank of several sees it.

The whole data set lies on the device as bytes; the images of an epoch are varied in one go and taken in slices, so that
next to nothing but the network itself runs in a step.
"""

import gzip
import math
import time
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterator, Optional

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw

#: Looked at in this order.
FOLDERS = ("/usr/share/datasets/fashion-mnist", "data/fashion-mnist")
GET = "apt-get install -y dataset-fashion-mnist"
#: Of the pixels of the training set, as parts of 255.
MEAN, DEVIATION = 0.2860, 0.3530
#: Pixels that an image is moved by at most.
SHIFT = 2


class Block(nn.Module):
    def __init__(self, before: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.wider = channels - before

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.norm1(self.conv1(x)), inplace=True)
        y = self.norm2(self.conv2(y))
        if self.wider:
            # The shortcut without weights: every second pixel, and channels of zeros.
            half = self.wider // 2
            x = functional.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, half, self.wider - half))
        return functional.relu(y + x, inplace=True)


class ResNet20(nn.Module):
    """The CIFAR form: three stages of three blocks with 16, 32 and 64 channels, 272 thousand parameters."""

    def __init__(self) -> None:
        super().__init__()
        blocks, before = [], 16
        for channels in (16, 32, 64):
            for number in range(3):
                blocks.append(Block(before, channels, 2 if number == 0 and channels != 16 else 1))
                before = channels
        self.conv, self.norm = nn.Conv2d(1, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.blocks, self.output = nn.Sequential(*blocks), nn.Linear(64, 10)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(functional.relu(self.norm(self.conv(x)), inplace=True))
        return self.output(x.mean((2, 3)))  # type: ignore[no-any-return]


def idx(path: Path) -> torch.Tensor:
    """An idx file: two zeros, the type (8: bytes), the number of sides, the sides as 32-bit numbers, the values."""
    content = gzip.decompress(path.read_bytes())
    sides = [int.from_bytes(content[4 + 4 * n : 8 + 4 * n], "big") for n in range(content[3])]
    return torch.frombuffer(bytearray(content[4 + 4 * len(sides) :]), dtype=torch.uint8).reshape(sides)


def folder_of(given: Optional[str]) -> Path:
    """Where the data set is, or words on how to get it."""
    for folder in [given] if given else FOLDERS:
        if (Path(folder) / "train-images-idx3-ubyte.gz").exists():
            return Path(folder)
    looked = given or " and ".join(FOLDERS)
    raise SystemExit(f"Fashion-MNIST is not in {looked}. Get it with '{GET}', or name its folder with --data")


class Data:
    """The data set on a device."""

    def __init__(self, folder: Path, device: str, limit: int) -> None:
        count = limit or None
        pixels = idx(folder / "train-images-idx3-ubyte.gz")[:count].to(device)
        #: With a black border, so that a crop is a shift.
        self.images = functional.pad(pixels, (SHIFT,) * 4)
        self.labels = idx(folder / "train-labels-idx1-ubyte.gz")[:count].long().to(device)
        self.test_images = normal(idx(folder / "t10k-images-idx3-ubyte.gz")[:count].to(device))
        self.test_labels = idx(folder / "t10k-labels-idx1-ubyte.gz")[:count].long().to(device)

    def epoch(self, seed: int, epoch: int, batch: int) -> "tuple[torch.Tensor, torch.Tensor]":
        """This rank's images of an epoch, shifted and mirrored, and their labels, one step behind the other. The order
        depends on seed and epoch alone."""
        rank, ranks, count = dist.get_rank(), dist.get_world_size(), len(self.images)
        order = torch.randperm(count, generator=torch.Generator().manual_seed(1000 * seed + epoch))
        steps = count // (batch * ranks)
        mine = order[: steps * batch * ranks].view(steps, ranks, batch)[:, rank].reshape(-1).to(self.images.device)
        chance = torch.Generator(self.images.device).manual_seed((1000 * seed + epoch) * ranks + rank)

        def draw(most: int) -> torch.Tensor:
            return torch.randint(most, (len(mine), 1), generator=chance, device=mine.device)

        along = torch.arange(28, device=mine.device)
        rows = draw(2 * SHIFT + 1) + along
        columns = draw(2 * SHIFT + 1) + torch.where(draw(2) == 1, 27 - along, along)
        return normal(self.images[mine[:, None, None], rows[:, :, None], columns[:, None, :]]), self.labels[mine]


def normal(pixels: torch.Tensor) -> torch.Tensor:
    """With mean 0 and deviation 1."""
    return pixels.unsqueeze(1).float().div_(255).sub_(MEAN).div_(DEVIATION)


@dataclass
class Job:
    """What a training is told."""

    name: str
    #: `None`: DDP's own exchange.
    method: Optional[str]
    seed: int
    epochs: int
    #: Samples of a rank in a step.
    batch: int
    lr: float
    #: Epochs over which the learning rate rises; then it falls to zero by a cosine.
    lr_warmup: float
    weight_decay: float
    label_smoothing: float
    bf16: bool
    #: The accuracy is looked at after this many last epochs.
    evaluate_last: int

    @property
    def method_momentum(self) -> float:
        """The momentum that the method applies in the optimiser's place."""
        parameters = dict(part.split("=") for part in (self.method or "").partition(":")[2].split(",") if part)
        return float(parameters.get("momentum", 0))

    def optimizer(self, parameters: Any, fused: bool) -> torch.optim.SGD:
        """With momentum in the method, weight decay does not go through it, and is that much larger."""
        momentum = 0.0 if self.method_momentum else 0.9
        decay = self.weight_decay / (1 - self.method_momentum)
        return torch.optim.SGD(
            parameters, self.lr, momentum=momentum, nesterov=momentum > 0, weight_decay=decay, fused=fused or None
        )

    def rate(self, epochs: float) -> float:
        """The learning rate after so many epochs."""
        if epochs < self.lr_warmup:
            return self.lr * epochs / self.lr_warmup
        fallen = (epochs - self.lr_warmup) / max(self.epochs - self.lr_warmup, 1e-9)
        return self.lr * 0.5 * (1 + math.cos(math.pi * min(1.0, fallen)))


def train(job: Job, data: Data) -> "Iterator[dict[str, Any]]":
    """Trains; gives the figures of each epoch, and at the end those of the run. All ranks call it together."""
    device = data.images.device
    torch.manual_seed(job.seed)
    model = ResNet20().to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    # Statistics of batch normalisation stay on the rank: they would travel in every step.
    ddp = DistributedDataParallel(model, broadcast_buffers=False, gradient_as_bucket_view=True)
    steps = len(data.images) // (job.batch * dist.get_world_size())
    sync = None if job.method is None else tw.compress(ddp, job.method, steps_per_epoch=steps)
    optimizer = job.optimizer(model.parameters(), fused=device.type == "cuda")
    begun, accuracy = time.perf_counter(), None
    for epoch in range(job.epochs):
        images, labels = data.epoch(job.seed, epoch, job.batch)
        total = torch.zeros((), device=device)
        for step, (x, y) in enumerate(zip(images.split(job.batch), labels.split(job.batch))):
            optimizer.param_groups[0]["lr"] = job.rate(epoch + (step + 1) / steps)
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, enabled=job.bf16):
                loss = functional.cross_entropy(ddp(x), y, label_smoothing=job.label_smoothing)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        accuracy = evaluate(model, data) if epoch >= job.epochs - job.evaluate_last else None
        # Waits for the device.
        figures = {"epoch": epoch + 1, "loss": total.item() / steps, "seconds": time.perf_counter() - begun}
        yield figures if accuracy is None else {**figures, "accuracy": accuracy}
    end: "dict[str, Any]" = {"accuracy": accuracy, "seconds": time.perf_counter() - begun, "steps": steps * job.epochs}
    end["weights"] = checksum(model)
    end["device"] = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    if sync is not None:
        end["report"] = sync.report().as_dict()
        sync.close()
    yield end


@torch.no_grad()
def evaluate(model: nn.Module, data: Data) -> Optional[float]:
    """The accuracy on the test set: rank 0 looks, with its own statistics of batch normalisation, in 32 bits, where no
    two classes come out alike."""
    if dist.get_rank() != 0:
        return None
    model.eval()
    right = torch.zeros((), device=data.test_labels.device)
    for images, labels in zip(data.test_images.split(2500), data.test_labels.split(2500)):
        right += (model(images).argmax(1) == labels).sum()
    model.train()
    return right.item() / len(data.test_labels)


def checksum(model: nn.Module) -> int:
    """Of all bits of the parameters."""
    total = 0
    for parameter in model.parameters():
        total = zlib.crc32(parameter.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes(), total)
    return total
