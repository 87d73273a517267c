"""Everything that Blindsight raises on purpose.

    BlindsightError
    ├── ConfigError        the configuration, or a file that it names, cannot be used   (exit code 2)
    ├── MissingExtraError  an optional package is needed; the message holds the pip line (exit code 2)
    ├── SourceError        a feed cannot be opened or read                               (exit code 1 or 2)
    ├── SinkError          a report or picture cannot be written                         (exit code 1 or 2)
    ├── StoreError         the durable state cannot be opened, read or written           (exit code 1 or 2)
    │   ├── StoreAwayError      its database cannot be reached at present
    │   ├── CommitUnknownError  the connection broke while a checkpoint was committed
    │   └── LeaseLostError      another agent has taken over                              (exit code 1)
    ├── InUseError         another process has a port or folder, and may let it go       (exit code 1)
    ├── ClusterError       Spark, or a process of a replay, cannot be had or gave up      (exit code 1)
    └── RequestError       a request to the agent was refused, or not answered           (exit code 1)

Foreign errors become one of these where they enter (a connector, a file), with the cause kept. The
message is one sentence that says what to do; the command line prints it without a traceback.
"""

from __future__ import annotations


class BlindsightError(Exception):
    """Base of all errors that a user can correct; commands print its text unchanged."""


class ConfigError(BlindsightError):
    """The configuration, or a file that it names, cannot be used. Raised before anything starts."""


class MissingExtraError(BlindsightError):
    """An optional package is not installed.

    Parameters
    ----------
    what : str
        What needs it, as the subject of a sentence.
    extra : str
        The extra of the distribution that brings it.

    Examples
    --------
    >>> print(MissingExtraError("Reading Parquet files", "files"))
    Reading Parquet files needs an optional package: pip install 'blindsight[files]' (from a checkout: pip install '.[files]')
    """  # noqa: E501 - the line is the thing shown

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(
            f"{what} needs an optional package: pip install 'blindsight[{extra}]' "
            f"(from a checkout: pip install '.[{extra}]')"
        )


class SourceError(BlindsightError):
    """A feed cannot be opened or read."""


class SinkError(BlindsightError):
    """A report or a picture cannot be written."""


class StoreError(BlindsightError):
    """The durable state cannot be opened, read or written."""


class StoreAwayError(StoreError):
    """The store's database cannot be reached at present: to wait can help."""


class CommitUnknownError(StoreAwayError):
    """The connection broke while a checkpoint was committed: only the database knows whether it counts.

    To commit the very same once more finds out, and writes it where it does not.
    """


class LeaseLostError(StoreError):
    """Another agent has the lease on the state: this one can write nothing any more."""


class InUseError(SourceError, SinkError, StoreError):
    """Another process has the port or the folder that the configuration names.

    To start again later can help, as it cannot with a wrong configuration: systemd does so (exit code 1).
    """


class ClusterError(BlindsightError):
    """What computes elsewhere, on Spark or in another process, cannot be had or gave up."""


class RequestError(BlindsightError):
    """What a command asked of the agent was refused, or could not be asked."""
