"""RAM policies for OSS (vendor's page "OSS authorization syntax and elements"), and what each request wants.

The region of a resource can only be `*`. There is no condition key for `x-oss-forbid-overwrite`.
"""

import re
import xml.etree.ElementTree as ElementTree

from tests.support.object_server import Call, Wish, iso
from tests.support.policies import Grammar, earlier, equal, matches

POLICY_CHARACTERS = 2_048  # of one that a session is given
RAM = Grammar(
    version=("Version", "1"),
    statement="Statement",
    members=("Effect", "Action", "Resource", "Condition"),
    effects=("Allow", "Deny"),
    action=re.compile(r"\*|oss:[A-Za-z*]+"),
    resource=re.compile(r"\*|acs:oss:\*:(\*|\d+):[^\s$]+"),
    operators={"StringEquals": equal, "StringLike": matches, "DateLessThan": earlier},
    keys={
        "oss:Prefix": ("StringEquals", "StringLike"),
        "oss:Delimiter": ("StringEquals", "StringLike"),
        "acs:CurrentTime": ("DateLessThan",),
    },
)
_OBJECT = {"GET": "GetObject", "HEAD": "GetObject", "PUT": "PutObject", "DELETE": "DeleteObject"}
_OF_BUCKET = {"versioning": "GetBucketVersioning", "worm": "GetBucketWorm", "versions": "ListObjectVersions"}


def wishes(call: Call, bucket: str, now: float) -> list[Wish]:
    """Return all that *call* has to be allowed."""
    resource, query = f"acs:oss:*:1234567890:{bucket}", call.query
    values = {"acs:CurrentTime": iso(now)}
    if call.key:
        found = [Wish(f"oss:{_OBJECT.get(call.method, 'Other')}", f"{resource}/{call.key}", values)]
        acl = "x-oss-object-acl" in call.headers
        return found + ([Wish("oss:PutObjectAcl", f"{resource}/{call.key}", values)] if acl else [])
    if call.method == "POST" and "delete" in query:
        keys = [node.findtext("Key") or "" for node in ElementTree.fromstring(call.body).findall("Object")]
        return [Wish("oss:DeleteObject", f"{resource}/{key}", values) for key in keys]
    if call.method == "PUT":
        return [Wish("oss:PutBucketVersioning" if "versioning" in query else "oss:PutBucket", resource, values)]
    for name, key in (("prefix", "oss:Prefix"), ("delimiter", "oss:Delimiter")):
        if name in query:
            values[key] = query[name]
    action = next((action for name, action in _OF_BUCKET.items() if name in query), "ListObjects")
    return [Wish(f"oss:{action}", resource, values)]
