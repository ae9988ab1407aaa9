"""What can go wrong, by what can be done about it."""


class Error(RuntimeError):
    """Any error of thinwire."""


class BadArgument(Error, ValueError):
    """A method, parameter, array or setting that can't be used; the message says what would be right."""


class StepSkipped(Error):
    """A step could not be taken: the gradient of a rank, which the message names, holds a NaN, say. Everything is kept
    as it was, on all ranks together, and the next step may follow."""


class RanksDisagree(Error):
    """Ranks were told different things, are at different steps, or hold different values; the message has both."""


class GroupLost(Error):
    """A rank died, did not answer in time, or gave up; the message names it. The group can't be used any more."""


class BadState(Error, ValueError):
    """A saved state that does not fit; the message names the entry."""


class BadFrame(Error, ValueError):
    """Bytes that are not a whole frame, or not one for this array."""
