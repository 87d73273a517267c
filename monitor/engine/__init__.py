"""Computes reports from chunks of records: windows, labels, estimates, charts, and the refits that are due.

Nothing here uses a clock, a thread or a socket.
"""
