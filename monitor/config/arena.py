"""The configuration of an arena: a task whose models are compared in pairs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field, model_validator

from monitor.base.records import TaskLayout
from monitor.config.labels import LabelsConfig
from monitor.config.section import Problem, demand, sane, unique
from monitor.config.task import TaskSection, Window


class Arena(TaskSection):
    """A task whose models are compared in pairs, by humans and by a judging model.

    Examples
    --------
    >>> arena = Arena(kind="arena", models=["x", "y"], reference_model="y")
    >>> arena.window.size * arena.windows
    10000
    """

    kind: Literal["arena"] = Field(description="A task whose models are compared in pairs.")
    window: Window = Field(default=Window(), description="The rules for closing a window of comparisons.")
    windows: int = Field(
        default=20,
        ge=1,
        le=10_000,
        description="The number of newest windows whose comparisons determine the coefficients. "
        "Comparisons beyond the horizon of labels do not count.",
        examples=[40],
    )
    models: tuple[str, ...] = Field(
        default=(),
        description="The models that are known in advance. The agent adds other models when they first "
        "occur.",
        examples=[["alpha", "beta"]],
    )
    max_models: int = Field(
        default=100,
        ge=2,
        le=1000,
        description="The largest number of models. A comparison with a further model is counted, but not "
        "used.",
        examples=[20],
    )
    reference_model: str | None = Field(
        default=None,
        min_length=1,
        description="The model with the coefficient 0. If absent, the first of models, or the first that "
        "occurs.",
        examples=["alpha"],
    )
    level: float = Field(
        default=0.95, gt=0.5, lt=1, description="Level of the coefficients' intervals.", examples=[0.9]
    )
    labels: LabelsConfig = Field(
        default=LabelsConfig(),
        description="The join of human verdicts that arrive later than their comparison.",
    )

    @property
    def layout(self) -> TaskLayout:
        """The classes and models in the task's records, for decoders; `name` is empty."""
        return TaskLayout(name="", classes=(), models=self.models, kind=self.kind)

    @property
    def together(self) -> str:
        """The reason why the models are always computed in one process."""
        return "its models are compared in pairs"

    @property
    def shares(self) -> tuple[str, ...]:
        """Always ``("",)``, because the records of all models form one part of the stream."""
        return ("",)

    @model_validator(mode="after")
    def _fits(self) -> Arena:
        demand(self._problems())
        return self

    def _problems(self) -> Iterable[Problem | None]:
        yield unique("models", self.models)
        yield sane("models", self.models)
        if len(self.models) > self.max_models:
            yield "max_models", f"expected at least the {len(self.models)} of models, got {self.max_models}"
        if self.models and self.reference_model not in (None, *self.models):
            listed = ", ".join(self.models)
            yield "reference_model", f"expected one of models ({listed}), got {self.reference_model!r}"
        pooled = self.window.size * self.windows
        if pooled > self.labels.max_answers:
            yield (
                "windows",
                "expected windows × window.size to be at most labels.max_answers "
                f"({self.labels.max_answers:,}), got {pooled:,}: lower one, or raise that",
            )
