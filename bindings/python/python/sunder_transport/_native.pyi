from collections.abc import Iterable, Iterator
from os import PathLike
from types import TracebackType
from typing import Self, TypedDict, final

from typing_extensions import Buffer

class Statistics(TypedDict):
    """Values that the transport does not measure are None. Times are in seconds."""

    bytes_sent: int
    bytes_received: int
    packets_sent: int | None
    packets_sent_again: int | None
    round_trip: float | None
    min_round_trip: float | None
    delivery_rate: int | None
    congestion_control: str | None
    send_buffer: int | None
    receive_buffer: int | None

@final
class Identity:
    """A secret key. Without a path, it is a new random key."""

    def __new__(cls, path: str | PathLike[str] | None = None) -> Self: ...
    @property
    def public_key(self) -> str: ...

@final
class Connection:
    """One end of a connection, or one direction of it after split."""

    @property
    def transport(self) -> str: ...
    @property
    def peer(self) -> str | None: ...
    def read(self, size: int = 65536) -> bytes: ...
    def readinto(self, buffer: Buffer) -> int: ...
    def read_exact(self, size: int) -> bytes: ...
    def write(self, data: Buffer) -> int: ...
    def flush(self) -> None: ...
    def send(self, message: Buffer) -> None: ...
    def receive(self, max: int = 1073741824) -> bytes | None: ...
    def messages(self, max: int = 1073741824) -> Iterator[bytes]: ...
    def split(self) -> tuple[Connection, Connection]: ...
    def finish(self) -> None: ...
    def complete(self) -> None: ...
    def statistics(self) -> Statistics: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None: ...

@final
class Listener:
    """Accepts connections of every transport on one port number, or at a relay (`via`)."""

    def __new__(
        cls,
        address: str,
        *,
        via: bool = False,
        identity: Identity | None = None,
        peers: Iterable[str] = (),
        insecure: bool = False,
        timeout: float | None = None,
        connect_timeout: float = 4.5,
        congestion_control: str | None = None,
    ) -> Self: ...
    @property
    def address(self) -> str: ...
    @property
    def public_key(self) -> str | None: ...
    def accept(self, timeout: float | None = None) -> Connection: ...
    def close(self) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Connection: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None: ...

def connect(
    address: str,
    *,
    peer: str | None = None,
    identity: Identity | None = None,
    transport: str = "auto",
    insecure: bool = False,
    exchange: tuple[int, int, int] | None = None,
    timeout: float | None = None,
    connect_timeout: float = 4.5,
    congestion_control: str | None = None,
    accept_loss: bool = False,
) -> Connection: ...
def transports() -> dict[str, str]: ...
