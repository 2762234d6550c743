"""Trackers and Keras, under the paths that scripts from Ray import them from."""
