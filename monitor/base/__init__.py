"""Columns, results, errors, names and files. All other packages use them; this package imports no other."""
