"""Tests of sunder_compute, as it is installed: `scripts/test-python`."""

import contextlib
import json
import operator
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import sunder_compute as compute
import sunder_transport as transport

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples/python"
# FIPS 197, appendix B.
KEY = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
BLOCK = bytes.fromhex("3243f6a8885a308d313198a2e0370734")
ENCRYPTED = bytes.fromhex("3925841d02dc09fbdc118597196a0b32")


def pair(name="tcp", **options):
    """Both ends of a connection."""
    with transport.Listener("127.0.0.1:0") as listener:
        one = transport.connect(
            listener.address, peer=listener.public_key, transport=name, **options
        )
        return one, listener.accept()


def both(one, other):
    """The results of two functions, of which a thread runs the first one. An exception is one."""
    results = []

    def run(work):
        try:
            return work()
        except Exception as error:
            return error

    thread = threading.Thread(target=lambda: results.append(run(one)))
    thread.start()
    second = run(other)
    thread.join()
    return results[0], second


def sessions(name="tcp", garbler=None, evaluator=None, **options):
    """The sessions of two parties, with other options of each."""
    one, other = pair(name)
    return (
        compute.Session(one, "garbler", **options, **(garbler or {})),
        compute.Session(other, "evaluator", **options, **(evaluator or {})),
    )


def run_both(circuit, garbler, evaluator, name="tcp", **options):
    one, other = sessions(name, **options)
    with one, other:
        return both(lambda: one.run(circuit, garbler), lambda: other.run(circuit, evaluator))


def adder():
    builder = compute.CircuitBuilder([32], [32])
    return builder.finish([builder.garbler[0] + builder.evaluator[0]])


def said(text):
    """Says that something was skipped, which unittest only counts."""
    print(f"skipped: {text}", file=sys.stderr)
    return unittest.SkipTest(text)


class Integers(unittest.TestCase):
    """Circuits compute what Python computes."""

    def test_operators_are_those_of_python(self):
        bits, limit = 12, 1 << 12
        modulo = lambda work: lambda a, b: work(a, b) % limit
        truth = lambda work: lambda a, b: int(work(a, b))
        operators = {
            operator.add: modulo(operator.add),
            operator.sub: modulo(operator.sub),
            operator.mul: modulo(operator.mul),
            operator.and_: operator.and_,
            operator.or_: operator.or_,
            operator.xor: operator.xor,
            operator.lt: truth(operator.lt),
            operator.le: truth(operator.le),
            operator.gt: truth(operator.gt),
            operator.ge: truth(operator.ge),
            operator.eq: truth(operator.eq),
            operator.ne: truth(operator.ne),
        }
        seeded = random.Random(3)
        constant = seeded.randrange(limit)
        builder = compute.CircuitBuilder([bits], [bits])
        (a,), (b,) = builder.garbler, builder.evaluator
        outputs, expected = [], []
        for ours, theirs in operators.items():
            outputs += [ours(a, b), ours(a, constant), ours(constant, b)]
            expected += [
                lambda x, y, work=theirs: work(x, y),
                lambda x, y, work=theirs: work(x, constant),
                lambda x, y, work=theirs: work(constant, y),
            ]
        circuit = builder.finish(outputs)
        pairs = [(0, 0), (limit - 1, limit - 1), (0, limit - 1), (constant, constant)]
        pairs += [(seeded.randrange(limit), seeded.randrange(limit)) for _ in range(60)]
        for x, y in pairs:
            self.assertEqual(circuit.evaluate(x, y), tuple(it(x, y) for it in expected), (x, y))

    def test_bits_shifts_and_choices(self):
        builder = compute.CircuitBuilder([8, 3], [8])
        (a, by), (b,) = builder.garbler, builder.evaluator
        circuit = builder.finish(
            [
                ~a,
                a << 3,
                a >> 3,
                a << by,
                a >> by,
                a[2:6],
                a[-1],
                a[::-1],
                a.resize(12) + b.resize(12),
                a.count_ones(),
                builder.select(a > b, a, b),
                builder.select(a > b, 7, b),
                *builder.sort([a, b, builder.constant(100, 8)]),
                builder.choose([builder.constant(n * n, 8) for n in range(8)], by),
                builder.concatenate([a, b]),
                sum([a, b]),
            ]
        )
        self.assertEqual((circuit.garbler, circuit.evaluator), ((8, 3), (8,)))
        self.assertEqual(circuit.outputs[9], 4)
        for x, n, y in [(0b1011_0010, 5, 77), (255, 0, 255), (0, 7, 200)]:
            expected = (
                x ^ 255,
                x << 3 & 255,
                x >> 3,
                x << n & 255,
                x >> n,
                x >> 2 & 15,
                x >> 7,
                int(f"{x:08b}"[::-1], 2),
                x + y,
                x.bit_count(),
                max(x, y),
                7 if x > y else y,
                *sorted([x, y, 100]),
                n * n,
                x | y << 8,
                (x + y) & 255,
            )
            self.assertEqual(circuit.evaluate([x, n], y), expected)

    def test_mistakes_are_named(self):
        builder = compute.CircuitBuilder([8], [16])
        (a,), (b,) = builder.garbler, builder.evaluator
        foreign = compute.CircuitBuilder([8], []).garbler[0]
        for wrong, text in [
            (lambda: a + b, "resize"),
            (lambda: a + foreign, "another builder"),
            (lambda: a + 256, "8 bits"),
            (lambda: a - -1, "8 bits"),
            (lambda: builder.select(b, a, a), "one bit"),
            (lambda: builder.sort([a, b]), "resize"),
            (lambda: builder.choose([a, a, a], b[:2]), "2\\^2 values, not 3"),
            (lambda: builder.finish([foreign]), "another builder"),
            (lambda: compute.CircuitBuilder([1 << 29], []), "2\\^28"),
            (lambda: compute.Circuit.named("aes"), "aes128, sha256, mincut"),
        ]:
            with self.assertRaisesRegex(ValueError, text):
                wrong()
        for wrong, text in [
            (lambda: max(a, a), "builder.select"),
            (lambda: a + 1.5, "float"),
            (lambda: builder.select(a[0], 1, 2), "must be an Integer"),
        ]:
            with self.assertRaisesRegex(TypeError, text):
                wrong()
        with self.assertRaises(IndexError):
            a[8]
        builder.finish([a])
        with self.assertRaisesRegex(ValueError, "finished"):
            a + a


class Circuits(unittest.TestCase):
    def test_files_are_written_and_read(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "adder.txt")
            circuit = adder()
            circuit.save(path)
            read = compute.Circuit.load(path)
            self.assertEqual(read.digest, circuit.digest)
            self.assertEqual(read.evaluate(2, 3), (5,))
            path.write_text("1 3\n2 1 1\n1 1\n\n2 1 0 9 2 AND\n")
            with self.assertRaisesRegex(ValueError, "adder.txt: line 5: there is no wire 9"):
                compute.Circuit.load(path)
            path.write_text(".inputs x[0] x[1] y\n.outputs z\n.names x[0] x[1] y z\n110 1\n")
            read = compute.Circuit.load(path)
            self.assertEqual((read.garbler, read.evaluator), ((2,), (1,)))
            self.assertEqual((read.evaluate(3, 0), read.evaluate(3, 1)), ((1,), (0,)))
            with self.assertRaisesRegex(FileNotFoundError, "none.txt"):
                compute.Circuit.load(path.with_name("none.txt"))

    def test_inputs_are_checked(self):
        builder = compute.CircuitBuilder([8, 4], [3])
        circuit = builder.finish([*builder.garbler, *builder.evaluator])
        self.assertEqual(circuit.evaluate([200, 9], 5), (200, 9, 5))
        self.assertEqual(circuit.evaluate(b"\xc8\x09", b"\x05"), (200, 9, 5))
        for garbler in (3, [1], [1, 2, 3], [256, 0], [-129, 0], b"1", b"\xff\xff"):
            with self.assertRaises(ValueError):
                circuit.evaluate(garbler, 0)
        for garbler in (["1", "2"], [1.0, 2]):
            with self.assertRaises(TypeError):
                circuit.evaluate(garbler, 0)

    def test_known_circuits(self):
        circuit = compute.Circuit.named("aes128")
        self.assertEqual((circuit.garbler, circuit.evaluator, circuit.outputs), ((128,),) * 3)
        (encrypted,) = circuit.evaluate(KEY, BLOCK)
        self.assertEqual(encrypted.to_bytes(16, "little"), ENCRYPTED)
        self.assertEqual(circuit.ands, 6400)


class Sessions(unittest.TestCase):
    def test_parties_compute_by_each_protocol_and_transport(self):
        aes = compute.Circuit.named("aes128")
        expected = (int.from_bytes(ENCRYPTED, "little"),)
        for name in ("tcp", "sabul", "burst", "udp", "quic"):
            with self.subTest(name):
                self.assertEqual(run_both(aes, KEY, BLOCK, name), (expected, expected))
        for options in [
            {"protocol": "gmw", "transfers": "softspoken4"},
            {"scheme": "three-halves", "transfers": "softspoken8"},
        ]:
            with self.subTest(options):
                self.assertEqual(run_both(aes, KEY, BLOCK, **options), (expected, expected))

    def test_a_session_computes_several_circuits(self):
        one, other = sessions()
        with one, other:
            self.assertEqual((one.role, other.role, one.transport), ("garbler", "evaluator", "tcp"))
            for x, y in [(1, 2), (5, 4), ((1 << 32) - 1, 1)]:
                sums = both(lambda: one.run(adder(), x), lambda: other.run(adder(), [y]))
                self.assertEqual(sums, ((x + y & 0xFFFFFFFF,),) * 2)
            ours, theirs = one.statistics(), other.statistics()
            self.assertEqual(ours["bytes_sent"], theirs["bytes_received"])
            self.assertEqual(ours["bytes_received"], theirs["bytes_sent"])

    def test_the_exchange_is_that_of_a_run(self):
        for options in ({}, {"protocol": "gmw"}, {"output_to": "garbler"}):
            one, other = sessions(**options)
            with one, other:
                both(lambda: one.run(adder(), 1), lambda: other.run(adder(), 2))
                for party in (one, other):
                    sent, received, _ = adder().exchange(party.role, **options)
                    ran = {"bytes_sent": sent, "bytes_received": received}
                    self.assertEqual(party.statistics(), ran, options)

    def test_one_party_alone_learns_the_output(self):
        learnt = run_both(adder(), 1, 2, output_to="garbler")
        self.assertEqual(learnt, ((3,), None))

    def test_progress_is_reported_to_its_end(self):
        seen = []
        aes = compute.Circuit.named("aes128")
        one, other = sessions()
        with one, other:
            report = lambda done, of: seen.append((done, of))
            for _ in range(2):
                both(lambda: one.run(aes, KEY, progress=report), lambda: other.run(aes, BLOCK))
                self.assertEqual(seen.pop(), (6400, 6400))

    def test_an_exception_in_the_progress_ends_the_run(self):
        one, other = sessions()
        with contextlib.suppress(compute.Error), one, other:

            def report(done, of):
                raise LookupError("enough")

            # The other party does not compute: the run cannot end by itself.
            with self.assertRaisesRegex(LookupError, "enough"):
                one.run(adder(), 1, progress=report)
            with self.assertRaisesRegex(compute.Aborted, "it was stopped"):
                other.run(adder(), 2)

    def test_what_differs_is_named_at_both_parties(self):
        aes = compute.Circuit.named("aes128")
        for garbler, evaluator, work, text in [
            ({}, {}, lambda it: it.run(aes, KEY), "the circuit is not the same"),
            ({"scheme": "glnp15"}, {}, None, "scheme"),
            ({"protocol": "gmw"}, {}, None, "protocol"),
            ({"output_to": "garbler"}, {}, None, "output"),
        ]:
            one, other = sessions(garbler=garbler, evaluator=evaluator)
            work = work or (lambda it: it.run(adder(), 1))
            failed = both(lambda: work(one), lambda: other.run(adder(), 2))
            self.assertTrue(any(text in str(it) for it in failed), failed)
            for it in failed:
                self.assertIsInstance(it, compute.Disagreement)
            one.close()
            other.close()
        ends = pair()
        same = [compute.Session(end, "garbler") for end in ends]
        for failed in both(*(lambda it=it: it.run(adder(), 1) for it in same)):
            self.assertIsInstance(failed, compute.Disagreement)

    def test_an_end_and_silence_are_exceptions_of_the_transport(self):
        one, other = pair()
        session = compute.Session(one, "garbler", timeout=0.5)
        with self.assertRaisesRegex(compute.TimedOut, "nothing from the other party for 0.5 s"):
            session.run(adder(), 1)
        other.close()
        one, other = pair()
        session = compute.Session(one, "garbler")
        other.abort()
        with self.assertRaises(compute.Closed) as raised:
            session.run(adder(), 1)
        self.assertIsInstance(raised.exception, transport.Error)
        one, other = pair()
        session = compute.Session(one, "garbler")
        other.write(bytes(1000))
        other.flush()
        with self.assertRaisesRegex(compute.InvalidMessage, "does not speak this protocol"):
            session.run(adder(), 1)

    def test_wrong_arguments_leave_the_connection_open(self):
        one, other = pair()
        with one, other:
            for role, options in [
                ("sender", {}),
                ("garbler", {"protocol": "bmr"}),
                ("garbler", {"scheme": "rot13"}),
                ("garbler", {"transfers": "none"}),
                ("garbler", {"output_to": "all"}),
                ("garbler", {"timeout": 0}),
            ]:
                with self.assertRaisesRegex(ValueError, "choose one of|time limit"):
                    compute.Session(one, role, **options)
            one.send(b"still open")
            one.flush()
            self.assertEqual(other.receive(), b"still open")
            compute.Session(one, "garbler").close()
            with self.assertRaises(transport.Closed):
                one.read()

    def test_another_thread_aborts_a_run(self):
        one, other = sessions()
        started = threading.Event()
        aborting = threading.Thread(target=lambda: (started.wait(), one.abort()))
        aborting.start()
        with self.assertRaisesRegex(compute.Aborted, "this party was stopped"):
            # Nothing of this run is computed by the other party.
            one.run(adder(), 1, progress=lambda *_: started.set())
        aborting.join()
        with self.assertRaisesRegex(compute.Aborted, "it was stopped"):
            other.run(adder(), 1)
        for session in (one, other):
            session.close()
            with self.assertRaises(compute.Closed):
                session.run(adder(), 1)

    def test_a_session_that_is_forgotten_ends(self):
        one, other = sessions()
        del one
        with self.assertRaises(compute.Aborted):
            other.run(adder(), 1)


def start_command(test, folder, arguments):
    """`sunder compute` that listens, and its address and key."""
    sunder = ROOT / "target/debug/sunder"
    if not sunder.exists():
        raise said("target/debug/sunder is not built: only Python was tried with Python")
    key = pathlib.Path(folder, "key")
    if not key.exists():
        subprocess.run([sunder, "key", "new", key], check=True, capture_output=True)
    command = [sunder, "compute", *arguments, "--listen", "127.0.0.1:0", "--identity", key]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder)}
    pipe = subprocess.PIPE
    running = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True
    )
    words = []
    while "--key" not in words:
        line = running.stderr.readline()
        test.assertTrue(line, words)
        words = line.split()
    return running, words[words.index("--connect") + 1], words[words.index("--key") + 1]


# Both parties, one after the other, with the threads of one process. In another program: Ctrl-C is
# for a whole process.
INTERRUPTED = """
import signal
import sunder_compute as compute
import sunder_transport as transport
from test_compute import adder, pair
signal.signal(signal.SIGINT, signal.default_int_handler)
one, other = pair()
print(flush=True)
"""


class Processes(unittest.TestCase):
    def test_an_auction(self):
        source = (EXAMPLES / "auction.py").read_text()
        self.assertLessEqual(len(source.splitlines()), 40)
        auction = [sys.executable, EXAMPLES / "auction.py"]
        for first, second, result in [
            ("700", "650", "the first bidder wins and pays 650"),
            ("17", "4000000000", "the second bidder wins and pays 17"),
        ]:
            command = [*auction, "127.0.0.1:0", first]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as waiting:
                _, address, key, _ = waiting.stdout.readline().split()
                command = [*auction, address, key, second]
                other = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60)
                printed = [other.stdout.strip(), waiting.stdout.read().strip()]
                self.assertEqual(printed, [result, result])
                self.assertEqual((other.returncode, waiting.wait(timeout=60)), (0, 0))

    def test_ctrl_c_ends_what_waits(self):
        for name, call in {
            "session": "compute.Session(one, 'garbler').run(adder(), 1)",
            "psi": "compute.psi(['a'], one, 'sender')",
        }.items():
            with self.subTest(name):
                command, pipe = [sys.executable, "-c", INTERRUPTED + call], subprocess.PIPE
                tests = pathlib.Path(__file__).parent
                with subprocess.Popen(command, cwd=tests, stdout=pipe, stderr=pipe) as it:
                    it.stdout.readline()
                    it.send_signal(signal.SIGINT)
                    _, errors = it.communicate(timeout=60)
                self.assertIn(b"KeyboardInterrupt", errors)

    def test_the_code_of_the_guide_is_that_of_the_examples(self):
        guide = (ROOT / "docs/guides/compute.md").read_text()
        examples = [(EXAMPLES / name).read_text() for name in ("auction.py", "customers.py")]
        blocks = [it.partition("```")[0] for it in guide.split("\n```python\n")[1:]]
        self.assertEqual(len(blocks), 3)
        for block in blocks:
            self.assertTrue(any(block in it for it in examples), block)

    def test_the_other_party_is_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "a.csv").write_text("email\nann@x\n Bob@x \n")
            arguments = ["psi", "a.csv", "--role", "sender", "--normalize", "lower", "--json"]
            running, address, key = start_command(self, folder, arguments)
            with running:
                connection = transport.connect(address, peer=key)
                found = compute.psi(["bob@x", "eve@x"], connection, "receiver", normalize="lower")
                self.assertEqual(found.common, ["bob@x"])
                printed, errors = running.communicate(timeout=60)
                self.assertEqual(json.loads(printed)["common"], ["bob@x"], errors)
            circuit = adder()
            circuit.save(pathlib.Path(folder, "adder.txt"))
            arguments = ["--role", "garbler", "--circuit", "adder.txt", "--input", "05000000"]
            running, address, key = start_command(self, folder, arguments)
            with running:
                connection = transport.connect(address, peer=key)
                with compute.Session(connection, "evaluator") as session:
                    self.assertEqual(session.run(circuit, 600), (605,))
                printed, errors = running.communicate(timeout=60)
                self.assertEqual(printed, "5d020000\n", errors)


if __name__ == "__main__":
    unittest.main()
