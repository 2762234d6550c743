"""Names of Ray Data that this package lacks, each with what to use instead. No error is without a remedy."""

from __future__ import annotations

_READ = "read the files with their own library in map_batches, over from_items([paths])"
_WRITE = "write_parquet, write_csv or write_json; or write in map_batches"
_CLUSTER = "holdfast.data works in the processes of the run; there is no cluster to hand blocks to"

DATASET = {
    "groupby": "to_pandas().groupby(...), or pyarrow's Table.group_by on take_batch(..., batch_format='pyarrow')",
    "aggregate": "sum, min, max, mean, std, unique; or to_pandas()",
    "join": "to_pandas().merge(...) and from_pandas, or zip if the rows are in the same order",
    "mix": "union(...).random_shuffle()",
    "with_column": "add_column",
    "with_columns": "add_column",
    "summary": "to_pandas().describe()",
    "streaming_train_test_split": "train_test_split, which computes nothing either unless it shuffles",
    "iter_jax_batches": "iter_batches: JAX takes its numpy arrays",
    "to_torch": "iter_torch_batches",
    "to_random_access_dataset": "materialize(), and take the rows by their number",
    "to_pandas_refs": "to_pandas, or to_arrow_refs",
    "to_numpy_refs": "take_batch, or to_arrow_refs",
    "get_internal_block_refs": _CLUSTER,
    "iter_internal_ref_bundles": _CLUSTER,
    "to_dask": "write_parquet, and dask.dataframe.read_parquet",
    "to_spark": "write_parquet, and spark.read.parquet",
    "to_modin": "to_pandas",
    "to_mars": "to_pandas",
    "to_daft": "write_parquet, and daft.read_parquet",
    "serialize_lineage": "a Dataset can be pickled",
    "deserialize_lineage": "a Dataset can be pickled",
    "has_serializable_lineage": "a Dataset can be pickled",
    "explain": "repr() shows the plan",
    "get_stats_summary": "stats()",
    "write_datasink": _WRITE,
    "write_images": _WRITE,
    "write_numpy": _WRITE,
    "write_tfrecords": _WRITE,
    "write_webdataset": _WRITE,
    "write_sql": _WRITE,
    "write_mongo": _WRITE,
    "write_bigquery": _WRITE,
    "write_iceberg": _WRITE,
    "write_delta": _WRITE,
    "write_lance": _WRITE,
    "write_orc": _WRITE,
    "write_kafka": _WRITE,
    "write_snowflake": _WRITE,
    "write_clickhouse": _WRITE,
    "write_turbopuffer": _WRITE,
}
MODULE = {
    "from_arrow_refs": "from_arrow(holdfast.get(refs))",
    "from_pandas_refs": "from_pandas(holdfast.get(refs))",
    "from_numpy_refs": "from_numpy(holdfast.get(refs))",
    "from_blocks": "from_arrow",
    "from_tf": "from_items(list(dataset.as_numpy_iterator()))",
    "from_dask": "write Parquet with dask, and read_parquet",
    "from_spark": "write Parquet with Spark, and read_parquet",
    "from_modin": "from_pandas",
    "from_mars": "from_pandas",
    "from_daft": "from_arrow(frame.to_arrow())",
    "read_datasource": _READ,
    "Datasource": _READ,
    "Datasink": _WRITE,
    "Preprocessor": "map_batches",
    "DatasetContext": "DataContext",
    "DatasetIterator": "DataIterator",
    "DatasetSummary": "to_pandas().describe()",
    "MixStoppingCondition": "union(...).random_shuffle()",
    "ReadTask": _READ,
    "BlockBasedFileDatasink": _WRITE,
    "RowBasedFileDatasink": _WRITE,
    "SinkMode": _WRITE,
    "SaveMode": 'write_parquet into an empty directory; files are always added, as with mode="append"',
    "list_stats_summaries": "Dataset.stats()",
    "CatalogAccessMode": _READ,
    "Catalog": _READ,
    "DatabricksUnityCatalog": _READ,
    "ReaderFormat": _READ,
    "ResolvedSource": _READ,
    "KafkaAuthConfig": _READ,
    "ClickHouseTableSettings": _WRITE,
    **dict.fromkeys(
        (
            *(
                "read_audio",
                "read_avro",
                "read_binary_files",
                "read_clickhouse",
                "read_delta",
                "read_delta_sharing_tables",
            ),
            *("read_hudi", "read_iceberg", "read_kafka", "read_lance", "read_lerobot", "read_mcap", "read_mongo"),
            *("read_numpy", "read_orc", "read_snowflake", "read_sql", "read_tfrecords", "read_unity_catalog"),
            *("read_videos", "read_webdataset", "read_zarr", "read_bigquery"),
        ),
        _READ,
    ),
}
ARGUMENTS = {
    ("Dataset.repartition", "keys"): "sort by them first, then repartition",
    ("Dataset.repartition", "sort"): "sort(...) first, then repartition",
    ("Dataset.train_test_split", "stratify"): "a filter for each value, split each, and union the parts",
}


def missing(where: str, name: str) -> AttributeError:
    """The error to raise for a missing name."""
    known = MODULE if where == "holdfast.data" else DATASET
    instead = ARGUMENTS.get((where, name)) or known.get(name)
    if instead is None:
        return AttributeError(f"{where} has no {name!r}")
    return AttributeError(f"{where} has no {name}. In its place: {instead}. docs/data.md lists what is left out.")
