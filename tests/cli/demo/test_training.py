"""The models: an honest split, scores that are probabilities, and the accuracy that the demo builds on."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.cli.demo.flights import Flights
from monitor.cli.demo.training import MODELS, Scored, feature_matrix, split


def test_held_out_days_are_whole_and_never_trained_on(flights: Flights) -> None:
    training, reference, _ = split(flights)
    assert not set(flights.day_of_year[training]) & set(flights.day_of_year[reference])
    assert len(set(flights.day_of_year[reference])) == 30
    assert flights.month[np.concatenate([training, reference])].max() == 3
    assert (flights.late[np.concatenate([training, reference])] >= 0).all()


def test_every_weekday_is_held_out_alike(flights: Flights) -> None:
    _, reference, _ = split(flights)
    days = np.unique(np.column_stack([flights.day_of_year[reference], flights.weekday[reference]]), axis=0)
    assert set(np.bincount(days[:, 1])) == {4, 5}


def test_the_stream_is_every_departure_from_april_on(flights: Flights) -> None:
    _, _, stream = split(flights)
    assert np.array_equal(stream, np.flatnonzero(flights.month >= 4))
    assert (flights.late[stream] == -1).any()


def test_features_hold_nothing_that_is_known_only_after_departure(flights: Flights) -> None:
    features = feature_matrix(flights)
    assert features.shape == (len(flights), 13)
    landed = np.nan_to_num(flights.landed)
    for column in features.T:
        assert not np.array_equal(column, flights.late)
        assert not np.array_equal(column, landed)


@pytest.mark.slow
def test_scores_are_probabilities(scored: Scored) -> None:
    for scores in (scored.reference_scores, scored.stream_scores):
        assert scores.shape[1] == len(MODELS)
        assert ((scores >= 0) & (scores <= 1)).all()
    assert len(scored.stream_scores) == len(scored.stream_rows)


@pytest.mark.parametrize("model", MODELS)
def test_each_model_beats_saying_on_time_and_is_no_worse_on_days_to_come(
    winter_and_some: Flights, scored: Scored, model: str
) -> None:
    column, flights = MODELS.index(model), winter_and_some
    truth = flights.late[scored.reference_rows] == 1
    held_out = ((scored.reference_scores[:, column] > 0.5) == truth).mean()
    assert held_out > 1 - truth.mean() + 0.1
    known = (flights.late >= 0)[scored.stream_rows]
    later = (scored.stream_scores[known, column] > 0.5) == (flights.late[scored.stream_rows][known] == 1)
    # Whole days held out are an honest promise. Held-out single flights would promise a point more.
    assert later.mean() == pytest.approx(held_out, abs=0.005)


def test_naive_bayes_is_as_sure_of_itself_as_ever(winter_and_some: Flights, scored: Scored) -> None:
    scores = scored.reference_scores[:, MODELS.index("naive_bayes")]
    right = (scores > 0.5) == (winter_and_some.late[scored.reference_rows] == 1)
    assert np.maximum(scores, 1 - scores).mean() - right.mean() > 0.05
