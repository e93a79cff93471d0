"""The exceptions of this package. A wrong argument is a ValueError or TypeError."""


class Error(OSError):
    """The system returned an error; also the base of the classes below."""


class Unreachable(Error, ConnectionError):
    """The name has no address, or no program listens there."""


class TimedOut(Error, TimeoutError):
    """The peer did not answer in time. The text names the step."""


class NotAuthenticated(Error):
    """The peer does not have the given key, or received data was changed on the path."""


class Closed(Error, ConnectionError):
    """The connection ended before all expected data had arrived, or was closed here."""


class MessageTooLong(Error):
    """A message is longer than the receiver accepts."""
