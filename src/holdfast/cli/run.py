"""Run a script on several workers and restart it after failures.

Each worker runs the script as its main program, as torchrun does. It may use holdfast.train (report, get_checkpoint,
get_context, ...), or plain torch.distributed. Arguments after SCRIPT go to the script. The same --storage and --name
resume a run that was stopped or killed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.cli import output, paths
from holdfast.errors import TrainingFailedError

if TYPE_CHECKING:
    from holdfast.train.result import Result
    from holdfast.train.trainer import DataParallelTrainer

_RANGE = re.compile(r"(\d+):(\d+)")
_TRAINERS = {"DataParallelTrainer", "TorchTrainer", "Tuner"}
_SHOWN_OPTIONS = ("workers", "storage", "engine", "max_failures", "hang_timeout", "keep", "gpus")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers",
        type=workers,
        default=1,
        metavar="N|MIN:MAX",
        help="number of workers (default: 1), or an elastic range",
    )
    parser.add_argument("--name", help="name of the run (default: a new one)")
    parser.add_argument(
        "--fresh", action="store_true", help="start a new run, NAME-2 and so on, if a run with this name exists"
    )
    parser.add_argument("--storage", metavar="PATH", help=f"where to store the run: {paths.STORAGE_HELP}")
    parser.add_argument(
        "--engine", metavar="NAME", help="where workers run: local or ray (default: HOLDFAST_ENGINE, else local)"
    )
    parser.add_argument(
        "--max-failures", type=int, default=0, metavar="N", help="retries after failures; -1 without limit (default: 0)"
    )
    parser.add_argument(
        "--hang-timeout",
        type=_seconds,
        metavar="S|auto",
        help="restart the workers when one makes no report for this many seconds",
    )
    parser.add_argument("--keep", type=int, metavar="N", help="how many checkpoints to keep (default: all)")
    parser.add_argument(
        "--rank-zero-only",
        action="store_true",
        help="only rank 0 calls report(), and its checkpoint holds the whole state, as with DDP",
    )
    parser.add_argument("--gpus", type=float, default=0, metavar="N", help="GPUs per worker (default: 0)")
    parser.add_argument(
        "--torch",
        action="store_true",
        help="form a torch process group before the script starts; needed for holdfast.train.torch.prepare_model()",
    )
    parser.add_argument("-m", "--module", action="store_true", help="SCRIPT is a module, as with python -m")
    parser.add_argument("script", metavar="SCRIPT", help="a Python file")
    parser.add_argument("script_args", metavar="...", nargs=argparse.REMAINDER, help="arguments of the script")


def run(arguments: argparse.Namespace) -> int:
    _check_script(arguments)
    script = _Reading(arguments)
    if script.has_trainer:
        raise ValueError(
            f"{arguments.script} creates its own trainer, so run it once, with Python: python {arguments.script}"
        )
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a reader that leaves must not end a run
    sys.argv[:] = [arguments.script, *arguments.script_args]
    home = os.getcwd() if arguments.module else os.path.dirname(os.path.abspath(arguments.script))
    sys.path[: 0 if getattr(sys.flags, "safe_path", False) else 1] = [home]
    trainer = _trainer(arguments, script.uses_torch)
    try:
        result: Result | None = trainer.fit()
        error = ""
    except TrainingFailedError as failed:
        result, error = None, str(failed)
    if arguments.json:
        _print_json(str(trainer.run_config.location), result, error)
    elif error:
        output.note(f"holdfast: the run failed: {error}", lines=True)
    return 1 if error else 0


def _trainer(arguments: argparse.Namespace, uses_torch: bool) -> DataParallelTrainer:
    """Imported here: the other commands start without what trains."""
    from holdfast.cli.script import Script
    from holdfast.train.config import BackendConfig, CheckpointConfig, FailureConfig, RunConfig
    from holdfast.train.scaling_config import ScalingConfig
    from holdfast.train.torchrun import TorchrunEnvironment, WarmTorchrunEnvironment
    from holdfast.train.trainer import DataParallelTrainer

    class ScriptTrainer(DataParallelTrainer):
        def _how_to_resume(self, location: Any) -> str:
            return f"run this: {_command(arguments, location.name)}"

    backend: BackendConfig = WarmTorchrunEnvironment() if uses_torch else TorchrunEnvironment()
    if arguments.torch:
        from holdfast.train.torch.torch_config import TorchConfig

        backend = TorchConfig()
    script = arguments.script if arguments.module else os.path.abspath(arguments.script)
    with _named_by_options():
        return ScriptTrainer(
            Script(script, arguments.module),
            train_loop_config={"script": arguments.script, "arguments": arguments.script_args},
            backend_config=backend,
            scaling_config=ScalingConfig(
                num_workers=arguments.workers,
                use_gpu=arguments.gpus > 0,
                resources_per_worker={"GPU": arguments.gpus} if arguments.gpus else None,
            ),
            run_config=RunConfig(
                name=arguments.name,
                storage_path=arguments.storage,
                engine=arguments.engine,
                failure_config=FailureConfig(
                    max_failures=arguments.max_failures, hang_timeout_s=arguments.hang_timeout
                ),
                checkpoint_config=CheckpointConfig(num_to_keep=arguments.keep, rank_zero_only=arguments.rank_zero_only),
                fresh=arguments.fresh,
                verbose=0 if arguments.json else None,
            ),
        )


@contextlib.contextmanager
def _named_by_options() -> Iterator[None]:
    """Errors name the option that the user typed: FailureConfig(max_failures=...) is --max-failures here."""
    options = {
        "ScalingConfig(num_workers": "--workers",
        "RunConfig(name": "--name",
        "RunConfig(storage_path": "--storage",
        "FailureConfig(max_failures": "--max-failures",
        "FailureConfig(hang_timeout_s": "--hang-timeout",
        "CheckpointConfig(num_to_keep": "--keep",
    }
    try:
        yield
    except (TypeError, ValueError) as error:
        text = str(error)
        for argument, option in options.items():
            text = text.replace(f"{argument}=", f"{option}=")
        raise ValueError(text.replace("): ", ": ", 1)) from None


class _Reading:
    """Mistakes that can be found by reading the script. Anything missed costs only time."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        nodes: list[ast.AST] = []
        if not arguments.module:
            with contextlib.suppress(SyntaxError, ValueError), open(arguments.script, "rb") as file:
                nodes = list(ast.walk(ast.parse(file.read())))  # the workers report the error
        imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
        packages = {name.partition(".")[0] for name in imported}
        self.uses_torch = "torch" in packages
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        self.has_trainer = "holdfast" in packages and "fit" in names and bool(names & _TRAINERS)


def _check_script(arguments: argparse.Namespace) -> None:
    script = arguments.script
    if arguments.module:
        sys.path.insert(0, os.getcwd())
        try:
            found = importlib.util.find_spec(script) is not None
        except (ImportError, ValueError):
            found = False
        del sys.path[0]
        if not found:
            raise ValueError(f"module {script!r} cannot be imported from {os.getcwd()}. Check its name.")
        return
    if not os.path.isfile(script):
        what = "is a directory" if os.path.isdir(script) else "does not exist"
        raise ValueError(f"script {script} {what}. Pass a Python file, or -m and a module.")
    with open(script, "rb"):  # report a missing permission before anything is started
        pass


def _command(arguments: argparse.Namespace, name: str) -> str:
    """The command that resumes the run, by its name."""
    words = ["holdfast", "run", "--name", name]
    for option in _SHOWN_OPTIONS:
        value = getattr(arguments, option)
        if value not in (None, 0):
            text = ":".join(map(str, value)) if isinstance(value, tuple) else str(value)
            words += [f"--{option.replace('_', '-')}", text]
    words += ["--rank-zero-only"] if arguments.rank_zero_only else []
    words += ["--torch"] if arguments.torch else []
    words += ["-m"] if arguments.module else []
    return shlex.join([*words, arguments.script, *arguments.script_args])


def _print_json(path: str, result: Result | None, error: str) -> None:
    checkpoint = None if result is None or result.checkpoint is None else str(result.checkpoint.path)
    output.print_json(
        {
            "path": path,
            "state": "failed" if error else "finished",
            "metrics": result and result.metrics,
            "checkpoint": checkpoint,
            "error": error or None,
        }
    )


def workers(text: str) -> int | tuple[int, int]:
    """As it is written in an option."""
    found = _RANGE.fullmatch(text)
    if found:
        return int(found[1]), int(found[2])
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r}: use a number, as in 4, or a range, as in 1:4")
    return int(text)


def _seconds(text: str) -> float | str:
    if text == "auto":
        return text
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: use a number of seconds, or auto") from None
