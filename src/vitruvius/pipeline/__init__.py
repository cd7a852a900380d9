"""Runs that are made of the other rooms, each in a resumable run folder."""
