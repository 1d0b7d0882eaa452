"""Tests run as commands do; the machine divided among test processes; nothing uploaded; one
browser for all tests of a process that need one."""
# ruff: noqa: E402

import os

CORES = os.cpu_count() or 1
if "PYTEST_XDIST_WORKER_COUNT" in os.environ:  # before torch is loaded; also for the processes that tests start
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, CORES // int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))))
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # without a connection the Hub's client tries for half a minute
os.environ.setdefault("WANDB_MODE", "offline")  # also for those processes: with a key at hand they would upload

import support.as_a_command  # noqa: F401

# isort: split
import pytest
from support.browser import browser, find_browser

GIB_EACH = 3  # of a test process and what it starts
LONGEST = (  # files of make test-full
    "test_own_data.py", "test_evaluate_command.py", "test_jobs.py", "test_embedded_model.py", "test_weights.py",
    "test_compare_recipes.py", "test_faults.py", "test_tutorial.py", "test_shipped_tokenizer.py",
)  # fmt: skip


def pytest_xdist_auto_num_workers() -> int:
    """A process for each core, as far as memory goes; more than eight gain nothing."""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return max(1, min(CORES, int(gib / GIB_EACH), 8))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that no process is left alone with one: with --no-loadscope-reorder, without which
    xdist sorts files by their number of tests."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    if not find_browser():
        pytest.skip("no Chromium or Chrome on the path; apt-get install chromium to run this test")
    with browser(tmp_path_factory.mktemp("profile")) as started:
        yield started
