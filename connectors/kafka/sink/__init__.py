"""Kafka topics as destinations of reports and of rejected records."""
