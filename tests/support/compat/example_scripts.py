"""The example scripts in Ray's wheel as they are after a move: read at test time, with the import root changed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from support.compat import example_imports
from support.compat.ray_names import source_of

_EXAMPLES = r"holdfast\.tune\.examples\."
_TORCHVISION = "needs torchvision and a data set"
_DATA_SET = "downloads a data set"
_RLLIB = "trains with RLlib"
_HOROVOD = "needs Horovod, which is compiled, and a data set"
# By path below ray/, and why it does not run here. Their imports are tested with those of all the others
NOT_RUN = {
    "train/examples/horovod/horovod_example.py": _HOROVOD,
    "train/examples/horovod/horovod_pytorch_example.py": _HOROVOD,
    "train/examples/horovod/horovod_tune_example.py": "needs Horovod, and passes a private argument of Ray's Tuner",
    "train/examples/pytorch/torch_data_prefetch_benchmark/auto_pipeline_for_host_to_device_data_transfer.py": "a GPU",
    "train/examples/pytorch/torch_fashion_mnist_example.py": _TORCHVISION,
    "train/examples/pytorch/torch_quick_start.py": _TORCHVISION,
    "train/examples/pytorch/torch_regression_example.py": "reads a data set in a bucket",
    "train/examples/pytorch_geometric/distributed_sage_example.py": "needs torch_geometric and a data set",
    "train/examples/tf/tensorflow_autoencoder_example.py": _DATA_SET,
    "train/examples/tf/tensorflow_mnist_example.py": _DATA_SET,
    "train/examples/tf/tensorflow_quick_start.py": _DATA_SET,
    "train/examples/tf/tensorflow_regression_example.py": "reads a data set in a bucket",
    "tune/examples/cifar10_pytorch.py": _TORCHVISION,
    "tune/examples/mlflow_ptl.py": _DATA_SET,
    "tune/examples/mnist_ptl_mini.py": _DATA_SET,
    "tune/examples/mnist_pytorch.py": _TORCHVISION,
    "tune/examples/mnist_pytorch_trainable.py": _TORCHVISION,
    "tune/examples/pb2_ppo_example.py": _RLLIB,
    "tune/examples/pbt_convnet_example.py": _TORCHVISION,
    "tune/examples/pbt_convnet_function_example.py": _TORCHVISION,
    "tune/examples/pbt_dcgan_mnist/common.py": "no script",
    "tune/examples/pbt_dcgan_mnist/pbt_dcgan_mnist_func.py": _TORCHVISION,
    "tune/examples/pbt_dcgan_mnist/pbt_dcgan_mnist_trainable.py": _TORCHVISION,
    "tune/examples/pbt_memnn_example.py": _DATA_SET,
    "tune/examples/pbt_ppo_example.py": _RLLIB,
    "tune/examples/pbt_transformers/pbt_transformers.py": "downloads a model and a data set",
    "tune/examples/pbt_transformers/utils.py": "no script",
    "tune/examples/pbt_tune_cifar10_with_keras.py": _DATA_SET,
    "tune/examples/tf_mnist_example.py": _DATA_SET,
    "tune/examples/tune_mnist_keras.py": _DATA_SET,
    "tune/examples/utils.py": "no script",
}
# Those that are refused on purpose, and the words
REFUSED = {"tune/examples/mlflow_example.py": "holds a different experiment"}


def names() -> list[str]:
    """All examples, by path below ``ray/``."""
    init = source_of("ray", "tune")
    assert init is not None
    return [path.relative_to(init.parent.parent).as_posix() for path in example_imports.examples()]


def to_run() -> list[str]:
    return [name for name in names() if name not in NOT_RUN]


def moved(source: str) -> str:
    """What the moving guide tells a user to do, and nothing else."""
    source = re.sub(r"^(\s*)(import|from) ray\b", r"\1\2 holdfast", source, flags=re.MULTILINE)
    return re.sub(r"(?<![\w./])ray\.(?=[a-z])", "holdfast.", source)


def run(name: str, directory: Path, timeout_s: float = 500) -> subprocess.CompletedProcess[str]:
    """The example, quickly if it knows how, in a directory of its own."""
    init = source_of("ray", "tune")
    assert init is not None
    source = moved((init.parent.parent / name).read_text())
    beside = re.findall(rf"^from {_EXAMPLES}(\w+) import", source, flags=re.MULTILINE)
    for other in beside:  # another example, of which it takes a function
        (directory / f"{other}.py").write_text(moved((init.parent / "examples" / f"{other}.py").read_text()))
    source = re.sub(rf"^from {_EXAMPLES}", "from ", source, flags=re.MULTILINE)
    script = directory / Path(name).name
    script.write_text(source)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "HOME": str(directory),
        "TMPDIR": str(directory),
        "HOLDFAST_DISPLAY": "off",
        "HOLDFAST_STORAGE_PATH": str(directory / "results"),
        "MLFLOW_ALLOW_FILE_STORE": "true",  # which MLflow 3 wants to hear
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, str(script), *(["--smoke-test"] if "--smoke-test" in source else [])]
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
    )
