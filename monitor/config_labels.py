"""The sections of a task about labels: the join to predictions, and the refits that use them."""

from __future__ import annotations

from pydantic import Field

from monitor.section import Section


class Labels(Section):
    """How long and how many answers wait for their labels."""

    horizon_days: float = Field(
        default=30.0, gt=0, le=3650, description="A label may come so long after its prediction."
    )
    max_answers: int = Field(
        default=1_000_000,
        ge=1000,
        le=500_000_000,
        description="Answers of this task kept for the join, oldest out first; 64 to 80 bytes each, "
        "and 8 and 4 for each class where anything is refitted.",
    )
    max_waiting: int = Field(
        default=100_000,
        ge=1000,
        le=500_000_000,
        description="Labels kept, early and used ones, oldest out first.",
    )
    max_bytes: int | None = Field(
        default=None,
        ge=1_000_000,
        description="What both take of memory at most; where they would take more, both are cut alike. An "
        "answer takes up to 80 bytes, 8 for each of groups and, where anything is refitted, 8 and 4 for each "
        "class; a label 73. No such bound if absent.",
    )

    @property
    def horizon_seconds(self) -> float:
        """The horizon in seconds."""
        return self.horizon_days * 86_400.0


class Ssme(Section):
    """When, and on what, the estimators that use labels are fitted anew."""

    models: tuple[str, ...] = Field(
        default=(), description="The models whose scores are put together. Those of `models` if left out."
    )
    every_windows: int = Field(
        default=20, ge=1, le=1_000_000, description="After so many windows, of all models together."
    )
    every_labels: int = Field(
        default=25, ge=1, le=1_000_000, description="Or after so many newly labelled requests."
    )
    every_seconds: float | None = Field(
        default=None, gt=0, description="Or after so long. No such rule if absent."
    )
    max_rows: int = Field(
        default=20_000, ge=100, le=1_000_000, description="Unlabelled requests of a fit, the newest."
    )
    max_labelled: int = Field(
        default=20_000, ge=100, le=1_000_000, description="Labelled requests kept, oldest out first."
    )
    seconds: float = Field(
        default=60.0, gt=0, le=86_400, description="A fit that takes longer is given up, and counted."
    )
    memory_bytes: int = Field(
        default=1_000_000_000, ge=100_000_000, description="A fit that needs more is given up, and counted."
    )
