"""Rehearsals: a user's own script is run undisturbed and under faults, and what came of it is compared.

Nothing here touches a run outside of a drill: all of it begins with the setting ``HOLDFAST_WRAPPER``.
"""
