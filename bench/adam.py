"""A byte-level GPT trained with AdamW: the validation loss and the bytes sent, for each way of exchanging gradients.

Every way trains the same model on the same tokens in processes of its own, over Gloo. The text is the Python source
that comes with Python and torch. The defaults fit two cores; --preset gpt10m is for a GPU.

    python bench/adam.py                                    # a small GPT on the CPU, about five minutes a way
    python bench/adam.py --preset gpt10m --device cuda      # 10.9 M parameters, 1,200 steps, four ranks on one GPU

A way is ddp, bf16, "default" (tw.compress without a method), or a method as tw.compress takes it, such as
quantized:bits=3. "adamw topk:density=0.01" is that method under thinwire.torch.AdamW; all others are under
torch.optim.AdamW. Bytes are those a rank sends in the whole run; ddp's are those of a ring all-reduce.
"""

import argparse
import glob
import json
import math
import os
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

import thinwire.torch as tw

PRESETS = {
    "small": {"layers": 4, "width": 128, "context": 128, "batch": 8, "steps": 300, "warmup": 50},
    "gpt10m": {"layers": 6, "width": 384, "context": 256, "batch": 16, "steps": 1200, "warmup": 100},
    "gpt2": {"layers": 12, "width": 768, "context": 1024, "batch": 8, "steps": 300, "warmup": 50},
}
WAYS = ["ddp", "quantized", "quantized:bits=8", "quantized:bits=3", "quantized:bits=2", "topk", "adamw topk"]
#: Before a method that goes with thinwire.torch.AdamW.
OURS = "adamw "


def corpus(most: int) -> torch.Tensor:
    """Python source as bytes, made once."""
    path = os.path.join(tempfile.gettempdir(), f"thinwire-source-{most}.bin")
    if not os.path.exists(path):
        folders = [sysconfig.get_paths()["stdlib"], os.path.dirname(torch.__file__)]
        files = sorted(file for folder in folders for file in glob.glob(f"{folder}/**/*.py", recursive=True))
        text = bytearray()
        for file in files:
            with open(file, "rb") as source:
                text += source.read()
            if len(text) > most:
                break
        with open(f"{path}.{os.getpid()}", "wb") as out:
            out.write(text)
        os.replace(f"{path}.{os.getpid()}", path)
    with open(path, "rb") as source:
        return torch.frombuffer(bytearray(source.read()), dtype=torch.uint8)


class Block(nn.Module):
    """Attention and a perceptron, each behind a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class GPT(nn.Module):
    """Bytes in, logits of the next byte out."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(options.context, width)
        self.blocks = nn.ModuleList(Block(width, width // 64) for _ in range(options.layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def train(options: argparse.Namespace, way: str, seed: int) -> dict:
    """Every rank calls it; the validation loss and the bytes this rank sent."""
    device = torch.device(options.device)
    data = corpus(options.bytes).to(device)
    cut = int(len(data) * 0.95)
    torch.manual_seed(seed)
    model = GPT(options).to(device)
    ddp = DistributedDataParallel(model)
    make = tw.AdamW if way.startswith(OURS) else torch.optim.AdamW
    optimizer = make(ddp.parameters(), lr=options.lr, betas=(0.9, 0.95), weight_decay=0.1)
    state = None
    if way == "bf16":
        ddp.register_comm_hook(None, bf16_compress_hook)
    elif way != "ddp":
        method = None if way == "default" else way.removeprefix(OURS)
        state = tw.compress(ddp, method, optimizer=optimizer, total_steps=options.steps)

    def batch(source: torch.Tensor, generator: torch.Generator, count: int) -> "tuple[torch.Tensor, torch.Tensor]":
        starts = torch.randint(len(source) - options.context - 1, (count,), generator=generator).to(device)
        window = source[starts[:, None] + torch.arange(options.context + 1, device=device)].long()
        return window[:, :-1], window[:, 1:]

    def loss_of(network: nn.Module, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = network(tokens)
        return F.cross_entropy(logits.float().flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def evaluate() -> float:
        generator = torch.Generator().manual_seed(7)
        return sum(loss_of(model, *batch(data[cut:], generator, 32)).item() for _ in range(16)) / 16

    samples = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    parameters, ranks = sum(p.numel() for p in model.parameters()), dist.get_world_size()
    dense = 2 * (ranks - 1) / ranks * 4 * parameters

    def sent(steps: int) -> float:
        plain = {"ddp": 1.0, "bf16": 0.5}.get(way)
        return state.report().sent if plain is None else plain * dense * steps

    curve, begun = [], time.time()
    for step in range(options.steps):
        rest = (step - options.warmup) / (options.steps - options.warmup)
        rate = (step + 1) / options.warmup if rest < 0 else 0.1 + 0.45 * (1 + math.cos(math.pi * rest))
        optimizer.param_groups[0]["lr"] = options.lr * rate
        optimizer.zero_grad()
        loss_of(ddp, *batch(data[:cut], samples, options.batch)).backward()
        optimizer.step()
        if (step + 1) % (options.steps // 6) == 0:
            curve.append([step + 1, round(evaluate(), 4), round(sent(step + 1))])
    total = sent(options.steps)
    return {
        "way": way,
        "method": None if state is None else state.method,
        "seed": seed,
        "parameters": parameters,
        "loss": round(evaluate(), 4),
        "curve": curve,
        "sent": round(total),
        "bytes_less": round(dense * options.steps / total, 2),
        "seconds": round(time.time() - begun, 1),
    }


def spawn(options: argparse.Namespace, way: str, seed: int) -> dict:
    """One run in processes of its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    place = {"WORLD_SIZE": options.ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, *sys.argv, "--ways", way, "--seeds", str(seed)]
    ranks = []
    for rank in range(options.ranks):
        environment = os.environ | {name: str(value) for name, value in (place | {"RANK": rank}).items()}
        ranks.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    outputs = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise SystemExit(f"{way}, seed {seed}: a rank failed")
    return json.loads(outputs[0].strip().splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", choices=list(PRESETS), default="small", help="the model and its training")
    for name, help in [("layers", "blocks"), ("width", "of the model"), ("context", "bytes"), ("steps", "of training")]:
        parser.add_argument(f"--{name}", type=int, help=help)
    parser.add_argument("--batch", type=int, help="samples a step and rank")
    parser.add_argument("--warmup", type=int, help="steps in which the learning rate grows")
    parser.add_argument("--lr", type=float, default=1e-3, help="the largest learning rate")
    parser.add_argument("--bytes", type=int, default=20_000_000, help="of text")
    parser.add_argument("--ranks", type=int, default=4, help="processes")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--ways", nargs="+", default=WAYS, help="what to compare")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="of the weights and the samples")
    parser.add_argument("--json", help="also write all runs to this file")
    options = parser.parse_args()
    for name, value in PRESETS[options.preset].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    if "RANK" in os.environ:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        outcome = train(options, options.ways[0], options.seeds[0])
        dist.destroy_process_group()
        print(json.dumps(outcome), flush=True)
        return 0
    corpus(options.bytes)
    settings, runs = {name: getattr(options, name) for name in [*PRESETS["small"], "lr", "ranks", "device"]}, []
    for seed in options.seeds:
        dense = None
        for way in options.ways:
            outcome = spawn(options, way, seed)
            dense = outcome["loss"] if way == "ddp" else dense
            outcome["of_ddp"] = round(outcome["loss"] / dense, 4) if dense else None
            print(json.dumps(outcome), flush=True)
            runs.append(outcome)
            if options.json:
                with open(options.json, "w") as out:
                    json.dump({"settings": settings, "runs": runs}, out, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
