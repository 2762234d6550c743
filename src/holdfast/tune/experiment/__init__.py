"""A tuning experiment: a machine over trials, whose state is a journal, and the loop that carries out its decisions."""
