"""Models compared in pairs: Bradley-Terry coefficients, ranks and their intervals."""
