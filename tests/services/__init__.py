"""Real services for the tests: each is started on free ports of 127.0.0.1 and stopped by its process id."""
