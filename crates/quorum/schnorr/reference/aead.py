"""ChaCha20-Poly1305 (RFC 8439), plainly."""

import struct

MASK = 0xFFFFFFFF


def _quarter(s, a, b, c, d):
    for x, y, z, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        s[x] = (s[x] + s[y]) & MASK
        mixed = s[z] ^ s[x]
        s[z] = (mixed << turn | mixed >> (32 - turn)) & MASK


def _block(key, counter, nonce):
    """64 bytes of the key stream (2.3 of the RFC)."""
    start = struct.unpack("<16I", b"expand 32-byte k" + key + struct.pack("<I", counter) + nonce)
    s = list(start)
    for _ in range(10):
        for i in range(4):
            _quarter(s, i, i + 4, i + 8, i + 12)
        for i in range(4):
            _quarter(s, i, (i + 1) % 4 + 4, (i + 2) % 4 + 8, (i + 3) % 4 + 12)
    return struct.pack("<16I", *((x + y) & MASK for x, y in zip(s, start)))


def _stream(key, nonce, data):
    """The data XOR the key stream from block 1."""
    result = bytearray()
    for at in range(0, len(data), 64):
        block = _block(key, 1 + at // 64, nonce)
        result += bytes(x ^ y for x, y in zip(data[at : at + 64], block))
    return bytes(result)


def _poly1305(key, data):
    r = int.from_bytes(key[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    s = int.from_bytes(key[16:], "little")
    total = 0
    for at in range(0, len(data), 16):
        total += int.from_bytes(data[at : at + 16] + b"\x01", "little")
        total = total * r % (2**130 - 5)
    return ((total + s) % 2**128).to_bytes(16, "little")


def _tag(key, nonce, encrypted, associated):
    def padded(data):
        return data + bytes(-len(data) % 16)

    lengths = struct.pack("<QQ", len(associated), len(encrypted))
    return _poly1305(
        _block(key, 0, nonce)[:32], padded(associated) + padded(encrypted) + lengths
    )


def seal(key, nonce, plaintext, associated=b""):
    """The encrypted plaintext and the tag."""
    encrypted = _stream(key, nonce, plaintext)
    return encrypted + _tag(key, nonce, encrypted, associated)


def open_sealed(key, nonce, ciphertext, associated=b""):
    """The plaintext, or None if the tag is wrong."""
    encrypted, tag = ciphertext[:-16], ciphertext[-16:]
    if len(ciphertext) < 16 or tag != _tag(key, nonce, encrypted, associated):
        return None
    return _stream(key, nonce, encrypted)
