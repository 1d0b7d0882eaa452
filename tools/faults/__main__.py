"""`make faults`: disturbs trainings, evaluations and extractions at random moments, starts each again by the same
command, and compares its results to an undisturbed run's. A stopped study goes on where it stopped."""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from random import Random
from statistics import median

from lantern.errors import LanternError
from lantern.evaluation.rows import Row, append_rows, read_rows
from lantern.identity import code_hash
from lantern.runtime.files import read_object, replace_text
from lantern.runtime.home import CHECKOUT
from tools.faults.jobs import GROUP_SIZE, JOBS, POLL_S, SHARDS, Inputs, Running, log_of, marked_processes, send
from tools.faults.kinds import KINDS, Kind, Scene, can_mount, small_disk
from tools.faults.work import Work, finished_work, made_twice, results
from tools.markdown import table_lines

ROWS, UNDISTURBED, LIMIT_S = "faults.jsonl", "undisturbed.json", 180.0
TRIES = 5  # with an earlier moment each, where the job had ended before
SHOWN = ("number", "kind", "ran", "moment_s", "statuses", "recovered", "equal", "made_twice", "lost_s")
MISSED: Row = {"statuses": [0], "made_twice": [], "lost_s": 0.0}  # of a job that had ended before every moment


class Study:
    """Faults in a folder: faults.jsonl has a row for each, trials/ the files of those that went wrong."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        mounts = can_mount()
        self.kinds = {name: kind for name, kind in KINDS.items() if mounts or not kind.needs_mounts}

    def run(self, count: int) -> list[Row]:
        """The rows of the faults 0 … count - 1, those that are missing made now."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.inputs, path = Inputs(self.folder), self.folder / ROWS
        rows = {row["number"]: row for row in (read_rows(path) if path.is_file() else [])}
        for number in range(count):
            if number not in rows:
                rows[number] = self._fault(number)
                append_rows(path, [rows[number]])
                print("  ".join(f"{key} {rows[number].get(key)}" for key in SHOWN), flush=True)
        return [rows[number] for number in range(count)]

    def _fault(self, number: int) -> Row:
        """Carries out a fault; its files are kept if it went wrong."""
        dice = Random(f"{self.seed} {number}")
        name, kind = list(self.kinds.items())[number % len(self.kinds)]
        job = kind.jobs[number // len(self.kinds) % len(kind.jobs)]
        undisturbed = self._undisturbed(job)
        begun, end = undisturbed["begun_s"], undisturbed["seconds"]
        moment = 0.0 if kind.is_from_start else dice.uniform(begun, end)
        for _ in range(TRIES):
            folder = self._new_folder(str(number))
            with small_disk(folder) if kind.is_on_small_disk else nullcontext():
                outcome = self._disturb(job, kind, moment, dice, folder, undisturbed)
            if outcome:
                break
            begun *= 0.9  # the machine may be less busy than when nothing was disturbed
            moment = (begun + moment) / 2
        if outcome and is_good({"kind": name} | outcome):
            shutil.rmtree(folder)
            log_of(folder).unlink()
        return {"number": number, "kind": name, "ran": job, "moment_s": round(moment, 3)} | (outcome or MISSED)

    def _disturb(self, job: str, kind: Kind, moment: float, dice: Random, folder: Path, undisturbed: Row) -> Row | None:
        """The outcome of a fault; None where the job had ended before it."""
        start, running = time.monotonic(), self._start(job, folder)
        if running.wait(moment):
            return None
        before = self._finished(job, folder)
        kind.strike(Scene(running, folder, self.inputs, dice))
        hung = not running.wait(LIMIT_S)
        if hung:
            running.kill()
        if not kind.is_survived and not any(running.statuses):
            return None
        if kind.damage:
            if results(folder) == undisturbed["results"]:  # it had only to end: nobody would read what is damaged
                return None
            kind.damage(Scene(running, folder, self.inputs, dice))
        statuses, again = running.statuses, running
        if any(statuses):  # helpers of a killed process may still be there
            before, again = self._finished(job, folder), self._start(job, folder)
        recovered = again.wait(LIMIT_S) and not any(again.statuses)
        seconds = time.monotonic() - start
        for started in (running, again):
            started.kill()
        return {
            "statuses": statuses, "hung": hung, "recovered": recovered,
            "equal": results(folder) == undisturbed["results"], "finished_before": len(before),
            "made_twice": made_twice(before, self._finished(job, folder)),
            "lost_s": round(seconds - undisturbed["seconds"], 2),
        }  # fmt: skip

    def _undisturbed(self, job: str) -> Row:
        """Results and seconds of a job that nothing happens to, by the second of two runs made at its first use."""
        path = self.folder / UNDISTURBED
        known = read_object(path)
        if job not in known:
            first, known[job] = self._run_alone(job), self._run_alone(job)
            if first["results"] != known[job]["results"]:
                raise LanternError(f"two undisturbed runs of {job} differ; there is nothing to compare with")
            print(f"{job}: {known[job]['seconds']:.1f} s undisturbed", flush=True)
            replace_text(path, json.dumps(known) + "\n")
        return known[job]

    def _run_alone(self, job: str) -> Row:
        """begun_s: when the first result or state was written, behind the start of the interpreter."""
        folder = self._new_folder(f"undisturbed-{job}")
        start, running = time.monotonic(), self._start(job, folder)
        while not _has_begun(folder) and not running.wait(POLL_S):
            pass
        begun = time.monotonic() - start
        if not running.wait(LIMIT_S) or any(running.statuses):
            running.kill()
            raise LanternError(f"{job} does not run undisturbed, see {log_of(folder)}")
        row = {"begun_s": begun, "seconds": time.monotonic() - start, "results": results(folder)}
        shutil.rmtree(folder)
        return row

    def _new_folder(self, name: str) -> Path:
        folder = self.folder / "trials" / name
        send(signal.SIGKILL, marked_processes(folder))  # of a study that was stopped
        while folder.is_mount():  # of a study that was killed
            subprocess.run(["umount", "--lazy", folder], check=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        log_of(folder).write_text("")
        return folder

    def _start(self, job: str, folder: Path) -> Running:
        return Running(JOBS[job](self.inputs, folder), folder)

    def _finished(self, job: str, folder: Path) -> Work:
        while True:
            try:
                return finished_work(folder, SHARDS if job == "shards" else 1, GROUP_SIZE)
            except FileNotFoundError:  # replaced while it was read
                continue


def _has_begun(folder: Path) -> bool:
    return any(Path(name).suffix not in (".yaml", ".log") for _, _, names in os.walk(folder) for name in names)


def is_good(row: Row) -> bool:
    """Whether the job went on to the undisturbed run's results, made nothing twice, did not hang, and did not end where
    the fault is one to be survived."""
    ended = KINDS[row["kind"]].is_survived and any(row["statuses"])
    return row["recovered"] and row["equal"] and not (row["made_twice"] or row["hung"] or ended)


def table(rows: Sequence[Row]) -> str:
    """By kind, in Markdown."""
    lines: list[tuple[str, ...]] = []
    for kind in KINDS:
        own = [row for row in rows if row["kind"] == kind and "recovered" in row]
        if not own:
            lines.append((kind, "not tried", "", "", "", ""))
            continue
        counts = [sum(bool(row[key]) for row in own) for key in ("recovered", "equal", "made_twice")]
        lines.append((kind, *map(str, (len(own), *counts)), f"{median(row['lost_s'] for row in own):.1f}"))
    titles = ("fault", "faults", "recovered", "equal", "work made twice", "seconds lost")
    return "\n".join(table_lines(titles, lines))


def main() -> None:
    """python -m tools.faults [--count 200] [--seed 0] [folder]; status 1 if any fault went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="of one version of the code and one seed")
    parser.add_argument("--count", default=200, type=int, help="faults over all")
    parser.add_argument("--seed", default=0, type=int, help="of the moments and of what is hit")
    given = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also of the jobs, where a shell ignores it
    folder = given.folder or CHECKOUT / "runs" / "faults" / f"{code_hash()[:12]}-{given.seed}"
    try:
        rows = Study(folder.resolve(), given.seed).run(given.count)
    except LanternError as error:
        sys.exit(f"error: {error}")
    print(table(rows))
    sys.exit(int(not all("recovered" in row and is_good(row) for row in rows)))


if __name__ == "__main__":
    main()
