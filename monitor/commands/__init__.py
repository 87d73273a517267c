"""What the commands do. This package and `monitor.cli` are edges: they alone join core and connectors."""
