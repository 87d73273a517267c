"""The sinks of reports and rejected records: files, topics, and their queues."""
