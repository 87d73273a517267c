"""The JSON API is asked what its OpenAPI document allows, and what not: no answer is a fault of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import schemathesis
from hypothesis import given
from hypothesis import strategies as st
from schemathesis import GenerationMode

from monitor.base.state_changes import Changes
from monitor.export.http.query import MOST_NUMBER
from monitor.export.page.openapi import document
from monitor.export.page.windows import StoredWindows
from monitor.store import Store
from monitor.store.store import FILE
from tests.examples import examples
from tests.export.page.page_reading import serving
from tests.streams import Rig, answers, task

NAMES = {"task": "t", "model": "erm", "metric": "accuracy"}
"""Names that there are: with others, each address answers 404 before it looks at numbers."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Yield the API over the windows of a store, in which numbers become those of SQL."""
    rig = Rig(task(reference={"first_windows": 5}))
    folder = tmp_path_factory.mktemp("store")
    store = Store(folder)
    store.commit(Changes({}, []), rig.feed(answers(np.random.default_rng(3), 1500)))
    store.close()
    with serving(rig, StoredWindows(folder / FILE)) as client:
        yield client


def operations() -> list[Any]:
    schema = schemathesis.openapi.from_dict(json.loads(json.dumps(document())))
    return [operation.ok() for operation in schema.get_all_operations()]


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("operation", operations(), ids=lambda operation: operation.path.rpartition("/")[2])
def test_no_question_is_answered_with_a_fault_of_ours(
    client: httpx.Client, operation: Any, mode: GenerationMode
) -> None:
    known = {name: value for name, value in NAMES.items() if name in str(operation.definition.raw)}

    @examples(60)
    @given(operation.as_strategy(generation_mode=mode), st.booleans())
    def ask(case: Any, by_name: bool) -> None:
        query = {**(case.query or {}), **(known if by_name else {})}
        answer = client.get(operation.path, params=query)
        assert answer.status_code in (200, 400, 404), (answer.url, answer.text)
        assert answer.status_code == 200 or answer.json()["error"]

    ask()


@pytest.mark.parametrize("number", [MOST_NUMBER, MOST_NUMBER + 1, 2**63 - 1, 2**63, 10**30])
@pytest.mark.parametrize(
    "address",
    [
        "/api/v1/models?offset=",
        "/api/v1/windows?task=t&model=erm&before=",
        "/api/v1/window?task=t&model=erm&window=",
        "/api/v1/chart?task=t&model=erm&metric=accuracy&former=",
        "/api/v1/alarms?task=t&model=erm&before=",
        "/models/t/erm?window=",
        "/models/t/erm?former=",
        "/models?offset=",
    ],
)
def test_each_number_has_a_bound(client: httpx.Client, address: str, number: int) -> None:
    answer = client.get(f"{address}{number}")
    if number > MOST_NUMBER:
        assert answer.status_code in (400, 404), answer.text
    assert answer.status_code < 500, answer.text
