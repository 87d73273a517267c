"""Kafka topics as a source of records."""
