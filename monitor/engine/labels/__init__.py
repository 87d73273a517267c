"""Labels in the engine: joined to predictions by id, tallied, audited, and the trust that they give."""
