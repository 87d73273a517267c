"""Checks of a source's connection: whether brokers answer, topics exist and partitions deliver records."""

from __future__ import annotations

import logging
import time

from connectors.kafka.drivers.base import Driver, partition_of
from connectors.kafka.drivers.connection import why_away
from connectors.kafka.source.membership import Membership
from connectors.kafka.source.pace import CheckSchedule
from connectors.kafka.source.stalls import Stall, StallWatch
from monitor.config.root import KafkaSourceConfig as KafkaSettings

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
"""The shortest time between two checks of the lag and of missing topics, in seconds."""

ASK_SECONDS = 1.0
"""The time limit of a request for the ends of logs, in seconds; the source reads nothing meanwhile."""

SILENT_SECONDS = 10.0
"""The time after which connected brokers that do not answer requests count as silent, in seconds."""

SILENT = "the brokers are connected, and have not answered since they were asked"

REMEDY = "create it again, or take it out of `topics`"

QUERIES_PER_STALL = 6
"""The number of requests within `stall_seconds` for the ends of partitions that do not move."""


class Health:
    """The state of a source's connection to Kafka, as of the last check.

    The reading thread updates the state, and any thread may read it.

    Attributes
    ----------
    up : bool
        True if the source reads all its partitions: the group has assigned partitions, each of them has its
        position, the brokers that lead them are connected, no partition is stuck, and no topic was deleted.
        Once `up` is True, the source skips no record.
    lag : int or None
        The number of records after the positions of the assigned partitions; None if unknown.
    connected_at : float
        The last time at which the brokers that lead the partitions were connected, in seconds of the
        monotonic clock.
    trouble : str or None
        The reason why the source is not up, if a topic was deleted, a partition is stuck, or the brokers do
        not answer; otherwise None.
    """

    def __init__(self, settings: KafkaSettings) -> None:
        self._settings = settings
        self._connected = False
        self._logged_away = False
        self._missing_topics: set[str] = set()
        self._logged_missing: set[str] = set()
        self._deleted_topics: set[str] = set()
        self._schedule = CheckSchedule(CHECK_SECONDS)
        self._next_query = 0.0
        self._queried_ends: dict[str, int] = {}
        self._watch = StallWatch(settings.stall_seconds)
        self._stuck_partitions: dict[str, Stall] = {}
        self._silent_since: float | None = None  # monotonic time of the first request without an answer
        self.up = False
        self.connected_at = time.monotonic()
        self.lag: int | None = None
        self.trouble: str | None = None

    def observe(self, driver: Driver, membership: Membership, reading: float) -> list[Stall]:
        """Check the connection.

        Once a second, also check the lag, the topics, and whether partitions are stuck.

        Parameters
        ----------
        driver : Driver
        membership : Membership
        reading : float
            The time spent reading so far, in seconds.

        Returns
        -------
        list of Stall
            The partitions that are stuck.
        """
        assigned, connected = driver.assignment(), driver.is_connected()
        if connected:
            self.connected_at = time.monotonic()
        missing = {topic for topic in self._settings.topics if not driver.partitions_of(topic)}
        self._note_deleted(membership.deleted)
        is_ready = membership.is_settled and connected and not (missing and not assigned)
        self._update_up(is_ready, connected, assigned)
        if not self._schedule.is_due:
            return []
        with self._schedule.run():
            stalls = self._check_lag(driver, assigned, reading) if membership.is_settled else []
        if (missing or self._deleted_topics) and connected:
            driver.refresh()
            self._log_missing(missing - membership.absent)
        self._missing_topics = missing
        return stalls

    def set_away(self) -> None:
        """Record that no broker answers: set `up` to False, and log this once."""
        self.up = False
        if self._logged_away:
            return
        self._logged_away = True
        log.warning(
            "source %s: no Kafka broker answers (%s); trying again until one does",
            self._settings.label,
            why_away(self._settings.brokers, self._settings.options),
        )

    def reset(self) -> None:
        """Set the state to not connected.

        Call this after the consumer was closed, before a new one replaces it.
        """
        self.up, self.lag, self._silent_since = False, None, None
        self._watch.forget()

    def _update_up(self, is_ready: bool, connected: bool, assigned: set[str]) -> None:
        up = is_ready and not (self._stuck_partitions or self._deleted_topics or self._are_silent())
        if up and not self.up:
            self._logged_away = False
            log.info("source %s: reads %d partitions", self._settings.label, len(assigned))
        if self.up and not up and not connected:
            self.set_away()
        self._connected, self.up = connected, up

    def _check_lag(self, driver: Driver, assigned: set[str], reading: float) -> list[Stall]:
        positions = {name: at for name in assigned if (at := driver.position(name)) is not None}
        ends = {name: end for name in assigned if (end := driver.highwater(name)) is not None}
        queried = self._connected and reading >= self._next_query
        if queried:
            self._next_query = reading + self._settings.stall_seconds / QUERIES_PER_STALL
            unmoved = [n for n, at in positions.items() if n not in ends or self._watch.has_not_moved(n, at)]
            unmoved = [n for n in unmoved if partition_of(n).topic not in self._deleted_topics]
            answer = _ends(driver, unmoved)
            self._note_answer(answer is not None)
            self._queried_ends, queried = answer or {}, answer is not None
        # Highwaters arrive with fetched records. If the fetches are stuck, only a request reports the end.
        ends = {
            name: max(ends.get(name, 0), self._queried_ends.get(name, 0))
            for name in ends | self._queried_ends
        }
        known = {name: (at, ends[name]) for name, at in positions.items() if name in ends}
        whole = bool(assigned) and len(known) == len(assigned)
        self.lag = sum(max(end - at, 0) for at, end in known.values()) if whole else None
        self._release(positions)
        # Records of an open transaction count as lag, but cannot be delivered yet. The queried ends do not
        # include such records. Without an answer, nothing is known about stalls.
        readable = {name: (at, self._queried_ends.get(name, end)) for name, (at, end) in known.items()}
        return self._find_stalls(reading, readable) if queried else []

    def _note_answer(self, answered: bool) -> None:
        """Record whether the brokers have reported the ends of logs; without an answer, ask at each check."""
        if answered:
            if self._are_silent():
                log.info("source %s: the brokers answer again", self._settings.label)
            self._silent_since = None
            self._update_trouble()
            return
        self._next_query = 0.0
        if self._silent_since is None:
            self._silent_since = time.monotonic()
        if self._are_silent() and self.up:
            self.up = False
            self._update_trouble()
            log.warning("source %s: %s", self._settings.label, SILENT)

    def _are_silent(self) -> bool:
        since = self._silent_since
        return since is not None and time.monotonic() - since >= SILENT_SECONDS

    def _find_stalls(self, reading: float, known: dict[str, tuple[int, int]]) -> list[Stall]:
        stalls = self._watch.find_stalls(reading, known)
        for stall in stalls:
            self._stuck_partitions[stall.name] = stall
            self.up = False
            why = self._describe(stall)
            log.error("source %s: %s; the agent replaces its consumer", self._settings.label, why)
        self._update_trouble()
        return stalls

    def _describe(self, stall: Stall) -> str:
        return (
            f"{stall.name} has delivered nothing for {self._settings.stall_seconds:g} s, from position "
            f"{stall.position} on, while its lag grew to {stall.lag} records"
        )

    def _update_trouble(self) -> None:
        """Set `trouble` to the first reason: a deleted topic, then silent brokers, then a stuck partition."""
        reasons = [f"topic {topic} was deleted; {REMEDY}" for topic in sorted(self._deleted_topics)]
        if self._are_silent():
            reasons.append(SILENT)
        reasons += map(self._describe, self._stuck_partitions.values())
        self.trouble = reasons[0] if reasons else None

    def _note_deleted(self, deleted: set[str]) -> None:
        before, self._deleted_topics = self._deleted_topics, deleted
        if deleted == before:
            return
        self._update_trouble()
        for topic in sorted(deleted - before):
            log.error("source %s: topic %s was deleted; %s", self._settings.label, topic, REMEDY)
        for topic in sorted(before - deleted):
            log.info("source %s: topic %s is there again", self._settings.label, topic)

    def _release(self, positions: dict[str, int]) -> None:
        """Remove partitions from the stuck ones if they move again, or if they are no longer assigned."""
        for stall in [s for s in self._stuck_partitions.values() if positions.get(s.name) != s.position]:
            del self._stuck_partitions[stall.name]
            log.info("source %s: %s is not stuck any more", self._settings.label, stall.name)
        self._update_trouble()

    def _log_missing(self, missing: set[str]) -> None:
        # Only topics that are missing at two checks: at the first, the brokers may not have answered yet.
        for topic in sorted((missing & self._missing_topics) - self._logged_missing):
            self._logged_missing.add(topic)
            log.warning("source %s: topic %s does not exist yet; waiting for it", self._settings.label, topic)


def _ends(driver: Driver, names: list[str]) -> dict[str, int] | None:
    """Return the ends of these partitions' logs, or None if the brokers did not report all ends in time."""
    ends = driver.ends(names, "latest", ASK_SECONDS) if names else {}
    return ends if len(ends) == len(names) else None
