"""The exceptions of this package. A wrong argument is a ValueError or TypeError.

All are derived from `sunder_transport.Error`. A connection that fails raises the exceptions of
`sunder_transport`, such as `Closed` and `TimedOut`.
"""

from sunder_transport import Error


class Disagreement(Error):
    """The parties do not compute the same, or one asks for more than the other allows: the text
    says what."""


class InvalidMessage(Error):
    """The other party has sent something that is not of the protocol, or is not proven."""


class Aborted(Error):
    """The other party has given up, for the reason in the text, or this session was stopped."""
