"""Features of the answers: counts of their values, and tests whether a feature is broken."""
