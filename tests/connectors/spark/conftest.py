"""The fixtures that tests on Spark share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.services.spark_cluster import SparkCluster


@pytest.fixture(scope="package")
def spark_cluster(spark_java: None) -> Iterator[SparkCluster]:
    """Yield a standalone master with two workers, for one driver at a time."""
    with SparkCluster() as cluster:
        yield cluster
