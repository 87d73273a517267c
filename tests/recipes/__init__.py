"""Recipes for serving stacks: what their pages in `docs/serving` show is installed, run and measured."""
