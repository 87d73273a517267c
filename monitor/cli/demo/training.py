"""Four classifiers of "arrives more than 15 minutes late", trained on January to March.

The prediction is made when the aircraft leaves the gate. At this time, the models know the delay of the
aircraft so far, the schedule, the weather of the hour before, and the delays of the airport's last
departures. The best model is right for 90 % of the flights. If the prediction were made at the scheduled time
of departure, the best model would be right for 80 %. Nobody would deploy such a model, because always
predicting "on time" is right for 77 %. These figures are from January to March alone.

Every third *day* is held out for calibration, not every third flight. Flights of one day have the same
weather and the same queues. A model that was trained on half of a day therefore looks better on the other
half than on a later day (boosting 91.0 % instead of 90.1 %; April to December give 89.9 %).

The models are not made robust to drift. For example, the logistic regression was trained in winter, and
extrapolates its temperature term to summer. Its confidence becomes too high, which a monitor should detect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from monitor.base.records import Floats, Ints
from monitor.cli.demo.flights import Flights, import_extra

MODELS = ("logistic", "boosting", "forest", "naive_bayes")
CLASSES = ("on_time", "late")

HOLD_OUT_EVERY_DAYS = 3  # shares no factor with 7, so that all days of the week are held out alike
_LAST_TRAINING_MONTH = 3
_BLOCK_ROWS = 32_768  # rows that a model scores at once; this bounds the memory of the encoding
_OPENMP_THREADS = 1  # two threads that wait for each other take ten times as long on a busy machine
_FOREST_JOBS = 2

_NUMBERS = ("hour", "distance", "delay", "congestion", "temp", "wind_speed", "precip", "visib", "humid")
_CATEGORIES = ("weekday", "carrier", "origin", "dest")


@dataclass(frozen=True, slots=True)
class Scored:
    """The scores of the demo's models on the held-out days and on the rest of the year.

    Parameters
    ----------
    models : tuple of str
    reference_rows, stream_rows : (r,), (n,) int64
        Rows of the `Flights`: the flights of the held-out days of January to March whose outcome is known,
        and all flights from April on.
    reference_scores, stream_scores : (r, M), (n, M) float64
        Each model's probability that the flight is late, 0 to 1.
    trained_on : int
        The number of flights that the models were trained on.
    """

    models: tuple[str, ...]
    reference_rows: Ints
    stream_rows: Ints
    reference_scores: Floats
    stream_scores: Floats
    trained_on: int


def train_and_score(flights: Flights, seed: int = 0) -> Scored:
    """Train the models on January to March, and score the held-out days and the rest of the year.

    This takes about four seconds on two cores. The same flights and seed give the same scores.

    Parameters
    ----------
    flights : Flights
    seed : int
        Seed of the forest and of boosting.

    Raises
    ------
    MissingExtraError
        scikit-learn is not installed.
    """
    import_extra("sklearn")
    features = feature_matrix(flights)
    training, reference, stream = split(flights)
    reference_scores = np.empty((len(reference), len(MODELS)))
    stream_scores = np.empty((len(stream), len(MODELS)))
    with import_extra("threadpoolctl").threadpool_limits(_OPENMP_THREADS):
        for column, model in enumerate(_classifiers(seed).values()):
            model.fit(features[training], flights.late[training])
            if "n_jobs" in model.get_params():
                model.set_params(n_jobs=1)  # threads would add the trees' votes in a varying order
            reference_scores[:, column] = _positive_scores(model, features, reference)
            stream_scores[:, column] = _positive_scores(model, features, stream)
    return Scored(MODELS, reference, stream, reference_scores, stream_scores, len(training))


def split(flights: Flights) -> tuple[Ints, Ints, Ints]:
    """Return the indices of the flights for training, for the labelled reference and for the stream.

    Every third day of January to March is held out as a whole. Flights of these months with an unknown
    outcome are left out.
    """
    early = flights.month <= _LAST_TRAINING_MONTH
    known = flights.late >= 0
    held_out = flights.day_of_year % HOLD_OUT_EVERY_DAYS == 0
    return (
        np.flatnonzero(early & known & ~held_out),
        np.flatnonzero(early & known & held_out),
        np.flatnonzero(~early),
    )


def feature_matrix(flights: Flights) -> Floats:
    """Return the features known at the gate, (n, 13): nine numbers and the codes of four categories."""
    columns = [getattr(flights, name) for name in ("hour", "distance", "delay", "congestion")]
    codes = [getattr(flights, name) for name in _CATEGORIES]
    return np.column_stack([*columns, flights.weather, *codes])


def _classifiers(seed: int) -> dict[str, Any]:
    """Return the untrained models by name, in the order of `MODELS`."""
    ensemble = import_extra("sklearn.ensemble")
    numbers = list(range(len(_NUMBERS)))
    categories = list(range(len(_NUMBERS), len(_NUMBERS) + len(_CATEGORIES)))
    pipeline = import_extra("sklearn.pipeline").make_pipeline
    models = {
        "logistic": pipeline(
            _encoder(numbers, categories),
            import_extra("sklearn.linear_model").LogisticRegression(max_iter=500),
        ),
        "boosting": ensemble.HistGradientBoostingClassifier(
            max_iter=100, learning_rate=0.08, categorical_features=categories, random_state=seed
        ),
        "forest": ensemble.RandomForestClassifier(
            n_estimators=40, max_depth=14, min_samples_leaf=10, n_jobs=_FOREST_JOBS, random_state=seed
        ),
        "naive_bayes": pipeline(_columns_only(numbers[:4]), import_extra("sklearn.naive_bayes").GaussianNB()),
    }
    return {name: models[name] for name in MODELS}


def _encoder(numbers: list[int], categories: list[int]) -> Any:
    """Return an encoder: numbers get mean 0 and standard deviation 1, and each category gets a column.

    Categories with fewer than 300 flights share one column.
    """
    preprocessing = import_extra("sklearn.preprocessing")
    one_hot = preprocessing.OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=300)
    return import_extra("sklearn.compose").ColumnTransformer(
        [("numbers", preprocessing.StandardScaler(), numbers), ("categories", one_hot, categories)]
    )


def _columns_only(columns: list[int]) -> Any:
    return import_extra("sklearn.compose").ColumnTransformer([("columns", "passthrough", columns)])


def _positive_scores(model: Any, features: Floats, rows: Ints) -> Floats:
    blocks = (rows[start : start + _BLOCK_ROWS] for start in range(0, len(rows), _BLOCK_ROWS))
    return np.concatenate([model.predict_proba(features[block])[:, 1] for block in blocks])
