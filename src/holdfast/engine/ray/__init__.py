"""Clusters: Ray provides nodes, resources, placement, health and autoscaling; the agents and all processes below them
are ours.

Ray is not imported before a run uses this engine.
"""
