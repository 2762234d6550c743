"""Reads what is stored, without taking a lease and without changing anything."""
