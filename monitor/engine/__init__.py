"""The computing part of the monitor: it turns records into windows, estimates, charts and reports.

Its inputs are chunks (columns of decoded records) and the time. It uses no clock, thread or socket.
"""
