"""Solves full-rate programs (IV-D) with scipy's linprog, every column written down.

A line in: the objective, kappa, mu, then risk, loss, delay and use of each channel. A line out: the
time of the solver alone in milliseconds, and the value. See programs.rs.
"""

import sys
import time
from itertools import combinations

import numpy
from scipy.optimize import linprog


def tail(k, draws):
    """The probability that at least k of the draws succeed."""
    count = numpy.zeros(len(draws) + 1)
    count[0] = 1
    for hit in draws:
        count[1:] = count[1:] * (1 - hit) + count[:-1] * hit
        count[0] *= 1 - hit
    return count[k:].sum()


def delay(k, channels):
    """The expected time until the kth share arrives, if it does."""
    delivered = weighted = 0.0
    count = numpy.zeros(len(channels) + 1)
    count[0] = 1
    for _, loss, ms, _ in sorted(channels, key=lambda channel: channel[2]):
        last = count[k - 1] * (1 - loss)
        delivered += last
        weighted += last * ms
        count[1:] = count[1:] * loss + count[:-1] * (1 - loss)
        count[0] *= loss
    return weighted / delivered


def cost(objective, k, channels):
    if objective == "risk":
        return tail(k, [channel[0] for channel in channels])
    if objective == "loss":
        return tail(len(channels) - k + 1, [channel[1] for channel in channels])
    return delay(k, channels)


def solve(objective, kappa, channels):
    n = len(channels)
    chosen = [
        (k, subset)
        for m in range(1, n + 1)
        for subset in combinations(range(n), m)
        for k in range(1, m + 1)
    ]
    costs = [cost(objective, k, [channels[i] for i in subset]) for k, subset in chosen]
    rows = numpy.zeros((n + 2, len(chosen)))
    rows[0] = 1
    for column, (k, subset) in enumerate(chosen):
        rows[1, column] = k
        rows[[2 + i for i in subset], column] = 1
    right = [1, kappa] + [channel[3] for channel in channels]
    start = time.perf_counter()
    result = linprog(costs, A_eq=rows, b_eq=right, method="highs")
    return (time.perf_counter() - start) * 1e3, result.fun


print("ready", flush=True)
for line in sys.stdin:
    objective, kappa, _, *numbers = line.split()
    numbers = [float(number) for number in numbers]
    channels = [tuple(numbers[i : i + 4]) for i in range(0, len(numbers), 4)]
    print(*solve(objective, float(kappa), channels), flush=True)
