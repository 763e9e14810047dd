"""Parquet through pyarrow: the columns of `rows.COLUMNS`, time as UTC microseconds, ZSTD, small row groups."""

from collections.abc import Iterator
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from datasync.audit.event import microseconds
from datasync.audit.export import Out
from datasync.audit.rows import COLUMNS, NUMBER, Row, flat

GROUP_ROWS = 10_000


class _Sink:
    """What pyarrow asks of a file that is only written."""

    closed = False

    def __init__(self, out: Out) -> None:
        self._out = out
        self._at = 0

    def write(self, data: object) -> int:
        part = bytes(memoryview(data))  # type: ignore[arg-type]
        self._out.write(part)
        self._at += len(part)
        return len(part)

    def tell(self) -> int:
        return self._at

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def flush(self) -> None:
        return

    def close(self) -> None:
        self.closed = True


def _schema() -> "pa.Schema":
    kinds = {name: pa.int64() if kind == NUMBER else pa.string() for name, kind in COLUMNS.items()}
    return pa.schema([(name, pa.timestamp("us", tz="UTC") if name == "time" else kind) for name, kind in kinds.items()])


def write(rows: Iterator[Row], out: Out) -> None:
    """Write the rows."""
    schema = _schema()
    with pq.ParquetWriter(pa.PythonFile(_Sink(out), mode="w"), schema, compression="zstd") as writer:
        while group := [_cells(row) for row in islice(rows, GROUP_ROWS)]:
            writer.write_batch(pa.RecordBatch.from_pylist(group, schema=schema))


def _cells(row: Row) -> dict[str, object]:
    return {**flat(row), "time": microseconds(row.event.time)}
