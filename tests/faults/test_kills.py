from __future__ import annotations

from tests.faults.kills import compare


def test_a_daemon_killed_again_and_again_writes_what_one_left_alone_writes(tmp_path):
    found = compare(tmp_path, records=60_000, kills=4, seed=1, longest_seconds=1.6, every=0.05)
    assert found.equal
    assert found.windows > 200
    assert found.revisions > found.windows
    assert found.kills >= 1
