"""Small machines, many processes: one thread each, and only the loopback device.

The tests are of the package beside them if it has been built there, and of the installed one otherwise.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("OMP_NUM_THREADS", "1")

_beside = Path(__file__).resolve().parents[1]
if any(_beside.glob("thinwire/_native*")):
    sys.path.insert(0, str(_beside))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(_beside), *filter(None, [os.environ.get("PYTHONPATH")])])
