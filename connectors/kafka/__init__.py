"""Apache Kafka as a source of records, and as a destination of reports and of rejected records.

It needs kafka-python (3.0 or later). The source's modules are:

* `source.source` reads topics in a consumer group, through a `Driver`. A driver is a consumer of one client
  library: `drivers.python` of kafka-python, `drivers.native` of confluent-kafka.
* `source.membership` takes part in the group: it hands partitions over to other members.
* `source.ledger` holds the positions of each partition. `source.placement` decides where reading of a
  partition begins, and counts the records that this skips or repeats.
* `source.health` observes whether the brokers answer, `source.stalls` whether each partition moves.
* `drivers.connection` connects while brokers may be away, `drivers.options` checks the configured options,
  `drivers.errors` turns the library's errors into ours, and `drivers.unreadable` skips records that a
  broker's disk has damaged.

The modules for writing are:

* `sink.sink` has the destinations for windows and for rejected records, and `sink.topic` sends each message
  once.
* `sink.tail` reads which reports of a store are in a topic already.
* `sink.clients` makes and closes the clients, and `sink.producer_options` checks the configured options.
"""

from connectors.kafka.source.source import KafkaSource

__all__ = ["KafkaSource"]
