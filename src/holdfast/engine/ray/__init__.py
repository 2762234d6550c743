"""Clusters: Ray brings nodes, resources, placement, health and autoscaling; the agents and all below them are ours.

Nothing of Ray is imported before a run wants this engine.
"""
