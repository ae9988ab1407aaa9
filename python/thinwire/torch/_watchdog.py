"""A deadline for what DDP waits for.

DDP waits for the futures of a hook in C++, without a deadline of its own. The hook completes them when the last bucket
has come; should that never come, one thread for all hooks fails them.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any, Optional, Protocol

#: Seconds between two looks.
PERIOD = 1.0


class Waiting(Protocol):
    """Something that is waited for."""

    #: Since when, by the monotonic clock; `None`: nobody waits.
    waiting_since: Optional[float]

    def timeout_seconds(self) -> float: ...

    def expire(self) -> None: ...


_watched: "weakref.WeakSet[Any]" = weakref.WeakSet()
_lock = threading.Lock()
_thread: Optional[threading.Thread] = None


def watch(waiting: Waiting) -> None:
    """Calls `expire` from a background thread once it has been waited for longer than its timeout."""
    global _thread
    with _lock:
        _watched.add(waiting)
        # A forked child has none of its parent's threads.
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_look, name="thinwire-watchdog", daemon=True)
            _thread.start()


def _look() -> None:
    while True:
        time.sleep(PERIOD)
        with _lock:
            watched = list(_watched)
        for waiting in watched:
            since = waiting.waiting_since
            if since is not None and time.monotonic() - since > waiting.timeout_seconds():
                waiting.expire()
        # Not to keep them until the next look.
        del watched
        waiting = None
