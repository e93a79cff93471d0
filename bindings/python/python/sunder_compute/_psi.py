"""Private set intersection of columns."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import index
from typing import Any, Literal

from sunder_transport import Connection
from sunder_transport._native import intersect


@dataclass(frozen=True)
class PsiResult:
    """What a private set intersection has found."""

    common: list[Any] | None
    """The common values as they are in this party's column, each once, in the column's order. None
    if only the other party learns them."""
    rows: list[int] | None
    """The places of all common values in this party's column, from 0, in ascending order."""
    own_size: int
    """The number of different values of this party."""
    other_size: int
    """The number of different values that the other party has shown."""


def psi(
    values: Iterable[str | bytes | int | None],
    connection: Connection,
    role: Literal["receiver", "sender"],
    *,
    normalize: Literal["trim", "lower", "email", "phone", "exact"] = "trim",
    output_to: Literal["both", "receiver"] = "both",
    rows: int | None = None,
    timeout: float = 30.0,
    progress: Callable[[int, int], object] | None = None,
) -> PsiResult:
    """Find the values that both parties have, and show the other party no others.

    `values` is a column of pandas, Arrow, Polars or NumPy, or any iterable: of str, bytes in UTF-8
    (with `normalize="exact"` any bytes), or int, which stands for its decimal digits. Missing and
    empty values are never common.

    `role`: one party is the receiver, the other one the sender. With `output_to="receiver"` only
    the receiver learns what is common. `normalize` makes values equal that are written differently.
    Both parties give the same `output_to` and `normalize`. `rows` hides how many different values
    there are: the other party learns only that there are at most so many.

    The connection is used up. The other party may also run `sunder compute psi` with one column.
    `progress` is called with the numbers of bytes that were exchanged and of all. An exception in
    it, or Ctrl-C, ends the run.

    Security is semi-honest: it holds if both parties run this code unchanged. A party can put
    guesses into its column, and learns which of them are right.
    """
    column = _items(values)
    found, own_size, other_size = intersect(
        connection,
        [_value(it) for it in column],
        role,
        normalize,
        output_to,
        rows,
        timeout,
        progress,
    )
    if found is None:
        return PsiResult(None, None, own_size, other_size)
    return PsiResult(_distinct(column, found), found, own_size, other_size)


def _items(values: Any) -> list[Any]:
    """The items of a column, None for those that are missing."""
    if isinstance(values, (str, bytes, dict)) or hasattr(values, "columns"):
        kind = type(values).__name__
        raise TypeError(f"a column of values is needed, such as table['email'], not {kind}")
    for name in ("to_pylist", "tolist", "to_list"):
        if hasattr(values, name):
            items = getattr(values, name)()
            break
    else:
        items = list(values)
    if hasattr(values, "isna"):
        missing = values.isna()
        missing = missing.tolist() if hasattr(missing, "tolist") else list(missing)
        return [None if gone else it for it, gone in zip(items, missing, strict=True)]
    # A number that is not a number is a missing value too.
    return [None if isinstance(it, float) and it != it else it for it in items]


def _value(item: Any) -> str | bytes | None:
    """An item as it is compared."""
    if item is None or isinstance(item, (str, bytes)):
        return item
    try:
        if isinstance(item, bool):
            raise TypeError
        return str(index(item))
    except TypeError:
        kind = type(item).__name__
        raise TypeError(f"a value is str, bytes or int, not {kind}: convert the column") from None


def _distinct(column: list[Any], rows: list[int]) -> list[Any]:
    return list(dict.fromkeys(column[row] for row in rows))
