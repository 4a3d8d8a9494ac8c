"""Runs this task's ends of some broadcasts, and prints what values each had."""

from __future__ import annotations

import json
import sys

from common.strategies import broadcast_ends


def main() -> None:
    settings = json.loads(sys.argv[1])
    end = broadcast_ends(settings, 7.0)
    print(json.dumps([end(1 + number, 60.0) for number in range(settings["steps"])]), flush=True)


if __name__ == "__main__":
    main()
