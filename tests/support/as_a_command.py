"""Imported first by the tests, and by scripts beside them: prepares the process as a command does, so that a
torchvision that does not fit torch disturbs nobody."""

from lantern.cli.error_messages import prepare_process

prepare_process()
