"""What a person sees of runs, on a terminal and where there is none. Displays are told what happens."""
