"""Reports of closed windows, a reader of written reports, and views of the running agent."""
