"""Credentials for a part of an S3 bucket: an STS session with a policy of its own, or URLs that are signed beforehand.

`AssumeRole` gives at most what both the role and the session policy allow (AWS IAM User Guide, "Session policies"). A
session lasts 15 minutes or more; a scope that ends before that is ended by a condition on the time. Creating is bound
to `If-None-Match` by the condition key `s3:if-none-match` (Amazon S3 User Guide, "Enforce conditional writes").
"""

import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from datasync.errors import NotAuthorized, StorageUnavailable, UsageError
from datasync.storage.brokers import Credential, Scope, check_policy
from datasync.storage.location import StoreUrl
from datasync.storage.protocol import ObjectStore
from datasync.storage.s3.client import make_client
from datasync.storage.s3.options import DEFAULT_REGION, S3Credentials, S3Options
from datasync.storage.s3.store import S3Store

SHORTEST_SECONDS = 900  # of a session, by AWS
POLICY_CHARACTERS = 2_048  # of a session policy, by AWS
SESSION_NAME = "datasync"
DEFAULT = S3Options()
URL_SECONDS = 7 * 24 * 3600  # the longest life of a signed URL (Signature Version 4)
_REFUSED = ("AccessDenied", "InvalidClientTokenId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidAccessKeyId")


def session_policy(where: StoreUrl, scope: Scope) -> str:
    """Return the IAM policy that allows *scope* in the repository at *where*, and nothing else."""
    bucket = f"arn:aws:s3:::{where.place}"
    names = scope.keys(where)
    objects = [f"{bucket}/{name}" for name in names]
    ends = {"DateLessThan": {"aws:CurrentTime": scope.ends}}
    listing = {**ends, "StringLike": {"s3:prefix": names}}
    statements = [_allow(["s3:ListBucket"], [bucket], listing)]
    if scope.read:
        statements.append(_allow(["s3:GetObject"], objects, ends))
    if scope.create:
        statements.append(_allow(["s3:PutObject"], objects, {**ends, "Null": {"s3:if-none-match": "false"}}))
    text = json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))
    return check_policy(text, scope, POLICY_CHARACTERS)


def _allow(actions: list[str], resources: list[str], condition: dict[str, Any]) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions, "Resource": resources, "Condition": condition}


class S3StsBroker:
    """Issues sessions of one role."""

    def __init__(
        self,
        where: StoreUrl,
        role: str,
        options: S3Options = DEFAULT,
        *,
        endpoint: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._where = where
        self._role = role
        self._clock = clock
        session = botocore.session.Session()
        if options.credentials is not None:
            keys = options.credentials
            session.set_credentials(keys.access_key, keys.secret_key, keys.token)
        region = where.region or session.get_config_variable("region") or DEFAULT_REGION
        config = Config(connect_timeout=options.connect_seconds, read_timeout=options.read_seconds)
        self._sts: Any = session.create_client("sts", region_name=region, endpoint_url=endpoint, config=config)

    def issue(self, scope: Scope) -> Credential:
        """Return the variables of a session for *scope*."""
        seconds = max(SHORTEST_SECONDS, scope.seconds(self._clock()))
        try:
            answer = self._sts.assume_role(
                RoleArn=self._role,
                RoleSessionName=SESSION_NAME,
                DurationSeconds=seconds,
                Policy=session_policy(self._where, scope),
            )
        except ClientError as error:
            raise _meaning(self._role, error) from None
        except BotoCoreError as error:
            raise StorageUnavailable(f"role {self._role}: no session: {error}") from None
        keys = answer["Credentials"]
        variables = {
            "AWS_ACCESS_KEY_ID": keys["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"],
            "AWS_SESSION_TOKEN": keys["SessionToken"],
        }
        return Credential(variables, min(scope.until, int(keys["Expiration"].timestamp())))


def open_lent(where: StoreUrl, variables: Mapping[str, str]) -> ObjectStore:
    """Return the store at *where*, opened with a credential's variables; `KeyError` when one is missing."""
    keys = S3Credentials(
        variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"], variables["AWS_SESSION_TOKEN"]
    )
    return S3Store(where, S3Options(keys))


def _meaning(role: str, error: ClientError) -> Exception:
    code, status = error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
    text = f"role {role}: {code}: {error.response['Error'].get('Message', '')[:300]}"
    if code in _REFUSED:
        return NotAuthorized(f"{text}: the broker's own credential may not assume it")
    return StorageUnavailable(text) if status >= 500 or status == 429 else UsageError(text)


def signed_urls(where: StoreUrl, names: list[str], seconds: int, options: S3Options = DEFAULT) -> dict[str, str]:
    """Return a URL for each of *names* that reads it for *seconds* and needs no credential: secrets, never logged."""
    if not 0 < seconds <= URL_SECONDS:
        raise UsageError(f"signed URL: expected 1 to {URL_SECONDS} seconds, found {seconds}")
    client = make_client(where, options)
    before = f"{where.prefix.strip('/')}/" if where.prefix.strip("/") else ""
    try:
        return {
            name: client.generate_presigned_url(
                "get_object", Params={"Bucket": where.place, "Key": before + name}, ExpiresIn=seconds
            )
            for name in names
        }
    except BotoCoreError as error:
        raise NotAuthorized(f"{where.place}: no URL can be signed: {error}") from None
    finally:
        client.close()
