"""Candidate in, outcome out: worker processes, their isolation, the comparison and the verdict."""
