"""The clauses of the conformance kit: every behaviour of a store that the repository relies on, one function each.

A function returns what it saw, or raises `Missing` with what it found instead. Names look like a repository's own:
that is what has to work.
"""

import os
import threading
import time
from collections.abc import Callable
from functools import partial
from urllib.error import HTTPError
from urllib.parse import urlsplit, urlunsplit
from urllib.request import Request, urlopen

from datasync.errors import AlreadyExists, IntegrityError, NotAuthorized, NotFound, StorageUnavailable, UsageError
from datasync.model.limits import KIB, MIB
from datasync.storage.conformance import Clause, Kit, Missing, Need, in_lanes
from datasync.storage.extras import Presign, SignedRequest
from datasync.storage.names import NAME_CHARACTERS

SKEW_SECONDS = 300.0  # providers refuse requests from 15 minutes on
START_SECONDS = 20.0  # racers wait so long for each other: a signal may have come between their starts
SIGNED_SECONDS = 300
ANSWER_SECONDS = 30.0
BODY_BYTES = 200 * KIB  # larger ones take another way through many clients and servers


def _expect(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Missing(otherwise)


def _refused(call: Callable[[], object], error: type[Exception], otherwise: str) -> None:
    try:
        call()
    except error:
        return
    raise Missing(otherwise)


def _digits(number: int) -> str:
    return f"{10**20 - 1 - number:020}"  # as the repository numbers its objects


def put_if_absent(kit: Kit) -> str:
    """A name is created once: for a second put, small or large, and for one of several at the same time."""
    for size in (10, BODY_BYTES):
        name, first = f"once/{size}", os.urandom(size)
        kit.put(name, first)
        _refused(partial(kit.put, name, os.urandom(size)), AlreadyExists, "a second put of one name was accepted")
        _expect(kit.other.get(name, limit=size) == first, "a refused second put replaced the object")
    for number in range(kit.options.rounds):
        _race(kit, f"race/{_digits(number)}")
    return f"a taken name is refused; of {kit.options.racers} at the same time one wins"


def _race(kit: Kit, name: str) -> None:
    start = threading.Barrier(kit.options.racers, timeout=START_SECONDS)

    def run(number: int) -> bytes | None:
        body = b"racer %d" % number
        try:
            start.wait()
            kit.put(name, body)
        except (AlreadyExists, StorageUnavailable, threading.BrokenBarrierError):
            return None  # a server may tell a loser to try again
        return body

    racers = range(kit.options.racers)
    winners = [body for body in in_lanes(run, racers, kit.options.racers) if body is not None]
    if not winners:
        raise StorageUnavailable(f"{kit.store.url}: no put of {kit.options.racers} at the same time went through")
    _expect(len(winners) == 1, f"of {kit.options.racers} puts at the same time {len(winners)} were told that they won")
    _expect(kit.other.get(name, limit=BODY_BYTES) == winners[0], "a put that was told that it won did not")


def read_after_write(kit: Kit) -> str:
    """Another client reads an object as soon as its put returns, although it had just asked for it in vain."""
    for number in range(kit.options.rounds):
        name, body = f"fresh/{number}", os.urandom(1_000)
        for ask in (partial(kit.other.get, name, limit=10), partial(kit.other.stat, name)):
            _refused(ask, NotFound, "an object that was never put was found")
        kit.put(name, body)
        try:
            found = kit.other.get(name, limit=len(body))
        except NotFound:
            raise Missing("an object could not be read right after its put") from None
        _expect(found == body, "an object came back with other bytes")
    return f"{kit.options.rounds} of {kit.options.rounds} objects were there at once"


def list_after_write(kit: Kit) -> str:
    """Another client's listing has an object as soon as its put returns."""
    for number in range(kit.options.rounds):
        name = f"snapshots/{_digits(number + 1)}"
        kit.put(name, b"x")
        newest = kit.names("snapshots/", limit=1)
        _expect(newest == [name], "the newest name was not the first of a listing right after its put")
    return "the newest name is listed first at once"


def listing(kit: Kit) -> str:
    """Names come in byte order, all of them, over as many pages as it takes, from any name on."""
    count = kit.options.names
    names = sorted(f"packs/{number % 16:02x}/{number * 2_654_435_761 % 2**32:08x}" for number in range(count))
    for _ in in_lanes(lambda name: kit.put(name, b"x"), names):
        pass
    found = kit.names("packs/")
    _expect(sorted(found) == names, f"of {count:,} names {len(set(found) & set(names)):,} were listed")
    _expect(found == names, "names were not listed in byte order")
    _expect(kit.names("packs/", after=names[50]) == names[51:], "a listing from a name on was another one")
    _expect(kit.names("packs/", limit=7) == names[:7], "a limited listing was another one")
    _expect(kit.names("packs/00") == [n for n in names if n.startswith("packs/00")], "a prefix listed other names")
    folders = list(kit.other.list_directories("packs/"))
    _expect(folders == [f"{number:02x}" for number in range(16)], "directories were not listed, or not in order")
    return f"{count:,} names in byte order" + ("" if count > 1_000 else "; more than one page of 1,000 was not tried")


def ranges(kit: Kit) -> str:
    """A range is exactly the bytes that were asked for, and past the end there is an error."""
    body = os.urandom(BODY_BYTES)
    kit.put("ranged", body)
    for offset, size in ((0, 1), (0, BODY_BYTES), (64 * KIB, 64 * KIB), (BODY_BYTES - 1, 1), (12_345, 54_321)):
        buffer = bytearray(size)
        kit.other.get_range("ranged", offset, memoryview(buffer))
        _expect(buffer == body[offset : offset + size], f"{size} bytes at {offset} were other bytes")
    past = memoryview(bytearray(2))
    read_past = partial(kit.other.get_range, "ranged", BODY_BYTES - 1, past)
    _refused(read_past, IntegrityError, "a range past the end was given")
    return "exactly the bytes that were asked for"


def odd_names(kit: Kit) -> str:
    """Names of all legal characters, of full length, and such that differ in case alone."""
    long = f"{'a' * 200}/{'B' * 200}/{'-' * (NAME_CHARACTERS - 402)}"
    names = ["odd/.hidden", "odd/-", "odd/a..b", "odd/_._", "odd/Case", "odd/case", "odd/a.b-c_d", long]
    for name in names:
        kit.put(name, name.encode())
    for name in names:
        found = kit.other.get(name, limit=NAME_CHARACTERS)
        _expect(found == name.encode(), f"{name[:40]} is one with another name")
    _expect(set(kit.names("odd/")) == set(names[:-1]), "odd names were not listed as they are")
    return f"dots, dashes, both cases, {NAME_CHARACTERS} characters"


def large_object(kit: Kit) -> str:
    """An object larger than any pack goes in with one put and comes out whole, and in ranges."""
    size = kit.options.large_bytes
    body = bytearray(os.urandom(MIB) * (size // MIB + 1))[:size]
    body[-16:] = os.urandom(16)
    kit.put("large", body)
    _expect(kit.other.stat("large").size == size, "its size is another one")
    _expect(kit.other.get("large", limit=size) == body, "its bytes are other bytes")
    tail = bytearray(MIB)
    kit.other.get_range("large", size - MIB, memoryview(tail))
    _expect(tail == body[-MIB:], "a range at its end is other bytes")
    return f"{size // MIB} MiB in and out"


def stat(kit: Kit) -> str:
    """Stat and listing tell one size and one time."""
    kit.put("told/one", bytes(321))
    told = kit.other.stat("told/one")
    (listed,) = kit.other.list("told/")
    _expect((told.name, told.size) == ("told/one", 321), f"stat told {told.size} bytes of 321")
    _expect((listed.name, listed.size) == ("told/one", 321), f"a listing told {listed.size} bytes of 321")
    _expect(abs(told.modified - listed.modified) < 2, "stat and listing tell different times")
    return "stat and listing agree"


def delete(kit: Kit) -> str:
    """A deleted object is gone for every client, and deleting it again is no error."""
    kit.put("gone/one", b"x")
    try:
        for name in ("gone/one", "gone/one", "gone/never"):
            kit.store.delete(name)
    except NotAuthorized:
        raise Missing("these credentials may not delete") from None
    _refused(partial(kit.other.get, "gone/one", limit=1), NotFound, "a deleted object could still be read")
    _expect(kit.names("gone/") == [], "a deleted object was still listed")
    kit.put("gone/one", b"y")
    _expect(kit.other.get("gone/one", limit=1) == b"y", "a name could not be used again after a delete")
    return "gone at once"


def presign(kit: Kit) -> str:
    """A signed request lets in who has no credentials: to create one object, and to read it."""
    driver = kit.driver
    if not isinstance(driver, Presign):
        return "not offered by this kind of store"
    body = os.urandom(1_000)
    kit.made.add("signed")
    try:
        put, get = driver.presign_put("signed", SIGNED_SECONDS), driver.presign_get("signed", SIGNED_SECONDS)
    except UsageError:
        return "these credentials sign nothing for others"
    _expect(_send(put, body) is not None, "a signed put was refused")
    _expect(kit.other.get("signed", limit=len(body)) == body, "a signed put stored other bytes")
    _expect(_send(get) == body, "a signed get was refused, or gave other bytes")
    return "a signed put and a signed get let in without credentials"


def _send(request: SignedRequest, body: bytes | None = None) -> bytes | None:
    """Return the answer's body, None when the request was refused."""
    plain = {} if body is None else {"Content-Type": "application/octet-stream"}  # on a get OSS would want it signed
    parts, headers = urlsplit(request.url), plain | dict(request.headers)
    if (parts.hostname or "").endswith(".localhost"):  # names of this machine, which not every resolver knows: RFC 6761
        headers["Host"] = parts.netloc
        parts = parts._replace(netloc=f"127.0.0.1:{parts.port}" if parts.port else "127.0.0.1")
    asked = Request(urlunsplit(parts), body, headers, method=request.method)
    try:
        with urlopen(asked, timeout=ANSWER_SECONDS) as answer:
            found: bytes = answer.read(BODY_BYTES)
            return found
    except HTTPError:
        return None
    except OSError as error:
        raise StorageUnavailable(f"a signed request was not answered ({type(error).__name__}); try again") from None


def clock(kit: Kit) -> str:
    """The store's clock, told by a fresh object's time, and this machine's are the same but for a few minutes."""
    before = time.time()
    kit.put("clock", b"x")
    after = time.time()
    skew = skew_of(kit.other.stat("clock").modified, before, after)
    told = f"this machine's clock is {abs(skew):.0f} s {'ahead of' if skew < 0 else 'behind'} the store's"
    _expect(abs(skew) <= SKEW_SECONDS, told)
    return told if abs(skew) >= 1 else "both clocks agree"


def skew_of(modified: float, before: float, after: float) -> float:
    """Return by how many seconds the store's clock is surely ahead; stores tell whole seconds."""
    if modified > after:
        return modified - after
    return min(0.0, modified + 1 - before)


CLAUSES = (
    Clause(
        "put-if-absent",
        Need.WRITERS,
        "it works for one writer at a time; two commits at once are both kept and reported (exit 7)",
        put_if_absent,
    ),
    Clause(
        "read-after-write", Need.ALL, "a push could not rely on what it has sent: use another store", read_after_write
    ),
    Clause(
        "list-after-write", Need.ALL, "a writer would not see the newest snapshot: use another store", list_after_write
    ),
    Clause("listing", Need.ALL, "the newest snapshot and lost packs would not be found: use another store", listing),
    Clause("ranges", Need.ALL, "files could not be fetched from packs: use another store", ranges),
    Clause("large object", Need.ALL, "packs of 32 MiB could not be stored: raise its limit", large_object),
    Clause("odd names", Need.SOME, "a repository's own names are plain; other tools' names may collide", odd_names),
    Clause("stat", Need.ALL, "a resumed push could not check its packs: use another store", stat),
    Clause("delete", Need.SOME, "nothing can be removed: forget and prune need other credentials", delete),
    Clause("presign", Need.SOME, "a node needs credentials of its own: no request can be signed for it", presign),
    Clause("clock", Need.SOME, "requests are refused from 15 minutes on, and grace times are wrong: set it", clock),
)
