"""Named limits on everything that comes from outside, in bytes unless said (docs/format.md, sections 8, 10 and 14)."""

KIB = 1024
MIB = 1024 * KIB

PACK_BYTES = 32 * MIB  # a full pack; nothing sealed is larger
PACK_CHUNKS = 16_384  # chunks in one pack
CHUNK_BYTES = 4 * MIB  # one chunk, raw or stored
PAGE_BYTES = 2 * MIB  # one encoded page or chunk list
PAGE_LIST_BYTES = 4 * MIB  # one encoded page list of a snapshot
PAGE_LISTS = 7  # page lists of one snapshot
MARKER_BYTES = 4 * KIB  # datasync.json
PLAIN_PAYLOAD_BYTES = 16 * MIB  # trust root, keyset
SIGNATURES = 64
PRINCIPALS = 4_096
SLOTS = 4_096
EMPTIED_PACKS = 65_536  # of one page of relocations
POLICY_FILES = 64  # of one policy bundle
POLICY_BYTES = 2 * MIB  # all files of one policy bundle together
KMS_BLOB_BYTES = 4 * KIB  # a slot key as a key service wraps it; vendors' are 60 to 600 bytes
LABEL_NAME_BYTES = 256  # a holder's name
PATH_BYTES = 65_535
NAME_BYTES = 255  # one path component
ENTRY_CHUNKS = 1_024  # more go to chunk lists
LIST_CHUNKS = 8_192  # a writer's limit for one chunk list
ENTRY_HOLES = 16_384
XATTRS = 256
XATTRS_BYTES = 64 * KIB
MESSAGE_BYTES = 4 * KIB
SMALL_FILE_BYTES = 256 * KIB  # up to this a file is one chunk
RANGE_BORDER_BYTES = 64 * KIB  # ranged reads are widened to this
