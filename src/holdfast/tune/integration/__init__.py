"""What ties tuning to trainers, under the names that Ray Tune has for it."""
