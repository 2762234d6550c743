"""Object stores: one small interface, and its implementations."""
