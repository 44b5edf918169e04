"""What is installed: both packages, under the names that Python and Spark look for."""

from __future__ import annotations

import re
import tomllib

from pyspark.sql.datasource import DataSource

import pyspark_chasqui
from chasquimq.cli.check.spark import NEEDED
from tests.house.tree import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_every_package_of_the_source_is_in_the_wheel() -> None:
    folders = {f"src/{path.name}" for path in (ROOT / "src").iterdir() if path.is_dir()}
    packaged = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {*packaged} == {name for name in folders if not name.endswith("__pycache__")}


def test_spark_finds_the_source_by_its_name() -> None:
    assert issubclass(pyspark_chasqui.DefaultSource, DataSource)
    assert pyspark_chasqui.DefaultSource.name() == "chasqui"


def test_doctor_asks_for_what_the_extra_brings() -> None:
    lines = PROJECT["project"]["optional-dependencies"]["spark"]
    floors = dict(re.findall(r"^([\w-]+)>=([\d.]+)", "\n".join(lines), re.MULTILINE))
    needed = {name: ".".join(map(str, floor)) for name, floor in NEEDED.items()}
    assert needed == {name: floors[name] for name in needed}
