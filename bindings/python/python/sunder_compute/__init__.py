"""Two parties compute on inputs that they do not show each other.

The parties meet by a connection of `sunder_transport`. Security is semi-honest: it holds if both
parties run this code unchanged.
"""

from sunder_transport import Closed, Error, NotAuthenticated, TimedOut, Unreachable
from sunder_transport._native import Circuit, CircuitBuilder, Integer, Session

from ._errors import Aborted, Disagreement, InvalidMessage
from ._psi import PsiResult, psi

__all__ = [
    "Aborted",
    "Circuit",
    "CircuitBuilder",
    "Closed",
    "Disagreement",
    "Error",
    "Integer",
    "InvalidMessage",
    "NotAuthenticated",
    "PsiResult",
    "Session",
    "TimedOut",
    "Unreachable",
    "psi",
]
