"""Rehearsals: a user's own script is run undisturbed and under faults, and the results are compared. Nothing here
affects a run outside of a drill: everything depends on the setting ``HOLDFAST_WRAPPER``.
"""
