"""`make faults`: disturbs trainings, evaluations and extractions at random moments, starts each again by the same
command, and compares what it ends with to an undisturbed run's. A stopped study goes on where it stopped."""

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from random import Random
from statistics import median
from typing import NamedTuple

from lantern.errors import LanternError
from lantern.evaluation.rows import Row, append_rows, read_rows
from lantern.identity import code_hash
from lantern.runtime.files import read_object, replace_text
from lantern.runtime.home import CHECKOUT
from lantern.studies.fault_jobs import GROUP_SIZE, JOBS, Place, log_of, shards_of
from lantern.studies.fault_kinds import KINDS, Kind, Scene, can_mount, small_disk
from lantern.studies.finished_work import Work, finished_work, made_twice, results
from lantern.studies.forked import Running, load_libraries
from lantern.studies.markdown import table_lines

ROWS, LIMIT_S = "faults.jsonl", 90.0
TRIES = 5  # with an earlier moment each, where the job had ended before
SAID = 300  # characters of the last line of a disturbed process
SHOWN = ("number", "kind", "ran", "moment_s", "statuses", "recovered", "equal", "made_twice", "lost_s")
MISSED: Row = {"statuses": [0], "made_twice": [], "lost_s": 0.0}  # of a job that had ended before every moment


class Moment(NamedTuple):
    """When a fault happens, and the random numbers of what it hits."""

    seconds: float  # after the start
    dice: Random


class Study:
    """Faults in a folder: faults.jsonl has a row for each, trials/ the files of those that went wrong."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.place = Place(folder)
        mounts = can_mount()
        self.kinds = {name: kind for name, kind in KINDS.items() if mounts or not kind.needs_mounts}

    def run(self, count: int) -> list[Row]:
        """The rows of the faults 0 … count - 1, those that are missing made now."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.place.prepare()
        load_libraries()
        done = {row["number"]: row for row in self._kept() if row["number"] < count}
        for number in range(count):
            if number not in done:
                done[number] = self._fault(number)
                append_rows(self.folder / ROWS, [done[number]])
                print("  ".join(f"{key} {done[number].get(key)}" for key in SHOWN), flush=True)
        return [done[number] for number in range(count)]

    def _kept(self) -> list[Row]:
        rows = read_rows(self.folder / ROWS) if (self.folder / ROWS).is_file() else []
        return [row for row in rows if (row["seed"], row["code"]) == (self.seed, code_hash())]

    def _undisturbed(self, job: str) -> Row:
        """Results and seconds of a job that nothing happens to, by the second of two runs made at its first use."""
        path = self.folder / f"undisturbed-{code_hash()}.json"
        found = read_object(path)
        if job not in found:
            first, found[job] = self._alone(job), self._alone(job)
            if first["results"] != found[job]["results"]:
                raise LanternError(f"two undisturbed runs of {job} differ; there is nothing to compare with")
            print(f"{job}: {found[job]['seconds']:.1f} s undisturbed", flush=True)
            replace_text(path, json.dumps(found) + "\n")
        return found[job]

    def _alone(self, job: str) -> Row:
        folder = self._emptied(f"undisturbed-{job}")
        running = self._started(job, folder)
        if not running.wait(LIMIT_S) or any(running.statuses):
            raise LanternError(f"{job} does not run undisturbed, see {log_of(folder)}")
        found = {"seconds": running.waited_s, "results": results(folder)}
        shutil.rmtree(folder)
        return found

    def _emptied(self, name: str) -> Path:
        """A new folder."""
        folder = self.folder / "trials" / name
        while folder.is_mount():  # of a study that was killed
            subprocess.run(["umount", "--lazy", folder], check=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        log_of(folder).write_text("")
        return folder

    def _started(self, job: str, folder: Path) -> Running:
        return Running(JOBS[job](self.place, folder))

    def _fault(self, number: int) -> Row:
        """Carries out a fault; its files are kept if it went wrong."""
        dice = Random(f"{self.seed} {number}")
        name, kind = list(self.kinds.items())[number % len(self.kinds)]
        job = kind.jobs[number // len(self.kinds) % len(kind.jobs)]
        undisturbed = self._undisturbed(job)
        moment = 0.0 if kind.is_from_start else dice.uniform(0.0, undisturbed["seconds"])
        for _ in range(TRIES):
            folder = self._emptied(str(number))
            with small_disk(folder) if kind.is_on_small_disk else nullcontext():
                found = self._disturbed(job, kind, Moment(moment, dice), folder, undisturbed)
            if found:
                break
            moment /= 2
        if found and is_good({"kind": name} | found):
            shutil.rmtree(folder)
            log_of(folder).unlink()
        row = {"number": number, "seed": self.seed, "code": code_hash(), "kind": name, "ran": job}
        return row | {"moment_s": round(moment, 3)} | (found or MISSED)

    def _disturbed(self, job: str, kind: Kind, moment: Moment, folder: Path, undisturbed: Row) -> Row | None:
        """What came of a fault; None where the job had ended before it."""
        running = self._started(job, folder)
        if running.wait(moment.seconds):
            return None
        scene, before = Scene(running, folder, self.place, moment.dice), self._finished(job, folder)
        kind.strike(scene)
        hung = not running.wait(LIMIT_S)
        if hung:
            running.sweep_up()
        if not kind.is_survived and not any(running.statuses):
            return None
        kind.damage(scene)
        statuses, said = list(running.statuses), _last_line(folder)
        again = running
        if any(statuses):  # helpers of a killed process may still be there
            before, again = self._finished(job, folder), self._started(job, folder)
        recovered = again.wait(LIMIT_S) and not any(again.statuses)
        seconds = running.waited_s + (again.waited_s if again is not running else 0)
        running.sweep_up()
        again.sweep_up()
        return {
            "statuses": statuses, "said": said, "hung": hung, "recovered": recovered,
            "equal": results(folder) == undisturbed["results"], "finished_before": len(before),
            "made_twice": made_twice(before, self._finished(job, folder)),
            "lost_s": round(seconds - undisturbed["seconds"], 2),
        }  # fmt: skip

    def _finished(self, job: str, folder: Path) -> Work:
        while True:
            try:
                return finished_work(folder, shards_of(job), GROUP_SIZE)
            except FileNotFoundError:  # replaced while it was read
                continue


def is_good(row: Row) -> bool:
    """Whether the job went on to the undisturbed run's results, made nothing twice, did not hang, and did not end where
    the fault is one to be survived."""
    ended = KINDS[row["kind"]].is_survived and any(row["statuses"])
    return row["recovered"] and row["equal"] and not (row["made_twice"] or row["hung"] or ended)


def _last_line(folder: Path) -> str:
    lines = [line for line in log_of(folder).read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:SAID] if lines else ""


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
    """python -m lantern.studies.faults [--count 200] [--seed 0] [folder]; status 1 if any fault went wrong."""
    parser = argparse.ArgumentParser(prog="python -m lantern.studies.faults", description=__doc__)
    parser.add_argument("folder", nargs="?", default=CHECKOUT / "runs" / "faults", type=Path)
    parser.add_argument("--count", default=200, type=int, help="faults over all")
    parser.add_argument("--seed", default=0, type=int, help="of the moments and of what is hit")
    given = parser.parse_args()
    try:
        rows = Study(given.folder.resolve(), given.seed).run(given.count)
    except LanternError as error:
        sys.exit(f"error: {error}")
    print(table(rows))
    sys.exit(int(not all("recovered" in row and is_good(row) for row in rows)))


if __name__ == "__main__":
    main()
