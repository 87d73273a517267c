"""The exceptions of Blindsight.

    BlindsightError
    ├── ConfigError        the configuration, or a file that it names, cannot be used   (exit code 2)
    ├── MissingExtraError  an optional package is needed; the message holds the pip line (exit code 2)
    ├── SourceError        a feed cannot be opened or read                               (exit code 1 or 2)
    ├── SinkError          a report or picture cannot be written                         (exit code 1 or 2)
    ├── StoreError         the durable state cannot be opened, read or written           (exit code 1 or 2)
    │   ├── StoreAwayError      the store's database cannot be reached at present
    │   ├── CommitUnknownError  the connection broke while a checkpoint was committed
    │   └── LeaseLostError      another agent has taken over                              (exit code 1)
    ├── InUseError         another process uses a port or folder, and may release it     (exit code 1)
    ├── ClusterError       Spark or a worker process could not start, or failed          (exit code 1)
    └── RequestError       a request to the agent was refused, or not answered           (exit code 1)

Code that calls another library converts the library's errors to one of these exceptions and keeps the cause.
The message is one sentence with the problem and the remedy. Commands print it without a traceback.
"""

from __future__ import annotations


class BlindsightError(Exception):
    """The base class of all errors that a user can correct. Commands print the message unchanged."""


class ConfigError(BlindsightError):
    """The configuration, or a file that it names, cannot be used.

    The error is raised before the agent starts.
    """


class MissingExtraError(BlindsightError):
    """An optional package is not installed.

    Parameters
    ----------
    what : str
        The feature that needs the package, as the subject of a sentence.
    extra : str
        The extra of the distribution that installs the package.

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
    """The store's database cannot be reached at present. Waiting may help."""


class CommitUnknownError(StoreAwayError):
    """The connection broke while a checkpoint was committed. It is not known whether the commit succeeded.

    The checkpoint can be committed again: if the first commit succeeded, the second commit writes nothing.
    """


class LeaseLostError(StoreError):
    """Another agent holds the lease on the state. This agent can no longer write."""


class InUseError(SourceError, SinkError, StoreError):
    """Another process uses the port or the folder that the configuration names.

    A later start may succeed without a change of the configuration. Therefore systemd restarts the agent
    after exit code 1.
    """


class ClusterError(BlindsightError):
    """A worker process or the Spark cluster could not start, or failed."""


class RequestError(BlindsightError):
    """The agent refused the request of a command, or could not be reached."""
