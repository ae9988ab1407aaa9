"""Small machines, many processes: one thread each, and only the loopback device. And names of tests without spaces."""

import os
from typing import Any, Optional

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_make_parametrize_id(val: Any) -> Optional[str]:
    return val.replace(" ", "_") if isinstance(val, str) else None
