"""Features of the answers: counts of their values, health, drift, and their contributions to a change."""
