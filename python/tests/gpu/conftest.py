"""Tests that need a GPU: `./test gpu`. Elsewhere all of them are skipped.

``THINWIRE_TEST_DEVICE=cpu`` rehearses most of them without one: then the CPU is compared with itself.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "torch")]


def _missing() -> str:
    """Why these tests can't run here."""
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed"
    if os.environ.get("THINWIRE_TEST_DEVICE", "cuda") != "cuda" or torch.cuda.is_available():
        return ""
    return "torch.cuda.is_available() is False: there is no NVIDIA GPU, or torch was built without CUDA"


def pytest_collection_modifyitems(items: "list[Any]") -> None:
    mine = [item for item in items if HERE in Path(item.path).parents]
    reason = _missing() if mine else ""
    for item in mine if reason else []:
        item.add_marker(pytest.mark.skip(reason=reason))


def pytest_sessionfinish() -> None:
    import ranks

    ranks.close()
