"""Counts the lines of ``src/holdfast`` at two commits, by folder, with what is new behaviour apart from the rest.

    python benchmarks/source_lines.py fef41ef2 HEAD

Lines are lines of text in Python files, with docstrings, comments and empty lines. New behaviour is a list of files
that serve only something that the first commit could not do. What it needs in other files counts as the rest. The first
commit has none of these files.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence

SRC = "src/holdfast/"
Lines = dict[str, int]
NEW = {
    "datasets with a cursor": r"data/|train/(actor_batches|data_config|ray_datasets)\.py",
    "pages in a browser": r"(web|pictures)/|cli/(ui|report|compare)\.py"
    r"|runs/(comparison|search_history|report_edges)\.py",
    "frameworks beside torch": r"train/(jax|tensorflow|xgboost|lightgbm|lightning|huggingface|horovod)/"
    r"|train/(boosting|torch/resumable)\.py|tune/integration/(keras|lightgbm|pytorch_lightning|xgboost)\.py"
    r"|worker/imported_frameworks\.py",
    "snapshots, live recovery, standbys": r"core/run/(memory|regrouping|standby|moving)\.py"
    r"|driver/(regroups|snapshot_registry)\.py|node/(node_snapshots|snapshot_dirs|snapshot_store)\.py"
    r"|wire/(snapshot|standby|peer)_messages\.py|worker/snapshot_buffers\.py|train/standby_variables\.py"
    r"|train/torch/(live_\w+|state_\w+|train_state|plain_pickle)\.py",
    "searchers, analysis, `tune.run`": r"tune/search/(ax|bayesopt|bohb|hyperopt|nevergrad|zoopt)\.py"
    r"|tune/search/(flat_space|library_searcher|call_history|variant_generator)\.py|tune/(analysis|execution)/"
    r"|tune/(tune|saved_state|mock_trainable|utils)\.py|tune/trainable/(export_formats|output_files)\.py"
    r"|tune/experiment/(code_fingerprint|same_experiment|experiment_argument|metric_summary|pbt_files)\.py",
    "scripts as they are: Ray's paths, torchrun, Aim, Comet": r"air/|train/v2/|trackers/(aim|comet)_logger\.py"
    r"|train/(launched|torchrun|tracked_workers|ray_variables)\.py|tune/(ray_paths|syncer)\.py",
    "simulators of experiments and of live recovery, contract suites": r"testing/(experiment_\w+|live_invariants)\.py"
    r"|testing/simulated_(experiment|trials|live|memory)\.py|testing/(memory|start)_invariants\.py"
    r"|testing/(engine_contract|engine_runs|store_contract|checkpoint_contract)\.py",
}
GROUPS = {  # code that has moved among folders is in one of these then and now
    "a run: decisions, driver, readers, displays, commands": r"core/(?!experiment/)|(driver|runs|ui|cli)/",
    "tuning, its decisions and trackers": r"core/experiment/|(tune|trackers|metrics|air)/",
    "processes: engines, nodes, workers, messages": r"(engine|node|worker|wire|objects|platform)/",
    "store": r"store/",
    "train": r"train/",
    "drill": r"drill/",
    "testing": r"testing/",
    "datasets, pages": r"(data|web|pictures)/",
    "beside the folders": r"",
}
NEW_FILE = {topic: re.compile(pattern) for topic, pattern in NEW.items()}


def git(*arguments: str, given: str = "") -> str:
    return subprocess.run(["git", *arguments], input=given, capture_output=True, text=True, check=True).stdout


def lines_of(commit: str) -> Lines:
    paths = [path for path in git("ls-tree", "-r", "--name-only", commit, SRC).splitlines() if path.endswith(".py")]
    return {path.removeprefix(SRC): git("show", f"{commit}:{path}").count("\n") for path in paths}


def topic_of(path: str) -> str:
    return next((topic for topic, pattern in NEW_FILE.items() if pattern.match(path)), "")


def folder_of(path: str) -> str:
    return path.partition("/")[0] + "/" if "/" in path else "beside the folders"


def group_of(path: str) -> str:
    return next(group for group, pattern in GROUPS.items() if re.match(pattern, path))


def kinds_of(source: str) -> Counter[str]:
    """How many lines are statements, imports, docstrings, comments, and empty."""
    lines = source.splitlines()
    kinds = ["" if line.strip() else "empty" for line in lines]
    for number, line in enumerate(lines):
        kinds[number] = "comments" if line.strip().startswith("#") else kinds[number]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Import() | ast.ImportFrom():
                kinds[node.lineno - 1 : node.end_lineno] = ["imports"] * (node.end_lineno - node.lineno + 1)
            case ast.Module(body=[ast.Expr(value=ast.Constant(value=str())) as text, *_]) | (
                ast.ClassDef(body=[ast.Expr(value=ast.Constant(value=str())) as text, *_])
                | ast.FunctionDef(body=[ast.Expr(value=ast.Constant(value=str())) as text, *_])
            ):
                kinds[text.lineno - 1 : text.end_lineno] = ["docstrings"] * (text.end_lineno - text.lineno + 1)
    return Counter(kind or "statements" for kind in kinds)


def show_kinds(commits: Sequence[str], counted: Sequence[Lines]) -> None:
    found = [Counter[str](), Counter[str]()]
    for kinds, commit, paths in zip(found, commits, counted, strict=True):
        for path in paths:
            kinds.update(Counter() if topic_of(path) else kinds_of(git("show", f"{commit}:{SRC}{path}")))
    print("| lines of the rest | then | now |\n|---|---|---|")
    for kind in ("statements", "imports", "docstrings", "comments", "empty"):
        print(f"| {kind} | {found[0][kind]:,} | {found[1][kind]:,} |")
    print()


def show(head: str, place_of: Callable[[str], str], places: Sequence[str], before: Lines, after: Lines) -> None:
    then, now, new = Counter[str](), Counter[str](), Counter[str]()
    for path, lines in before.items():
        then[place_of(path)] += lines
    for path, lines in after.items():
        now[place_of(path)] += lines
        new[place_of(path)] += lines if topic_of(path) else 0
    print(f"| {head} | then | now | of that new behaviour | the rest |\n|---|---|---|---|---|")
    for place in places:
        print(f"| {place} | {then[place]:,} | {now[place]:,} | {new[place]:,} | {now[place] - new[place]:,} |")
    total, added = now.total(), new.total()
    print(f"| **all** | {then.total():,} | {total:,} | {added:,} | {total - added:,} |\n")


def main(then: str, now: str) -> None:
    before, after = lines_of(then), lines_of(now)
    assert not [path for path in before if topic_of(path)], "what the first commit has is not new"
    show("what", group_of, list(GROUPS), before, after)
    show("folder", folder_of, sorted({folder_of(path) for path in (*before, *after)}), before, after)
    show_kinds((then, now), (before, after))
    topics = Counter[str]()
    for path, lines in after.items():
        topics[topic_of(path)] += lines
    print("| new behaviour | lines |\n|---|---|")
    for topic in NEW:
        print(f"| {topic} | {topics[topic]:,} |")
    rest = sum(1 for path in after if not topic_of(path))
    print(f"\nfiles: {len(before)} then, {len(after)} now, {rest} of them the rest")


if __name__ == "__main__":
    main(*sys.argv[1:3])
