"""The sharing by a symmetric polynomial F(u, v) of degree f in each variable.

A *row* of server j is the list of coefficients of F(j, v), from v^0 to v^f. A *commitment* has the
coefficients of F times B.
"""

from edwards import B, NEUTRAL, Q, Point, Refused, decode_point, decode_scalar, encode_scalar


def pairs(f):
    """The (a, b) with a <= b of the coefficients of u^a v^b, in lexicographic order."""
    return [(a, b) for a in range(f + 1) for b in range(a, f + 1)]


def evaluate(coefficients, at):
    """A polynomial's value. The coefficients are scalars or points, the constant one first."""
    points = isinstance(coefficients[0], Point)
    result = NEUTRAL if points else 0
    for coefficient in reversed(coefficients):
        result = at * result + coefficient
        if not points:
            result %= Q
    return result


def lagrange_at_0(numbers):
    """For each number the factor of its value, so that the sum is the polynomial's value at 0."""
    factors = {}
    for i in numbers:
        over, under = 1, 1
        for k in numbers:
            if k != i:
                over, under = over * k % Q, under * (k - i) % Q
        factors[i] = over * pow(under, -1, Q) % Q
    return factors


def interpolate(values):
    """The coefficients of the polynomial with values[k] at each k, of degree len(values) - 1."""
    result = [0] * len(values)
    for i, value in values.items():
        basis, under = [1], 1  # the product of (v - k), and its value at i
        for k in values:
            if k != i:
                shifted, scaled = [0] + basis, [-k * c for c in basis] + [0]
                basis = [(x + y) % Q for x, y in zip(shifted, scaled)]
                under = under * (i - k) % Q
        factor = value * pow(under, -1, Q)
        result = [(r + factor * c) % Q for r, c in zip(result, basis)]
    return result


class Polynomial:
    """A symmetric polynomial, of which a dealer has the coefficients."""

    def __init__(self, f, coefficients):
        """`coefficients` in the order of `pairs`."""
        self.f = f
        self.coefficients = dict(zip(pairs(f), coefficients, strict=True))

    def row(self, j):
        """F(j, v)."""
        columns = [
            [self.coefficients[min(a, b), max(a, b)] for a in range(self.f + 1)]
            for b in range(self.f + 1)
        ]
        return [evaluate(column, j) for column in columns]

    def commitment(self):
        return Commitment(self.f, [c * B for c in self.coefficients.values()])


class Commitment:
    """The coefficients of a symmetric polynomial times B."""

    def __init__(self, f, points):
        """`points` in the order of `pairs`."""
        self.f = f
        self.points = dict(zip(pairs(f), points, strict=True))

    @staticmethod
    def size(f):
        """The length of the encoding."""
        return 1 + 32 * len(pairs(f))

    @classmethod
    def decode(cls, data):
        if not data or len(data) != cls.size(data[0]):
            raise Refused("a commitment of another length")
        points = [decode_point(data[at : at + 32]) for at in range(1, len(data), 32)]
        return cls(data[0], points)

    def encode(self):
        return bytes([self.f]) + b"".join(point.encode() for point in self.points.values())

    def public_key(self):
        """F(0, 0) B."""
        return self.points[0, 0]

    def row(self, j):
        """The coefficients of F(j, v) times B."""
        return [
            evaluate([self.points[min(a, b), max(a, b)] for a in range(self.f + 1)], j)
            for b in range(self.f + 1)
        ]

    def verification_share(self, j):
        """F(j, 0) B."""
        return self.row(j)[0]

    def value(self, j, k):
        """F(j, k) B."""
        return evaluate(self.row(j), k)

    def has_row(self, j, row):
        """Whether these scalars are the row of server j."""
        return len(row) == self.f + 1 and all(c * B == point for c, point in zip(row, self.row(j)))


def combine_commitments(factors, commitments):
    """The sum of factors[i] times commitments[i]."""
    f = next(iter(commitments.values())).f
    points = []
    for pair in pairs(f):
        total = NEUTRAL
        for i, factor in factors.items():
            total = total + factor * commitments[i].points[pair]
        points.append(total)
    return Commitment(f, points)


def combine_rows(factors, rows):
    """The sum of factors[i] times rows[i]."""
    columns = zip(*([factors[i] * c for c in rows[i]] for i in factors))
    return [sum(column) % Q for column in columns]


def encode_row(row):
    return b"".join(encode_scalar(c) for c in row)


def decode_row(data):
    return [decode_scalar(data[at : at + 32]) for at in range(0, len(data), 32)]
