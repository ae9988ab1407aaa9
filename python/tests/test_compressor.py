"""thinwire.Compressor: arrays of all kinds in, frames out, and back."""

import pickle
import re

import numpy as np
import pytest

import thinwire
from thinwire import BadArgument, BadFrame, BadState, Compressor, StepSkipped


def noise(*shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


#: Every method that sends a part, so that all elements can be told apart and no layer is too small to be compressed.
METHODS = [method for method in thinwire.methods() if method not in ("dense", "quantized", "auto")]


def compressor(method, layers=(40, 100), **parameters):
    small = {"dense_up_to": 0} if "dense_up_to" in thinwire.methods()[method].parameters else {}
    return Compressor(layers, method, **small, **parameters)


@pytest.mark.parametrize("method", METHODS)
def test_what_is_sent_and_what_is_kept_make_the_gradient(method):
    sender = compressor(method, density=0.05)
    total, arrived = np.zeros((40, 100)), np.zeros((40, 100))
    for step in range(5):
        gradient, weights = noise(40, 100, seed=step), noise(40, 100, seed=100)
        frame = sender.compress(gradient, weights)
        total += gradient
        arrived += sender.decompress(frame)
        assert 0 < frame.gain < 1
        # fft counts complex coefficients, of which there are half as many as elements.
        assert 1 <= frame.kept <= 4 / 3 * 200
        assert len(frame.data) < 4 * 4000 / 5
    if thinwire.methods()[method].parameters["feedback"].default == "true":
        # fft rounds in its transform and in its values.
        np.testing.assert_allclose(arrived + sender.residual(), total, atol=1e-4 if method == "fft" else 1e-5)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_rounding_to_a_few_bits_is_kept(bits):
    sender = Compressor((40, 100), "quantized", bits=bits)
    total, arrived = np.zeros((40, 100)), np.zeros((40, 100))
    for step in range(5):
        gradient = noise(40, 100, seed=step)
        frame = sender.compress(gradient)
        total += gradient
        arrived += sender.decompress(frame)
        # A scale of two bytes for each 64 values, and the frame around it all.
        assert 4000 * bits / 8 < len(frame.data) < 4000 * (bits / 8 + 2 / 64) + 100
    np.testing.assert_allclose(arrived + sender.residual(), total, atol=1e-5)
    assert 0 < np.abs(sender.residual()).max() < 4


@pytest.mark.parametrize("method", ["dense", *METHODS])
def test_with_density_one_the_mean_of_all_ranks_is_exact(method):
    ranks = 3
    parameters = {"dense": {}, "fft": {"density": 1, "bits": 0}}.get(method, {"density": 1})
    senders = [compressor(method, **parameters) for _ in range(ranks)]
    gradients = [noise(40, 100, seed=rank) for rank in range(ranks)]
    frames = [sender.compress(gradient, gradient) for sender, gradient in zip(senders, gradients)]
    means = [sender.decompress(*frames) for sender in senders]
    np.testing.assert_allclose(means[0], np.mean(gradients, axis=0), atol=1e-5 if method == "fft" else 1e-6)
    assert all(mean.tobytes() == means[0].tobytes() for mean in means)


def test_named_layers_keep_names_and_shapes():
    shapes = {"weight": (20, 30), "bias": (20,), "scale": (), "empty": (0, 7)}
    gradient = {name: noise(*shape) if shape else np.float32(9) for name, shape in shapes.items()}
    sender = Compressor(shapes, "topk:density=1,dense_up_to=0")
    back = sender.decompress(sender.compress(gradient))
    assert {name: array.shape for name, array in back.items()} == shapes
    for name in shapes:
        np.testing.assert_array_equal(back[name], gradient[name])
    assert {name: array.shape for name, array in sender.residual().items()} == shapes


@pytest.mark.parametrize("shape", [0, (), (0,), (3, 0, 2), (1,)])
def test_odd_shapes(shape):
    sender = Compressor(shape, "topk", density=0.5)
    gradient = np.full(shape, 2.5)
    back = sender.decompress(sender.compress(gradient))
    assert back.shape == gradient.shape
    np.testing.assert_array_equal(back, gradient)


def test_no_layers_at_all():
    sender = Compressor({}, "topk")
    assert sender.decompress(sender.compress({})) == {}


def test_float_arrays_of_any_width_order_and_layout():
    sender = Compressor((6, 8), "topk:density=1,dense_up_to=0")
    want = noise(6, 8)

    def comes_back(array, expected=want):
        np.testing.assert_array_equal(sender.decompress(sender.compress(array)), expected)

    comes_back(want.astype(np.float64))
    comes_back(want.astype(np.float16), want.astype(np.float16).astype(np.float32))
    comes_back(want.astype(">f4"))
    comes_back(np.asfortranarray(want))
    comes_back(np.repeat(want, 2, axis=1)[:, ::2])
    comes_back(want[::-1].copy()[::-1])
    unaligned = np.frombuffer(b"x" + want.tobytes(), np.float32, offset=1).reshape(6, 8)
    assert not unaligned.flags.aligned
    comes_back(unaligned)
    readonly = want.copy()
    readonly.flags.writeable = False
    comes_back(readonly)


def test_the_gradient_is_left_as_it_is():
    gradient = noise(1000)
    before = gradient.copy()
    Compressor(1000, "topk", density=0.01).compress(gradient)
    np.testing.assert_array_equal(gradient, before)


def test_what_comes_back_belongs_to_the_caller():
    sender = Compressor(1000, "topk", density=0.01)
    frame = sender.compress(noise(1000))
    for array in (sender.decompress(frame), sender.residual(), sender.state()["residual"]["gradient"]):
        array[:] = 7
    assert np.count_nonzero(sender.decompress(frame) == 7) == 0
    assert np.count_nonzero(sender.residual() == 7) == 0


@pytest.mark.parametrize(
    "gradient, words",
    [
        (np.zeros(9), "gradient has the shape (9,); expected (10,)"),
        (np.zeros((10, 1)), "gradient has the shape (10, 1); expected (10,)"),
        (np.zeros(10, np.int64), "gradient is an array of int64; expected floats"),
        (np.zeros(10, complex), "gradient is an array of complex128; expected floats"),
        (np.array(["a"] * 10), "expected floats"),
        ([0.0] * 10, "gradient is a list; expected an array of NumPy's"),
        (None, "gradient is a NoneType"),
        (np.full(10, 1e300), "gradient holds 1e+300; expected values that fit into 32-bit floats"),
    ],
)
def test_a_gradient_that_can_not_be_used_is_named(gradient, words):
    with pytest.raises(BadArgument, match=re.escape(words)):
        Compressor(10, "topk").compress(gradient)


def test_layers_that_do_not_fit_are_named():
    sender = Compressor({"a": 2, "b": (3,)}, "topk")
    with pytest.raises(BadArgument, match=re.escape("gradient has the layers ['a', 'c']; expected ['a', 'b']")):
        sender.compress({"a": np.zeros(2), "c": np.zeros(3)})
    with pytest.raises(BadArgument, match=re.escape("gradient 'b' has the shape (2,); expected (3,)")):
        sender.compress({"a": np.zeros(2), "b": np.zeros(2)})
    with pytest.raises(BadArgument, match="gradient is a ndarray; expected a dictionary of arrays"):
        sender.compress(np.zeros(5))
    with pytest.raises(BadArgument, match="weights 'a' is an array of int64"):
        sender.compress({"a": np.zeros(2), "b": np.zeros(3)}, {"a": np.zeros(2, np.int64), "b": np.zeros(3)})


@pytest.mark.parametrize(
    "arguments, settings, words",
    [
        ((10, "nope"), {}, 'unknown method "nope"'),
        ((10, "topk", 2.0), {}, "density"),
        ((10, "topk"), {"colour": "red"}, "colour"),
        ((-1,), {}, "the shape of 'gradient' is (-1,); expected no negative sides"),
        ((2.5,), {}, "the shape of 'gradient' is 2.5; expected whole numbers"),
        (((2, "x"),), {}, "the shape of 'gradient' is (2, 'x'); expected whole numbers"),
        (({"a": (2, 0.5)},), {}, "the shape of 'a' is (2, 0.5)"),
        (({1: (2,)},), {}, "a layer is named 1; expected a text"),
        ((10,), {"threads": 0}, "threads is 0; expected a whole number of 1 or more"),
        ((10,), {"threads": "two"}, "threads is 'two'"),
    ],
)
def test_a_compressor_that_can_not_be_made(arguments, settings, words):
    with pytest.raises(BadArgument, match=re.escape(words)):
        Compressor(*arguments, **settings)


def test_iwp_wants_weights():
    sender = compressor("iwp")
    with pytest.raises(BadArgument, match="weights"):
        sender.compress(noise(40, 100))


def test_a_nan_is_named_and_leaves_everything_as_it_was():
    sender = Compressor({"a": 100, "b": (10, 10)}, "topk", density=0.01, dense_up_to=0)
    good = {"a": noise(100), "b": noise(10, 10)}
    sender.compress(good)
    before = sender.residual()
    bad = {"a": good["a"], "b": good["b"].copy()}
    bad["b"][3, 4] = np.nan
    with pytest.raises(StepSkipped, match='"b"'):
        sender.compress(bad)
    for name, array in sender.residual().items():
        np.testing.assert_allclose(array, before[name], atol=1e-6)
    sender.compress(good)


def test_bytes_that_are_no_frame_of_this_step_are_refused():
    sender, other = Compressor(1000, "topk"), Compressor(999, "topk")
    first, second = sender.compress(noise(1000)), sender.compress(noise(1000))
    with pytest.raises(BadFrame, match="frame 1"):
        sender.decompress(first, b"anything")
    with pytest.raises(BadFrame, match="frame 1.*step"):
        sender.decompress(first, second)
    with pytest.raises(BadFrame, match="frame 0.*999.*1000"):
        sender.decompress(other.compress(noise(999)))
    for cut in (0, 10, len(first.data) - 1):
        with pytest.raises(BadFrame, match="frame 0"):
            sender.decompress(first.data[:cut])
    damaged = bytearray(first.data)
    damaged[-10] ^= 1
    with pytest.raises(BadFrame, match="frame 0"):
        sender.decompress(damaged)
    with pytest.raises(BadArgument, match="frame 0 is a int; expected a Frame or its bytes"):
        sender.decompress(5)
    with pytest.raises(BadArgument, match="no frame"):
        sender.decompress()
    np.testing.assert_array_equal(sender.decompress(memoryview(first.data)), sender.decompress(first))


@pytest.mark.parametrize("method", [*METHODS, "dgc:momentum=0.9"])
def test_a_restored_run_goes_on_with_the_same_bits(method):
    layers = {"a": (40, 100), "b": (50,)}

    def make():
        return Compressor(layers, method, density=0.02, dense_up_to=0)

    def gradient(step):
        return {"a": noise(40, 100, seed=step), "b": noise(50, seed=step + 100)}

    whole = make()
    for step in range(4):
        whole.compress(gradient(step), gradient(50))
    saved = pickle.loads(pickle.dumps(whole.state()))
    resumed = make()
    resumed.restore(saved)
    for step in range(4, 8):
        frames = [each.compress(gradient(step), gradient(50)).data for each in (whole, resumed)]
        assert frames[0] == frames[1]


def test_a_state_from_before_the_first_step():
    fresh = Compressor(100, "topk")
    state = fresh.state()
    assert state["step"] == 0 and state["method"] == "topk"
    fresh.compress(noise(100))
    fresh.restore(state)
    np.testing.assert_array_equal(fresh.residual(), np.zeros(100))


def test_a_state_that_does_not_fit_is_named_and_changes_nothing():
    layers = {"a": (10, 10), "b": (5,)}
    sender = Compressor(layers, "topk", density=0.1, dense_up_to=0)
    sender.compress({"a": noise(10, 10), "b": noise(5)})
    state, before = sender.state(), sender.residual()

    def refused(words, **changes):
        with pytest.raises(BadState, match=re.escape(words)):
            sender.restore({**state, **changes})

    refused("the state has the format 7; expected format 1", format=7)
    refused("the state has the residual of ['a']; expected that of ['a', 'b']", residual={"a": np.zeros((10, 10))})
    wrong = {"a": np.zeros(100), "b": np.zeros(5)}
    refused("the state's residual of 'a' has the shape (100,); expected (10, 10)", residual=wrong)
    refused(
        "the state's residual of 'b' holds a NaN or an infinity",
        residual={"a": np.zeros((10, 10)), "b": np.full(5, np.nan)},
    )
    refused("the state's residual is a list; expected arrays by layer", residual=[])
    refused("residual/a is missing", residual={})
    for field in ("step", "epoch", "rank", "ranks", "selectors"):
        refused(f"{field} is 'x'; expected", **{field: "x"})
    refused("step is -1; expected a number of steps", step=-1)
    with pytest.raises(BadState, match="the state is None"):
        sender.restore(None)
    with pytest.raises(BadState, match="the state has no 'residual'"):
        sender.restore({name: value for name, value in state.items() if name != "residual"})
    for name, array in sender.residual().items():
        np.testing.assert_array_equal(array, before[name])


def test_warm_up_follows_the_epoch():
    def kept(**settings):
        return Compressor(10_000, "topk:warmup=dense/2", density=0.01).compress(noise(10_000), **settings).kept

    assert kept() == kept(epoch=2) == 100
    assert len(Compressor(100, "topk:warmup=dense/2").compress(noise(100), epoch=0.5).data) > 400


def test_threads_do_not_change_the_bits():
    frames = [Compressor(300_000, "redsync", threads=threads).compress(noise(300_000)).data for threads in (1, 3)]
    assert frames[0] == frames[1]
