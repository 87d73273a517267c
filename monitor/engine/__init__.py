"""The flow from chunks to reports: windows, labels, refits that are due. No clock, no thread, no socket."""
