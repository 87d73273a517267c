"""Sampling: draws of the answers to label, and stratified samples of requests for a fit."""
