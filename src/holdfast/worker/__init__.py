"""The code that runs inside a training process."""
