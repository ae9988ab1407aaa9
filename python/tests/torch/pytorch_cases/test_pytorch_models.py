"""What DDP trains, it trains with compression: models, graphs, dtypes, accumulation, unused parameters."""

from __future__ import annotations

import pytest
from compared import ALL, SOME, compared, supported
from ranks import run
from table import CASES


@pytest.mark.parametrize("case", list(CASES))
def test_gradients(case: str) -> None:
    if not supported(CASES[case]):
        pytest.skip("this version of DDP has no such option")
    for mode in (ALL, SOME):
        one, two = run(2, compared, 2, case, mode)
        assert one == two, f"{mode}: replicas differ"
