"""Bradley-Terry coefficients and ranks of models that are compared in pairs, with intervals."""
