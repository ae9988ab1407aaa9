"""A deadline for the futures that DDP waits for.

DDP waits for the futures of a hook in C++, without a deadline. The hook completes them when it gets the last bucket. If
DDP skips that one, and the hook could not find the model to learn of it, no other code would run: one thread for all
hooks fails the futures instead.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any, Optional, Protocol

from thinwire.torch._fork import in_child

#: Seconds between two looks.
PERIOD = 1.0


class Waiting(Protocol):
    """Something that DDP waits for."""

    #: Since when, by the monotonic clock; `None`: DDP does not wait.
    waiting_since: Optional[float]

    def timeout_seconds(self) -> float: ...

    def expire(self) -> None: ...


_watched: "weakref.WeakSet[Any]" = weakref.WeakSet()
_lock = threading.Lock()
_thread: Optional[threading.Thread] = None


def watch(waiting: Waiting) -> None:
    """Calls `expire` from a background thread once DDP has waited for longer than the timeout."""
    global _thread
    with _lock:
        _watched.add(waiting)
        if _thread is None:
            _thread = threading.Thread(target=_look, name="thinwire-watchdog", daemon=True)
            _thread.start()


def _look() -> None:
    global _thread
    while True:
        time.sleep(PERIOD)
        with _lock:
            watched = list(_watched)
            if not watched:
                _thread = None
                return
        for waiting in watched:
            since = waiting.waiting_since
            if since is not None and time.monotonic() - since > waiting.timeout_seconds():
                waiting.expire()
        # Not to keep them alive until the next look.
        del watched
        waiting = None


@in_child
def _reset() -> None:
    """A forked child has no such thread, and the lock may be held by it."""
    global _lock, _thread
    _lock, _thread = threading.Lock(), None
    _watched.clear()
