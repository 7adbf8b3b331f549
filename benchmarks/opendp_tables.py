"""Eight queries of a Parquet file beside OpenDP with polars: error at the same ε, time, and how much is written.

``python -m benchmarks.opendp_tables --python PATH`` with an interpreter that has ``opendp[polars]``, which needs an
older polars than this package's tests. Errors are mean absolute ones of ``--runs`` answers at ε = 1 from 10⁵ rows;
times are the least of ``--repeats`` from ``--rows`` rows, in turns, each after a first call that is not timed. Both
protect a row that comes or goes, or a person of whom three rows are used, and know neither the number of rows nor that
of persons; OpenDP, whose sums of floating-point numbers have noise for their rounding, is told that there are at most
twice as many rows as there are. OpenDP has no mean of unknown length: it is asked for a sum and a count of one budget.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.tables import CLIPPED, written

#: What is asked: the truth in SQL, then this package's words, then OpenDP's.
ASKED = {
    "count": (
        "SELECT COUNT(*) FROM f WHERE paid > 20",
        "queries.count(f, where='paid > 20', budget=rows).value",
        "context(row).query().filter(pl.col.paid > 20).select(dp.len(signed=True)).release().collect().item()",
    ),
    "sum": (
        f"SELECT SUM({CLIPPED}) FROM f",
        "queries.sum(f, 'paid', bounds=(0, 100), budget=rows).value",
        "context(row, long).query().select(paid.dp.sum((0.0, 100.0))).release().collect().item()",
    ),
    "mean": (
        f"SELECT AVG({CLIPPED}) FROM f",
        "queries.mean(f, 'paid', bounds=(0, 100), budget=rows).value",
        "(lambda t: t['paid'][0] / t['len'][0])(context(row, long).query()"
        ".select(paid.dp.sum((0.0, 100.0)), dp.len(signed=True)).release().collect())",
    ),
    "histogram": (
        f"SELECT COUNT(*) FROM f GROUP BY LEAST(19, FLOOR({CLIPPED} / 5)) ORDER BY LEAST(19, FLOOR({CLIPPED} / 5))",
        "queries.histogram(f, 'paid', bins=20, bounds=(0, 100), budget=rows).value",
        "context(row).query().with_columns(pl.col.paid.cut([5.0 * i for i in range(1, 20)], "
        "labels=[f'{i:02}' for i in range(20)], left_closed=True).cast(pl.String).alias('b'))"
        ".group_by('b').agg(dp.len(signed=True)).with_keys(pl.LazyFrame({'b': [f'{i:02}' for i in range(20)]}))"
        ".release().collect().sort('b')['len'].to_list()",
    ),
    "10,000 groups": (
        "SELECT COUNT(f.town) FROM range(10000) AS t(i) LEFT JOIN f ON f.town = i GROUP BY i ORDER BY i",
        "queries.count(f, groups='town', keys=range(10_000), budget=rows).value",
        "context(row).query().group_by('town').agg(dp.len(signed=True))"
        ".with_keys(pl.LazyFrame({'town': pl.Series(range(10_000), dtype=pl.Int32)}))"
        ".release().collect().sort('town')['len'].to_list()",
    ),
    "median": (
        "SELECT MEDIAN(paid) FROM f",
        "queries.quantile(f, 'paid', candidates=numpy.linspace(0, 100, 401), budget=rows).value",
        "context(row, long).query().select(paid.dp.quantile(0.5, numpy.linspace(0, 100, 401).tolist()))"
        ".release().collect().item()",
    ),
    "count, persons": (
        "SELECT SUM(LEAST(3, n)) FROM (SELECT COUNT(*) AS n FROM f WHERE paid > 20 GROUP BY person)",
        "queries.count(f, where='paid > 20', person='person', max_contributions=3, budget=persons).value",
        "context(person).query().filter(pl.col.paid > 20).truncate_per_group(3).select(dp.len(signed=True))"
        ".release().collect().item()",
    ),
    "sum, persons": (
        f"SELECT SUM(a * LEAST(3, n)) FROM (SELECT COUNT(*) AS n, AVG({CLIPPED}) AS a FROM f GROUP BY person)",
        "queries.sum(f, 'paid', bounds=(0, 100), person='person', max_contributions=3, budget=persons).value",
        "context(person, long).query().truncate_per_group(3).select(paid.dp.sum((0.0, 100.0)))"
        ".release().collect().item()",
    ),
}
OURS = """
import json, sys, time
import numpy
from accounting import Budget
from dpkit import queries

f = sys.argv[1]
rows = Budget(1.0, 0.0, adjacency="add_remove")
persons = Budget(1.0, 0.0, adjacency="add_remove", unit="person")
"""
THEIRS = """
import json, sys, time
import numpy, opendp.prelude as dp, polars as pl

dp.enable_features("contrib", "honest-but-curious")
f, paid = sys.argv[1], pl.col.paid.fill_null(0.0).fill_nan(0.0)
row, person = dp.unit_of(contributions=1), dp.unit_of(contributions=1, identifier="person")
long = dp.polars.Margin(max_length=2 * int(f.split("/")[-1].split(".")[0]))

def context(unit, *margins):
    return dp.Context.compositor(
        data=pl.scan_parquet(f), privacy_unit=unit, privacy_loss=dp.loss_of(epsilon=1.0), split_evenly_over=1,
        margins=list(margins),
    )
"""
ASKING = """
found, seconds = [], []
for _ in range(int(sys.argv[2]) + 1):
    start = time.perf_counter()
    value = {asked}
    seconds.append(time.perf_counter() - start)
    found.append(numpy.asarray(value, float).ravel().tolist())
print(json.dumps([found[1:], min(seconds[1:])]))
"""


def asked(python: str, before: str, words: str, file: Path, runs: int) -> tuple[np.ndarray, float]:
    """All answers, and the least time of one."""
    script = before + ASKING.format(asked=words)
    run = subprocess.run(
        [python, "-W", "ignore", "-c", script, str(file), str(runs)], capture_output=True, text=True, check=False
    )
    if run.returncode:
        raise SystemExit(run.stderr[-2000:])
    found, seconds = json.loads(run.stdout)
    return np.asarray(found), float(seconds)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", required=True, help="an interpreter that has opendp[polars]")
    parser.add_argument("--rows", type=lambda text: int(float(text)), default=10_000_000)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    import duckdb

    print(f"{'query':16s}{'error ÷ OpenDP':>20s}{'time ÷ OpenDP':>16s}{'characters, ours / theirs':>28s}")
    with tempfile.TemporaryDirectory() as folder:
        small, large = written(Path(folder), 100_000), written(Path(folder), options.rows)
        for name, (truth, ours, theirs) in ASKED.items():
            f = duckdb.read_parquet(str(small))
            true = np.array([float(row[0]) for row in duckdb.execute(truth).fetchall()])
            del f
            errors, times = [], []
            for python, before, words in ((sys.executable, OURS, ours), (options.python, THEIRS, theirs)):
                found, _ = asked(python, before, words, small, options.runs)
                errors.append(np.abs(found - true).mean(1))
            for _ in range(options.repeats):
                for at, (python, before, words) in enumerate(
                    ((sys.executable, OURS, ours), (options.python, THEIRS, theirs))
                ):
                    times.append((at, asked(python, before, words, large, 1)[1]))
            mine, other = (min(seconds for at, seconds in times if at == who) for who in (0, 1))
            ratio = errors[0].mean() / errors[1].mean() if errors[1].mean() else float("nan")
            spread = ratio * np.sqrt(sum(one.var() / one.size / one.mean() ** 2 for one in errors if one.mean()))
            error, written_out = f"{ratio:.2f} ± {spread:.2f}", f"{len(ours)} / {len(theirs)}"
            print(f"{name:16s}{error:>20s}{mine / other:16.2f}{written_out:>28s}", flush=True)


if __name__ == "__main__":
    main()
