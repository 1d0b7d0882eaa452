"""Writes a drafter in another program's layout: python export.py drafter.checkpoint=… format=released to=my_drafter"""

from lantern.cli.main import export

if __name__ == "__main__":
    export()
