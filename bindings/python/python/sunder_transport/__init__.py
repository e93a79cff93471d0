"""One reliable, encrypted connection over any transport of Sunder."""

from ._asyncio import open_connection, start_server
from ._errors import Closed, Error, MessageTooLong, NotAuthenticated, TimedOut, Unreachable
from ._native import Connection, Identity, Listener, connect, register, transports
from ._protocols import Transport, TransportAcceptor, TransportStream

__all__ = [
    "Closed",
    "Connection",
    "Error",
    "Identity",
    "Listener",
    "MessageTooLong",
    "NotAuthenticated",
    "TimedOut",
    "Transport",
    "TransportAcceptor",
    "TransportStream",
    "Unreachable",
    "connect",
    "open_connection",
    "register",
    "start_server",
    "transports",
]
