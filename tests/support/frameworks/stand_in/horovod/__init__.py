"""Stands for Horovod where it is not installed: it reads what Horovod reads, and meets the others as Horovod does."""
