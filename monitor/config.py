"""The configuration's schema: one frozen model a section, every range declared once.

Reading a file, and turning what pydantic finds wrong into sentences, is `monitor.configfile`'s work.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

RULES = ("we1", "we2", "we3", "we4")
Rule = Literal["we1", "we2", "we3", "we4"]
Metric = Literal["accuracy", "ece", "class_ece"]
EstimatorTag = Literal["average_confidence", "realised"]
RESERVED_CHARACTERS = '"\n\r\t'


class Section(BaseModel):
    """Base of every section: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Window(Section):
    """How many predictions make a window, and when one closes early."""

    size: int = Field(500, ge=10, le=1_000_000, description="Predictions a window.")
    min_size: int = Field(50, ge=1, description="A window closes early only with at least so many predictions.")
    max_age_seconds: float = Field(
        900, gt=0, description="A window closes early once so long has passed since its first prediction."
    )

    @model_validator(mode="after")
    def _min_fits(self) -> Window:
        if self.min_size > self.size:
            raise ValueError(f"min_size ({self.min_size}) must not exceed size ({self.size})")
        return self


class Reference(Section):
    """Labelled data from when the models were known to be good, or the stream's first windows."""

    path: str | None = Field(None, description="NDJSON (plain, .gz, .zst), CSV or Parquet, labelled.")
    first_windows: int | None = Field(
        None, ge=5, le=10_000, description="Take the first so many windows of the stream instead."
    )

    @model_validator(mode="after")
    def _one_of_both(self) -> Reference:
        if (self.path is None) == (self.first_windows is None):
            raise ValueError("give either path or first_windows, one of the two")
        return self


class Calibration(Section):
    """How raw scores become probabilities of being right."""

    method: Literal["none", "isotonic"] = Field("isotonic", description="`none` takes the scores as they are.")


class ChartConfig(Section):
    """The control chart of the accuracy and of the calibration error."""

    estimator: Literal["average_confidence"] = Field(
        "average_confidence", description="The estimator that the chart and the objectives judge."
    )
    kind: Literal["shewhart", "shewhart_p"] = Field(
        "shewhart", description="`shewhart_p` is the textbook p-chart: for accuracy only, and for comparison."
    )
    arl0: float | None = Field(
        None, ge=10, le=1_000_000, description="One false alarm in so many windows. 370 where neither this nor sigmas is given."
    )
    sigmas: float | None = Field(None, gt=0, le=10, description="Half width of the limits instead of arl0.")
    rules: tuple[Rule, ...] = Field(("we1",), description="Western Electric rules: we1 to we4; a bare 1 to 4 means the same.")

    @field_validator("rules", mode="before")
    @classmethod
    def _bare_numbers(cls, value: Any) -> Any:
        if isinstance(value, list | tuple):
            return tuple(f"we{r}" if isinstance(r, int) and not isinstance(r, bool) else r for r in value)
        return value

    @model_validator(mode="after")
    def _one_limit(self) -> ChartConfig:
        if self.arl0 is not None and self.sigmas is not None:
            raise ValueError("give arl0 or sigmas, not both")
        if not self.rules or len(set(self.rules)) != len(self.rules):
            raise ValueError("rules must name at least one rule, each once")
        return self


class Bound(Section):
    """A floor or a ceiling."""

    min: float | None = Field(None, ge=0, le=1, description="Breached when the metric is surely below.")
    max: float | None = Field(None, ge=0, le=1, description="Breached when the metric is surely above.")

    @model_validator(mode="after")
    def _one_of_both(self) -> Bound:
        if (self.min is None) == (self.max is None):
            raise ValueError("give either min or max, one of the two")
        return self


class Objective(Section):
    """What the models owe, judged on the interval pooled over the last windows."""

    accuracy: Bound | None = Field(None, description="Usually a floor: {min: 0.90}.")
    ece: Bound | None = Field(None, description="Usually a ceiling: {max: 0.05}.")
    class_ece: Bound | None = Field(None, description="Usually a ceiling: {max: 0.05}.")
    windows: int = Field(5, ge=1, le=1000, description="How many windows are pooled.")

    def bounds(self) -> dict[str, Bound]:
        """The bounds that are set, by metric."""
        found = {"accuracy": self.accuracy, "ece": self.ece, "class_ece": self.class_ece}
        return {metric: bound for metric, bound in found.items() if bound is not None}


class Labels(Section):
    """How long and how many answers wait for their labels."""

    horizon_days: float = Field(30, gt=0, le=3650, description="A label may come so long after its prediction.")
    max_answers: int = Field(
        1_000_000, ge=1000, le=1_000_000_000,
        description="Answers of this task kept for the join, oldest out first; about 60 bytes each.",
    )
    max_waiting: int = Field(
        100_000, ge=0, le=1_000_000_000, description="Labels kept that came before their prediction, oldest out first."
    )


class ModelConfig(Section):
    """What is known of one model beforehand."""

    answers_per_day: float | None = Field(None, gt=0, description="Expected traffic, for `check`.")


class Task(Section):
    """A question with a fixed set of classes that several models answer."""

    classes: tuple[str, ...] = Field((), description="In the order of the scores. Left out: models give a confidence only.")
    positive: str | None = Field(None, description="The positive of two classes; the last if absent.")
    window: Window = Window()
    reference: Reference = Reference(first_windows=20)
    calibration: Calibration = Calibration()
    metrics: tuple[Metric, ...] = ("accuracy", "ece")
    estimators: tuple[EstimatorTag, ...] = ("average_confidence", "realised")
    level: float = Field(0.95, gt=0.5, lt=1, description="Level of every interval.")
    chart: ChartConfig = ChartConfig()
    objective: Objective = Objective()
    labels: Labels = Labels()
    groups: tuple[str, ...] = Field((), description="Names in the records' `groups`, each value watched on its own.")
    models: dict[str, ModelConfig] = Field({}, description="Optional: what belongs to the task, and its expected traffic.")
    max_series: int = Field(1000, ge=1, le=1_000_000, description="Models and groups of this task that are watched; the rest is counted.")


class FileSource(Section):
    """NDJSON from a file, once or as it grows."""

    kind: Literal["file"]
    path: str = Field(min_length=1)
    follow: bool = Field(False, description="Wait for more at the end, also when the file is rotated.")
    name: str | None = Field(None, description="In metrics; the file's name if absent.")


class StdinSource(Section):
    """NDJSON from standard input."""

    kind: Literal["stdin"]
    name: str | None = None


class KafkaSource(Section):
    """Topics of an Apache Kafka cluster."""

    kind: Literal["kafka"]
    brokers: tuple[str, ...] = Field(min_length=1)
    topics: tuple[str, ...] = Field(min_length=1)
    group: str = Field("blindsight", min_length=1)
    options: dict[str, str | int | float | bool | None] = Field(
        {}, description="Passed to kafka-python's KafkaConsumer: security_protocol, ssl_cafile, sasl_mechanism, …"
    )
    name: str | None = None


SourceConfig = Annotated[FileSource | StdinSource | KafkaSource, Field(discriminator="kind")]


class Reports(Section):
    """Where closed windows are written."""

    path: str = Field(min_length=1, description="NDJSON, one window a line, appended.")


class Rejects(Section):
    """Where records go that could not be used."""

    path: str = Field(min_length=1, description="NDJSON, one rejected record a line, appended.")
    max_bytes: int = Field(100_000_000, ge=1000, description="Past this the file is renamed to `.1` and begun anew.")


class Export(Section):
    """The HTTP side: /, /metrics, /-/healthy, /-/ready."""

    listen: str = Field("127.0.0.1:9109", description="Address and port; port 0 takes a free one.")
    max_series: int = Field(50_000, ge=100, description="Cap on exported series; what was cut is counted.")


class Config(Section):
    """A whole configuration."""

    tasks: dict[str, Task] = Field(min_length=1)
    sources: tuple[SourceConfig, ...] = ()
    reports: Reports | None = None
    rejects: Rejects | None = None
    export: Export = Export()
