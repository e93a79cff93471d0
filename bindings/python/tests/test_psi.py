"""Tests of private set intersection of sunder_compute."""

import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

import sunder_compute as compute
from test_compute import EXAMPLES, both, pair, said


class Column:
    """A column of a data frame, with what those of pandas have."""

    def __init__(self, items):
        self.items = items

    def tolist(self):
        return self.items

    def isna(self):
        return [it is None or it != it for it in self.items]


class ArrowColumn:
    def __init__(self, items):
        self.items = items

    def to_pylist(self):
        return self.items


def intersect(receiver, sender, receivers=None, senders=None, **options):
    """What both parties find."""
    one, other = pair()
    return both(
        lambda: compute.psi(receiver, one, "receiver", **options, **(receivers or {})),
        lambda: compute.psi(sender, other, "sender", **options, **(senders or {})),
    )


class Intersections(unittest.TestCase):
    def test_columns_of_two_data_frames(self):
        emails = ["ann@example.com", None, " Bob@Example.com", "eve@example.com", "BOB@example.com"]
        others = ["zoe@example.com", "bob@example.com", float("nan"), "ann@example.com", ""]
        for kind in (list, iter, tuple, Column, ArrowColumn):
            found, theirs = intersect(kind(emails), kind(others), normalize="email")
            self.assertEqual(found.rows, [0, 2, 4], kind)
            common = ["ann@example.com", " Bob@Example.com", "BOB@example.com"]
            self.assertEqual(found.common, common)
            self.assertEqual((found.own_size, found.other_size), (3, 3))
            self.assertEqual((theirs.rows, theirs.common), ([1, 3], [others[1], others[3]]))

    def test_data_frames_of_pandas(self):
        try:
            import pandas
        except ImportError:
            raise said("pandas is not installed: only columns that are like its own were tried")
        ours = pandas.DataFrame({"id": [1, 2, 3], "email": ["a@x", None, "b@x"]})
        theirs = pandas.DataFrame({"email": ["b@x", "c@x", "a@x"], "number": [5, 3, 9]})
        found, others = intersect(ours["email"], theirs["email"])
        self.assertEqual(ours.iloc[found.rows]["id"].tolist(), [1, 3])
        self.assertEqual(theirs.iloc[others.rows]["email"].tolist(), ["b@x", "a@x"])
        found, _ = intersect(ours["id"], theirs["number"].astype("Int64"))
        self.assertEqual(found.common, [3])
        with self.assertRaisesRegex(TypeError, "table\\['email'\\]"):
            compute.psi(ours, None, "sender")
        with self.assertRaisesRegex(TypeError, "float"):
            compute.psi(pandas.Series([1, None]), None, "sender")
        with tempfile.TemporaryDirectory() as folder:
            files = [pathlib.Path(folder, name) for name in ("a.csv", "b.csv")]
            for file, table in zip(files, (ours, theirs)):
                table.to_csv(file, index=False)
            server = [sys.executable, EXAMPLES / "customers.py", files[0], "127.0.0.1:0"]
            with subprocess.Popen(server, stdout=subprocess.PIPE, text=True) as server:
                _, _, *address = server.stdout.readline().split()
                client = [sys.executable, EXAMPLES / "customers.py", files[1], *address]
                printed = subprocess.run(client, stdout=subprocess.PIPE, text=True, timeout=60)
                rows = [str(theirs.iloc[[0, 2]]), str(ours.iloc[[0, 2]])]
                self.assertEqual([printed.stdout.rstrip(), server.stdout.read().rstrip()], rows)

    def test_columns_of_arrow(self):
        try:
            import pyarrow
        except ImportError:
            raise said("pyarrow is not installed: only columns that are like its own were tried")
        found, _ = intersect(pyarrow.array(["a", None, "b"]), pyarrow.chunked_array([["b"], ["c"]]))
        self.assertEqual(found.rows, [2])

    def test_bytes_numbers_and_sets(self):
        found, theirs = intersect([b"17", 18, "19"], {"17", 18, b"x"})
        self.assertEqual(found.common, [b"17", 18])
        self.assertEqual(set(theirs.common), {"17", 18})
        found, _ = intersect([b"\xff", " a", "b "], [b"\xff", "a", "b "], normalize="exact")
        self.assertEqual(found.common, [b"\xff", "b "])
        for wrong, error in [
            ("text", TypeError),
            ([1.5], TypeError),
            ([True], TypeError),
            ([("a", "b")], TypeError),
            ([b"\xff"], ValueError),
            (["\ud800"], (TypeError, ValueError)),
        ]:
            with pair()[0] as connection, self.assertRaises(error, msg=wrong):
                compute.psi(wrong, connection, "sender")
        self.assertEqual([it.rows for it in intersect([], ["a"])], [[], []])

    def test_common_values_are_those_of_sets(self):
        seeded = random.Random(5)
        for _ in range(10):
            count = lambda: seeded.randrange(300)
            ours, theirs = ([str(seeded.randrange(500)) for _ in range(count())] for _ in "ab")
            found, others = intersect(ours, theirs)
            common = set(ours) & set(theirs)
            self.assertEqual((set(found.common), set(others.common)), (common, common))
            self.assertEqual(found.rows, [i for i, it in enumerate(ours) if it in common])
            self.assertEqual(others.other_size, len(set(ours)))

    def test_the_result_and_the_size_can_be_hidden(self):
        found, theirs = intersect(["a", "b"], ["b"], senders={"rows": 50}, output_to="receiver")
        self.assertEqual((found.common, found.other_size), (["b"], 50))
        self.assertEqual((theirs.common, theirs.rows, theirs.other_size), (None, None, 2))

    def test_guesses_of_one_run_are_limited(self):
        found, theirs = intersect(["a"], ["a", "b"], {"max_guesses": 2}, {"max_guesses": 512})
        self.assertEqual((found.common, theirs.common), (["a"], ["a"]))
        _, refused = intersect(["a"], ["a"], senders={"max_guesses": 511})
        self.assertIsInstance(refused, compute.Disagreement)
        self.assertIn("could ask with 512 values in this run, and 511 are", str(refused))

    def test_what_differs_is_named_at_both_parties(self):
        for receivers, senders, text in [
            ({"normalize": "lower"}, {}, "how values are compared"),
            ({"output_to": "receiver"}, {}, "who learns the result"),
        ]:
            for failed in intersect(["a"], ["a"], receivers, senders):
                self.assertIsInstance(failed, compute.Disagreement)
                self.assertIn(text, str(failed))
        one, other = pair()
        roles = [lambda it=it: compute.psi(["a"], it, "sender") for it in (one, other)]
        for failed in both(*roles):
            self.assertIsInstance(failed, compute.Disagreement)
        with pair()[0] as connection, self.assertRaisesRegex(ValueError, "at most 1 are"):
            compute.psi(["a", "b"], connection, "sender", rows=1)

    def test_progress_and_exceptions_in_it(self):
        seen = []
        intersect(range(1000), range(1000), {"progress": lambda *it: seen.append(it)})
        done, of = seen[-1]
        self.assertTrue(0 < of == done, seen)
        one, other = pair()
        with self.assertRaisesRegex(compute.TimedOut, "nothing from the other party"):
            compute.psi(["a"], one, "receiver", timeout=0.5)
        other.close()


if __name__ == "__main__":
    unittest.main()
