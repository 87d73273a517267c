"""What is said of a window and of a model: reports, views, their reader."""
