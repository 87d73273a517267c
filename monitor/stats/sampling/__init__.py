"""Random selection of answers to label, and stratified samples of requests for a fit."""
