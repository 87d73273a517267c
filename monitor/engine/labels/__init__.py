"""Labels in the engine: they are joined to answers by id, counted, and used to test the estimates."""
