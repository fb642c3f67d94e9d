"""Searches many recordings for bursts with Dask: a task per file, the candidates of all of them in one table.

    python dask_search.py *.fil --dm-max 1000 -o candidates.csv
    python dask_search.py *.fil --dm-max 1000 -o candidates.csv --scheduler tcp://head:8786

Without --scheduler it starts two worker processes on this machine. Needs sidereal-dsp, pandas and dask[distributed] on
all machines, and the same paths. The table does not depend on the number of workers.
"""

import argparse
import sys

import pandas
from dask.distributed import Client, LocalCluster, wait

import sidereal_dsp as sd


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--dm-max", type=float, required=True, help="largest dispersion measure, pc cm^-3")
    parser.add_argument("--scheduler", help="address of a Dask scheduler")
    parser.add_argument("-o", "--output", required=True, help="CSV file of all candidates")
    options = parser.parse_args()
    local = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with Client(options.scheduler or LocalCluster(**local)) as client:
        # The workers share the processor, so each search has one thread.
        futures = client.map(sd.search, options.files, dm_max=options.dm_max, threads=1)
        wait(futures)
        tables, faults = [], 0
        for path, future in zip(options.files, futures, strict=True):
            # The exception of a task is that of the search, and names the file and its fault.
            if (error := future.exception()) is not None:
                print(error, file=sys.stderr)
                faults += 1
            else:
                tables.append(future.result().to_pandas())
                tables[-1].insert(0, "file", path)
    if tables:
        pandas.concat(tables).to_csv(options.output, index=False)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
