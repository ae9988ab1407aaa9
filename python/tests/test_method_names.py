"""The list of methods, and how one is named."""

import re

import pytest

from thinwire import BadArgument, Error, method_text, methods


def test_the_list():
    found = methods()
    assert {"dense", "topk", "gaussian-k", "redsync", "fft", "iwp", "ar-topk", "dgc"} <= found.keys()
    for name, method in found.items():
        assert method.name == name and method.summary and method.paper
        for parameter in method.parameters.values():
            assert parameter.help
    assert found["redsync"].parameters["quantize"].default == "false"
    assert found["dense"].paper == "-"


@pytest.mark.parametrize("name", methods())
def test_every_method_takes_its_own_defaults(name):
    defaults = {key: parameter.default for key, parameter in methods()[name].parameters.items()}
    assert method_text(name, **defaults) == name


def test_values_of_python_become_text():
    assert method_text("topk") == "topk"
    assert method_text("topk", 0.05) == "topk:density=0.05"
    assert method_text("topk:", density=1e-05) == "topk:density=0.00001"
    assert method_text("redsync", quantize=True, interval=7) == "redsync:interval=7,quantize=true"
    assert method_text("redsync:density=1%", momentum=0.9) == "redsync:density=0.01,momentum=0.9"
    assert method_text("topk", exclude=["*.bias", "norm?"]) == "topk:exclude=*.bias|norm?"
    assert method_text("topk", exclude=[]) == "topk"
    assert method_text("fft", 0.1, bits=0) == "fft:theta=0.9,bits=0"
    import numpy as np

    assert method_text("topk", np.float32(0.5)) == "topk:density=0.5"


@pytest.mark.parametrize(
    "arguments, settings, words",
    [
        (("nope",), {}, 'unknown method "nope"'),
        (("nope",), {}, "dense, quantized, topk"),
        ((None,), {}, "method is None; expected a text"),
        (("topk", 0), {}, "density"),
        (("dense", 0.1), {}, "density is 0.1, but dense sends everything; leave density out"),
        (("fft:theta=0.5", 0.1), {}, "given once"),
        (("topk", -0.1), {}, "density"),
        (("topk", 1.5), {}, "up to 1"),
        (("topk", float("nan")), {}, "density"),
        (("topk:density=0.1", 0.2), {}, "given once"),
        (("topk",), {"densty": 0.1}, "densty"),
        (("topk",), {"momentum": None}, "momentum is None; leave it out for its default"),
        (("topk",), {"exclude": "a,momentum=0.9"}, "exclude is 'a,momentum=0.9'; expected no comma"),
        (("redsync",), {"quantize": "perhaps"}, "perhaps"),
    ],
)
def test_what_is_wrong_is_named(arguments, settings, words):
    with pytest.raises(BadArgument, match=re.escape(words)) as caught:
        method_text(*arguments, **settings)
    assert isinstance(caught.value, (ValueError, Error))
