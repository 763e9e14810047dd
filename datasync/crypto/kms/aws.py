"""AWS KMS: Encrypt and Decrypt of the JSON 1.1 protocol (https://docs.aws.amazon.com/kms/latest/APIReference/).

botocore finds the credentials (its own chain: variables, profile, SSO, roles, instance metadata) and signs; the request
itself goes through `kms.http`, so its bounds hold here too. Decrypt names the key, so a blob of another key is refused
by the service. The context is the encryption context, which CloudTrail records in the clear.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import botocore.session
from botocore import exceptions as sdk
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest

from datasync.crypto.kms.calls import UNWRAP, WRAP, Dialect, call, decoded, encoded, text_field
from datasync.crypto.kms.http import Client, HttpLimits, Request, parse_endpoint
from datasync.crypto.kms.protocol import KeyUri
from datasync.errors import NotAuthorized, StorageUnavailable, UsageError

_REGION = re.compile(r"[a-z0-9-]{1,64}")


def _code(fields: Mapping[str, Any]) -> str:
    return str(fields.get("__type") or "").rpartition("#")[2]


_DIALECT = Dialect(
    _code,
    denied=(
        "AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException",
        "IncompleteSignature", "InvalidClientTokenId", "MissingAuthenticationTokenException", "OptInRequired",
        "InvalidGrantTokenException",
    ),
    missing=("NotFoundException", "DisabledException", "KMSInvalidStateException", "InvalidArnException"),
    busy=(
        "ThrottlingException", "LimitExceededException", "KMSInternalException", "DependencyTimeoutException",
        "KeyUnavailableException", "ServiceUnavailable", "InternalFailure",
    ),
)  # fmt: skip


class AwsKey:
    """A `KeyService` on one key of AWS KMS."""

    def __init__(self, uri: KeyUri, client: Client) -> None:
        self.uri = uri
        self._client = client

    def wrap(self, key: bytes, context: Mapping[str, str]) -> bytes:
        """Return the CiphertextBlob."""
        fields = self._call(WRAP, "Encrypt", {"Plaintext": encoded(key)}, context)
        return decoded(self.uri.name, text_field(self.uri.name, fields, "CiphertextBlob"))

    def unwrap(self, blob: bytes, context: Mapping[str, str]) -> bytes:
        """Return the Plaintext."""
        fields = self._call(UNWRAP, "Decrypt", {"CiphertextBlob": encoded(blob)}, context)
        return decoded(self.uri.name, text_field(self.uri.name, fields, "Plaintext"))

    def _call(self, doing: str, action: str, body: dict[str, Any], context: Mapping[str, str]) -> dict[str, Any]:
        data = json.dumps(body | {"KeyId": self.uri.path, "EncryptionContext": dict(context)}).encode()
        return call(self._client, lambda: self._signed(action, data), _DIALECT, doing)

    def _signed(self, action: str, data: bytes) -> Request:
        headers = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": f"TrentService.{action}"}
        request = AWSRequest("POST", self._client.endpoint.url + "/", headers=headers, data=data)
        try:
            found = botocore.session.get_session().get_credentials()
            if found is None:
                raise sdk.NoCredentialsError
            SigV4Auth(found.get_frozen_credentials(), "kms", self.uri.place).add_auth(request)
        except (sdk.HTTPClientError, sdk.ConnectionError) as error:
            raise StorageUnavailable(
                f"{self.uri.name}: what gives the credentials is out of reach ({type(error).__name__}): try again later"
            ) from None
        except (sdk.BotoCoreError, sdk.ClientError, ValueError, OSError) as error:  # of a role, a process, a file
            raise NotAuthorized(
                f"{self.uri.name}: no usable credentials ({type(error).__name__}): set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            ) from None
        return Request("POST", self._client.endpoint.path + "/", dict(request.headers), data)


def make(uri: KeyUri, environment: Mapping[str, str], limits: HttpLimits) -> AwsKey:
    """Return the key that *uri* names."""
    if _REGION.fullmatch(uri.place) is None:
        raise UsageError("KMS URI: expected aws-kms://REGION/KEY, the region as in eu-central-1")
    domain = "amazonaws.com.cn" if uri.place.startswith("cn-") else "amazonaws.com"
    endpoint = parse_endpoint(uri.endpoint or f"https://kms.{uri.place}.{domain}", uri.name)
    return AwsKey(uri, Client(uri.name, endpoint, limits, environment.get("AWS_CA_BUNDLE")))
