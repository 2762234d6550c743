"""``python patient_ray.py ...`` is ``ray ...`` with more patience.

Ray 2.49 waits for its dashboard for 200 naps, come what may; a loaded machine may need longer.
"""

from __future__ import annotations

import time
from types import SimpleNamespace

import ray._private.services
from ray.scripts.scripts import main

_LONGER = 5

if __name__ == "__main__":
    naps = SimpleNamespace(**vars(time))
    naps.sleep = lambda seconds: time.sleep(_LONGER * seconds)
    ray._private.services.time = naps
    main()
