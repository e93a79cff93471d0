"""Writes pairs of CSV files, a0.csv and b0.csv and so on, with the faults of real ones.

Prints as JSON what the column `key` of each a and the only column of each b have in common.
"""

import csv
import json
import random
import sys


def value(number, rng):
    kind = number % 7
    if kind == 0:
        return f"plain{number}"
    if kind == 1:
        return f'with "quotes" and, commas {number}'
    if kind == 2:
        return f"two\nlines {number}"
    if kind == 3:
        return f"Grüße 値 \U0001f511 {number}"
    if kind == 4:
        return f"long {number} " + "x" * 3000
    if kind == 5:
        return f"{number}"
    return f"'{number}'\ttab"


def write(path, header, rows, rng):
    ending = rng.choice(["\n", "\r\n"])
    with open(path, "w", newline="", encoding=rng.choice(["utf-8", "utf-8-sig"])) as file:
        quoting = rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
        writer = csv.writer(file, lineterminator=ending, quoting=quoting)
        writer.writerow(header)
        writer.writerows(rows)


def keys(path, column):
    with open(path, newline="", encoding="utf-8-sig") as file:
        found = {row[column].strip() for row in list(csv.reader(file))[1:]}
    return found - {""}


def main():
    expected = []
    for pair in range(int(sys.argv[1])):
        rng = random.Random(pair)
        sizes = rng.choice([(1, 900), (700, 2), (300, 300), (0, 50), (60, 60)])
        numbers = [[rng.randrange(400) for _ in range(size)] for size in sizes]
        spaced = lambda text: rng.choice(["", " "]) + text + rng.choice(["", "  "])
        a = [[str(i), spaced(value(n, rng)), "x"] for i, n in enumerate(numbers[0])]
        b = [[spaced(value(n, rng))] for n in numbers[1]]
        a += [["", "", ""]] * rng.randrange(3)
        b += [[" "]] * rng.randrange(3)
        write(f"a{pair}.csv", ["id", "key", "rest"], a, rng)
        write(f"b{pair}.csv", ["value"], b, rng)
        common = keys(f"a{pair}.csv", 1) & keys(f"b{pair}.csv", 0)
        expected.append(sorted(common, key=lambda text: text.encode()))
    print(json.dumps(expected))


main()
