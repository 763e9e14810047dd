"""A tree of everything that a file system may hold, and an own way to compare two trees.

`survey` walks with directory fds, so no path is ever too long for it, follows no link, and reads a sparse file by its
data alone. It shares no code with what it checks.
"""

import errno
import hashlib
import os
import random
import stat
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
BLOCK_BYTES = 64 * KIB
DEPTH = 300
DEEP_NAME = b"directory-%03d-deep"  # 300 of them pass PATH_MAX
SPARSE_BYTES = TIB
BEFORE_1970 = -123_456_789_012_345_679
NAMES = (
    b"\xff\xfe",
    b"line\nbreak",
    b"tab\there",
    b"-rf",
    b"--",
    b" ",
    b" leading and trailing ",
    b"back\\slash",
    b"quote'\"`$(x)",
    b"\x1b[31mred",
    b"\x01",
    b"\x7f",
    b"...",
    b"~",
    b"%2F",
    b"COM1",
    b"n" * 255,
    "雪だるま☃".encode(),
    unicodedata.normalize("NFC", "café").encode(),
    unicodedata.normalize("NFD", "café").encode(),
    b".datasync-part-0",
    b".datasync-part-1",
    b".READY.json",
)
NEIGHBOURS = (b"foo.txt", b"foo-1", b"foo\x01", b"foo ", b"foo0", b"foo/bar", b"foo/-", b"fo")
EDGES = (256 * KIB, MIB, 4 * MIB)  # one chunk up to here, the average and fixed chunk, the longest chunk


@dataclass(frozen=True, slots=True)
class Node:
    """One entry as it is on disk; `links` are all its names in the tree, `stored` the bytes of disk that it takes."""

    kind: int
    mode: int
    mtime: int
    size: int
    target: bytes
    content: str
    links: tuple[bytes, ...]
    xattrs: tuple[tuple[bytes, bytes], ...]
    inode: int
    stored: int


def make_hostile_tree(root: Path) -> None:
    """Make the tree; what only a superuser can read is in it for a superuser alone."""
    root.mkdir()
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _make_names(top)
        _make_deep(top)
        _make_links(root)
        _make_sizes(root)
        _make_sparse(root)
        _make_modes_and_times(root)
    finally:
        os.close(top)
    os.utime(root, ns=(0, 1_000_000_000_123_456_789))


def content(seed: int, size: int) -> bytes:
    """Return *size* bytes that do not compress, the same for the same seed."""
    return random.Random(seed).randbytes(size)


def _write(path: bytes, data: bytes, dir_fd: int | None = None) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=dir_fd)
    with open(fd, "wb") as file:
        file.write(data)


def _make_names(top: int) -> None:
    for number, name in enumerate(NAMES):
        _write(name, b"content of %d\n" % number, top)
    os.mkdir(b"foo", dir_fd=top)
    for name in NEIGHBOURS:
        _write(name, name, top)
    os.mkdir(b"empty directory", dir_fd=top)
    os.mkdir(b"\xfe directory", dir_fd=top)
    for name in NAMES:
        _write(b"\xfe directory/" + name, b"", top)


def _make_deep(top: int) -> None:
    fd = os.dup(top)
    for level in range(DEPTH):
        name = DEEP_NAME % level
        os.mkdir(name, dir_fd=fd)
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        if level % 50 == 0:
            _write(b"on the way", b"%d" % level, fd)
        os.close(fd)
        fd = below
    _write(b"bottom", b"as deep as it gets", fd)
    os.symlink(b"../" * DEPTH + b"foo", b"up", dir_fd=fd)
    os.close(fd)


def _make_links(root: Path) -> None:
    links = root / "links"
    links.mkdir()
    targets = {
        b"dangling": b"no such thing",
        b"loop-a": b"loop-b",
        b"loop-b": b"loop-a",
        b"self": b"self",
        b"absolute": b"/etc/passwd",
        b"to directory": b"../foo/",
        b"outside": b"../../../..",
        b"bytes": b"\xff\n\xfe",
        b"long": b"t" * 4000,
    }
    for name, target in targets.items():
        os.symlink(target, os.fsencode(links) + b"/" + name)
        os.utime(os.fsencode(links) + b"/" + name, ns=(0, BEFORE_1970), follow_symlinks=False)
    (links / "pair-1").write_bytes(b"two names")
    os.link(links / "pair-1", links / "pair-2")
    (root / "a-first").write_bytes(content(1, 300 * KIB))
    os.link(root / "a-first", links / "second")
    os.link(root / "a-first", root / "z-third")
    (links / "empty-1").touch()
    os.link(links / "empty-1", links / "empty-2")
    (root.parent / "outside the tree").write_bytes(b"one name inside, one outside")
    os.link(root.parent / "outside the tree", links / "inside")


def _make_sizes(root: Path) -> None:
    sizes = root / "sizes"
    sizes.mkdir()
    for edge in EDGES:
        for size in (edge - 1, edge, edge + 1):
            (sizes / f"{size}").write_bytes(content(size, size))
    for size in (0, 1, 2 * MIB):
        (sizes / f"zeros-{size}").write_bytes(bytes(size))
    with (sizes / "written-zeros").open("wb") as file:
        for _ in range(64):
            file.write(bytes(MIB))


def _make_sparse(root: Path) -> None:
    sparse = root / "sparse"
    sparse.mkdir()
    with (sparse / "terabyte").open("wb") as file:
        for offset, size in ((0, 10), (SPARSE_BYTES // 2, 5 * MIB), (SPARSE_BYTES // 2 + GIB + 1, 100)):
            file.seek(offset)
            file.write(content(offset % 1000 + size, size))
        file.truncate(SPARSE_BYTES)
    for name, size in (("five-gibibytes", 5 * GIB), ("one-hole", 123_457), ("end", MIB)):
        with (sparse / name).open("wb") as file:
            file.truncate(size)
    with (sparse / "end").open("r+b") as file:
        file.seek(MIB - 1)
        file.write(b"x")


def _make_modes_and_times(root: Path) -> None:
    modes = root / "modes"
    modes.mkdir()
    file_modes = [0o400, 0o444, 0o600, 0o755, 0o4755, 0o2711]
    directory_modes = [0o500, 0o555, 0o700, 0o1777, 0o2750]
    if os.geteuid() == 0:
        file_modes += [0, 0o200]
        directory_modes += [0, 0o300]
    for mode in file_modes:
        path = modes / f"file-{mode:o}"
        path.write_bytes(b"mode %o" % mode)
        path.chmod(mode)
    for mode in directory_modes:
        path = modes / f"directory-{mode:o}"
        path.mkdir()
        (path / "inside").write_bytes(b"inside")
        path.chmod(mode)
    times = root / "times"
    times.mkdir()
    for mtime in (BEFORE_1970, -1, 0, 1, 999_999_999, 1_600_000_000_000_000_001, 4_102_444_800_987_654_321):
        (times / f"at{mtime}").touch()
        os.utime(times / f"at{mtime}", ns=(0, mtime))
        (times / f"directory{mtime}").mkdir()
        os.utime(times / f"directory{mtime}", ns=(0, mtime))


# comparing


def survey(root: Path) -> dict[bytes, Node]:
    """Return every entry beneath *root*, and the root as the empty path."""
    found: dict[bytes, tuple[Node, tuple[int, int]]] = {}
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    found[b""] = _node(os.fstat(top), b"", "", _xattrs(top))
    waiting = [(b"", top)]
    while waiting:
        path, fd = waiting.pop()
        for name in sorted(os.listdir(fd)):
            entry = os.fsencode(name)
            whole = path + b"/" + entry if path else entry
            below, found[whole] = _look(fd, entry)
            if below is not None:
                waiting.append((whole, below))
        os.close(fd)
    names: dict[tuple[int, int], list[bytes]] = {}
    for path, (node, inode) in found.items():
        if stat.S_ISREG(node.kind):
            names.setdefault(inode, []).append(path)
    return {path: _with_links(node, tuple(sorted(names.get(inode, ())))) for path, (node, inode) in found.items()}


def _look(fd: int, name: bytes) -> tuple[int | None, tuple[Node, tuple[int, int]]]:
    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        return None, _node(status, os.readlink(name, dir_fd=fd), "", ())
    if stat.S_ISDIR(status.st_mode):
        below = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=fd)
        return below, _node(status, b"", "", _xattrs(below))
    assert stat.S_ISREG(status.st_mode), name
    opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=fd)
    try:
        return None, _node(status, b"", _digest(opened, status.st_size), _xattrs(opened))
    finally:
        os.close(opened)


def _node(
    status: os.stat_result, target: bytes, digest: str, xattrs: tuple[tuple[bytes, bytes], ...]
) -> tuple[Node, tuple[int, int]]:
    size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
    kind, mode = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
    inode = status.st_ino
    node = Node(kind, mode, status.st_mtime_ns, size, target, digest, (), xattrs, inode, status.st_blocks * 512)
    return node, (status.st_dev, inode)


def _with_links(node: Node, links: tuple[bytes, ...]) -> Node:
    return Node(
        node.kind,
        node.mode,
        node.mtime,
        node.size,
        node.target,
        node.content,
        links,
        node.xattrs,
        node.inode,
        node.stored,
    )


def _xattrs(fd: int) -> tuple[tuple[bytes, bytes], ...]:
    try:
        names = sorted(os.fsencode(name) for name in os.listxattr(fd) if name.startswith("user."))
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        return ()
    return tuple((name, os.getxattr(fd, name)) for name in names)


def _digest(fd: int, size: int) -> str:
    """Return a hash of the blocks that are not zero, so a hole and written zeros are one content."""
    hasher = hashlib.blake2b()
    for start in _blocks_with_data(fd, size):
        block = os.pread(fd, BLOCK_BYTES, start)
        if block.count(0) != len(block):
            hasher.update(start.to_bytes(8, "little") + block)
    return hasher.hexdigest()


def _blocks_with_data(fd: int, size: int) -> Iterator[int]:
    position = 0
    while position < size:
        try:
            position = os.lseek(fd, position, os.SEEK_DATA) // BLOCK_BYTES * BLOCK_BYTES
        except OSError as error:
            if error.errno != errno.ENXIO:  # a hole to the end
                raise
            return
        yield position
        position += BLOCK_BYTES


def differences(source: dict[bytes, Node], copy: dict[bytes, Node], *, view: bool = False) -> list[str]:
    """Return what differs; in a *view* modes have lost their write bits and its root's is the gate's, links count by
    content.
    """
    found = [f"missing: {path!r}" for path in source.keys() - copy.keys()]
    found += [f"unexpected: {path!r}" for path in copy.keys() - source.keys()]
    for path in source.keys() & copy.keys():
        before, after = _promised(path, source[path], view=view), _promised(path, copy[path], view=view)
        found += [
            f"{name} of {path[:80]!r}: {getattr(before, name)!r} became {getattr(after, name)!r}"
            for name in Node.__dataclass_fields__
            if getattr(before, name) != getattr(after, name)
        ]
    return sorted(found)


def _promised(path: bytes, node: Node, *, view: bool) -> Node:
    mode = node.mode & (0o555 if view else 0o1777)  # set-id bits are never restored
    if stat.S_ISLNK(node.kind) or (view and not path):
        mode = 0
    links = () if view else node.links
    return Node(node.kind, mode, node.mtime, node.size, node.target, node.content, links, node.xattrs, 0, 0)
