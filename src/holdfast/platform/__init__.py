"""Code that depends on the operating system and on nothing else in Holdfast. Every folder may import it."""
