"""Problems of the script as a whole, concluded from its runs without a fault."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core.run.ranks import in_words
from holdfast.drill.content import OPAQUE, RANDOM
from holdfast.drill.drill_verdict import ADVICE, PROBLEM, Finding
from holdfast.drill.outcome import RunOutcome
from holdfast.drill.run_comparison import Differences


def of_the_script(undisturbed: list[RunOutcome], noise: Differences, all_passed: bool) -> list[Finding]:
    """``noise``: what differs between two runs without a fault. ``all_passed``: under every fault."""
    found = list(_of_saving(undisturbed))
    found += [finding for run in undisturbed for finding in _of_names(run, all_passed)][:1]
    return found + list(_of_noise(noise))


def _of_saving(undisturbed: list[RunOutcome]) -> Iterator[Finding]:
    if not any(run.checkpoint_steps for run in undisturbed):
        yield Finding(
            "no-checkpoint",
            PROBLEM,
            "the script reports no checkpoint, so every failure loses all of its work",
            "save the state and pass it to report(metrics, checkpoint=Checkpoint.from_directory(...))",
        )
    for run in undisturbed:
        silent = sorted(set(range(max(run.world_sizes, default=1))) - run.records.keys())
        replicated = (run.identity.get("checkpoint") or {}).get("rank_zero_only")
        if silent and run.records and not replicated:
            yield Finding(
                "rank-zero-only",
                PROBLEM,
                f"{in_words(silent)} never called report(), so no checkpoint was saved before the run ended",
                "call report() on every rank, or set CheckpointConfig(rank_zero_only=True) if rank 0's checkpoint "
                "holds the whole state",
            )
            return


def _of_names(run: RunOutcome, all_passed: bool) -> Iterator[Finding]:
    """If ranks save different files under one name, only the file of the lowest rank is kept."""
    steps = sorted({step for notes in run.records.values() for step in notes})
    for step in steps:
        saved: dict[str, tuple[int, str]] = {}
        for rank in sorted(run.records):
            for path, digest in run.records[rank].get(step, {"files": {}})["files"].items():
                first, content = saved.setdefault(path, (rank, digest))
                if content != digest:
                    yield Finding(
                        "same-file-name",
                        ADVICE if all_passed else PROBLEM,
                        f"ranks {first} and {rank} save different content as {path!r}, and only rank {first}'s is kept",
                        "put the rank into the name, as in "
                        'f"state-{train.get_context().get_world_rank()}.pt", or save the file on rank 0 only',
                    )
                    return


def _of_noise(noise: Differences) -> Iterator[Finding]:
    random = [one for one in noise.weights if one.what.startswith(RANDOM)]
    if noise.batches or any(one.what != OPAQUE for one in noise.weights if one not in random):
        yield Finding(
            "not-repeatable",
            PROBLEM,
            f"two runs without a fault differ ({noise}), so a difference after a fault proves nothing there",
            "seed what is random: torch.manual_seed(), random.seed(), numpy.random.seed()",
        )
        return
    if random:
        sources = sorted({one.what.rpartition(" ")[2] for one in random})
        yield Finding(
            "not-seeded",
            ADVICE,
            f"the random generator of {' and '.join(sources)} is not seeded, so its saved state differs from run to "
            f"run ({random[0].where}). It was not compared. Everything else is the same, so the script is correct",
            "seed it at the start, to have it compared too: " + ", ".join(_SEEDS.get(name, name) for name in sources),
        )
    left_out = sorted(
        {point.name for point in noise.metrics} | {one.where for one in noise.weights if one not in random}
    )
    if left_out:
        text = f"these values differ between two runs without a fault, so they were not compared: {', '.join(left_out)}"
        yield Finding("noise", ADVICE, text, "")


_SEEDS = {
    "numpy": "numpy.random.seed(0)",
    "python": "random.seed(0)",
    "torch": "torch.manual_seed(0)",
    "cuda": "torch.cuda.manual_seed_all(0)",
}
