"""The configuration: one frozen model a section; reading, messages, what a reload may change."""
