"""The configuration: one frozen model for each section; reading, messages, the effects of a reload."""
