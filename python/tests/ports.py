"""Ports for tests."""

import itertools
import os
import socket

_numbers = itertools.count(331 * os.getpid())


def free_port() -> int:
    """A port nobody uses, another one at every call. Below the range from which the system gives them out, so that
    no connection takes it in the meantime."""
    for number in _numbers:
        port = 10_000 + number % 20_000
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("numbers do not end")
