"""FROST(Ed25519, SHA-512) of RFC 9591, and the page's sessions and answers."""

import hashlib
from dataclasses import dataclass

import edwards
from edwards import B, NEUTRAL, Q, Point, Refused, encode_scalar, hash_to_scalar
from entries import Reader
from sharing import lagrange_at_0

CONTEXT = b"FROST-ED25519-SHA512-v1"
# The bytes of the length of what is counted.
COUNT_BYTES = 4


def H1(data):
    return hash_to_scalar(CONTEXT, b"rho", data)


def H2(data):
    """As in RFC 8032, without the context."""
    return hash_to_scalar(data)


def H3(data):
    return hash_to_scalar(CONTEXT, b"nonce", data)


def H4(data):
    return hashlib.sha512(CONTEXT + b"msg" + data).digest()


def H5(data):
    return hashlib.sha512(CONTEXT + b"com" + data).digest()


def draw_nonce(random_bytes, share):
    """4.1 of the RFC."""
    return H3(random_bytes + encode_scalar(share))


class Round:
    """What the signers of a session and the coordinator compute (4 and 5 of the RFC)."""

    def __init__(self, public_key, commitments, message):
        """`commitments`: for each signer's number, its hiding and its binding commitment."""
        numbers = sorted(commitments)
        listed = b"".join(
            encode_scalar(i) + hiding.encode() + binding.encode()
            for i, (hiding, binding) in ((i, commitments[i]) for i in numbers)
        )
        prefix = public_key.encode() + H4(message) + H5(listed)
        self.commitments = commitments
        self.factors = {i: H1(prefix + encode_scalar(i)) for i in numbers}
        self.R = NEUTRAL
        for i in numbers:
            self.R = self.R + self.commitment(i)
        self.challenge = H2(self.R.encode() + public_key.encode() + message)
        self.lagrange = lagrange_at_0(numbers)

    def commitment(self, i):
        hiding, binding = self.commitments[i]
        return hiding + self.factors[i] * binding

    def sign(self, i, share, hiding_nonce, binding_nonce):
        """The share of the signature (5.2 of the RFC)."""
        answer = hiding_nonce + binding_nonce * self.factors[i]
        return (answer + self.lagrange[i] * share * self.challenge) % Q

    def share_is_right(self, i, signature_share, verification_share):
        """5.4 of the RFC."""
        factor = self.challenge * self.lagrange[i] % Q
        return signature_share * B == self.commitment(i) + factor * verification_share

    def combine(self, signature_shares):
        return self.R.encode() + encode_scalar(sum(signature_shares))


@dataclass
class Session:
    commitments: dict  # by the server's number
    message: bytes

    def encode(self):
        listed = b"".join(
            bytes([i]) + self.commitments[i][0].encode() + self.commitments[i][1].encode()
            for i in sorted(self.commitments)
        )
        count = len(self.message).to_bytes(COUNT_BYTES, "big")
        return bytes([len(self.commitments)]) + listed + count + self.message

    @classmethod
    def decode(cls, data):
        reader = Reader(data)
        commitments, last = {}, 0
        for _ in range(reader.number()):
            server = reader.number()
            if server <= last:
                raise Refused("servers out of order")
            commitments[server] = (reader.point(), reader.point())
            last = server
        message = reader.take(int.from_bytes(reader.take(COUNT_BYTES), "big"))
        reader.end()
        return cls(commitments, message)


@dataclass
class Answer:
    digest: bytes
    share: int
    next_commitments: tuple[Point, Point]

    def encode(self):
        hiding, binding = self.next_commitments
        return self.digest + encode_scalar(self.share) + hiding.encode() + binding.encode()

    @classmethod
    def decode(cls, data):
        reader = Reader(data)
        digest, share = reader.take(32), edwards.decode_scalar(reader.take(32))
        answer = cls(digest, share, (reader.point(), reader.point()))
        reader.end()
        return answer


def session_digest(group, session):
    """The digest that an answer names."""

    def digest(domain, content):
        return hashlib.sha512(domain + b"\0" + content).digest()[:32]

    sharing = digest(b"sunder-schnorr sharing v1", group.encode())
    return digest(b"sunder-schnorr session v1", sharing + session.encode())
