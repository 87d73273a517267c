"""Columns, results, errors, names and files, which all other packages use; this one imports none of them."""
