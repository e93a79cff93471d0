"""Tests of private set intersection over several columns, of counts and of sums."""

import json
import pathlib
import tempfile
import unittest
from decimal import Decimal

import sunder_compute as compute
import sunder_transport as transport
from test_compute import start_command
from test_psi import intersect


class Table:
    """Columns by name, as those of pandas."""

    def __init__(self, **columns):
        self.columns = list(columns)
        self.items = columns

    def __getitem__(self, name):
        return self.items[name]


class Columns(unittest.TestCase):
    def test_rows_are_equal_in_all_columns(self):
        ours = Table(
            name=["Ann", "Bob", "a,b", None, "", "a"],
            zip=[12345, 99999, " 7 ", "5", None, "b,7"],
        )
        theirs = [["ann ", "BOB", "a", "A,B"], ["12345", "1", "b,7", "7"]]
        rules = ["lower", "trim"]
        found, other = intersect(ours, theirs, normalize=rules)
        self.assertEqual(found.rows, [0, 2, 5])
        self.assertEqual(found.common, [("Ann", 12345), ("a,b", " 7 "), ("a", "b,7")])
        # A row without any value is none.
        self.assertEqual((found.own_size, found.other_size, found.count), (5, 4, 3))
        self.assertEqual(other.rows, [0, 2, 3])

    def test_the_command_makes_the_same_rows(self):
        with tempfile.TemporaryDirectory() as folder:
            text = 'name,zip\nAnn,12345\n"a,""b""",7\n"two\nlines",8\nBob,\n'
            pathlib.Path(folder, "a.csv").write_text(text)
            arguments = ["psi", "a.csv", "--role", "sender", "--json"]
            arguments += ["--column", "name", "--column", "zip", "--normalize", "trim"]
            running, address, key = start_command(self, folder, arguments)
            with running:
                connection = transport.connect(address, peer=key)
                ours = [["two\nlines", "Bob", 'a,"b"', "Ann"], ["8", "", "7", "1"]]
                found = compute.psi(ours, connection, "receiver", normalize=["trim", "trim"])
                self.assertEqual(found.rows, [0, 1, 2])
                printed, errors = running.communicate(timeout=60)
                self.assertEqual(len(json.loads(printed)["common"]), 3, errors)

    def test_wrong_tables_are_refused(self):
        for wrong in (
            lambda: compute.psi([["a"], ["b"]], None, "sender", normalize=["trim"]),
            lambda: compute.psi([], None, "sender", normalize=[]),
            lambda: compute.psi([["a"], []], None, "sender", normalize=["trim", "trim"]),
        ):
            with self.assertRaises(ValueError):
                wrong()
        with self.assertRaisesRegex(ValueError, "normalize"):
            intersect_one(["a"], normalize=["trim", "upper"], columns=2)


class CountsAndSums(unittest.TestCase):
    def test_only_the_number_of_common_values_is_learnt(self):
        found, other = intersect(["a", "b", "c", "b"], ["b", "c", "d"], count=True)
        for result in (found, other):
            self.assertEqual((result.count, result.common, result.rows), (2, None, None))
        found, other = intersect(["a"], ["a"], count=True, output_to="receiver")
        self.assertEqual((found.count, other.count), (1, None))

    def test_numbers_of_common_values_are_summed(self):
        numbers = [Decimal("1.25"), 3, None, -2, Decimal("0.5")]
        found, other = intersect(
            ["a", "b", "c", "x"],
            ["a", "b", "c", "d", "b"],
            sum="paid",
            senders={"numbers": numbers},
        )
        for result in (found, other):
            # Of a value in several rows, all numbers count.
            self.assertEqual((result.count, result.sum), (3, Decimal("4.75")))
            self.assertEqual((result.common, result.rows), (None, None))

    def test_the_command_sums_the_same_column(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "a.csv").write_text("email,paid\na@x,1.5\nb@x,2\nc@x,9\n")
            arguments = ["psi", "a.csv", "--role", "sender", "--column", "email", "--json"]
            running, address, key = start_command(self, folder, [*arguments, "--sum", "paid"])
            with running:
                connection = transport.connect(address, peer=key)
                found = compute.psi(["b@x", "a@x", "z"], connection, "receiver", sum="paid")
                self.assertEqual((found.count, found.sum), (2, Decimal("3.5")))
                running.communicate(timeout=60)

    def test_what_differs_or_is_wrong_is_refused(self):
        for senders in ({"count": False}, {"count": False, "sum": "paid", "numbers": [1]}):
            for error in intersect(["a"], ["a"], receivers={"count": True}, senders=senders):
                self.assertIsInstance(error, compute.Disagreement)
        options = {"sum": "paid"}
        for error in intersect(
            ["a"], ["a"], receivers={"sum": "due"}, senders={**options, "numbers": [1]}
        ):
            self.assertIsInstance(error, compute.Disagreement)
        for wrong, kind in (
            ({"numbers": [1]}, ValueError),
            ({"sum": "paid"}, ValueError),
            ({"sum": "", "numbers": [1]}, ValueError),
            ({"sum": "paid", "numbers": [1], "count": True}, ValueError),
            ({"sum": "paid", "numbers": [1, 2]}, ValueError),
            ({"sum": "paid", "numbers": [1.5]}, TypeError),
            ({"sum": "paid", "numbers": [Decimal("NaN")]}, TypeError),
            ({"sum": "paid", "numbers": [Decimal("1e-13")]}, ValueError),
        ):
            with self.assertRaises(kind, msg=wrong):
                compute.psi(["a"], None, "sender", **wrong)
        with self.assertRaisesRegex(ValueError, "too large"):
            intersect_one(["a"], sum="paid", numbers=[1 << 43])


def intersect_one(values, columns=1, **options):
    """Has one party raise an exception before anything is sent."""
    with transport.Listener("127.0.0.1:0") as listener:
        connection = transport.connect(listener.address, peer=listener.public_key)
        with connection:
            table = [values] * columns if columns > 1 else values
            compute.psi(table, connection, "sender", **options)
