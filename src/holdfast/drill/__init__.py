"""Rehearsals: a user's own script is run undisturbed and under faults, and what came of it is compared.

Nothing here is in the way of a run that is no drill: all of it begins with the setting ``HOLDFAST_WRAPPER``.
"""
