"""``CometLoggerCallback``, under the path that scripts from Ray import it from."""

from holdfast.trackers.comet_logger import CometLoggerCallback

__all__ = ["CometLoggerCallback"]
