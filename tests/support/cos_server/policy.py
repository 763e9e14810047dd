"""CAM policies for COS (vendor's pages "Access policy language overview", "Conditions" and "Descriptions and use cases
of condition keys"), and what each request wants. The value of `cos:prefix` is compared in its URL-encoded form.
"""

import re
from urllib.parse import quote

from tests.support.object_server import Call, State, Wish, iso
from tests.support.policies import Grammar, earlier, equal, matches

POLICY_CHARACTERS = 4_096  # the vendor names none; a token is at most 4,096 bytes long
CAM = Grammar(
    version=("version", "2.0"),
    statement="statement",
    members=("effect", "action", "resource", "condition"),
    effects=("allow", "deny"),
    action=re.compile(r"\*|name/cos:[A-Za-z*]+"),
    resource=re.compile(r"\*|qcs::cos:[a-z0-9-]*:uid/\d+:[^\s]+"),
    operators={"string_equal": equal, "string_like": matches, "date_less_than": earlier},
    keys={
        "cos:prefix": ("string_equal", "string_like"),
        "cos:x-cos-forbid-overwrite": ("string_equal",),
        "qcs:current_time": ("date_less_than",),
    },
)
_OBJECT = {"GET": "GetObject", "HEAD": "HeadObject", "PUT": "PutObject", "DELETE": "DeleteObject"}
_OF_BUCKET = {
    "versioning": "GetBucketVersioning",
    "object-lock": "GetBucketObjectLockConfiguration",
    "versions": "GetBucketObjectVersions",
    "delete": "DeleteMultipleObjects",
}


def wish_of(call: Call, bucket: str, state: State) -> Wish:
    """Return what *call* has to be allowed."""
    appid = bucket.rpartition("-")[2]
    resource = f"qcs::cos:{state.region}:uid/{appid}:{bucket}/{call.key}"
    values = {"qcs:current_time": iso(state.now())}
    if "prefix" in call.query:
        values["cos:prefix"] = quote(call.query["prefix"], safe="")
    if (forbid := call.headers.get("x-cos-forbid-overwrite")) is not None:
        values["cos:x-cos-forbid-overwrite"] = forbid
    if call.key:
        return Wish(f"name/cos:{_OBJECT.get(call.method, 'Other')}", resource, values)
    action = next((action for name, action in _OF_BUCKET.items() if name in call.query), "GetBucket")
    return Wish(f"name/cos:{action}", resource, values)
