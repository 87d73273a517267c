"""Recipes for serving stacks: what `docs/serving/stacks.md` shows is installed, run and measured."""
