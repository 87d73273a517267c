"""The command line: the commands of `blindsight` and the code that only they use."""
