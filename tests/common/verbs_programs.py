"""Programs of tests/verbs that run without a device too, and what they say."""

from __future__ import annotations

#: These need none, ever.
WITHOUT_A_DEVICE = (
    "device_choice_test",
    "frame_stream_test",
    "frame_test",
    "iwarp_frame_test",
    "port_names_test",
    "send_queue_test",
    "settings_test",
)
#: Cases of link_test, and how many of them run over a hostile fabric as well.
TRANSFERS = (
    "sizes",
    "crowd",
    "refused",
    "cancelled",
    "much is kept",
    "repeated",
    "ends",
    "introductions",
    "news during a call",
    "forged",
    "many notes",
    "landing pool",
    "twice at once",
    "fetched twice",
    "lost drops",
    "unavailable calls",
)
HOSTILE_TRANSFERS = 2
