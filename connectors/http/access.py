"""Checks of the sender of a post: pages of other sites, and quotas for tasks and tokens."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

_LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")


class SiteCheck:
    """A check that refuses posts that a browser sends for a page of another site.

    A page can make a browser post to any address, including an address of this machine that requires no
    token. The browser names the site of the page in the headers `Origin` and `Sec-Fetch-Site`. In an attack
    by DNS rebinding, the host name of the foreign page resolves to this machine. Then these headers look like
    those of the agent's own page, and only the header `Host` shows the foreign name.

    Parameters
    ----------
    allowed_hosts : sequence of str
        The names, without ports, that the header `Host` may have.
    loopback : bool
        True if `localhost`, `127.0.0.1` and `[::1]` are allowed too. If `loopback` is False and
        `allowed_hosts` is empty, any `Host` is allowed.

    Examples
    --------
    >>> check = SiteCheck([], loopback=True)
    >>> check.find_fault({"host": "localhost:9108"}), check.find_fault({"host": "evil.example"})[:24]
    (None, "Host: got 'evil.example'")
    """

    def __init__(self, allowed_hosts: Sequence[str], loopback: bool) -> None:
        names = (*(_LOOPBACK_HOSTS if loopback else ()), *(host.lower() for host in allowed_hosts))
        self._names, self._allowed = frozenset(names), " or ".join(names)

    def find_fault(self, headers: Mapping[str, str]) -> str | None:
        """Return the reason to refuse a request with these headers, or None if the request is allowed.

        Parameters
        ----------
        headers : mapping of str to str
            The headers, with names in lower case.
        """
        host = headers.get("host", "").lower()
        name, _, port = host.rpartition(":")
        if self._names and (name if name and port.isdecimal() else host) not in self._names:
            return (
                f"Host: got {host[:60]!r}, expected {self._allowed}, with any port; address this source so, "
                "or name the host in its allowed_hosts"
            )
        if "cross-site" in headers.get("sec-fetch-site", "").lower():
            got = headers["sec-fetch-site"]
            return (
                f"Sec-Fetch-Site: got {got[:60]!r}, expected same-origin, none or no such header: the page "
                "of another site may not write; post from a program"
            )
        origin = headers.get("origin")
        if origin is not None and (not host or origin.lower().partition("://")[2] != host):
            return (
                f"Origin: got {origin[:60]!r}, expected http://{host[:60]}, https://{host[:60]} or no such "
                "header: a page of another origin may not write; post from a program"
            )
        return None


class Quota:
    """A limit on the average number of rows per period, counted separately for each task or token.

    The limit is a leaky bucket: accepted rows fill it, and `rows` leak out in each period. A post is accepted
    if the bucket holds at most `rows` rows before the post. Therefore a single post may have more rows than
    the limit. Then further posts are refused until enough rows have leaked out.

    Parameters
    ----------
    rows : int or None
        The limit for one period; None for no limit.
    seconds : float, default 1.0
        The length of the period.
    clock : callable
        A monotonic clock: a function that returns seconds and never goes back.

    Examples
    --------
    >>> now = 0.0
    >>> quota = Quota(100, clock=lambda: now)
    >>> quota.take({"spam": 250}), quota.take({"spam": 1}), quota.take({"ham": 1})
    (0.0, 1.5, 0.0)
    """

    def __init__(
        self, rows: int | None, seconds: float = 1.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.rows, self._seconds = rows, seconds
        self._clock = clock
        self._free_at: dict[str, float] = {}

    def take(self, rows: Mapping[str, int]) -> float:
        """Count rows against the limits of their tasks. If a limit is exceeded, count none of the rows.

        Parameters
        ----------
        rows : mapping of str to int
            The number of rows by task or token.

        Returns
        -------
        float
            0.0 if the rows were counted, or the seconds after which the same call may succeed.
        """
        wait = self.waiting_seconds(rows)
        if wait == 0.0 and self.rows is not None:
            now = self._clock()
            for task, count in rows.items():
                owed_until = max(self._free_at.get(task, now), now)
                self._free_at[task] = owed_until + self._seconds * count / self.rows
        return wait

    def waiting_seconds(self, tasks: Iterable[str]) -> float:
        """Return the seconds until `take` accepts rows of all these tasks or tokens; 0.0 if it does now."""
        # The rows of one period may arrive together, but unused time does not add up beyond that.
        latest = max((self._free_at.get(task, -math.inf) for task in tasks), default=-math.inf)
        return max(latest - self._clock() - self._seconds, 0.0)
