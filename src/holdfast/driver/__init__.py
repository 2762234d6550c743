"""The only loop: event, journal, step, commands. Starting and recovering are the same door: replay, then go."""
