"""Topics of an Apache Kafka cluster as a source, and to write to, over kafka-python (3.0 or later).

`source` reads over a `driver` (`python_driver` over kafka-python), `membership` is the part in a consumer
group, `ledger` knows the positions, `placement` decides where a partition is read on and counts what that
skips, `health` looks whether the feed is there and `stalls` whether it moves, `connection` builds the client
while brokers are away, `options` checks what the configuration passes through, `errors` turns kafka-python's
errors into ours, and `unreadable` steps over what a broker's disk spoilt.

`sink` has the topics that windows and rejected records are written to, `topic` sends each message once,
`tail` reads what of a store's windows is there already, `clients` builds and closes the clients, and
`producer_options` checks what the configuration passes through.
"""

from connectors.kafka.source.source import KafkaSource

__all__ = ["KafkaSource"]
