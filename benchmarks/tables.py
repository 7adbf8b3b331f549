"""Queries of tables in Parquet files beside bare DuckDB doing the same aggregation: time, processor time and memory.

``python -m benchmarks.tables --rows 5e7`` writes a file of so many visits (ten of each person, 10,000 towns) to a
temporary folder and asks every question in a process of its own, ``--repeats`` times; the least of each is shown.
``--plan`` asks for ten answers one by one, as one plan that shares its scans, and of bare DuckDB in as few scans.
``--growth`` asks for a mean of one file of a million rows, repeated up to a hundred times, and shows the time per row.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

CLIPPED = "CASE WHEN paid > 100.0::DOUBLE THEN 100.0::DOUBLE WHEN paid < 0.0::DOUBLE THEN 0.0::DOUBLE ELSE paid END"
# what is asked: of DuckDB, and of this package
ASKED = {
    "count": ("SELECT COUNT(*) FROM f WHERE paid > 20", "count(f, where='paid > 20', budget=rows)"),
    "sum": (f"SELECT SUM({CLIPPED}) FROM f", "sum(f, 'paid', bounds=(0, 100), budget=rows)"),
    "mean": (f"SELECT AVG({CLIPPED}) FROM f", "mean(f, 'paid', bounds=(0, 100), budget=rows)"),
    "histogram": (
        f"SELECT FLOOR({CLIPPED} / 5) AS b, COUNT(*) FROM f GROUP BY b",
        "histogram(f, 'paid', bins=20, bounds=(0, 100), budget=rows)",
    ),
    "groups": (
        "SELECT town, COUNT(*) FROM f GROUP BY town",
        "count(f, groups='town', keys=range(10_000), budget=rows)",
    ),
    "person": (
        "SELECT AVG(paid) FROM (SELECT paid, ROW_NUMBER() OVER (PARTITION BY person ORDER BY visit) AS i FROM f) "
        "WHERE i <= 3",
        "mean(f, 'paid', bounds=(0, 100), person='person', max_contributions=3, budget=persons)",
    ),
}
# ten answers of one file, as a plan and by bare DuckDB
PLAN = """
from dpkit.queries import Ask
town = dict(groups="town", keys=range(10_000))
paid = dict(bounds=(0, 100), rows=1e6)
asks = [
    Ask("count"), Ask("count", where="paid > 20"), Ask("sum", "paid", bounds=(0, 100)), Ask("mean", "paid", **paid),
    Ask("mean", "paid", where="paid > 20", **paid), Ask("variance", "paid", **paid),
    Ask("histogram", "paid", bins=20, bounds=(0, 100)),
    Ask("count", **town), Ask("sum", "paid", bounds=(0, 100), **town), Ask("mean", "paid", **town, **paid),
]
plan = queries.plan(asks, budget=rows)
"""
PLANNED = {
    "one by one": PLAN + "start, used = time.perf_counter(), time.process_time()\n"
    "for need, strength in zip(plan.demands, plan.strengths):\n"
    "    replace(plan, asks=(need.ask,), demands=(need,), strengths=(strength,)).run(f)",
    "shared": PLAN + "start, used = time.perf_counter(), time.process_time()\nplan.run(f)",
    "bare": f'''
for sql in (
    """SELECT COUNT(*), COUNT(*) FILTER (paid > 20), SUM({CLIPPED}), AVG({CLIPPED}), AVG({CLIPPED}) FILTER (paid > 20),
    VAR_POP({CLIPPED}) FROM f""",
    """SELECT FLOOR({CLIPPED} / 5) AS b, COUNT(*) FROM f GROUP BY b""",
    """SELECT town, COUNT(*), SUM({CLIPPED}), AVG({CLIPPED}) FROM f GROUP BY town""",
):
    connection.execute(sql.replace("FROM f", f"FROM '{{f}}'")).fetchall()
'''.replace("{{f}}", "{f}"),
}
BEFORE = """
import resource, sys, tempfile, time
from dataclasses import replace
import duckdb, pyarrow, scipy.special
from accounting import Budget
from dpkit import queries
import dpkit.queries.engines.sessions as sessions

f = sys.argv[1]
rows = Budget(1.0, 0.0, adjacency="add_remove")
persons = Budget(1.0, 0.0, adjacency="add_remove", unit="person")
connection = sessions.DuckDB()._connection if sys.argv[2] == "ours" else duckdb.connect()
connection.execute("SET enable_progress_bar = false")
connection.execute(f"SET temp_directory = '{tempfile.gettempdir()}'")
if sys.argv[3] != "none":
    connection.execute(f"SET memory_limit = '{sys.argv[3]}'")
start, used = time.perf_counter(), time.process_time()
"""
AFTER = """
print(time.perf_counter() - start, time.process_time() - used,
      resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def written(folder: Path, rows: int) -> Path:
    """A Parquet file of visits."""
    import duckdb

    file = folder / f"{rows}.parquet"
    if file.exists():
        return file
    duckdb.sql(
        f"COPY (SELECT i AS visit, CAST(hash(i, 1) % {max(1, rows // 10)} AS INTEGER) AS person, "
        "exp(3 + sqrt(-2 * ln((hash(i, 2) % 1000003 + 1) / 1000004.0)) "
        "* cos(6.283185 * (hash(i, 3) % 1000003) / 1000003.0)) AS paid, "
        f"CAST(hash(i, 4) % 10000 AS INTEGER) AS town FROM range({rows}) AS t(i)) TO '{file}'"
    )
    return file


def measured(source: str, body: str, who: str, limit: str, repeats: int) -> list[float] | None:
    """Seconds, seconds of processors and MB; None where it ran out of memory."""
    found = []
    for _ in range(repeats):
        script = BEFORE + textwrap.dedent(body) + AFTER
        run = subprocess.run([sys.executable, "-c", script, source, who, limit], capture_output=True, text=True)
        if run.returncode:
            print(run.stderr.strip().splitlines()[-1][:100], file=sys.stderr)
            return None
        found.append([float(figure) for figure in run.stdout.split()])
    return [min(column) for column in zip(*found, strict=True)]


def main() -> None:
    """Measure, and print a line for each question."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=float, default=1e7)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--limit", default="none", help="the memory limit of DuckDB, 1GB say")
    parser.add_argument("--only", nargs="*", default=list(ASKED))
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--plan", action="store_true")
    parser.add_argument("--folder", help="where to write the file; by default a temporary folder")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        if given.growth:
            file = written(Path(folder), 1_000_000)
            for times in (1, 10, 100):
                for i in range(times):
                    link = Path(folder) / f"of{times}" / f"{i}.parquet"
                    link.parent.mkdir(exist_ok=True)
                    link.symlink_to(file)
                body = "queries.mean(f, 'paid', bounds=(0, 100), budget=rows)"
                figures = measured(f"{folder}/of{times}/*.parquet", body, "ours", given.limit, given.repeats)
                if figures:
                    print(f"{times:4}·10⁶ rows  {1000 * figures[0] / times:7.1f} ns a row  {figures[2]:6.0f} MB")
            return
        file = written(Path(folder), int(given.rows))
        if given.plan:
            least = {
                name: measured(str(file), body, "bare" if name == "bare" else "ours", given.limit, given.repeats)
                for name, body in PLANNED.items()
            }
            for name, figures in least.items():
                if figures and (bare := least["bare"]):
                    ratios = "  ×".join(f"{one / other:.2f}" for one, other in zip(figures, bare, strict=True))
                    shown = "{:.2f} s ({:.2f} s CPU) {:.0f} MB".format(*figures)
                    print(f"{name:10} {shown:34} ×{ratios}", flush=True)
            return
        for name in given.only:
            sql, python = ASKED[name]
            bare = f'connection.execute("""{sql}""".replace("FROM f", f"FROM \'{{f}}\'")).fetchall()'
            shown = []
            both = [
                measured(str(file), body, who, given.limit, given.repeats)
                for body, who in ((bare, "bare"), (f"queries.{python}", "ours"))
            ]
            for figures in both:
                shown.append(
                    "out of memory" if figures is None else "{:.2f} s ({:.2f} s CPU) {:.0f} MB".format(*figures)
                )
            ratios = ""
            if both[0] and both[1]:
                ratios = "  ×".join(f"{ours / bare:.2f}" for bare, ours in zip(*both, strict=True))
            print(f"{name:10} DuckDB {shown[0]:34} here {shown[1]:34} ×{ratios}", flush=True)


if __name__ == "__main__":
    main()
