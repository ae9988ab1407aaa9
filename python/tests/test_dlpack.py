"""Tensors of torch as arrays of thinwire.Compressor, by DLPack."""

import numpy as np
import pytest

from thinwire import BadArgument, Compressor

torch = pytest.importorskip("torch")


@pytest.fixture
def sender():
    return Compressor((4, 6), "topk:density=1,dense_up_to=0")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_tensors_of_any_width(sender, dtype):
    tensor = torch.randn(4, 6, dtype=dtype)
    np.testing.assert_array_equal(sender.decompress(sender.compress(tensor)), tensor.float().numpy())


def test_tensors_of_any_layout(sender):
    for tensor in (torch.randn(6, 4).T, torch.randn(4, 12)[:, ::2], torch.randn(1, 6).expand(4, 6)):
        np.testing.assert_array_equal(sender.decompress(sender.compress(tensor)), tensor.numpy())


def test_a_scalar_and_an_empty_tensor():
    for tensor in (torch.tensor(3.5), torch.zeros(0, 3)):
        sender = Compressor(tensor.shape, "topk")
        np.testing.assert_array_equal(sender.decompress(sender.compress(tensor)), tensor.numpy())


def test_a_tensor_that_requires_a_gradient(sender):
    tensor = torch.randn(4, 6, requires_grad=True)
    with pytest.raises(BadArgument, match=r"gradient is a tensor that requires a gradient.*detach\(\)"):
        sender.compress(tensor)
    sender.compress(tensor.detach())


def test_a_tensor_that_is_elsewhere(sender):
    with pytest.raises(BadArgument, match="gradient can't be read.*meta.*expected an array in the CPU's memory"):
        sender.compress(torch.zeros(4, 6, device="meta"))


def test_a_sparse_tensor(sender):
    with pytest.raises(BadArgument, match="gradient can't be read"):
        sender.compress(torch.zeros(4, 6).to_sparse())


def test_an_integer_tensor(sender):
    with pytest.raises(BadArgument, match="gradient is an array of int64; expected floats"):
        sender.compress(torch.zeros(4, 6, dtype=torch.int64))


def test_a_state_of_tensors(sender):
    sender = Compressor((4, 6), "topk", density=0.1, dense_up_to=0)
    sender.compress(torch.randn(4, 6))
    state = sender.state()
    kept = torch.from_numpy(state["residual"]["gradient"])
    copy = Compressor((4, 6), "topk", density=0.1, dense_up_to=0)
    copy.restore({**state, "residual": {"gradient": kept}})
    np.testing.assert_array_equal(copy.residual(), sender.residual())
