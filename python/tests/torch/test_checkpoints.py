"""States through torch.distributed.checkpoint, Accelerate's and Lightning's own checkpoints, as they are."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from ports import free_port
from ranks import run
from small import checksum, everything, mlp, train
from torch.nn.parallel import DistributedDataParallel

import thinwire
import thinwire.torch as tw


def _start(method: str = "topk", form: str = "compress") -> "tuple[Any, Any, Any]":
    model = mlp()
    ddp = DistributedDataParallel(model)
    if form == "compress":
        return model, ddp, tw.compress(ddp, method, **everything(method))
    state = tw.HookState(ddp if form == "ddp" else None, method, **everything(method))
    ddp.register_comm_hook(state, tw.hook)
    return model, ddp, state


def _equal(one: Any, other: Any) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def distributed(rank: int, folder: Path, method: str, form: str) -> "dict[str, torch.Tensor]":
    """Saved before the first step and after some; loaded into a fresh one and into one that has trained."""
    model, ddp, sync = _start(method, form)
    dcp.save({"app": sync}, checkpoint_id=str(folder / "fresh"))
    train(rank, ddp, range(4))
    # As an object and as a plain dictionary.
    dcp.save({"app": sync, "model": model.state_dict()}, checkpoint_id=str(folder / "object"))
    dcp.save({"app": sync.state_dict()}, checkpoint_id=str(folder / "plain"))
    saved, weights = sync.state_dict(), {name: values.clone() for name, values in model.state_dict().items()}
    kept = sync.residual()
    assert any(values.any() for values in kept.values())
    train(rank, ddp, range(4, 8))
    expected = checksum(model)

    for where in ("object", "plain"):
        model, ddp, sync = _start(method, form)
        model.load_state_dict(weights)
        if where == "object":
            dcp.load({"app": sync}, checkpoint_id=str(folder / where))
        else:
            template = {"app": sync.state_dict()}
            dcp.load(template, checkpoint_id=str(folder / where))
            sync.load_state_dict(template["app"])
        assert sync.state_dict()["step"] == 4 and _equal(sync.residual(), kept), where
        assert sync.state_dict()[f"rank {rank}"]["selectors"] == saved[f"rank {rank}"]["selectors"]
        train(rank, ddp, range(4, 8))
        assert checksum(model) == expected, f"{method}, {where}: other bits"

    dcp.load({"app": sync}, checkpoint_id=str(folder / "object"))
    assert _equal(sync.residual(), kept)
    dcp.load({"app": sync}, checkpoint_id=str(folder / "fresh"))
    assert sync.state_dict()["step"] == 0 and not any(values.any() for values in sync.residual().values())
    return kept


@pytest.mark.parametrize("method", ["topk", "redsync", "dgc:momentum=0.9"])
def test_distributed_checkpoint_gives_every_rank_its_own(method: str, tmp_path: Path) -> None:
    one, two = run(2, distributed, tmp_path, method, "compress")
    assert not _equal(one, two)


def test_distributed_checkpoint_of_a_hook_that_was_registered_by_hand(tmp_path: Path) -> None:
    run(2, distributed, tmp_path, "topk", "ddp")


def into_no_names(rank: int, folder: Path) -> str:
    _, ddp, sync = _start()
    train(rank, ddp, range(2))
    dcp.save({"app": sync}, checkpoint_id=str(folder))
    _, _, nameless = _start(form="no model")
    with pytest.raises(thinwire.BadState) as error:
        dcp.load({"app": nameless}, checkpoint_id=str(folder))
    return str(error.value)


def test_a_state_that_would_be_lost_for_want_of_names_is_refused(tmp_path: Path) -> None:
    for said in run(2, into_no_names, tmp_path):
        assert "step 2" in said and "give HookState the model" in said


def saves(rank: int, folder: Path) -> "dict[str, torch.Tensor]":
    _, ddp, sync = _start()
    train(rank, ddp, range(3))
    dcp.save({"app": sync}, checkpoint_id=str(folder))
    return sync.residual()


def loads_elsewhere(rank: int, folder: Path, before: int) -> "tuple[str, dict[str, torch.Tensor]]":
    _, _, sync = _start()
    try:
        dcp.load({"app": sync}, checkpoint_id=str(folder))
        said = "loaded"
    except BaseException as error:
        # torch's CheckpointException is none of the usual ones.
        said = f"{type(error).__name__}: {error}"
    assert not any(values.any() for values in sync.residual().values())
    template = {"app": sync.blank_state_dict(before)}
    dcp.load(template, checkpoint_id=str(folder))
    sync.load_state_dict(template["app"])
    return said, sync.residual()


@pytest.mark.parametrize(("before", "after"), [(4, 2), (2, 4)])
def test_distributed_checkpoint_with_other_numbers_of_ranks(before: int, after: int, tmp_path: Path) -> None:
    kept = run(before, saves, tmp_path)
    found = run(after, loads_elsewhere, tmp_path, before)
    for said, _ in found:
        assert "blank_state_dict(4)" in said if before > after else "rank 2" in said, said
    for name in kept[0]:
        expected = sum(residual[name] for residual in kept)
        torch.testing.assert_close(sum(residual[name] for _, residual in found), expected, rtol=1e-6, atol=1e-7)


class Accelerated:
    """What Accelerate's loop needs, on processes that have met already."""

    def __init__(self, folder: Path, nodes: bool = False) -> None:
        from accelerate import Accelerator
        from accelerate.state import AcceleratorState
        from accelerate.utils import ProjectConfiguration

        AcceleratorState._reset_state(True)
        self.accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration(save_on_each_node=nodes))
        model = mlp()
        self.ddp = DistributedDataParallel(model)
        self.sync = tw.compress(self.ddp, "topk", **everything("topk"))
        self.accelerator.register_for_checkpointing(self.sync)
        self.folder = str(folder)


def _environment(rank: int, local_rank: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(local_rank), "WORLD_SIZE": str(dist.get_world_size())}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1", "ACCELERATE_USE_CPU": "true"}


def accelerated(rank: int, folder: Path) -> "dict[str, torch.Tensor]":
    _environment(rank, rank)
    one = Accelerated(folder)
    assert one.accelerator.num_processes == dist.get_world_size()
    one.accelerator.save_state(str(folder / "fresh"))
    train(rank, one.ddp, range(3))
    one.accelerator.save_state(str(folder / "trained"))
    kept = one.sync.residual()
    two = Accelerated(folder)
    two.accelerator.load_state(str(folder / "trained"))
    assert two.sync.state_dict()["step"] == 3 and _equal(two.sync.residual(), kept)
    two.accelerator.load_state(str(folder / "fresh"))
    assert two.sync.state_dict()["step"] == 0
    # Outside of save_state() nothing is exchanged: one rank alone may ask.
    if rank == 0:
        assert "rank 1" not in one.sync.state_dict()
    return kept


def accelerated_on_fewer(rank: int, folder: Path) -> "dict[str, torch.Tensor]":
    one = Accelerated(folder)
    one.accelerator.load_state(str(folder / "trained"))
    return one.sync.residual()


needs_accelerate = pytest.mark.skipif(importlib.util.find_spec("accelerate") is None, reason="no accelerate")
needs_lightning = pytest.mark.skipif(importlib.util.find_spec("lightning") is None, reason="no lightning")


@needs_accelerate
def test_accelerate_saves_what_all_ranks_have_kept(tmp_path: Path) -> None:
    one, two = run(2, accelerated, tmp_path)
    assert not _equal(one, two)


def accelerated_on_nodes(rank: int, folder: Path) -> None:
    """Each rank is the first of its node, and writes into a folder of its own."""
    _environment(rank, 0)
    mine = str(folder / f"node {rank}")
    one = Accelerated(folder, nodes=True)
    train(rank, one.ddp, range(3))
    one.accelerator.save_state(mine)
    kept = one.sync.residual()
    two = Accelerated(folder, nodes=True)
    two.accelerator.load_state(mine)
    assert _equal(two.sync.residual(), kept)
    # After a loss each has what is its own.
    one.sync._engine.group.abandon("a test")  # type: ignore[union-attr]
    one.accelerator.save_state(mine)
    two.accelerator.load_state(mine)
    assert _equal(two.sync.residual(), kept)


@needs_accelerate
def test_accelerate_saves_on_each_node_and_after_a_loss(tmp_path: Path) -> None:
    run(2, accelerated_on_nodes, tmp_path)


def only_one_ranks(rank: int) -> str:
    """What a checkpoint that rank 0 alone has written comes to."""
    _, ddp, sync = _start()
    train(rank, ddp, range(2))
    states = [sync.state_dict()]
    dist.broadcast_object_list(states)
    with pytest.raises(thinwire.BadState) as error:
        sync.load_state_dict(states[0])
    return str(error.value)


def test_a_checkpoint_that_one_rank_has_written_of_its_own_is_refused() -> None:
    one, two = run(2, only_one_ranks)
    assert one.startswith("rank 1 can't load its state: the state is of rank 0 of 2, this is rank 1 of 2"), one
    assert two.startswith("the state is of rank 0 of 2, this is rank 1 of 2"), two


LIGHTNING = """
import sys
import lightning, torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from thinwire.torch.lightning import CompressedDDPStrategy

lightning.seed_everything(1)

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))

    def training_step(self, batch, _):
        return nn.functional.mse_loss(self.layers(batch[0]), batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)

def trainer(epochs, *callbacks):
    strategy = CompressedDDPStrategy(
        "topk", 0.05, process_group_backend="gloo"
    )
    return lightning.Trainer(
        accelerator="cpu", devices=2, strategy=strategy, max_epochs=epochs, logger=False, callbacks=list(callbacks),
        enable_model_summary=False, enable_progress_bar=False, default_root_dir=sys.argv[1],
        enable_checkpointing=bool(callbacks),
    )

def data():
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(3))
    return DataLoader(TensorDataset(x, torch.tanh(x[:, :4])), 8)

def total(model):
    return sum(parameter.double().sum().item() for parameter in model.parameters())

whole, model = trainer(4), Model()
weights = {name: values.clone() for name, values in model.state_dict().items()}
whole.fit(model, data())
expected = total(model)

# Lightning's own callback writes, and its own trainer reads.
every = lightning.pytorch.callbacks.ModelCheckpoint(dirpath=sys.argv[1], filename="{epoch}", save_top_k=-1)
first, model = trainer(2, every), Model()
model.load_state_dict(weights)
first.fit(model, data())
kept = first.strategy.compression.residual()
assert any(values.any() for values in kept.values())

second, model = trainer(4), Model()
second.fit(model, data(), ckpt_path=sys.argv[1] + "/epoch=1.ckpt")
assert second.strategy.compression.report().steps == 8
assert second.strategy.compression.state_dict()["step"] == 16
assert total(model) == expected, (total(model), expected)

# Weights are averaged in both epochs, of the model that is compressed.
averaging = lightning.pytorch.callbacks.StochasticWeightAveraging(swa_lrs=0.1, swa_epoch_start=1)
third, model = trainer(2, averaging), Model()
model.load_state_dict(weights)
third.fit(model, data())
assert averaging.n_averaged.item() == 2, averaging.n_averaged
assert third.strategy.compression.report().steps == 8
states = torch.load(sys.argv[1] + "/epoch=1.ckpt", weights_only=False)["thinwire"]
rank = second.global_rank
assert all(torch.equal(values, states[f"rank {rank}"]["residual"][name]) for name, values in kept.items())
if rank == 0:
    print("passed", sorted(name for name in states if name.startswith("rank ")))
torch.distributed.destroy_process_group()
"""


@needs_lightning
def test_lightning_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    script = tmp_path / "fit.py"
    script.write_text(LIGHTNING)
    package = str(Path(thinwire.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": package, "OMP_NUM_THREADS": "1", "MASTER_PORT": str(free_port())}
    environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        environment.pop(name, None)
    command = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "passed ['rank 0', 'rank 1']" in done.stdout, done.stdout
