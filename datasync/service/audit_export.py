"""Export the audit log with a signed manifest, and check such an export."""

import os
from pathlib import Path
from typing import Any

from datasync.audit.export import writer
from datasync.audit.export.check import MANIFEST_BYTES, Checked, check_export
from datasync.audit.export.run import export, sign_manifest
from datasync.audit.seal import People
from datasync.audit.segments import LogFiles
from datasync.config import Config
from datasync.errors import UsageError
from datasync.service.audit import moment
from datasync.service.audit_log import PRIMITIVES
from datasync.service.authorize import authorize
from datasync.service.log_key import log_key
from datasync.service.record import recorded

MANIFEST = ".manifest.json"


def export_to(
    config: Config, logs: list[LogFiles], people: People, form: str, path: Path, since: str, until: str
) -> dict[str, Any]:
    """Write *logs* to the new file *path*, and the manifest beside it. Recorded before and after."""
    writer(form)  # a wrong format is told before anything is recorded
    since, until = moment(since), moment(until)
    manifest_path = path.with_name(path.name + MANIFEST)
    for item in (path, manifest_path):
        if os.path.lexists(item):
            raise UsageError(f"{item}: expected no file there, found one: it is not overwritten")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{path}: can not be written: {path.parent} is no directory that this user can write")
    fields: dict[str, Any] = {"format": form, "since": since, "until": until, "logs": len(logs)}
    authorize(config, "ExportAudit")
    with recorded(config, "audit.export", security=True, **fields) as event:
        aside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with open(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                manifest = export(PRIMITIVES, logs, people, form, file, since=since, until=until)
                file.flush()
                os.fsync(file.fileno())
            signed = sign_manifest(PRIMITIVES, manifest, log_key(config.evidence.parent))
            with open(os.open(manifest_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(signed)
            os.rename(aside, path)
        finally:
            aside.unlink(missing_ok=True)
        event.note(events=manifest["events"], bytes=manifest["bytes"], sha256=manifest["sha256"])
    return manifest


def check(manifest: Path, key: str | None) -> Checked:
    """Check the export whose manifest is *manifest*."""
    if not manifest.name.endswith(MANIFEST):
        raise UsageError(f"{manifest}: expected the manifest, a file that ends with {MANIFEST}")
    export_file = manifest.with_name(manifest.name.removesuffix(MANIFEST))
    try:
        with open(manifest, "rb") as text, open(export_file, "rb") as file:
            return check_export(PRIMITIVES, text.read(MANIFEST_BYTES), file, frozenset([key] if key else []))
    except OSError as error:
        raise UsageError(f"{error.filename}: can not be read: {error.strerror}") from None
