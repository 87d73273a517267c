"""Apache Kafka as a source of records, and as a destination of reports and of rejected records.

The package needs kafka-python 3.0 or later. The modules for reading are:

* `source.source` reads topics as a member of a consumer group, through a `Driver`. A driver is a consumer of
  one client library: `drivers.python` uses kafka-python, and `drivers.native` uses confluent-kafka.
* `source.membership` receives partitions from the group, and hands them over to other members.
* `source.ledger` keeps the positions of each partition. `source.placement` decides at which offset reading of
  a partition continues, and counts the records that are skipped or repeated.
* `source.health` checks whether the brokers answer. `source.stalls` detects partitions that deliver nothing.
* `drivers.connection` connects even if no broker is reachable at first. `drivers.options` checks the
  configured options. `drivers.errors` converts errors of the library to errors of Blindsight.
  `drivers.unreadable` skips records that are damaged on a broker's disk.

The modules for writing are:

* `sink.sink` defines the destinations of windows and of rejected records. `sink.topic` sends each message
  exactly once.
* `sink.tail` reads which reports of a store a topic already contains.
* `sink.clients` creates and closes the clients. `sink.producer_options` checks the configured options.
"""

from connectors.kafka.source.source import KafkaSource

__all__ = ["KafkaSource"]
