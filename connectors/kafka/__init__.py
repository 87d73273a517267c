"""Topics of an Apache Kafka cluster as a source, over kafka-python (3.0 or later).

`source` reads, `membership` is the part in a consumer group, `ledger` knows the positions, `placement`
decides where a partition is read on and counts what that skips, `health` looks whether the feed is there and
`stalls` whether it moves, `connection` builds the client while brokers are away, `options` checks what the
configuration passes through, `errors` turns kafka-python's errors into ours, and `unreadable` steps over
what a broker's disk spoilt.
"""

from connectors.kafka.source import KafkaSource

__all__ = ["KafkaSource"]
