"""Columns, results, errors, names and files: the base of all other packages, which imports none of them."""
