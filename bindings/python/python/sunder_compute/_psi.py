"""Private set intersection of columns."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import index
from typing import Any, Literal

from sunder_transport import Connection
from sunder_transport._native import intersect

PsiRule = Literal["trim", "lower", "email", "phone", "exact"]


@dataclass(frozen=True)
class PsiResult:
    """What a private set intersection has found."""

    common: list[Any] | None
    """The common values as they are in this party's column, each once, in the column's order; of
    several columns, a tuple for each row. None if only the other party learns them."""
    rows: list[int] | None
    """The places of all common values in this party's column, from 0, in ascending order."""
    own_size: int
    """The number of different values of this party."""
    other_size: int
    """The number of different values that the other party has shown."""
    count: int | None = None
    """The number of common values. None if only the other party learns it."""
    sum: Decimal | None = None
    """The sum of the sender's numbers for the common values. None without `sum`, or if only the
    other party learns it."""


def psi(
    values: Any,
    connection: Connection,
    role: Literal["receiver", "sender"],
    *,
    normalize: PsiRule | Sequence[PsiRule] = "trim",
    output_to: Literal["both", "receiver"] = "both",
    count: bool = False,
    sum: str | None = None,
    numbers: Iterable[int | Decimal | None] | None = None,
    rows: int | None = None,
    max_guesses: int | None = None,
    timeout: float = 30.0,
    progress: Callable[[int, int], object] | None = None,
) -> PsiResult:
    """Find the values that both parties have, and show the other party no others.

    `values` is a column of pandas, Arrow, Polars or NumPy, or any iterable: of str, bytes in UTF-8
    (with `normalize="exact"` any bytes), or int, which stands for its decimal digits. Missing and
    empty values are never common. To compare several columns, give a table (or a sequence of
    columns) and a list of rules as `normalize`, one for each column: rows are common if they are
    equal in all of them.

    `role`: one party is the receiver, the other one the sender. With `output_to="receiver"` only
    the receiver learns what is common. `normalize` makes values equal that are written differently.
    Both parties give the same `output_to` and `normalize`. `rows` hides how many different values
    there are: the other party learns only that there are at most so many. `max_guesses` refuses a
    run in which the other party could ask with more values. A receiver of common values can ask
    with 1.27 times as many as it says, and at least 512.

    With `count` the parties learn only how many values are common. With `sum` they learn this, and
    the sum of the sender's `numbers` for the common values: one for each value, None for 0. Both
    parties give the same name as `sum`.

    The connection is used up. The other party may also run `sunder compute psi`, with the same
    number of columns. `progress` is called with the numbers of bytes that were exchanged and of
    all. An exception in it, or Ctrl-C, ends the run.

    A receiver that runs changed code learns no more from common values. With `count` or `sum`, and
    of a sender that learns the result, security is semi-honest: it holds if both parties run this
    code unchanged. A party can put guesses into its column, and learns which of them are right.
    Runs are not recorded: limit how often you call this function with the same column.
    """
    if sum is not None and (count or not sum):
        raise ValueError("sum is the name of the numbers, and includes the count: leave out count")
    if (numbers is not None) != (sum is not None and role == "sender"):
        raise ValueError("numbers are those of the sender, with sum")
    several = not isinstance(normalize, str)
    columns = [_items(it) for it in (_columns(values) if several else [values])]
    rules = list(normalize) if several else [normalize]
    if len(rules) != len(columns) or not rules:
        raise ValueError(f"{len(columns)} columns and {len(rules)} rules: give a rule for each")
    if len({len(it) for it in columns}) > 1:
        raise ValueError("the columns have different numbers of values")
    summands = None
    if sum is not None:
        units, decimals = _units(numbers, len(columns[0]))
        summands = (sum, units, decimals)
    found, number, total, own_size, other_size = intersect(
        connection,
        [[_value(it) for it in column] for column in columns],
        role,
        rules,
        output_to,
        rows,
        max_guesses,
        count,
        summands,
        timeout,
        progress,
    )
    common = None
    if found is not None:
        records = list(zip(*columns, strict=True)) if several else columns[0]
        common = list(dict.fromkeys(records[row] for row in found))
        number = len(common) if number is None else number
    exact = None if total is None else Decimal(total[0]).scaleb(-total[1])
    return PsiResult(common, found, own_size, other_size, number, exact)


def _columns(table: Any) -> list[Any]:
    """The columns of a table, or of a sequence of columns."""
    if hasattr(table, "columns"):
        return [table[it] if isinstance(it, str) else it for it in table.columns]
    return list(table)


def _units(numbers: Iterable[int | Decimal | None] | None, rows: int) -> tuple[list[int], int]:
    """Numbers as multiples of a power of ten, and its number of decimal places."""
    exact = [Decimal(0) if it is None else _decimal(it) for it in _items(numbers or [])]
    if numbers is not None and len(exact) != rows:
        raise ValueError(f"{len(exact)} numbers for {rows} values: give one for each")
    exponents = [it.as_tuple().exponent for it in exact]
    decimals = max([0, *(-it for it in exponents if isinstance(it, int))])
    if decimals > 12:
        raise ValueError("a number has more than 12 decimal places")
    return [int(it.scaleb(decimals)) for it in exact], decimals


def _decimal(number: Any) -> Decimal:
    if isinstance(number, Decimal) and number.is_finite():
        return number
    try:
        return Decimal(index(number))
    except TypeError:
        kind = type(number).__name__
        raise TypeError(f"a number is int or a finite Decimal, not {kind}") from None


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
