"""Callbacks that connect tuning with trainers and frameworks, under the names of Ray Tune."""
