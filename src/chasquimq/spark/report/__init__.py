"""The report: values in, one HTML page out, with its plots, its library and nothing from a network.

Nothing here knows Spark: whoever fills a `ReportData` may have counted with anything.
"""

from __future__ import annotations

from chasquimq.spark.report.data import ReportData
from chasquimq.spark.report.page import page, write_page

__all__ = ["ReportData", "page", "write_page"]
