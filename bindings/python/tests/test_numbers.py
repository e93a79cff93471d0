"""Tests of signed integers, division, tables and embedded circuits of sunder_compute."""

import gc
import operator
import os
import random
import unittest

import sunder_compute as compute
from test_compute import BLOCK, ENCRYPTED, KEY, adder, both, run_both, sessions


class Numbers(unittest.TestCase):
    """Circuits compute what Python computes."""

    def test_division_is_that_of_python(self):
        for bits in (1, 5, 8):
            builder = compute.CircuitBuilder([bits], [bits])
            (a,), (b,) = builder.garbler, builder.evaluator
            half = a.as_signed(), b.as_signed()
            circuit = builder.finish(
                [
                    *(a // b, a % b, *divmod(a, b)),
                    *(*divmod(*half), half[0] // half[1], half[0] % half[1]),
                ]
            )
            step = 1 if bits < 8 else 7
            for x in range(0, 1 << bits, step):
                for y in range(1, 1 << bits):
                    signed_x, signed_y = (signed(it, bits) for it in (x, y))
                    # The least number divided by -1 is one more than the greatest.
                    quotient, rest = divmod(signed_x, signed_y)
                    quotient = signed(quotient % (1 << bits), bits)
                    expected = (*divmod(x, y) * 2, *(quotient, rest) * 2)
                    self.assertEqual(circuit.evaluate(x, y), expected, (bits, x, y))

    def test_constants_divide_and_are_divided(self):
        builder = compute.CircuitBuilder([8], [1])
        (a,) = builder.garbler
        s = a.as_signed()
        circuit = builder.finish([a // 10, 200 % a, s // -10, 100 // s, -100 % s])
        for x in range(1, 256):
            y = signed(x, 8)
            self.assertEqual(
                circuit.evaluate(x, 0), (x // 10, 200 % x, y // -10, 100 // y, -100 % y)
            )

    def test_signed_integers_are_those_of_python(self):
        bits, seeded = 9, random.Random(5)
        builder = compute.CircuitBuilder([bits, 3], [bits])
        (first, by), (second,) = builder.garbler, builder.evaluator
        a, b = first.as_signed(), second.as_signed()
        work = [operator.add, operator.sub, operator.mul, operator.and_, operator.or_, operator.xor]
        compared = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
        outputs = [it(a, b) for it in work] + [it(a, b) for it in compared]
        outputs += [it(a, -7) for it in compared]
        outputs += [-a, abs(a), ~a, a >> 2, a >> by, a << 1, a.resize(14), a.resize(4)]
        outputs += builder.sort([a, b, builder.constant(-3, bits)])
        outputs += [builder.select(a < b, a, -1), builder.concatenate([a, b]), a[0:bits]]
        circuit = builder.finish(outputs)
        least, most = -(1 << bits - 1), (1 << bits - 1) - 1
        pairs = [(least, least), (least, most), (most, most), (-1, 0), (0, -1), (-7, -7)]
        pairs += [(seeded.randint(least, most), seeded.randint(least, most)) for _ in range(80)]
        limit = 1 << bits
        for x, y in pairs:
            shift = seeded.randrange(8)
            expected = [signed(it(x, y) % limit, bits) for it in work]
            expected += [int(it(x, y)) for it in compared] + [int(it(x, -7)) for it in compared]
            expected += [signed(-x % limit, bits), abs(x), ~x, x >> 2, x >> shift]
            expected += [signed(x * 2 % limit, bits), x, signed(x % 16, 4), *sorted([x, y, -3])]
            expected += [x if x < y else -1, x % limit + (y % limit) * limit, x % limit]
            self.assertEqual(circuit.evaluate([x, shift], y), tuple(expected), (x, y, shift))

    def test_signed_and_unsigned_values_are_not_mixed(self):
        builder = compute.CircuitBuilder([8], [8])
        (a,), (b,) = builder.garbler, builder.evaluator
        self.assertTrue(a.as_signed().signed and not a.as_signed().as_unsigned().signed)
        self.assertEqual(repr(a.as_signed()), "<signed Integer of 8 bits>")
        for wrong in (
            lambda: a.as_signed() + b,
            lambda: a < b.as_signed(),
            lambda: builder.sort([a, b.as_signed()]),
        ):
            with self.assertRaisesRegex(TypeError, "as_signed"):
                wrong()
        for wrong in (lambda: a + -1, lambda: a.as_signed() + 128, lambda: a.as_signed() + -129):
            with self.assertRaisesRegex(ValueError, "does not fit"):
                wrong()
        circuit = builder.finish([a, b])
        for wrong in (-129, 256):
            with self.assertRaisesRegex(ValueError, "does not fit"):
                circuit.evaluate(wrong, 0)
        self.assertEqual(circuit.evaluate(-128, -1), (128, 255))

    def test_signed_values_are_computed_together(self):
        builder = compute.CircuitBuilder([16], [16])
        (a,), (b,) = builder.garbler, builder.evaluator
        circuit = builder.finish([a.as_signed() // b.as_signed()])
        self.assertEqual(run_both(circuit, -1000, 7), ((-143,), (-143,)))

    def test_tables_are_looked_up(self):
        seeded = random.Random(6)
        for bits in (1, 7, 64):
            table = [seeded.getrandbits(bits) for _ in range(32)]
            builder = compute.CircuitBuilder([5], [1])
            circuit = builder.finish([builder.look_up(table, bits, builder.garbler[0])])
            found = [circuit.evaluate(it, 0) for it in range(32)]
            self.assertEqual(found, [(it,) for it in table])
        builder = compute.CircuitBuilder([2], [1])
        for table, bits in (([1, 2, 3], 8), ([1, 2, 3, 4], 2), ([1] * 4, 65)):
            with self.assertRaises(ValueError):
                builder.look_up(table, bits, builder.garbler[0])

    def test_circuits_are_embedded(self):
        # The key is the sum of those of both parties.
        builder = compute.CircuitBuilder([128], [128, 128])
        (share,), (other, block) = builder.garbler, builder.evaluator
        aes = compute.Circuit.named("aes128")
        (encrypted,) = builder.embed(aes, [share ^ other], [block])
        with self.assertRaisesRegex(ValueError, "garbler's values"):
            builder.embed(aes, [share[:64]], [block])
        circuit = builder.finish([encrypted])
        self.assertEqual(circuit.ands, aes.ands)
        # The circuit takes the bits of bytes from the lowest, as `evaluate` does.
        share = bytes(range(16))
        other = bytes(a ^ b for a, b in zip(KEY, share, strict=True))
        (found,) = circuit.evaluate(share, other + BLOCK)
        self.assertEqual(found.to_bytes(16, "little"), ENCRYPTED)


class Processes(unittest.TestCase):
    def test_a_forked_child_does_not_end_a_session(self):
        circuit = adder()
        one, other = sessions()
        both(lambda: one.run(circuit, 1), lambda: other.run(circuit, 2))
        child = os.fork()
        if child == 0:
            try:
                one.run(circuit, 1)
            except RuntimeError:
                del one, other
                gc.collect()
                os._exit(0)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 0)
        with one, other:
            found = both(lambda: one.run(circuit, 3), lambda: other.run(circuit, 4))
        self.assertEqual(found, ((7,), (7,)))


class Security(unittest.TestCase):
    """Sessions withstand the parties that they say."""

    def test_both_parties_choose_one_level(self):
        circuit = compute.Circuit.named("aes128")
        expected = (int.from_bytes(ENCRYPTED, "little"),)
        for level in ("semi-honest", "evaluator", "malicious"):
            self.assertEqual(run_both(circuit, KEY, BLOCK, security=level), (expected, expected))
        one, other = (
            circuit.exchange("garbler", security=level) for level in ("evaluator", "malicious")
        )
        self.assertGreater(sum(other[:2]), 1.9 * sum(one[:2]))

    def test_levels_that_differ_or_do_not_exist_are_refused(self):
        one, other = sessions(
            garbler={"security": "semi-honest"}, evaluator={"security": "malicious"}
        )
        circuit = compute.Circuit.named("aes128")
        for error in both(lambda: one.run(circuit, KEY), lambda: other.run(circuit, BLOCK)):
            self.assertIsInstance(error, compute.Disagreement)
        for wrong in (
            {"security": "high"},
            {"security": "evaluator", "protocol": "gmw"},
            {"security": "malicious", "output_to": "garbler"},
        ):
            with self.assertRaises(ValueError):
                circuit.exchange("garbler", **wrong)


def signed(value, bits):
    """A number of so many bits as a signed one."""
    return value - (1 << bits) if value >> bits - 1 else value
