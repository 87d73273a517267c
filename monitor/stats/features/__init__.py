"""Features of the answers: their counts, health and drift, and the split of a change over them."""
