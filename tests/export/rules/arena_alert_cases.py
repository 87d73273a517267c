"""The alerts of an agent that watches arenas alone: `tests.export.rules.alert_cases` has the others."""

from __future__ import annotations

from tests.export.rules.alert_timelines import Case, counter, gauge, only_healthy

_AGENT = 'job="blindsight",instance="agent:9109"'
_FEED = f'{_AGENT},source="answers"'
_CHAT = f'{_AGENT},task="chat"'
_ALPHA = f'{_CHAT},model="alpha"'
_REASON = 'reason="fewer than 20 verdicts by humans"'

ARENA_CASES = [
    Case(
        "BlindsightModelUnranked",
        "warning",
        {"task": "chat", "model": "alpha"},
        "Model alpha of arena chat had a coefficient within the last 1d and has none now. The label reason "
        "of blindsight_arena_unknown says why.",
        {
            f"blindsight_arena_coefficient{{{_ALPHA}}}": only_healthy(gauge(0.3, 0.3)),
            f"blindsight_arena_unknown{{{_ALPHA},{_REASON}}}": gauge(None, 1),
        },
        healthy=60,
        fires=31,
        blip=12,
        recovers=47,
        lives_on=40,
        ends=50,
    ),
    Case(
        "BlindsightNoWindowClosed",
        "warning",
        {"task": "chat"},
        "All models, task chat: no window has closed for twice the longest time that a window takes. The "
        "figures shown are old.",
        {f"blindsight_arena_windows_closed_total{{{_CHAT}}}": counter(1, 0)},
        healthy=90,
        fires=35,
        blip=32,
        recovers=17,
        lives_on=30,
        ends=60,
    ),
    Case(
        "BlindsightAccountingBroken",
        "warning",
        {"instance": "agent:9109"},
        "agent:9109: the agent received 3 more answers or labels than it used, keeps, or counted as not "
        "used. This is a bug of the agent.",
        {
            f"blindsight_answers_received_total{{{_FEED}}}": gauge(30, 30),
            f'blindsight_rejected_total{{{_FEED},reason="malformed"}}': gauge(0, 0),
            f"blindsight_shed_total{{{_FEED}}}": gauge(0, 0),
            f"blindsight_series_dropped_total{{{_AGENT}}}": gauge(0, 0),
            f"blindsight_comparisons_total{{{_CHAT}}}": gauge(20, 17),
            f"blindsight_comparisons_pending{{{_CHAT}}}": gauge(8, 8),
            f"blindsight_comparison_duplicates_total{{{_CHAT}}}": gauge(2, 2),
        },
        healthy=60,
        fires=11,
        blip=8,
        recovers=17,
        lives_on=17,
        ends=22,
    ),
]
"""Each with a cause of its own."""
