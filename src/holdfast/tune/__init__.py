"""What a tuning script imports. Its parts are here; the public module is opened once experiments run on them."""
