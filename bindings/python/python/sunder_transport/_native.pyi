from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from socket import socket
from types import TracebackType
from typing import Literal, Self, TypedDict, final

from typing_extensions import Buffer

from ._protocols import Transport

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
    @staticmethod
    def from_bytes(key: Buffer) -> Identity: ...
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
    def into_socket(self) -> socket: ...
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
def register(transport: Transport) -> None: ...

# What follows is offered by `sunder_compute`.

class ComputeStatistics(TypedDict):
    """The bytes of the protocol so far."""

    bytes_sent: int
    bytes_received: int

@final
class Circuit:
    """A Boolean circuit of two parties. Make one with `load`, `named` or a `CircuitBuilder`."""

    @staticmethod
    def load(path: str | PathLike[str]) -> Circuit:
        """Reads a file in one of Bristol's formats, a netlist of yosys, or BLIF. Its first value is
        the garbler's input, and the others are the evaluator's."""

    @staticmethod
    def named(name: str) -> Circuit:
        """A circuit that is made here: aes128 (the garbler's key, the evaluator's block), sha256
        (32 bytes of each party, one padded block) or mincut (the minimum of 12,500 numbers of 20
        bits of each party)."""

    def save(self, path: str | PathLike[str]) -> None:
        """Writes a file in Bristol Fashion, which `sunder compute` reads. In it, the garbler's
        input is one value."""

    @property
    def garbler(self) -> tuple[int, ...]:
        """The number of bits of each value of the garbler's input."""

    @property
    def evaluator(self) -> tuple[int, ...]:
        """The number of bits of each value of the evaluator's input."""

    @property
    def outputs(self) -> tuple[int, ...]:
        """The number of bits of each value of the output."""

    @property
    def ands(self) -> int:
        """The number of AND gates."""

    @property
    def digest(self) -> str:
        """The SHA-256 digest, as `sunder circuit info` prints it. Parties can compute together only
        with the same digest."""

    def evaluate(
        self, garbler: int | bytes | Iterable[int], evaluator: int | bytes | Iterable[int]
    ) -> tuple[int, ...]:
        """Computes the output without a protocol, from the inputs of both parties: for tests."""

    def exchange(
        self,
        role: Literal["garbler", "evaluator"],
        *,
        protocol: Literal["yao", "gmw"] = "yao",
        security: Literal["semi-honest", "evaluator", "malicious"] | None = None,
        scheme: str = "half-gates",
        transfers: str = "iknp",
        output_to: Literal["both", "garbler", "evaluator"] = "both",
    ) -> tuple[int, int, int]:
        """What a session with these options exchanges that computes the circuit once: the bytes
        that this party sends, those that it receives, and the round trips. It is an argument of
        `sunder_transport.connect`."""

@final
class CircuitBuilder:
    """Builds a circuit from integers. Both parties must build the same circuit.

    The arguments have the number of bits of each value of a party's input.
    """

    def __new__(cls, garbler: Sequence[int], evaluator: Sequence[int]) -> Self: ...
    @property
    def garbler(self) -> tuple[Integer, ...]:
        """The values of the garbler's input."""

    @property
    def evaluator(self) -> tuple[Integer, ...]:
        """The values of the evaluator's input."""

    def constant(self, value: int, bits: int) -> Integer:
        """A constant. A negative one is signed."""

    def select(self, condition: Integer, a: Integer | int, b: Integer | int) -> Integer:
        """`a` if the bit `condition` is 1, else `b`. At most one of them is an int."""

    def sort(self, values: Sequence[Integer]) -> list[Integer]:
        """The values in ascending order. All have the same number of bits."""

    def choose(self, values: Sequence[Integer], index: Integer) -> Integer:
        """Value `index` of 2^n values, for an index of n bits."""

    def look_up(self, table: Sequence[int], bits: int, index: Integer) -> Integer:
        """Entry `index` of a table of 2^n constants of `bits` bits (at most 64), for an index of n
        bits. Takes fewer ANDs than `choose`."""

    def embed(
        self, circuit: Circuit, garbler: Sequence[Integer], evaluator: Sequence[Integer]
    ) -> list[Integer]:
        """The output values of another circuit, for these values of its two inputs."""

    def concatenate(self, values: Sequence[Integer]) -> Integer:
        """The bits of all values as one value, those of the first one lowest."""

    def finish(self, outputs: Sequence[Integer]) -> Circuit:
        """The circuit with these output values, without gates that none of them needs. The builder
        cannot be used afterwards."""

@final
class Integer:
    """An integer of a circuit, whose value is not known while the circuit is built.

    It is unsigned, except after `as_signed`. Both operands have the same number of bits, and so has
    the result: it is taken modulo 2^bits. Both are signed, or neither is. One operand may be an int.
    A comparison is one bit. `value[i]` is bit i, from the lowest, and a slice is a value of several
    bits; both are unsigned.

    `//` and `%` are as in Python: a quotient is rounded down, and the remainder has the sign of the
    divisor. A division by 0 is no error, and its result has no meaning.
    """

    def __add__(self, other: Integer | int) -> Integer: ...
    def __radd__(self, other: Integer | int) -> Integer: ...
    def __sub__(self, other: Integer | int) -> Integer: ...
    def __rsub__(self, other: Integer | int) -> Integer: ...
    def __mul__(self, other: Integer | int) -> Integer: ...
    def __rmul__(self, other: Integer | int) -> Integer: ...
    def __floordiv__(self, other: Integer | int) -> Integer: ...
    def __rfloordiv__(self, other: Integer | int) -> Integer: ...
    def __mod__(self, other: Integer | int) -> Integer: ...
    def __rmod__(self, other: Integer | int) -> Integer: ...
    def __divmod__(self, other: Integer | int) -> tuple[Integer, Integer]: ...
    def __neg__(self) -> Integer: ...
    def __abs__(self) -> Integer:
        """The absolute value, which is unsigned."""

    def __and__(self, other: Integer | int) -> Integer: ...
    def __rand__(self, other: Integer | int) -> Integer: ...
    def __or__(self, other: Integer | int) -> Integer: ...
    def __ror__(self, other: Integer | int) -> Integer: ...
    def __xor__(self, other: Integer | int) -> Integer: ...
    def __rxor__(self, other: Integer | int) -> Integer: ...
    def __invert__(self) -> Integer: ...
    def __lshift__(self, by: Integer | int) -> Integer: ...
    def __rshift__(self, by: Integer | int) -> Integer: ...
    def __lt__(self, other: Integer | int) -> Integer: ...
    def __le__(self, other: Integer | int) -> Integer: ...
    def __gt__(self, other: Integer | int) -> Integer: ...
    def __ge__(self, other: Integer | int) -> Integer: ...
    def __eq__(self, other: Integer | int) -> Integer: ...  # type: ignore[override]
    def __ne__(self, other: Integer | int) -> Integer: ...  # type: ignore[override]
    def __len__(self) -> int: ...
    def __getitem__(self, index: int | slice) -> Integer: ...
    @property
    def bits(self) -> int:
        """The number of bits."""

    @property
    def signed(self) -> bool:
        """Whether it is signed."""

    def as_signed(self) -> Integer:
        """The same bits as a signed value, in two's complement. As an output of a circuit, it is a
        Python int that can be negative; a file in Bristol Fashion does not keep this."""

    def as_unsigned(self) -> Integer:
        """The same bits as an unsigned value."""

    def resize(self, bits: int) -> Integer:
        """The value with this number of bits: with zeros above (if it is signed, with its sign), or
        without its highest bits."""

    def count_ones(self) -> Integer:
        """The number of bits that are 1, with just as many bits as it needs."""

@final
class Session:
    """Computes circuits with the other party over a connection, which it takes over.

    The other party has the other role, and gives the same options, except for `timeout` (how long
    it may be silent, in seconds) and `threads` (by default one for each core).

    `security` says which deviating parties the protocol withstands, as `--security` of
    `sunder compute`: with yao "evaluator" by default, with gmw only "semi-honest".
    """

    def __new__(
        cls,
        connection: Connection,
        role: Literal["garbler", "evaluator"],
        *,
        protocol: Literal["yao", "gmw"] = "yao",
        security: Literal["semi-honest", "evaluator", "malicious"] | None = None,
        scheme: str = "half-gates",
        transfers: str = "iknp",
        output_to: Literal["both", "garbler", "evaluator"] = "both",
        timeout: float = 30.0,
        threads: int | None = None,
    ) -> Self: ...
    @property
    def role(self) -> str:
        """This party's role."""

    @property
    def transport(self) -> str:
        """The name of the connection's transport."""

    def run(
        self,
        circuit: Circuit,
        inputs: int | bytes | Iterable[int],
        *,
        progress: Callable[[int, int], object] | None = None,
    ) -> tuple[int, ...] | None:
        """Computes the circuit on this party's input and the other's.

        `inputs` is an int for each value of this party's input (one int if there is one value), or
        the bytes of all bits: bit i is bit i % 8 of byte i // 8. A negative int is in two's
        complement. Returns the values of the output,
        or None if only the other party learns them. `progress` is called with the numbers of ANDs
        that are done and of all. An exception in it, or Ctrl-C, ends the session.
        """

    def statistics(self) -> ComputeStatistics: ...
    def abort(self) -> None:
        """Stops the session, from any thread: a `run` of another thread raises `Aborted`, and the
        other party is told."""

    def finish(self) -> None:
        """Ends the session. Returns when everything that was sent will arrive."""

    def close(self) -> None:
        """Ends the session before it is finished. Waits up to a second until the other party has
        read that this one was stopped."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None: ...

def intersect(
    connection: Connection,
    columns: list[list[str | bytes | None]],
    role: str,
    normalize: list[str],
    output_to: str,
    rows: int | None,
    max_guesses: int | None,
    count: bool,
    summands: tuple[str, list[int], int] | None,
    timeout: float,
    progress: Callable[[int, int], object] | None,
) -> tuple[list[int] | None, int | None, tuple[int, int] | None, int, int]:
    """The native part of `sunder_compute.psi`."""
