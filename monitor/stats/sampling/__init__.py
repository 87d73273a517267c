"""The choice of answers to label: draws, and stratified samples."""
