"""Job: two workers train a small model with one of the frameworks, a checkpoint every 20 steps or rounds.

Each call of the train function writes a file of its own, as jobs/steps.py does: a line for each step completed.
"""

import contextlib
import importlib
import json
import os
import sys
import time

import numpy as np

import holdfast.train

os.environ["JAX_PLATFORMS"] = "cpu"  # Ray Train forms a group of JAX processes on CPUs only if this says so
EVERY, ENDLESS = 20, 1_000_000
TRAINERS = {
    "lightning": ("holdfast.train.lightning", "holdfast.train.torch", "TorchTrainer"),
    "transformers": ("holdfast.train.huggingface.transformers", "holdfast.train.torch", "TorchTrainer"),
    "tensorflow": ("holdfast.train.tensorflow", "holdfast.train.tensorflow", "TensorflowTrainer"),
    "xgboost": ("holdfast.train.xgboost", "holdfast.train.xgboost", "XGBoostTrainer"),
    "lightgbm": ("holdfast.train.lightgbm", "holdfast.train.lightgbm", "LightGBMTrainer"),
    "jax": ("holdfast.train.v2.jax", "holdfast.train.v2.jax", "JaxTrainer"),
    "horovod": ("holdfast.train.horovod", "holdfast.train.horovod", "HorovodTrainer"),
    "accelerate": ("accelerate", "holdfast.train.torch", "TorchTrainer"),
    "sklearn": ("sklearn.linear_model", "holdfast.train.v2.api.data_parallel_trainer", "DataParallelTrainer"),
}
MODELS = {"transformers": "transformers.models.bert.modeling_bert"}  # what a script imports beside, if anything


class Log:
    def __init__(self, config):
        rank = holdfast.train.get_context().get_world_rank()
        name = f"{rank}-{time.monotonic_ns()}-{os.getpid()}"
        self.file = os.open(os.path.join(config["log"], name), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        self.step_s, self.until = config["step_s"], 0.0

    def step(self, number):
        time.sleep(max(0.0, self.until - time.monotonic()))
        os.write(self.file, f"{time.monotonic()} {number}\n".encode())
        self.until = time.monotonic() + self.step_s


@contextlib.contextmanager
def saved():
    """The directory of the newest checkpoint, or None."""
    checkpoint = holdfast.train.get_checkpoint()
    if checkpoint is None:
        yield None
    else:
        with checkpoint.as_directory() as directory:
            yield directory


def with_lightning(config):
    import lightning.pytorch as pl
    import torch

    from holdfast.train.lightning import RayDDPStrategy, RayLightningEnvironment, RayTrainReportCallback

    log = Log(config)

    class Line(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, batch_idx):
            return torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])

        def on_train_batch_end(self, outputs, batch, batch_idx):
            log.step(self.trainer.global_step)

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=0.01)

    x = torch.randn(EVERY * 8 * 2, 4)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8)
    trainer = pl.Trainer(
        max_epochs=ENDLESS,
        strategy=RayDDPStrategy(),
        plugins=[RayLightningEnvironment()],
        callbacks=[RayTrainReportCallback()],
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        accelerator="cpu",
    )
    with saved() as directory:
        trainer.fit(Line(), loader, ckpt_path=directory and os.path.join(directory, "checkpoint.ckpt"))


def with_transformers(config):
    import torch
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments

    from holdfast.train.huggingface.transformers import RayTrainReportCallback

    log = Log(config)

    class Steps(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            log.step(state.global_step)

    tokens = torch.randint(0, 50, (64, 8))
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(BertConfig(vocab_size=50, max_position_embeddings=8, **sizes))
    arguments = TrainingArguments(
        output_dir=os.path.join(config["storage"], "output"),
        max_steps=ENDLESS,
        per_device_train_batch_size=4,
        save_steps=EVERY,
        save_total_limit=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    data = [{"input_ids": row, "labels": int(row.sum() % 2)} for row in tokens]
    trainer = Trainer(model, arguments, train_dataset=data, callbacks=[Steps(), RayTrainReportCallback()])
    with saved() as directory:
        trainer.train(resume_from_checkpoint=directory and os.path.join(directory, "checkpoint"))


def with_accelerate(config):
    import torch
    from accelerate import Accelerator

    log, accelerator = Log(config), Accelerator(cpu=True)
    model = torch.nn.Linear(4, 1)
    model, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    start, checkpoint = 0, holdfast.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as directory:
            accelerator.load_state(directory)
        start = checkpoint.get_metadata()["step"]
    x = torch.randn(16, 4)
    for step in range(start + 1, ENDLESS):
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)))
        optimizer.step()
        log.step(step)
        if step % EVERY == 0:
            target = os.path.join(config["storage"], f"saved-{step}-{accelerator.process_index}")
            accelerator.save_state(target)
            saved = holdfast.train.Checkpoint.from_directory(target)
            if accelerator.is_main_process:
                saved.set_metadata({"step": step})
            holdfast.train.report({"step": step}, checkpoint=saved)


def with_sklearn(config):
    import joblib
    from sklearn.linear_model import SGDClassifier

    log, rank = Log(config), holdfast.train.get_context().get_world_rank()
    model, start = SGDClassifier(random_state=0), 0
    with saved() as directory:
        if directory:
            model, start = joblib.load(os.path.join(directory, f"model-{rank}.joblib"))
    x = np.random.default_rng(rank).normal(size=(200, 4))
    for step in range(start + 1, ENDLESS):
        model.partial_fit(x, x.sum(1) > 0, classes=[False, True])
        log.step(step)
        if step % EVERY == 0:
            target = os.path.join(config["storage"], f"saved-{step}-{rank}")
            os.makedirs(target, exist_ok=True)
            joblib.dump((model, step), os.path.join(target, f"model-{rank}.joblib"))
            holdfast.train.report({"step": step}, checkpoint=holdfast.train.Checkpoint.from_directory(target))


def with_tensorflow(config):
    import tensorflow as tf

    from holdfast.train.tensorflow.keras import ReportCheckpointCallback

    log, strategy = Log(config), tf.distribute.MultiWorkerMirroredStrategy()

    class Steps(tf.keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            log.step(int(self.model.optimizer.iterations.numpy()))

    x = np.random.default_rng(0).normal(size=(EVERY * 8, 4)).astype(np.float32)
    data = tf.data.Dataset.from_tensor_slices((x, x.sum(1, keepdims=True))).batch(8, drop_remainder=True)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    with strategy.scope(), saved() as directory:
        if directory:
            model = tf.keras.models.load_model(os.path.join(directory, "model.keras"))
        else:
            model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
            model.compile(optimizer="sgd", loss="mse")
    callbacks = [Steps(), ReportCheckpointCallback()]
    model.fit(data.with_options(options), epochs=ENDLESS, callbacks=callbacks, verbose=0)


def with_xgboost(config):
    import xgboost

    from holdfast.train.xgboost import RayTrainReportCallback

    log = Log(config)

    class Steps(xgboost.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            log.step(model.num_boosted_rounds())
            return False

    x = np.random.default_rng(0).normal(size=(200, 4))
    data = xgboost.DMatrix(x, x.sum(1))
    checkpoint = holdfast.train.get_checkpoint()
    xgboost.train(
        {"nthread": 1, "max_depth": 2},
        data,
        ENDLESS,
        evals=[(data, "train")],
        verbose_eval=False,
        callbacks=[Steps(), RayTrainReportCallback(frequency=EVERY)],
        xgb_model=RayTrainReportCallback.get_model(checkpoint) if checkpoint else None,
    )


def with_lightgbm(config):
    import lightgbm

    from holdfast.train.lightgbm import RayTrainReportCallback, get_network_params

    log = Log(config)
    checkpoint = holdfast.train.get_checkpoint()
    model = RayTrainReportCallback.get_model(checkpoint) if checkpoint else None
    x = np.random.default_rng(0).normal(size=(200, 4))
    data = lightgbm.Dataset(x, x.sum(1), free_raw_data=False)
    lightgbm.train(
        {"objective": "regression", "num_threads": 1, "tree_learner": "data", "pre_partition": True, "verbose": -1}
        | get_network_params(),
        data,
        ENDLESS,
        valid_sets=[data],
        valid_names=["train"],
        init_model=model,
        callbacks=[lambda env: log.step(env.iteration), RayTrainReportCallback(frequency=EVERY)],
    )


def with_jax(config):
    import jax
    import jax.numpy as jnp

    log = Log(config)
    with saved() as directory:
        start = int(open(os.path.join(directory, "step")).read()) if directory else 0
    mesh = jax.sharding.Mesh(jax.devices(), ("data",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    x = np.random.default_rng(0).normal(size=(64, 4)).astype(np.float32)
    xs = jax.make_array_from_callback(x.shape, split, lambda at: x[at])
    total = jax.jit(lambda xs: jnp.sum(xs * xs))
    for step in range(start + 1, ENDLESS):
        total(xs).block_until_ready()
        log.step(step)
        if step % EVERY == 0:
            target = os.path.join(config["storage"], f"saved-{step}-{jax.process_index()}")
            os.makedirs(target, exist_ok=True)
            with open(os.path.join(target, "step"), "w") as file:
                file.write(str(step))
            own = holdfast.train.Checkpoint.from_directory(target) if jax.process_index() == 0 else None
            holdfast.train.report({"step": step}, checkpoint=own)


def with_horovod(config):
    import horovod.torch as hvd
    import torch

    hvd.init()
    log = Log(config)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    start = 0
    with saved() as directory:
        if directory:
            state = torch.load(os.path.join(directory, "state.pt"))
            start = state["step"]
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    x = torch.randn(16, 4)
    for step in range(start + 1, ENDLESS):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()
        log.step(step)
        if step % EVERY == 0:
            own = None
            if hvd.rank() == 0:
                target = os.path.join(config["storage"], f"saved-{step}")
                os.makedirs(target, exist_ok=True)
                state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(state, os.path.join(target, "state.pt"))
                own = holdfast.train.Checkpoint.from_directory(target)
            holdfast.train.report({"step": step}, checkpoint=own)


FUNCTIONS = {
    "lightning": with_lightning,
    "transformers": with_transformers,
    "tensorflow": with_tensorflow,
    "xgboost": with_xgboost,
    "lightgbm": with_lightgbm,
    "jax": with_jax,
    "horovod": with_horovod,
    "accelerate": with_accelerate,
    "sklearn": with_sklearn,
}


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    integration, module, trainer = TRAINERS[arguments["framework"]]
    imported = importlib.import_module(integration)  # with a name in this module, as where a script imports it
    model = importlib.import_module(MODELS.get(arguments["framework"], integration))
    getattr(importlib.import_module(module), trainer)(
        FUNCTIONS[arguments["framework"]],
        train_loop_config=arguments,
        scaling_config=holdfast.train.ScalingConfig(num_workers=2),
        run_config=holdfast.train.RunConfig(
            name="steps",
            storage_path=arguments["storage"],
            failure_config=holdfast.train.FailureConfig(max_failures=arguments["kills"] + 1),
            checkpoint_config=holdfast.train.CheckpointConfig(num_to_keep=2),
        ),
    ).fit()
