"""The tests of `handover.py selftest`."""

import copy

import aead
import edwards
import example
import frost
from edwards import B, NEUTRAL, Q, Refused, decode_point, decode_scalar, encode_scalar
from entries import Deal
from handover import Difference, Report, verify
from sharing import Commitment, evaluate, pairs

unhex = bytes.fromhex


def rfc_8032():
    """The first three vectors of 7.1."""
    for seed, public, message, signature in (
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
            "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        ),
        (
            "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
            "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
            "af82",
            "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
            "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
        ),
    ):
        assert edwards.sign(unhex(seed), unhex(message)) == (unhex(public), unhex(signature))
        assert edwards.verify(unhex(public), unhex(message), unhex(signature))
        assert not edwards.verify(unhex(public), b"another", unhex(signature))


def rfc_8439():
    """The vector of 2.8.2."""
    key, nonce = bytes(range(0x80, 0xA0)), unhex("070000004041424344454647")
    associated = unhex("50515253c0c1c2c3c4c5c6c7")
    plaintext = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the "
        b"future, sunscreen would be it."
    )
    sealed = unhex(
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d6"
        "3dbea45e8ca9671282fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b36"
        "92ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc"
        "3ff4def08e4b7a9de576d26586cec64b61161ae10b594f09e26a7e902ecbd0600691"
    )
    assert aead.seal(key, nonce, plaintext, associated) == sealed
    assert aead.open_sealed(key, nonce, sealed, associated) == plaintext
    assert aead.open_sealed(key, nonce, sealed[:-1] + b"\0", associated) is None


def rfc_9591():
    """The vector of E.1: servers 1 and 3 of three sign `test`."""
    secret = scalar("7b1c33d3f5291d85de664833beb1ad469f7fb6025a0ec78b3a790c6e13a98304")
    slope = scalar("178199860edd8c62f5212ee91eff1295d0d670ab4ed4506866bae57e7030b204")
    public = "15d21ccd7ee42959562fc8aa63224c8851fb3ec85a3faf66040d380fb9738673"
    shares = {
        1: scalar("929dcc590407aae7d388761cddb0c0db6f5627aea8e217f4a033f2ec83d93509"),
        3: scalar("d3cb090a075eb154e82fdb4b3cb507f110040905468bb9c46da8bdea643a9a02"),
    }
    randoms = {
        1: (
            "0fd2e39e111cdc266f6c0f4d0fd45c947761f1f5d3cb583dfcb9bbaf8d4c9fec",
            "69cd85f631d5f7f2721ed5e40519b1366f340a87c2f6856363dbdcda348a7501",
        ),
        3: (
            "86d64a260059e495d0fb4fcc17ea3da7452391baa494d4b00321098ed2a0062f",
            "13e6b25afb2eba51716a9a7d44130c0dbae0004a9ef8d7b5550c8a0e07c61775",
        ),
    }
    factors = {
        1: scalar("f2cb9d7dd9beff688da6fcc83fa89046b3479417f47f55600b106760eb3b5603"),
        3: scalar("b087686bf35a13f3dc78e780a34b0fe8a77fef1b9938c563f5573d71d8d7890f"),
    }
    answers = {
        1: scalar("001719ab5a53ee1a12095cd088fd149702c0720ce5fd2f29dbecf24b7281b603"),
        3: scalar("bd86125de990acc5e1f13781d8e32c03a9bbd4c53539bbc106058bfd14326007"),
    }
    signature = (
        "36282629c383bb820a88b71cae937d41f2f2adfcc3d02e55507e2fb9e2dd3cbe"
        "bd9d2b0844e49ae0f3fa935161e1419aab7b47d21a37ebeae1f17d4987b3160b"
    )
    assert (secret * B).encode().hex() == public
    assert all(evaluate([secret, slope], i) == share for i, share in shares.items())
    nonces = {i: [frost.draw_nonce(unhex(r), shares[i]) for r in randoms[i]] for i in shares}
    commitments = {i: (hiding * B, binding * B) for i, (hiding, binding) in nonces.items()}
    current = frost.Round(secret * B, commitments, b"test")
    assert current.factors == factors
    assert {i: current.sign(i, shares[i], *nonces[i]) for i in shares} == answers
    for i in shares:
        assert current.share_is_right(i, answers[i], shares[i] * B)
        assert not current.share_is_right(i, answers[i] + 1, shares[i] * B)
    assert current.combine(answers.values()).hex() == signature
    assert edwards.verify(unhex(public), b"test", unhex(signature))


def scalar(text):
    return decode_scalar(unhex(text))


def encodings():
    """A parser refuses points of another order, and other encodings. A Deal has the page's size."""
    assert Q * B == NEUTRAL and decode_point(B.encode()) == B
    order_2 = (edwards.P - 1).to_bytes(32, "little")
    order_4 = bytes(32)
    mixed = (B + edwards.decode_any_point(order_4)).encode()
    neutral = NEUTRAL.encode()
    other_neutral = (edwards.P + 1).to_bytes(32, "little")
    negative_zero = neutral[:31] + b"\x80"
    for data in (order_2, order_4, mixed, neutral, other_neutral, negative_zero, b"\2" + bytes(31)):
        assert refused(decode_point, data)
    assert decode_scalar(encode_scalar(-1)) == Q - 1
    assert refused(decode_scalar, Q.to_bytes(32, "little"))
    for n, size in ((4, 626), (31, 13730), (100, 129650)):
        f = n // 3
        commitment = Commitment(f, [B] * len(pairs(f)))
        ciphertexts = dict.fromkeys(range(1, n + 1), bytes(32 * f + 48))
        deal = Deal(commitment, B, bytes(64), bytes(64), ciphertexts)
        assert len(deal.encode(bytes(32))) == size


def refused(parser, data):
    try:
        parser(data)
    except Refused:
        return True
    return False


def handovers():
    """Every example is verified, and every change of a value in it is noticed."""
    for name, transcript in example.transcripts().items():
        report = Report(quiet=True)
        verify(transcript, report)
        print(f"      {name}: {report.comparisons} comparisons")
        for changed in changes(transcript):
            assert differs(changed), name


def changes(transcript):
    """Copies of a transcript with one value changed."""
    expected = transcript["expected"]

    def change(*path):
        changed = copy.deepcopy(transcript)
        place = changed
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = another(place[path[-1]])
        return changed

    yield change("run")
    yield change("expected", "verdicts", 0)
    yield change("expected", "final")
    if expected["chosen"]:
        yield change("expected", "chosen", 0)
        yield change("expected", "commitment")
        yield change("expected", "public_key")
        yield change("expected", "rows", "4")
        yield change("receiver_secrets", "1", "r")
    for number in range(len(transcript["signing"])):
        yield change("signing", number, "signature")
        yield change("signing", number, "message")


def another(value):
    """A value of the same type."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if value in ("applied", "unchanged", "faulty"):
        return "faulty" if value == "applied" else "applied"
    return ("1" if value[:1] == "0" else "0") + value[1:] if value else "00"


def differs(transcript):
    try:
        verify(transcript, Report(quiet=True))
    except (Difference, Refused):
        return True
    return False


def run():
    for test in (rfc_8032, rfc_8439, rfc_9591, encodings, handovers):
        test()
        print(f"right {test.__name__}")
    return 0
