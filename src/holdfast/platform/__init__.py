"""What depends on the operating system, and on nothing else of Holdfast: every folder may import it."""
