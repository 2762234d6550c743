"""Hugging Face's libraries inside a train function."""
