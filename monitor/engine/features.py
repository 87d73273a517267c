"""Counts the features of a model's windows, and detects faults of features that make estimates untrusted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from monitor.base.records import FeatureKind, Floats, Ints
from monitor.config.task import Task, windows_per_day
from monitor.reports.features import BrokenFeature, FeatureCounts
from monitor.stats.features.health import (
    ASSUMED_WINDOWS_PER_DAY,
    FeatureNorm,
    Rate,
    constant_features,
    health_level,
    window_faults,
)
from monitor.stats.features.tables import WIDTH, FeatureTable, count_features

_SAMPLED = 400  # values of each feature kept from the first windows; with 8 bytes each, 3.2 kB
_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class FeatureBaseline:
    """The features of a baseline's rows: for each feature, counts of its values and rates of its faults.

    The features of later windows are compared with them.
    """

    tables: tuple[FeatureTable, ...]
    norms: tuple[FeatureNorm, ...]

    @property
    def counts(self) -> Ints:
        """The counts of each feature's table, (F, WIDTH) int64."""
        return np.stack([table.counts for table in self.tables])

    @classmethod
    def from_rows(
        cls, kinds: Mapping[str, FeatureKind], features: Floats, window_rows: int, step: int = 1
    ) -> FeatureBaseline:
        """Return the tables and rates of rows (N, F), which must be in order of time.

        The parameters are those of `FeatureNorm.from_values`.
        """
        columns = list(zip(kinds.values(), features.T, strict=True))
        return cls(
            tuple(FeatureTable.from_values(kind, column) for kind, column in columns),
            tuple(FeatureNorm.from_values(kind, column, window_rows, step) for kind, column in columns),
        )


class FirstRows(msgspec.Struct, frozen=True):
    """A sample of the rows of the stream's first windows, in order of time.

    Parameters
    ----------
    windows, rows : int
        The numbers of these windows and of their rows.
    missing : tuple of int
        The number of rows that lack each feature.
    worst : tuple of float
        For each feature, the largest share of a window's rows that lack the feature.
    sample : (m, F) float64 or None
        The evenly spaced rows of each window.
    """

    windows: int = 0
    rows: int = 0
    missing: tuple[int, ...] = ()
    worst: tuple[float, ...] = ()
    sample: Floats | None = None

    def plus(self, features: Floats, windows: int) -> FirstRows:
        """Return the sample with the rows of one more window.

        `windows` is the number of windows that the complete sample will have.
        """
        n, width = features.shape
        most = max(1, _SAMPLED // windows)
        places = np.arange(n) if n <= most else (np.arange(most) * n) // most
        missing = np.isnan(features).sum(axis=0)
        worst = np.maximum(missing / n, self.worst or np.zeros(width))
        some = features[places]
        return FirstRows(
            self.windows + 1,
            self.rows + n,
            tuple((missing + np.array(self.missing or [0] * width)).tolist()),
            tuple(worst.tolist()),
            some.copy() if self.sample is None else np.concatenate([self.sample, some]),
        )

    def bins(self, kinds: Mapping[str, FeatureKind], window_rows: int) -> FeatureBaseline:
        """Return the tables of the sample, and the rates of missing values in all rows of the windows."""
        sample = np.zeros((0, len(kinds))) if self.sample is None else self.sample
        step = max(1, round(self.rows / max(len(sample), 1)))
        bins = FeatureBaseline.from_rows(kinds, sample, window_rows, step)
        norms = (
            msgspec.structs.replace(norm, missing=Rate(count, self.rows, worst))
            for norm, count, worst in zip(bins.norms, self.missing, self.worst, strict=True)
        )
        return FeatureBaseline(bins.tables, tuple(norms))


class FeaturesState(msgspec.Struct, frozen=True):
    """The stored state of `FeatureWatch`.

    Parameters
    ----------
    names : tuple of str
        The features in the order of the columns.
    first : FirstRows or None
        The sample of the first windows; None if there is a reference or the sample is complete.
    values : tuple of float64 arrays
        The `values` of each `FeatureTable`. If the table can be computed again from a reference, only its
        first values.
    reference : (F, WIDTH) int64 or None
        The `counts` of the tables.
    norms : tuple of FeatureNorm
        Empty if they can be computed again from a reference.
    rows : int
        The number of rows of the last closed window.
    counts : (F, WIDTH) int64 or None
        The counts of the last closed window; None before the first window closes, or if there are no tables.
    missing : tuple of int
        The number of the last window's rows that lack each feature, while there are no tables.
    broken : tuple of BrokenFeature
        The faults in the last closed window.
    kinds : tuple of {"number", "text"}
        The kinds of the features; empty in states of older versions.
    alarm_level : float
        The p-value below which the drift of a feature raised an alarm; 0 if it raised none.
    """

    names: tuple[str, ...] = ()
    first: FirstRows | None = None
    values: tuple[Floats, ...] = ()
    reference: Ints | None = None
    norms: tuple[FeatureNorm, ...] = ()
    rows: int = 0
    counts: Ints | None = None
    missing: tuple[int, ...] = ()
    broken: tuple[BrokenFeature, ...] = ()
    kinds: tuple[FeatureKind, ...] = ()
    alarm_level: float = 0.0

    def tables(self, kinds: Iterable[FeatureKind]) -> tuple[FeatureTable, ...]:
        """Return the stored tables of features of these kinds; empty if there are none yet."""
        if self.reference is None:
            return ()
        return tuple(FeatureTable(*each) for each in zip(kinds, self.values, self.reference, strict=True))

    def newest(self) -> FeatureCounts:
        """Return the feature counts of the last closed window from this state, without a reference file."""
        kinds = dict(zip(self.names, self.kinds, strict=False))
        if self.counts is None:
            return FeatureCounts(kinds, self.rows if kinds else 0, self.missing)
        tables = self.tables(self.kinds) if kinds else ()
        if not tables:
            return FeatureCounts(kinds)
        return FeatureCounts.from_tables(kinds, tables, self.counts, self.alarm_level)


class FeatureWatch:
    """Counts the features of a model's closed windows, and detects broken features.

    Parameters
    ----------
    task : Task
    from_reference : callable or None
        Returns the tables of the model's reference; None if the tables come from the first windows of the
        stream.
    windows : int
        The number of first windows.
    resume : FeaturesState, optional
        The result of `snapshot`.

    Attributes
    ----------
    broken : tuple of BrokenFeature
        The faults in the last closed window.
    newest : FeatureCounts
        The counts in the last closed window.
    """

    def __init__(
        self,
        task: Task,
        from_reference: Callable[[], FeatureBaseline] | None,
        windows: int,
        resume: FeaturesState | None = None,
    ) -> None:
        state = resume if resume and resume.names == tuple(task.features) else FeaturesState()
        self._kinds = task.features
        self._rows = task.window.size
        self._windows = windows
        self._level = health_level(len(self._kinds), windows_per_day(task, ASSUMED_WINDOWS_PER_DAY))
        self._alarm_level = task.feature_alarm_level
        self._from_reference = from_reference
        self._bins: FeatureBaseline | None = None  # of the reference: computed for the first window
        self._first = state.first or FirstRows()
        if state.norms and from_reference is None:
            self._bins = FeatureBaseline(state.tables(self._kinds.values()), state.norms)
        self.broken = state.broken
        self.newest = self._resumed(state)

    def _resumed(self, state: FeaturesState) -> FeatureCounts:
        if state.counts is None:
            return FeatureCounts(self._kinds, state.rows, state.missing)
        bins = self._known_bins()
        if bins is None or (state.reference is not None and not np.array_equal(state.reference, bins.counts)):
            return FeatureCounts(self._kinds)  # the reference is another one, with other bins
        return FeatureCounts.from_tables(self._kinds, bins.tables, state.counts, self._alarm_level)

    def restart(self) -> None:
        """Start again with new first windows. If there is a reference, do nothing."""
        if self._from_reference is None:
            self._bins, self._first, self.broken = None, FirstRows(), ()
            self.newest = FeatureCounts(self._kinds)

    def close(self, features: Floats) -> tuple[BrokenFeature, ...]:
        """Count the values of each feature in a closed window, and return the features' faults.

        Parameters
        ----------
        features : (n, F or more) float64
            The features of the window's rows; further columns are not used.
        """
        features = features[:, : len(self._kinds)]
        bins = self._known_bins()
        if bins is None:
            missing = np.isnan(features).sum(axis=0)
            self.newest = FeatureCounts(self._kinds, len(features), tuple(missing.tolist()))
            self._first = self._first.plus(features, self._windows)
            if self._first.windows >= self._windows:
                self._bins, self._first = self._first.bins(self._kinds, self._rows), FirstRows()
            return ()
        counts = count_features(bins.tables, features)
        self.newest = FeatureCounts.from_tables(self._kinds, bins.tables, counts, self._alarm_level)
        before = [{each.fault for each in self.broken if each.feature == name} for name in self._kinds]
        constant = constant_features(features)
        faults = window_faults(bins.norms, counts, constant, self._level, before)
        self.broken = tuple(
            BrokenFeature(name, kind, round(ratio, _DECIMALS), round(expected, _DECIMALS))
            for name, own in zip(self._kinds, faults, strict=True)
            for kind, ratio, expected in own
        )
        return self.broken

    def _known_bins(self) -> FeatureBaseline | None:
        if self._bins is None and self._from_reference is not None:
            self._bins = self._from_reference()
        return self._bins

    def snapshot(self) -> FeaturesState:
        """Return the state. A table of a reference includes only the values that reports may show."""
        bins, own = self._bins, self._from_reference is None
        tables = () if bins is None else bins.tables
        return FeaturesState(
            names=tuple(self._kinds),
            kinds=tuple(self._kinds.values()),
            first=self._first if self._first.windows else None,
            values=tuple(table.values if own else table.values[:WIDTH] for table in tables),
            reference=None if bins is None else bins.counts,
            norms=bins.norms if bins is not None and own else (),
            rows=self.newest.rows,
            counts=self.newest.counts,
            missing=self.newest.missing if self.newest.counts is None else (),
            broken=self.broken,
            alarm_level=self._alarm_level,
        )
