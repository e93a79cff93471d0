"""What fails. A wrong argument is a ValueError or TypeError."""


class Error(OSError):
    """The system refused something, or one of the classes below."""


class Unreachable(Error, ConnectionError):
    """The name has no address, or nobody listens there."""


class TimedOut(Error, TimeoutError):
    """The peer did not answer in time. The text names the step."""


class NotAuthenticated(Error):
    """The peer does not have the key that was given, or what arrived was changed on the way."""


class Closed(Error, ConnectionError):
    """The connection has ended before all that was expected arrived, or was closed here."""


class MessageTooLong(Error):
    """A message is longer than the receiver takes."""
