"""Handovers that this program generates, with dealers and receivers that break rules.

The expected values come from the dealers' polynomials, and the expected verdicts are written by
hand, so that `verify` has something to be compared with.
"""

import hashlib

import entries
import frost
from edwards import B, Q, encode_scalar
from entries import Complain, Confirm, Deal, Hold, Key, context, prove
from sharing import Polynomial, encode_row, lagrange_at_0, pairs
from state import APPLIED, FAULTY, UNCHANGED


class Random:
    """Numbers that follow from a name, so that an example is always the same."""

    def __init__(self, name):
        self.name, self.count = name.encode(), 0

    def bytes(self):
        self.count += 1
        return hashlib.sha512(self.name + self.count.to_bytes(8, "big")).digest()

    def scalar(self):
        return int.from_bytes(self.bytes(), "little") % Q

    def polynomial(self, f, constant=None):
        coefficients = [self.scalar() for _ in pairs(f)]
        if constant is not None:
            coefficients[0] = constant
        return Polynomial(f, coefficients)


class Example:
    """A handover in the making: its log, and what its servers know."""

    def __init__(self, name, new_f, old=None):
        """`old` is the old group's polynomial, or None in a key generation."""
        self.random = Random(name)
        self.run = self.random.bytes()[:32]
        self.new_f, self.old = new_f, old
        self.receivers = range(1, 3 * new_f + 2)
        self.r = {j: self.random.scalar() for j in self.receivers}
        self.log, self.verdicts = [], []
        self.registered, self.polynomials, self.e = [], {}, {}
        self.group = None  # the new group's polynomial
        self.chosen, self.final, self.signing = [], False, []

    def submit(self, author, entry, verdict=APPLIED):
        data = entry if isinstance(entry, bytes) else entry.encode(self.run)
        role = "dealer" if data[32:33] == bytes([entries.DEAL]) else "receiver"
        self.log.append({"author_role": role, "author": author, "bytes": data.hex()})
        self.verdicts.append(verdict)

    def key(self, j):
        return Key(self.r[j] * B, prove(self.r[j], [B], context(self.run, "session key", j)))

    def register(self, *receivers):
        for j in receivers:
            self.submit(j, self.key(j))
            self.registered.append(j)

    def deal(self, i, polynomial=None, wrong=(), receivers=None):
        """A dealing of dealer i, whose ciphertexts for the receivers in `wrong` are wrong."""
        if polynomial is None:
            share = self.old.row(i)[0] if self.old else None
            polynomial = self.random.polynomial(self.new_f, share)
        self.polynomials[i] = polynomial
        e = self.e[i] = self.random.scalar()
        ciphertexts = {}
        for j in self.registered if receivers is None else receivers:
            row = polynomial.row(j)
            if j in wrong:
                row[-1] = (row[-1] + 1) % Q
            ciphertexts[j] = entries.encrypt_row(self.run, i, j, e * self.r[j] * B, row)
        ephemeral = prove(e, [B], context(self.run, "ephemeral key", i))
        secret = polynomial.coefficients[0, 0]
        constant = prove(secret, [B], context(self.run, "constant", i))
        return Deal(polynomial.commitment(), e * B, ephemeral, constant, ciphertexts)

    def complain(self, j, i):
        E = self.e[i] * B
        about = context(self.run, "complaint", i, j)
        return Complain(i, self.r[j] * E, prove(self.r[j], [B, E], about))

    def choose(self, *dealers):
        """Compute the new group's polynomial."""
        self.chosen = list(dealers)
        factors = lagrange_at_0(dealers) if self.old else dict.fromkeys(dealers, 1)
        coefficients = [
            sum(factors[i] * self.polynomials[i].coefficients[pair] for i in dealers) % Q
            for pair in pairs(self.new_f)
        ]
        self.group = Polynomial(self.new_f, coefficients)

    def confirm(self, j, share=None):
        share = self.group.row(j)[0] if share is None else share
        return Confirm(prove(share, [B], context(self.run, "possession", j)))

    def sign(self, signers, message):
        """A session with each signer's answer."""
        shares = {i: self.group.row(i)[0] for i in signers}
        draws = {}
        for i in signers:
            randoms = [self.random.bytes()[:32] for _ in range(4)]
            draws[i] = [frost.draw_nonce(each, shares[i]) for each in randoms]
        session = frost.Session({i: (d[0] * B, d[1] * B) for i, d in draws.items()}, message)
        commitment = self.group.commitment()
        current = frost.Round(commitment.public_key(), session.commitments, message)
        digest = frost.session_digest(commitment, session)
        answers = {
            i: frost.Answer(digest, current.sign(i, shares[i], d[0], d[1]), (d[2] * B, d[3] * B))
            for i, d in draws.items()
        }
        signature = current.combine(answer.share for answer in answers.values())
        self.signing.append(
            {
                "session": session.encode().hex(),
                "answers": {str(i): answer.encode().hex() for i, answer in answers.items()},
                "message": message.hex(),
                "signature": signature.hex(),
            }
        )

    def transcript(self):
        old = self.old and {"f": self.old.f, "commitment": self.old.commitment().encode().hex()}
        commitment = self.group and self.group.commitment()
        expected = {
            "verdicts": self.verdicts,
            "chosen": self.chosen,
            "final": self.final,
            "commitment": commitment and commitment.encode().hex(),
            "public_key": commitment and commitment.public_key().encode().hex(),
            "rows": {
                str(j): encode_row(self.group.row(j)).hex() for j in self.receivers if self.group
            },
        }
        return {
            "run": self.run.hex(),
            "old": old,
            "new_f": self.new_f,
            "entries": self.log,
            "receiver_secrets": {str(j): {"r": encode_scalar(r).hex()} for j, r in self.r.items()},
            "expected": expected,
            "signing": self.signing,
        }


def key_generation():
    """Four servers. Dealer 2's ciphertext for 4 is wrong, which 4 says only after the choice."""
    example = Example("key generation", 1)
    example.register(1, 2, 3)
    example.submit(1, example.key(1), UNCHANGED)
    example.submit(1, Hold([2]), UNCHANGED)
    example.register(4)
    for i in (1, 2, 3):
        example.submit(i, example.deal(i, wrong=[4] if i == 2 else []))
    example.submit(2, Hold([2, 4]), UNCHANGED)
    example.submit(1, Hold([1, 2, 3]))
    example.submit(2, Hold([2, 3]))
    example.submit(2, Hold([2]), UNCHANGED)
    example.choose(2, 3)
    example.submit(2, example.confirm(2), UNCHANGED)
    example.submit(3, Hold([2, 3]))
    example.submit(4, example.complain(4, 2))
    example.submit(2, Hold([1]))  # this server is faulty only as a dealer
    for j in (1, 3, 4):
        example.submit(j, example.confirm(j))
    example.submit(4, example.confirm(4), UNCHANGED)
    example.final = True
    example.sign([2, 4], b"message")
    example.sign([1, 3], b"")
    return example


def resharing(old):
    """From four servers to seven. Dealers 1 and 3 break rules, and receiver 7 has no ciphertext."""
    example = Example("resharing", 2, old)
    example.register(1, 2, 3, 4, 5, 6)
    example.submit(1, example.deal(1, example.random.polynomial(2)), FAULTY)  # another number
    example.submit(1, example.deal(1), UNCHANGED)
    example.submit(2, example.deal(2))
    example.submit(3, example.deal(3, wrong=[5]))
    example.register(7)
    example.submit(4, example.deal(4, receivers=[1, 2, 3, 4, 6]))
    for j in (1, 2, 3, 4):
        example.submit(j, Hold([2, 3]))
    example.submit(5, example.complain(5, 3))
    example.submit(6, Hold([2, 3]))  # held now, but the dealer is faulty
    for j in (1, 2, 3, 4):
        example.submit(j, Hold([2, 4]))
    example.choose(2, 4)
    example.submit(7, Hold([4]))
    for j in (7, 6, 5, 4, 3):
        example.submit(j, example.confirm(j))
    example.final = True
    example.sign([1, 5, 7], b"the key is the same")
    return example


def broken_resharing(old):
    """From four servers to four, with entries that break each condition. It does not end."""
    example = Example("broken resharing", 1, old)
    another = Example("another", 1, old)
    example.submit(1, another.key(1).encode(another.run), UNCHANGED)
    key = example.key(2)
    example.submit(1, key, FAULTY)  # the proof is of receiver 2
    example.submit(1, example.key(1), UNCHANGED)
    example.submit(4, example.deal(4, receivers=[1, 2, 3]), UNCHANGED)  # nobody has registered
    example.register(2, 3, 4)
    share = old.row(1)[0]
    example.submit(1, example.deal(1, example.random.polynomial(2, share)), FAULTY)  # degree 2
    example.submit(2, example.deal(2, receivers=[2, 3]), FAULTY)  # too few receivers
    example.submit(3, example.deal(3))
    example.submit(4, example.deal(4))
    example.submit(4, example.deal(4), UNCHANGED)  # a second dealing
    example.submit(2, Hold([3, 4]))
    example.submit(2, example.complain(2, 1), UNCHANGED)
    example.submit(2, example.complain(2, 3), FAULTY)  # the ciphertext is right
    example.submit(3, Hold([3, 4]))
    example.submit(4, Hold([3]))
    complain = example.complain(3, 3)
    complain.K = complain.K + B
    example.submit(3, complain, FAULTY)  # another K
    example.submit(4, example.key(4).encode(example.run)[:-1], UNCHANGED)  # too short
    return example


def broken_key_generation():
    """Four servers, with dealers that repeat, or subtract, what others deal. It does not end."""
    example = Example("broken key generation", 1)
    example.register(1, 2, 3, 4)
    first = example.deal(1)
    example.submit(1, first)
    example.submit(2, first, FAULTY)  # the same dealing
    rogue = example.deal(3)
    points = rogue.commitment.points
    points[0, 0] = points[0, 0] - first.commitment.points[0, 0]
    example.submit(3, rogue, FAULTY)
    repeated = example.deal(4)
    repeated.E, repeated.ephemeral_proof = first.E, first.ephemeral_proof
    example.submit(4, repeated, FAULTY)
    return example


def last_confirmation(old):
    """From four servers to four. Receiver 4 confirms a share that it does not have."""
    example = Example("last confirmation", 1, old)
    example.register(1, 2, 3, 4)
    for i in (4, 3, 2):
        example.submit(i, example.deal(i))
    for j in (1, 2, 3):
        example.submit(j, Hold([2, 3, 4]))
    example.choose(2, 3)  # the last Hold completes three, and lower numbers come first
    example.submit(4, example.confirm(4, example.random.scalar()), FAULTY)
    example.submit(1, example.confirm(1))
    example.submit(2, example.confirm(2))
    example.submit(4, example.confirm(4), UNCHANGED)
    return example


def transcripts():
    """All examples by name."""
    generated = key_generation()
    examples = {
        "key-generation": generated,
        "resharing": resharing(generated.group),
        "broken-resharing": broken_resharing(generated.group),
        "broken-key-generation": broken_key_generation(),
        "last-confirmation": last_confirmation(generated.group),
    }
    return {name: example.transcript() for name, example in examples.items()}
