"""What a transport of your own has to offer, for `register`."""

from typing import Protocol


class TransportStream(Protocol):
    """A reliable stream in each direction. One thread reads, another one writes."""

    def read(self, size: int) -> bytes:
        """Wait for 1 to `size` bytes. No bytes: the peer has called `finish`."""
        ...

    def write(self, data: bytes) -> int:
        """Wait until some of the bytes are accepted, and return how many."""
        ...

    def finish(self) -> None:
        """End the stream to the peer. Return when everything written will arrive."""
        ...

    def close(self) -> None:
        """Close at once: calls that wait in other threads raise ConnectionError."""
        ...

    def set_timeout(self, seconds: float | None) -> None:
        """Limit each later read and write, which then raise TimeoutError."""
        ...


class TransportAcceptor(Protocol):
    """Accepts connections of a transport."""

    def accept(self) -> TransportStream:
        """Wait for a connection."""
        ...

    def close(self) -> None:
        """Stop listening: an `accept` that waits in another thread raises OSError."""
        ...


class Transport(Protocol):
    """A transport of your own. Addresses are IP:PORT.

    It may also have `listen(address) -> TransportAcceptor`, without which its connections arrive at
    the TCP and UDP sockets of the listener, and `latency(path, exchange) -> float | None`, by which
    "auto" chooses it: the seconds of an exchange (sent, received, rounds) over a path (round trip
    in seconds, bytes/s to the server and from it, loss). None: not on this path.
    """

    name: str
    about: str

    def connect(self, address: str, timeout: float) -> TransportStream:
        """Connect within this number of seconds."""
        ...
