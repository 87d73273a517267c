"""Reports of closed windows and views of the running agent, with the reader of written reports."""
