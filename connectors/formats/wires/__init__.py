"""How a source's bytes become records: our own names, a mapping, serving stacks' events."""
