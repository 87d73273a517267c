"""`blindsight check`: what is wrong with a configuration, and what to expect of its charts."""
