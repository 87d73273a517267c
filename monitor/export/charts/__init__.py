"""Control charts as SVG."""
