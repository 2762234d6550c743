"""The only loop: event, journal, step, commands. Starting and recovering are the same: replay, then continue."""
