from __future__ import annotations

import pytest

from tests.faults.kills import compare

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("max_bytes", "decoders", "kind"),
    [
        (None, 0, "classification"),
        (20_000, 0, "classification"),
        (None, 2, "classification"),
        (None, 0, "regression"),
    ],
)
def test_a_daemon_killed_again_and_again_writes_what_one_left_alone_writes(
    tmp_path, max_bytes, decoders, kind
):
    result = compare(
        tmp_path,
        records=60_000,
        kills=4,
        seed=1,
        longest_seconds=1.6,
        every=0.05,
        max_bytes=max_bytes,
        decoders=decoders,
        kind=kind,
    )
    assert result.equal
    assert result.windows > 200
    assert result.revisions > result.windows
    assert result.kills >= 1
    assert (result.files > 20) == (max_bytes is not None)
