"""Messages about records that could not be used."""
