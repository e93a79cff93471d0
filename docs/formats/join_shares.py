#!/usr/bin/env python3
"""Joins the shares that `sunder split` wrote. Needs Python 3.6 or newer and nothing else.

usage: python3 join_shares.py OUTPUT SHARE...

SHARE is a share file, or a text file with lines of printed shares. Every byte is verified before
OUTPUT gets its name. The format is described in share.md, which belongs beside this file. It takes
about two seconds for a megabyte, and reads a share file piece by piece.
"""

import base64
import io
import itertools
import os
import struct
import sys
import zlib

MAGIC = b"\x8bSND\r\n\x1a\n"
HEADER, SEGMENT, CODE, LINE = 37, 65536, 32, 25
MODULUS = 1 << 128 | 1 << 127 | 1 << 126 | 1 << 121 | 1
CONFUSED = str.maketrans("018", "OIB")


def multiply(a, b):
    """The product in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1."""
    product = 0
    while a:
        product ^= b if a & 1 else 0
        a, b = a >> 1, (b << 1) ^ (0x11B if b & 0x80 else 0)
    return product


def inverse(a):
    return next(b for b in range(1, 256) if multiply(a, b) == 1)


def join(shares, is_xor):
    """The value at 0 of the polynomial through the shares: {x: bytes}, all of one length."""
    length = len(next(iter(shares.values())))
    total = 0
    for x, share in shares.items():
        weight = 1
        for other in () if is_xor else shares:
            if other != x:
                weight = multiply(weight, multiply(other, inverse(other ^ x)))
        table = bytes(multiply(weight, byte) for byte in range(256))
        total ^= int.from_bytes(share.translate(table), "big")
    return total.to_bytes(length, "big")


def dot(a, b):
    """The product of POLYVAL (RFC 8452): a b x^-128 modulo x^128 + x^127 + x^126 + x^121 + 1."""
    product = 0
    for bit in range(128):
        product ^= b if a >> bit & 1 else 0
        product = (product ^ (MODULUS if product & 1 else 0)) >> 1
    return product


def is_genuine(code, message):
    """Whether the tamper code, a point and a tag, is that of the message."""
    blocks = [message[i:i + 16].ljust(16, b"\0") for i in range(0, len(message), 16)]
    blocks += [bytes(16)] * (len(blocks) % 2) + [len(message).to_bytes(16, "little")]
    blocks = [bytes([1] + [0] * 14 + [0xC2]), bytes(16)] + blocks
    point, tag = (int.from_bytes(code[i:i + 16], "little") for i in (0, 16))
    total = 0
    for block in blocks:
        total = dot(total ^ int.from_bytes(block, "little"), point)
    return total == tag


def paper_shares(text, name):
    """The share files in a text: lines such as `K3F7-2-1: RNJU KDIK ... M4XA`, in any order."""
    pieces = {}
    for number, line in enumerate(text.splitlines(), 1):
        line = "".join(line.split()).upper().replace("QR-CODE:", "")
        if not line or line.startswith("#"):
            continue
        try:
            label, digits = line.split(":")
            split, x, first = label.split("-")
            split = split.translate(CONFUSED)
            label = "{}-{}-{}:".format(split, int(x), int(first))
            digits = digits.replace("-", "").translate(CONFUSED)
            data, check = digits[:-4], digits[-4:]
            data = base64.b32decode(data + "=" * (-len(data) % 8))
            crc = struct.pack(">I", zlib.crc32(label.encode() + data))
            if base64.b32encode(crc)[:4].decode() != check:
                raise ValueError("the checksum does not match")
        except ValueError as error:
            sys.exit("{}, line {}: {}".format(name, number, error))
        for at in range(0, len(data), LINE):
            pieces.setdefault((split, int(x)), {})[int(first) + at // LINE] = data[at:at + LINE]
    for share in pieces.values():
        yield io.BytesIO(b"".join(share[i] for i in sorted(share)))


def main(output, names):
    splits = {}
    for name in names:
        file = open(name, "rb")
        is_binary = file.read(8) == MAGIC
        file.seek(0)
        for share in [file] if is_binary else paper_shares(file.read().decode(), name):
            header = share.read(HEADER)
            if header[:8] != MAGIC or header[8] != 1:
                sys.exit("{}: not a whole share of version 1".format(name))
            splits.setdefault(header[:12] + header[13:], {})[header[12]] = share
    if len(splits) != 1:
        sys.exit("the shares are of {} splits; give those of one".format(len(splits)))
    (header, files), = splits.items()
    is_xor, k, length = header[9] == 1, header[10], int.from_bytes(header[28:], "big")
    if len(files) < k:
        sys.exit("{} shares are needed; give {} more".format(k, k - len(files)))
    if os.path.exists(output):
        sys.exit("{} exists; choose another name".format(output))
    partial = output + ".partial"
    with open(partial, "xb") as out:
        for index in range(length // SEGMENT + 1):
            size = CODE + min(SEGMENT, length - index * SEGMENT)
            parts = {x: file.read(size) for x, file in files.items()}
            whole = sorted(x for x in parts if len(parts[x]) == size)
            context = header[:28] + struct.pack(">Q", index)
            for chosen in itertools.combinations(whole, k):
                segment = join({x: parts[x] for x in chosen}, is_xor)
                if is_genuine(segment[:CODE], context + segment[CODE:]):
                    break
            else:
                os.remove(partial)
                sys.exit("shares were changed: none fit from byte {} on".format(index * SEGMENT))
            out.write(segment[CODE:])
    os.rename(partial, output)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
