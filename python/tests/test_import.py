"""What importing needs and brings."""

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import thinwire


def python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_torch_is_not_needed():
    assert (
        python(
            "import sys; sys.modules['torch'] = None\n"
            "import thinwire, numpy as np\n"
            "sender = thinwire.Compressor(1000, 'topk', density=0.01)\n"
            "frame = sender.compress(np.arange(1000.0))\n"
            "print(frame.kept, sender.decompress(frame)[999], thinwire.cost.Network('1gbit').latency)"
        )
        == "10 999.0 0.0\n"
    )


def test_torch_is_not_imported_unasked():
    assert python("import sys, thinwire; print('torch' in sys.modules)") == "False\n"


def test_without_torch_its_front_says_what_is_missing():
    code = "import sys; sys.modules['torch'] = None\ntry: import thinwire.torch\nexcept ImportError as e: print(e)"
    assert "torch" in python(code)


def test_everything_that_is_promised_is_there():
    for name in thinwire.__all__:
        assert getattr(thinwire, name) is not None


def test_every_error_is_one_of_thinwire():
    for name in ("BadArgument", "BadFrame", "BadState", "GroupLost", "RanksDisagree", "StepSkipped"):
        assert issubclass(getattr(thinwire, name), thinwire.Error)
        assert getattr(thinwire, name).__doc__


def test_types_come_along():
    folder = Path(thinwire.__file__).parent
    assert (folder / "py.typed").is_file() and (folder / "_native.pyi").is_file()


def test_the_types_of_the_native_part_name_what_is_there():
    import ast

    from thinwire import _native

    tree = ast.parse((Path(thinwire.__file__).parent / "_native.pyi").read_text())
    described = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    there = {name for name in dir(_native) if not name.startswith("_")}
    assert described.keys() == there
    for name, node in described.items():
        if isinstance(node, ast.ClassDef):
            methods = {entry.name for entry in node.body if isinstance(entry, ast.FunctionDef)} - {"__new__"}
            assert methods == {each for each in vars(getattr(_native, name)) if not each.startswith("_")}


@pytest.mark.parametrize("name", ["thinwire", "thinwire._compressor", "thinwire._method", "thinwire.cost"])
def test_examples_in_the_documentation(name):
    failed, tried = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert failed == 0 and (tried > 0 or name == "thinwire")
