"""Who may write what, and how much of it: no page of another site, a quota a task, and one a token."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

_LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")


class SiteCheck:
    """Finds the posts that a page in a browser makes to a host that is not its own.

    Such a page may post to any address, also to this machine's, where no token is asked for. Its browser
    tells it in `Origin` and `Sec-Fetch-Site`. Where the page's own name is made to lead to this machine (DNS
    rebinding), only `Host` tells: it is the page's, not one of ours.

    Parameters
    ----------
    allowed_hosts : sequence of str
        Names without ports that `Host` may have.
    loopback : bool
        Whether the names of this machine may be used too. If neither: `Host` may be any.

    Examples
    --------
    >>> check = SiteCheck([], loopback=True)
    >>> check.fault({"host": "localhost:9108"}), check.fault({"host": "evil.example"})[:24]
    (None, "Host: got 'evil.example'")
    """

    def __init__(self, allowed_hosts: Sequence[str], loopback: bool) -> None:
        names = (*(_LOOPBACK_HOSTS if loopback else ()), *(host.lower() for host in allowed_hosts))
        self._names, self._allowed = frozenset(names), " or ".join(names)

    def fault(self, headers: Mapping[str, str]) -> str | None:
        """The sentence that refuses a request; None where nothing is wrong with it."""
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
    """Rows a time of each task or token, on the average: after a large post it must wait until that is paid.

    Any post fits while less than that is owed: one of more rows than the limit is not refused for ever.

    Parameters
    ----------
    rows : int or None
        No limit where None.
    seconds : float
        In which so many rows may come.
    clock : callable
        Seconds that never go back.

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
        """Take room for rows by task, all or none: 0.0, or the seconds to wait before it may be had."""
        wait = self.wait(rows)
        if wait == 0.0 and self.rows is not None:
            now = self._clock()
            for task, count in rows.items():
                owed_until = max(self._free_at.get(task, now), now)
                self._free_at[task] = owed_until + self._seconds * count / self.rows
        return wait

    def wait(self, tasks: Iterable[str]) -> float:
        """The seconds before `take` gives room to all of these; 0.0 where it does at once."""
        # A period's rows may come at once; what is not used does not add up beyond that.
        latest = max((self._free_at.get(task, -math.inf) for task in tasks), default=-math.inf)
        return max(latest - self._clock() - self._seconds, 0.0)
