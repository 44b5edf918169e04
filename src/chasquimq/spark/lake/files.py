"""Files where Spark keeps them: this machine's disk or HDFS. On the driver only."""

from __future__ import annotations

from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from chasquimq.errors import ConfigError
from chasquimq.spark.lake.layout import check_atomic


class Entry(NamedTuple):
    name: str
    is_folder: bool
    bytes: int
    changed_ms: int


class Files:
    """Below one folder; paths are relative to it. Hadoop's own client, as Spark uses it, with its
    credentials; object stores are refused."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        check_atomic(root)
        jvm: Any = getattr(spark, "_jvm", None)
        if jvm is None:
            raise ConfigError(
                "a lake is kept by a driver with a JVM of its own; over Spark Connect, run "
                "`chasqui spark ...` on the cluster by spark-submit instead"
            )
        self._path = jvm.org.apache.hadoop.fs.Path
        top = self._path(root)
        configuration = spark._jsc.hadoopConfiguration()
        if top.toUri().getScheme() is None:
            check_atomic(
                jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(configuration).toString()
            )
        self._system = top.getFileSystem(configuration)
        self.root: str = self._system.makeQualified(top).toString()
        # The older client moves a folder *into* one that is in the way.
        context = jvm.org.apache.hadoop.fs.FileContext
        self._context = context.getFileContext(self._system.getUri(), configuration)
        kind = getattr(jvm.org.apache.hadoop.fs, "Options$Rename")
        self._no_options = spark.sparkContext._gateway.new_array(kind, 0)  # type: ignore[union-attr]

    def at(self, path: str) -> str:
        return f"{self.root}/{path}" if path else self.root

    def inside(self, path: str) -> list[Entry]:
        """What is in a folder, by name; nothing where there is none."""
        place = self._path(self.at(path))
        if not self._system.exists(place):
            return []
        return sorted(
            Entry(
                found.getPath().getName(),
                found.isDirectory(),
                found.getLen(),
                found.getModificationTime(),
            )
            for found in self._system.listStatus(place)
        )

    def folders(self, path: str) -> list[str]:
        """Those that a reader of Spark would look into."""
        named = (one.name for one in self.inside(path) if one.is_folder)
        return [name for name in named if name[0] not in "._"]

    def bytes(self, path: str) -> int:
        return sum(one.bytes for one in self.inside(path) if not one.is_folder)

    def changed_ms(self, path: str) -> int:
        """When something was put into it last."""
        return int(self._system.getFileStatus(self._path(self.at(path))).getModificationTime())

    def now_ms(self) -> int:
        """By the clock that `changed_ms` goes by, as far as anybody can tell."""
        probe = self._path(self.at("_staging/.clock"))
        self._system.create(probe, True).close()
        return int(self._system.getFileStatus(probe).getModificationTime())

    def exists(self, path: str) -> bool:
        return bool(self._system.exists(self._path(self.at(path))))

    def move(self, old: str, new: str) -> bool:
        """A folder into its place, at once; False: something is there already."""
        target = self._path(self.at(new))
        self._context.mkdir(target.getParent(), None, True)
        try:
            self._context.rename(self._path(self.at(old)), target, self._no_options)
        except Py4JJavaError as error:
            if "FileAlreadyExistsException" in error.java_exception.getClass().getName():
                return False
            raise
        return True

    def remove(self, path: str) -> bool:
        return bool(self._system.delete(self._path(self.at(path)), True))
