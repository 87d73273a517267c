"""The number of examples that Hypothesis draws: fewer in the unit part of the tests, which is quick."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

SHARE = 4
"""The unit part draws so many times fewer."""

_unit = False


def begin(unit: bool) -> None:
    """Settle what all tests of a run share: the same examples in every run, and no limit that a busy machine
    breaks. To be called before tests are imported."""
    global _unit
    _unit = unit
    settings.register_profile(
        "seeded",
        examples(settings.get_profile("default").max_examples),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("seeded")


def examples(whole: int) -> settings:
    """Return settings with `whole` examples in the whole suite, and their share in its unit part."""
    return settings(max_examples=max(1, whole // (SHARE if _unit else 1)))
