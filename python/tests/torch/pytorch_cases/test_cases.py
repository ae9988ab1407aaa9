"""The list of PyTorch's cases is whole, and every test it names is there."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path
from typing import Any

import cases
import pytest
import torch

HERE = Path(__file__).parent
INSTALLED = Path(torch.__file__).parent / "testing" / "_internal" / "distributed"


def _of_ddp(text: str) -> "list[str]":
    """The tests that make a DDP model, by themselves or by methods they call; and those that are commented out."""
    lines = text.split("\n")
    methods: "dict[str, str]" = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            methods[node.name] = "\n".join(lines[node.lineno - 1 : node.end_lineno])

    def makes_one(name: str, seen: "set[str]") -> bool:
        source = methods.get(name, "")
        if name in seen:
            return False
        if re.search(r"DistributedDataParallel\b|\bDDP\(|_Reducer\b", source):
            return True
        return any(makes_one(called, seen | {name}) for called in re.findall(r"self\.(\w+)", source))

    names = re.findall(r"^ +def (test_\w+)", text, re.MULTILINE)
    return [name for name in names if name not in methods or makes_one(name, set())]


@pytest.mark.parametrize("file", ["distributed_test.py", "ddp_under_dist_autograd_test.py"])
def test_no_case_of_this_torch_is_missing(file: str) -> None:
    path = INSTALLED / file
    if not path.exists():
        pytest.skip("this torch comes without its tests")
    listed = cases.FILES[f"torch/testing/_internal/distributed/{file}"]
    names = _of_ddp(path.read_text())
    assert names
    missing = [name for name in names if name not in listed]
    assert not missing, f"PyTorch {torch.__version__} has cases that are not in cases.py: {missing}"


def _collected(module: Any, function: str) -> "tuple[bool, set[str]]":
    """Whether the module has this test, and the names of its parameters' values, as pytest has them."""
    test = getattr(module, function, None)
    values: "set[str]" = set()
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "parametrize":
            assert not values, f"{function}: parameters of two kinds are one name"
            named = mark.kwargs.get("ids") or mark.args[1]
            values.update(str(value).replace(" ", "_") for value in named)
    return test is not None, values


def _references() -> "list[str]":
    return sorted({word for file in cases.FILES.values() for text in file.values() for word in _tests(text)})


def _tests(text: str) -> "list[str]":
    """The tests that are named, also those within the reason why a case does not apply."""
    return re.findall(r"[\w./]+\.py::test_[^\s)]+", text) if isinstance(text, cases.NotApplicable) else text.split(" ")


def test_every_test_that_is_named_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [HERE, HERE.parent, HERE.parent.parent / "gpu"]
    monkeypatch.setattr(sys, "path", [*map(str, folders), *sys.path])
    assert any(isinstance(text, cases.NotApplicable) and _tests(text) for text in cases.TEST_C10D_GLOO.values())
    for reference in _references():
        file, _, test = reference.partition("::")
        function, _, value = test.partition("[")
        assert (HERE / file).is_file() and function, reference
        module = importlib.import_module(Path(file).stem)
        there, values = _collected(module, function)
        assert there, f"{reference}: no such test"
        assert not value or value[:-1] in values, f"{reference}: no such case among {sorted(values)}"


def test_every_reason_says_something() -> None:
    for file, listed in cases.FILES.items():
        for name, text in listed.items():
            assert name.startswith("test_") and len(text) > 20, (file, name)
