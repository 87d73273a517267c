"""Which answers to label: draws, and stratified samples."""
