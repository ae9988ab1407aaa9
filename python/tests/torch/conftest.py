"""Ends the workers of :mod:`ranks` after the tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))


def pytest_sessionfinish() -> None:
    import ranks

    ranks.close()
