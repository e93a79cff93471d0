"""The group of edwards25519, and Ed25519 signatures (RFC 8032).

Plain arithmetic: it takes no care about time or memory, so it is for checks and not for secrets.
"""

import hashlib

P = 2**255 - 19  # the field
Q = 2**252 + 27742317777372353535851937790883648493  # the prime order of the base point
D = -121665 * pow(121666, -1, P) % P
SQRT_MINUS_1 = pow(2, (P - 1) // 4, P)


class Refused(ValueError):
    """Bytes that are not the encoding of what they should be."""


class Point:
    """A point of -x^2 + y^2 = 1 + d x^2 y^2, with x = X/Z, y = Y/Z and x y = T/Z."""

    __slots__ = ("X", "Y", "Z", "T")

    def __init__(self, X, Y, Z, T):
        self.X, self.Y, self.Z, self.T = X, Y, Z, T

    def __add__(self, other):
        a = (self.Y - self.X) * (other.Y - other.X) % P
        b = (self.Y + self.X) * (other.Y + other.X) % P
        c = 2 * self.T * other.T * D % P
        d = 2 * self.Z * other.Z % P
        e, f, g, h = b - a, d - c, d + c, b + a
        return Point(e * f % P, g * h % P, f * g % P, e * h % P)

    def __neg__(self):
        return Point(-self.X % P, self.Y, self.Z, -self.T % P)

    def __sub__(self, other):
        return self + -other

    def __rmul__(self, scalar):
        """scalar times the point; the scalar is not reduced, so Q * point tells the order."""
        result = NEUTRAL
        for bit in bin(scalar)[2:]:
            result = result + result
            if bit == "1":
                result = result + self
        return result

    def __eq__(self, other):
        return (self.X * other.Z - other.X * self.Z) % P == 0 and (
            self.Y * other.Z - other.Y * self.Z
        ) % P == 0

    __hash__ = None

    def encode(self):
        """32 bytes: y, little-endian, with the lowest bit of x on top."""
        inverse = pow(self.Z, -1, P)
        x, y = self.X * inverse % P, self.Y * inverse % P
        return (y | (x & 1) << 255).to_bytes(32, "little")


def _recover_x(y, sign):
    """The x of a point with this y whose lowest bit is `sign`."""
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * SQRT_MINUS_1 % P
    if x * x % P != square:
        raise Refused("not a point of the curve")
    if x == 0 and sign:
        raise Refused("another encoding of a point")
    return x if x & 1 == sign else P - x


NEUTRAL = Point(0, 1, 1, 0)
_base_y = 4 * pow(5, -1, P) % P
_base_x = _recover_x(_base_y, 0)
B = Point(_base_x, _base_y, 1, _base_x * _base_y % P)


def decode_any_point(data):
    """A point of the curve, of any order (RFC 8032, 5.1.3)."""
    if len(data) != 32:
        raise Refused("a point has 32 bytes")
    number = int.from_bytes(data, "little")
    y, sign = number & (1 << 255) - 1, number >> 255
    if y >= P:
        raise Refused("another encoding of a point")
    x = _recover_x(y, sign)
    return Point(x, y, 1, x * y % P)


def decode_point(data):
    """A point of prime order."""
    point = decode_any_point(data)
    if point == NEUTRAL:
        raise Refused("the neutral element")
    if not Q * point == NEUTRAL:
        raise Refused("a point that is not of prime order")
    return point


def encode_scalar(scalar):
    return (scalar % Q).to_bytes(32, "little")


def decode_scalar(data):
    """A number below Q."""
    if len(data) != 32:
        raise Refused("a scalar has 32 bytes")
    scalar = int.from_bytes(data, "little")
    if scalar >= Q:
        raise Refused("another encoding of a scalar")
    return scalar


def hash_to_scalar(*parts):
    """SHA-512 of the parts, read as a little-endian number as in RFC 8032, modulo Q."""
    return int.from_bytes(hashlib.sha512(b"".join(parts)).digest(), "little") % Q


def sign(seed, message):
    """RFC 8032's signature, and the public key, for the tests of `verify`."""
    digest = hashlib.sha512(seed).digest()
    secret = int.from_bytes(digest[:32], "little")
    secret = secret & (1 << 254) - 8 | 1 << 254
    public = (secret * B).encode()
    nonce = hash_to_scalar(digest[32:], message)
    commitment = (nonce * B).encode()
    challenge = hash_to_scalar(commitment, public, message)
    return public, commitment + encode_scalar(nonce + challenge * secret)


def verify(public, message, signature):
    """Whether RFC 8032 accepts the signature (the equation without the cofactor)."""
    try:
        key = decode_any_point(public)
        commitment = decode_any_point(signature[:32])
        response = decode_scalar(signature[32:])
    except Refused:
        return False
    challenge = hash_to_scalar(signature[:32], public, message)
    return response * B == commitment + challenge * key
