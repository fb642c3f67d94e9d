"""Searches many recordings for bursts with Ray: a task per file, the candidates of all of them in one table.

    python ray_search.py *.fil --dm-max 1000 -o candidates.csv
    python ray_search.py *.fil --dm-max 1000 -o candidates.csv --address auto

Without --address it starts two workers on this machine. Needs sidereal-dsp, pandas and ray on all machines, and the same
paths. The table does not depend on the number of workers.
"""

import argparse
import sys

import pandas
import ray

import sidereal_dsp as sd


@ray.remote(num_cpus=1)
def search(path, dm_max):
    """Returns the candidates of one file. A task has one processor, so the search has one thread."""
    return sd.search(path, dm_max=dm_max, threads=1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--dm-max", type=float, required=True, help="largest dispersion measure, pc cm^-3")
    parser.add_argument("--address", help="address of a Ray cluster")
    parser.add_argument("-o", "--output", required=True, help="CSV file of all candidates")
    options = parser.parse_args()
    ray.init(**({"address": options.address} if options.address else {"num_cpus": 2, "include_dashboard": False}))
    tasks = [search.remote(path, options.dm_max) for path in options.files]
    tables, faults = [], 0
    for path, task in zip(options.files, tasks, strict=True):
        try:
            table = ray.get(task).to_pandas()
            table.insert(0, "file", path)
            tables.append(table)
        except ray.exceptions.RayTaskError as error:
            # The cause is the exception of the search, and names the file and its fault.
            print(error.cause, file=sys.stderr)
            faults += 1
    ray.shutdown()
    if tables:
        pandas.concat(tables).to_csv(options.output, index=False)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
