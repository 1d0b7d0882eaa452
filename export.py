"""Writes a drafter into a folder of its own: python export.py drafter.checkpoint=… to=my_drafter"""

from lantern.errors import ctrl_c

if __name__ == "__main__":
    ctrl_c(ends_at_once=True)
    from lantern.cli.main import export

    export()
