"""The client libraries for reading Kafka, behind one interface."""
