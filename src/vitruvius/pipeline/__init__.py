"""Runs that are made of the other rooms, each in a folder that the same command goes on with."""
