"""What is stored, read: without taking a lease, and without changing anything."""
