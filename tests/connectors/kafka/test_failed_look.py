"""A look at the partitions' lag that fails, in the read that brought their messages."""

from __future__ import annotations

import pytest
from kafka.errors import TopicAuthorizationFailedError

from connectors.kafka.source import health, pace
from connectors.kafka.source import source as source_module
from monitor.base.errors import SourceError
from tests.connectors.kafka.memory_driver import MemoryDriver
from tests.services.kafka_reading import make_source


class Refusing(MemoryDriver):
    """A driver whose first look at the end of a partition is refused."""

    refused = False

    def highwater(self, name: str) -> int | None:
        """Return the end, after the first call."""
        if not self.refused:
            self.refused = True
            raise TopicAuthorizationFailedError({"clicks"})
        return super().highwater(name)


def test_messages_of_the_same_read_are_handed_out_before_the_error_is_raised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Refusing(3)
    monkeypatch.setattr(health, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(pace, "PAUSE_FACTOR", 0.0)  # else a slow look before it makes this one wait
    monkeypatch.setattr(source_module, "make_driver", lambda *arguments: driver)
    source = make_source("unused:9092", "clicks")
    source.open({})
    while not (raws := source.read(0.0)):
        assert not driver.refused, "the messages of this read are lost"
    assert driver.refused
    assert {raw.partition for raw in raws} == {*driver.names}
    source.acknowledge({raw.partition: raw.after for raw in raws})

    with pytest.raises(SourceError, match="do not let this user read the topic"):
        source.read(0.0)
    source.read(0.0)
    source.close()
    assert driver.committed == dict.fromkeys(driver.names, 1)
