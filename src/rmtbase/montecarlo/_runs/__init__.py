"""Runs of a plan: by this process, by Dask workers, by several hosts."""
