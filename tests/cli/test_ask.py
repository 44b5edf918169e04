"""A question at a terminal: Ctrl-C ends it, whenever it comes."""

from __future__ import annotations

import os
import sys

from tests.cli.kit import CTRL_C, Terminal

# A Ctrl-C just before a read is noted and interrupts nothing; so is one that another thread gets.
ASKING = """
import signal, threading, time
threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
from chasquimq.cli.ask import confirm
confirm("are you sure", False)
"""


def test_a_ctrl_c_that_interrupts_no_read_is_heard() -> None:
    with Terminal([sys.executable, "-c", ASKING], os.environ, 80, 24, None) as terminal:
        terminal.until("[y/N]")
        terminal.press(CTRL_C)
        assert terminal.end() != 0
        assert "KeyboardInterrupt" in terminal.text
