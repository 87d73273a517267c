"""Bradley-Terry coefficients and ranks, with intervals, of models that are compared in pairs."""
