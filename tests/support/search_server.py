"""The command line with a judge that obeys the kernels: `python search_server.py serve --home …`."""

import os
import sys

import search_stand_ins
import stand_ins

from adaexplore_mcp import cli


def connect(settings, store):
    judge = search_stand_ins.Judge(store, settings.home)
    judge.delay_s = float(os.environ.get("JUDGE_DELAY_S", "0"))
    return stand_ins.collaborators(store, judge)


stand_ins.connect = connect
sys.modules[stand_ins.CONNECT] = stand_ins  # so that the real domains are not even imported
sys.exit(cli.main())
