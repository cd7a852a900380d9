"""Runs made of the other rooms, in folders that the same command goes on with."""
