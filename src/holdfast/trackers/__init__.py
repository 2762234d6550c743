"""What runs and trials are written to beside their storage: TensorBoard, MLflow, W&B, Prometheus, and files for tools.

Trackers know neither training nor tuning: ``train/tracking.py`` and ``tune/logger/`` are the ways in.
"""
