"""The client libraries that a source reads Kafka by, behind one contract."""
