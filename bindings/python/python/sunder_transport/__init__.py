"""One reliable, encrypted connection over any transport of Sunder."""

from ._errors import Closed, Error, MessageTooLong, NotAuthenticated, TimedOut, Unreachable
from ._native import Connection, Identity, Listener, connect, transports

__all__ = [
    "Closed",
    "Connection",
    "Error",
    "Identity",
    "Listener",
    "MessageTooLong",
    "NotAuthenticated",
    "TimedOut",
    "Unreachable",
    "connect",
    "transports",
]
