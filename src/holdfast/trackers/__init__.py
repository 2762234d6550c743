"""Where runs and trials are logged besides their storage: TensorBoard, MLflow, W&B, Prometheus, and files for tools.

Trackers know neither training nor tuning: ``train/tracking.py`` and ``tune/logger/`` connect them.
"""
