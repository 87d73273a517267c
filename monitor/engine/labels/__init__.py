"""The use of labels in the engine: they join answers by id, are counted, and test the estimates."""
