"""Who may write what, and how much of it: no page of another site, and a quota a task."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

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
    """Rows a second of each task, on the average: after a large post a task must wait until it is paid off.

    Any post fits once nothing is owed, so that a body larger than a second's rows is not refused for ever.

    Parameters
    ----------
    rows_per_second : int or None
        No limit where None.
    clock : callable
        Seconds that never go back.

    Examples
    --------
    >>> now = 0.0
    >>> quota = Quota(100, lambda: now)
    >>> quota.take({"spam": 250}), quota.take({"spam": 1}), quota.take({"ham": 1})
    (0.0, 1.5, 0.0)
    """

    def __init__(self, rows_per_second: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rows_per_second
        self._clock = clock
        self._free_at: dict[str, float] = {}

    def take(self, rows: Mapping[str, int]) -> float:
        """Take room for rows by task, all or none: 0.0, or the seconds to wait before it may be had."""
        if self._rate is None:
            return 0.0
        now = self._clock()
        # A second's rows may come at once; what is not used does not add up beyond that.
        waits = [self._free_at.get(task, -math.inf) - now - 1.0 for task in rows]
        wait = max(waits, default=0.0)
        if wait > 0:
            return wait
        for task, count in rows.items():
            self._free_at[task] = max(self._free_at.get(task, now), now) + count / self._rate
        return 0.0
