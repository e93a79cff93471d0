"""The encodings of a handover's entries, and the proofs in them."""

import hashlib
from dataclasses import dataclass

import aead
from edwards import (
    B,
    Point,
    Refused,
    decode_point,
    decode_scalar,
    encode_scalar,
    hash_to_scalar,
)
from sharing import Commitment, decode_row, encode_row

KEY, DEAL, HOLD, COMPLAIN, CONFIRM = 1, 2, 3, 4, 5
PROOF_DOMAIN = b"sunder-schnorr logarithm proof v1\0"
PROOF_NONCE_DOMAIN = b"sunder-schnorr logarithm proof nonce v1\0"
CONTEXT_DOMAIN = b"sunder-schnorr handover v1\0"
ENCRYPTION_DOMAIN = b"sunder-schnorr encryption v1\0"
NONCE = bytes(12)


def context(run, purpose, *servers):
    """What binds a proof or a ciphertext to its run, its purpose and its servers.

    The servers are the author (a number of one byte) for `session key`, `ephemeral key`,
    `constant` and `possession`, and the dealer and then the receiver for `encryption` and
    `complaint`.
    """
    return CONTEXT_DOMAIN + run + purpose.encode() + b"\0" + bytes(servers)


def _statement(bases, values, about):
    """What follows the commitments in the hash of a proof."""
    interleaved = [point.encode() for pair in zip(bases, values) for point in pair]
    return bytes([len(bases)]) + b"".join(interleaved) + about


def prove(secret, bases, about):
    """A proof (challenge and response) that secret is the logarithm of each value secret * base."""
    statement = _statement(bases, [secret * base for base in bases], about)
    nonce = hash_to_scalar(PROOF_NONCE_DOMAIN, encode_scalar(secret), statement)
    commitments = b"".join((nonce * base).encode() for base in bases)
    challenge = hash_to_scalar(PROOF_DOMAIN, commitments, statement)
    return encode_scalar(challenge) + encode_scalar(nonce + challenge * secret)


def proof_holds(proof, bases, values, about):
    """Whether the proof shows that all values have one logarithm to their bases."""
    challenge, response = decode_scalar(proof[:32]), decode_scalar(proof[32:])
    commitments = b"".join(
        (response * base - challenge * value).encode() for base, value in zip(bases, values)
    )
    return challenge == hash_to_scalar(PROOF_DOMAIN, commitments, _statement(bases, values, about))


def encode_set(numbers):
    """16 bytes, a big-endian number in which the lowest bit (of the last byte) is server 1."""
    return sum(1 << number - 1 for number in numbers).to_bytes(16, "big")


def decode_set(data):
    bits = int.from_bytes(data, "big")
    return [number for number in range(1, 129) if bits >> number - 1 & 1]


def _row_key(run, dealer, receiver, shared):
    material = ENCRYPTION_DOMAIN + shared.encode() + context(run, "encryption", dealer, receiver)
    return hashlib.sha512(material).digest()[:32]


def encrypt_row(run, dealer, receiver, shared, row):
    return aead.seal(_row_key(run, dealer, receiver, shared), NONCE, encode_row(row))


def decrypt_row(run, dealer, receiver, shared, ciphertext):
    """The row, or None if the tag or a scalar's encoding is wrong."""
    plaintext = aead.open_sealed(_row_key(run, dealer, receiver, shared), NONCE, ciphertext)
    if plaintext is None:
        return None
    try:
        return decode_row(plaintext)
    except Refused:
        return None


class Reader:
    """Takes bytes from the front, and refuses what is too short or too long."""

    def __init__(self, data):
        self.data = data

    def take(self, count):
        if len(self.data) < count:
            raise Refused("the entry is too short")
        taken, self.data = self.data[:count], self.data[count:]
        return taken

    def number(self):
        return self.take(1)[0]

    def point(self):
        return decode_point(self.take(32))

    def proof(self):
        proof = self.take(64)
        decode_scalar(proof[:32])
        decode_scalar(proof[32:])
        return proof

    def end(self):
        if self.data:
            raise Refused("the entry is too long")


@dataclass
class Key:
    R: Point
    proof: bytes

    def encode(self, run):
        return run + bytes([KEY]) + self.R.encode() + self.proof

    def holds(self, run, receiver):
        return proof_holds(self.proof, [B], [self.R], context(run, "session key", receiver))


@dataclass
class Deal:
    commitment: Commitment
    E: Point
    ephemeral_proof: bytes
    constant_proof: bytes
    ciphertexts: dict  # by the receiver's number

    def encode(self, run):
        return b"".join(
            [run, bytes([DEAL]), self.commitment.encode(), self.E.encode()]
            + [self.ephemeral_proof, self.constant_proof, encode_set(self.ciphertexts)]
            + [self.ciphertexts[j] for j in sorted(self.ciphertexts)]
        )

    def holds(self, run, dealer):
        """Whether both proofs hold."""
        constant = self.commitment.public_key()
        return proof_holds(
            self.ephemeral_proof, [B], [self.E], context(run, "ephemeral key", dealer)
        ) and proof_holds(self.constant_proof, [B], [constant], context(run, "constant", dealer))


@dataclass
class Hold:
    dealers: list

    def encode(self, run):
        return run + bytes([HOLD]) + encode_set(self.dealers)


@dataclass
class Complain:
    dealer: int
    K: Point
    proof: bytes

    def encode(self, run):
        return run + bytes([COMPLAIN, self.dealer]) + self.K.encode() + self.proof

    def holds(self, run, receiver, R, E):
        about = context(run, "complaint", self.dealer, receiver)
        return proof_holds(self.proof, [B, E], [R, self.K], about)


@dataclass
class Confirm:
    proof: bytes

    def encode(self, run):
        return run + bytes([CONFIRM]) + self.proof

    def holds(self, run, receiver, verification_share):
        about = context(run, "possession", receiver)
        return proof_holds(self.proof, [B], [verification_share], about)


def decode(data):
    """The run and the entry."""
    reader = Reader(data)
    run, kind = reader.take(32), reader.number()
    if kind == KEY:
        entry = Key(reader.point(), reader.proof())
    elif kind == DEAL:
        f = reader.data[0] if reader.data else 0
        commitment = Commitment.decode(reader.take(Commitment.size(f)))
        E, ephemeral_proof, constant_proof = reader.point(), reader.proof(), reader.proof()
        receivers = decode_set(reader.take(16))
        ciphertexts = {j: reader.take(32 * f + 32 + 16) for j in receivers}
        entry = Deal(commitment, E, ephemeral_proof, constant_proof, ciphertexts)
    elif kind == HOLD:
        entry = Hold(decode_set(reader.take(16)))
    elif kind == COMPLAIN:
        entry = Complain(reader.number(), reader.point(), reader.proof())
    elif kind == CONFIRM:
        entry = Confirm(reader.proof())
    else:
        raise Refused("an unknown kind of entry")
    reader.end()
    return run, entry
