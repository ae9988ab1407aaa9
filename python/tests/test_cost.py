"""The cost model: the engine's numbers, with names and checks for Python."""

import math
import re

import pytest

from thinwire import BadArgument, cost

RESNET50 = {"ranks": 8, "elements": 25_557_032}


def test_a_network_is_text_or_numbers():
    assert cost.Network("1gbit,1ms") == cost.Network(gbit=1, ms=1) == cost.Network(1, 1)
    assert cost.Network("10gbit") == cost.Network(10)
    network = cost.Network("100mbit,50us")
    assert math.isclose(network.latency, 5e-5) and math.isclose(network.seconds_per_byte, 8e-8)
    assert len({network, cost.Network("100mbit,50us")}) == 1
    with pytest.raises(AttributeError):
        network.latency = 1


# The table of docs/cost.md, in milliseconds.
@pytest.mark.parametrize(
    "network, density, gather, ring, tree, dense, best",
    [
        ("100mbit,1ms", 0.01, 1148, 405, 745, 14326, "ring"),
        ("1gbit,1ms", 0.01, 117, 56, 83, 1445, "ring"),
        ("1gbit,50ms", 0.1, 1295, 1238, 1186, 2131, "tree"),
        ("1gbit,50ms", 0.01, 264, 889, 524, 2131, "all-gather"),
        ("10gbit,1ms", 0.01, 14, 21, 16, 157, "all-gather"),
    ],
)
def test_the_table_of_the_documentation(network, density, gather, ring, tree, dense, best):
    times = cost.compressed(network, **RESNET50, density=density)
    assert list(times) == ["ring", "tree", "all-gather"]
    assert [round(1000 * seconds) for seconds in times.values()] == [ring, tree, gather]
    assert round(1000 * cost.dense(network, **RESNET50)["ring"]) == dense
    choice = cost.best(cost.Network(network), **RESNET50, density=density)
    assert choice == (best, times[best]) and choice.seconds == min(times.values())
    assert cost.pays(network, **RESNET50, density=density)


def test_hops_and_bytes_by_hand():
    # 1 s for each hop, then 1 s for each byte.
    hops, per_byte = cost.Network(1e9, 1000), cost.Network(gbit=8e-9)
    assert {name: round(seconds) for name, seconds in cost.dense(hops, ranks=8, elements=0).items()} == {
        "ring": 14,
        "tree": 6,
        "rabenseifner": 6,
        "parameter-server": 2,
    }
    assert {name: round(seconds) for name, seconds in cost.dense(per_byte, ranks=8, elements=30).items()} == {
        "ring": 210,
        "tree": 720,
        "rabenseifner": 210,
        "parameter-server": 1680,
    }
    half = cost.dense(per_byte, ranks=8, elements=30, element_bytes=2)["ring"]
    assert math.isclose(half, 105)
    narrow = cost.compressed(per_byte, ranks=8, elements=100, density=0.1, value_bytes=2, index_bytes=1)
    assert math.isclose(narrow["all-gather"], 7 * 10 * 3)


def test_one_rank_sends_nothing_and_nothing_pays():
    assert set(cost.dense("1gbit,1ms", ranks=1, elements=1e6).values()) == {0.0}
    assert cost.best("1gbit,1ms", ranks=1, elements=1e6, density=0.01).seconds == 0
    assert not cost.pays("1gbit,1ms", ranks=1, elements=1e6, density=0.01)


def test_whether_it_pays_depends_on_the_ends():
    dense = cost.dense("1gbit,1ms", **RESNET50)["ring"]
    sparse = cost.best("1gbit,1ms", **RESNET50, density=0.01).seconds
    spare = dense - sparse
    assert cost.pays("1gbit,1ms", **RESNET50, density=0.01, compress=0.99 * spare)
    assert not cost.pays("1gbit,1ms", **RESNET50, density=0.01, compress=0.6 * spare, decompress=0.6 * spare)


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda: cost.Network("fast"), "fast"),
        (lambda: cost.Network("20ms"), "1gbit,1ms"),
        (lambda: cost.Network("1gbit", 5), "expected the latency in the text"),
        (lambda: cost.Network(0), "0 Gbit/s"),
        (lambda: cost.Network(1, -1), "-1 ms"),
        (lambda: cost.Network(gbit=None), "gbit is None; expected a number"),
        (lambda: cost.dense(3, ranks=8, elements=1), "network is 3; expected a Network or a text"),
        (lambda: cost.dense("1gbit", ranks=0, elements=1), "ranks is 0; expected a whole number of 1 or more"),
        (lambda: cost.dense("1gbit", ranks=2.5, elements=1), "ranks is 2.5"),
        (lambda: cost.dense("1gbit", ranks=2, elements=-1), "elements is -1; expected a finite number of 0 or more"),
        (lambda: cost.dense("1gbit", ranks=2, elements="many"), "elements is 'many'; expected a number"),
        (lambda: cost.dense("1gbit", ranks=2, elements=1, element_bytes=math.inf), "element_bytes is inf"),
        (
            lambda: cost.best("1gbit", ranks=2, elements=1, density=0),
            "density is 0; expected a number above 0 and up to 1",
        ),
        (lambda: cost.best("1gbit", ranks=2, elements=1, density=2), "density is 2"),
        (lambda: cost.best("1gbit", ranks=2, elements=1, density=math.nan), "density is nan"),
        (lambda: cost.best("1gbit", ranks=2, elements=1, density=1, index_bytes=-1), "index_bytes is -1"),
        (lambda: cost.pays("1gbit", ranks=2, elements=1, density=1, compress=-1), "compress is -1"),
    ],
)
def test_what_is_wrong_is_named(call, words):
    with pytest.raises(BadArgument, match=re.escape(words)):
        call()
