"""Pictures of control charts as SVG, and the data behind them."""
