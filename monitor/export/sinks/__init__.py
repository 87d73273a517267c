"""Where reports and rejected records go: files, topics, queues before them."""
