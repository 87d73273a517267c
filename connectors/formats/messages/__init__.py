"""What is said of records that could not be used."""
