"""The store's files stay within the configured size, however long and however slowly a stream runs."""

from __future__ import annotations

import numpy as np
import pytest

from monitor.store import Store
from monitor.store.store import FILE
from tests.streams import Rig, answers, task


@pytest.mark.slow
def test_files_stop_growing_and_give_the_log_back(tmp_path):
    """Rings, lines and changes wrap fifty times; a reader in the way lets the log grow only meanwhile."""
    rig = Rig(task(labels={"max_answers": 1000, "max_waiting": 1000}))
    store = Store(tmp_path, keep_reports=20)
    log, sizes = tmp_path / f"{FILE}-wal", []
    for i in range(190):
        rows = answers(np.random.default_rng(i), 500, start=1.7e9 + 1000 * i)
        rows += [{"id": row["id"], "label": "ok", "time": row["time"]} for row in rows[::5]]
        reports = rig.feed(rows)
        if i == 70:
            assert log.stat().st_size <= 16 << 20
            assert sizes[-1] <= 1.1 * sizes[40]
            held = store._connection.__class__(store.path)
            held.execute("BEGIN")
            held.execute("SELECT count(*) FROM report").fetchone()
        store.commit(rig.engine.changes(), reports)
        rig.engine.confirm()
        if i == 175:
            assert log.stat().st_size > 16 << 20, "the reader held it"
            held.close()
        sizes.append(store.path.stat().st_size)
    assert log.stat().st_size <= 16 << 20
    assert sizes[-1] <= 1.1 * sizes[40]
    store.close()
