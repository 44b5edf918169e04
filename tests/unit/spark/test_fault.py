"""What a command says when a disk is full below Spark, or a file of its own cannot be written."""

from __future__ import annotations

import errno

import pytest
import typer

from chasquimq.cli.exits import Exit
from chasquimq.cli.spark.fault import plainly, told

WRITE_FAILED = """An error occurred while calling o60.parquet.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/p. SQLSTATE: 58030
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(Q.scala:823)
Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\t... 16 more
"""  # noqa: E501


def test_a_full_disk_deep_down_in_a_trace_is_told() -> None:
    words = "Spark failed: [TASK_WRITE_FAILED] Task failed while writing rows to file:/p"
    assert told(WRITE_FAILED) == (f"{words}: No space left on device", Exit.FAILED)
    other = WRITE_FAILED.replace("No space left on device", "Input/output error")
    assert told(other) == (f"{words}.", Exit.FAILED)


def test_a_file_that_cannot_be_written_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, plainly():
        raise PermissionError(errno.EACCES, "Permission denied", "/out/page.html")
    assert ended.value.exit_code == Exit.FAILED
    assert capsys.readouterr().err == "chasqui: /out/page.html: Permission denied\n"
    with pytest.raises(BrokenPipeError), plainly():  # that is stdout: `main` knows what to do
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")
