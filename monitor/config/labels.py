"""The sections of a task about labels: the join to predictions, and the refits with labels."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from pydantic import Field

from monitor.base.registry import BY_LABELS
from monitor.config.section import Problem, Section


class LabelsConfig(Section):
    """Limits for joining labels to answers by id."""

    horizon_days: float = Field(
        default=30.0,
        gt=0,
        le=3650,
        description="Maximum number of days between a prediction and its label.",
        examples=[60],
    )
    max_answers: int = Field(
        default=1_000_000,
        ge=1000,
        le=500_000_000,
        description="The number of answers of this task that are kept for the join. The oldest are "
        "removed first. Each answer takes 72 to 88 bytes. If anything is refitted, add 8, and "
        "4 for each class. Add 1 if a source has no mapping, or one with format: kserve, "
        "sagemaker or inference_table.",
        examples=[5_000_000],
    )
    max_waiting: int = Field(
        default=100_000,
        ge=1000,
        le=500_000_000,
        description="The number of labels that are kept, both waiting and used. The oldest are removed "
        "first.",
        examples=[500_000],
    )
    max_bytes: int | None = Field(
        default=None,
        ge=1_000_000,
        description="Maximum memory of answers and labels together. If they would take more, both maxima are "
        "reduced by the same factor. An answer takes up to 88 bytes. Add 16 for each of groups, "
        "and 1 as for max_answers. If anything is refitted, add 8, and 4 for each class. If models predict "
        "numbers, add 16. A label takes 73 bytes, or 81 if it is a number. No limit if absent.",
        examples=[300_000_000],
    )

    max_replaced: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="Maximum share of labels that replaced another label for the same id. If the share is "
        "larger among the labels of a fit, no recalibration and no refit begins. With 1, "
        "there is no maximum.",
        examples=[0.01],
    )

    @property
    def horizon_seconds(self) -> float:
        """The largest time between an answer and its label, in seconds."""
        return self.horizon_days * 86_400.0


class WeightedLabels(LabelsConfig):
    """Limits for joining labels to answers by id, and the weights of labels."""

    weights: Literal["given", "estimated"] = Field(
        default="given",
        description="The weight of a label in autoeval, rectified and labelled. given: 1 over its "
        "probability, 1 without one. estimated: if no label has a probability, 1 over a "
        "probability of being labelled that is estimated from the scores.",
        examples=["estimated"],
    )


class Ssme(Section):
    """Refits on labels: when they run, on which rows, and with which limits."""

    models: tuple[str, ...] = Field(
        default=(),
        description="The models whose scores a fit combines. By default the models in `models`.",
        examples=[["erm", "irm"]],
    )
    every_windows: int = Field(
        default=20,
        ge=1,
        le=1_000_000,
        description="A refit is due after this number of windows of all models together.",
        examples=[50],
    )
    every_labels: int = Field(
        default=25,
        ge=1,
        le=1_000_000,
        description="A refit is also due after this number of newly labelled requests.",
        examples=[100],
    )
    every_seconds: float | None = Field(
        default=None,
        gt=0,
        description="A refit is also due after this number of seconds. If absent, time alone makes no "
        "refit due.",
        examples=[3600],
    )
    max_rows: int = Field(
        default=20_000,
        ge=100,
        le=500_000_000,
        description="Number of newest unlabelled requests that a fit represents.",
        examples=[50_000],
    )
    fit_rows: int = Field(
        default=20_000,
        ge=100,
        le=1_000_000,
        description="Number of unlabelled requests that a fit uses. If there are more, they are a sample "
        "stratified by class and confidence. A fit uses all labelled requests.",
        examples=[10_000],
    )
    max_labelled: int = Field(
        default=20_000,
        ge=100,
        le=1_000_000,
        description="The number of labelled requests that are kept. The oldest are removed first.",
        examples=[50_000],
    )
    seconds: float = Field(
        default=60.0,
        gt=0,
        le=86_400,
        description="Time limit of a fit. The agent stops and counts a fit that takes longer.",
        examples=[120],
    )
    memory_bytes: int = Field(
        default=1_000_000_000,
        ge=100_000_000,
        description="The agent stops and counts a fit that needs more memory.",
        examples=[2_000_000_000],
    )


def unread_weights(labels: WeightedLabels, estimators: Collection[str]) -> Problem | None:
    """Return a problem if weights of labels are to be estimated but no estimator uses weights."""
    if labels.weights == "given" or not {*BY_LABELS}.isdisjoint(estimators):
        return None
    listed = ", ".join(BY_LABELS)
    return (
        "labels.weights",
        f"expected given if estimators has none that uses weights ({listed}), got "
        f"{labels.weights!r}: list one of them, or leave labels.weights out",
    )
