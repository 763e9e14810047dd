"""The request signatures are those of the vendors' own worked examples."""

from datasync.crypto.kms import alibaba, tencent


def test_alibaba_signature_is_that_of_its_document() -> None:
    """https://www.alibabacloud.com/help/en/sdk/product-overview/v3-request-structure-and-signature, RunInstances."""
    headers = {
        "Host": "ecs.cn-shanghai.aliyuncs.com",
        "x-acs-action": "RunInstances",
        "x-acs-content-sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "x-acs-date": "2023-10-26T10:22:32Z",
        "x-acs-signature-nonce": "3156853299f313e23d1673dc12e1703d",
        "x-acs-version": "2014-05-26",
    }
    query = "ImageId=win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd&RegionId=cn-shanghai"
    made = alibaba.authorization("YourAccessKeyId", "YourAccessKeySecret", "/", query, headers)
    assert made.endswith(",Signature=06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0")


def test_tencent_signature_is_that_of_its_document() -> None:
    """https://tencentcloud.com/document/api/614/42761, DescribeInstances; its key is printed as 32 asterisks."""
    body = b'{"Limit": 1, "Filters": [{"Values": ["\\u672a\\u547d\\u540d"], "Name": "instance-name"}]}'
    target = "cvm.tencentcloudapi.com/"
    made = tencent.authorization("AKID", "*" * 32, target, "cvm", "DescribeInstances", 1_551_113_065, body)
    assert made == (
        "TC3-HMAC-SHA256 Credential=AKID/2019-02-25/cvm/tc3_request, SignedHeaders=content-type;host;x-tc-action, "
        "Signature=10b1a37a7301a02ca19a647ad722d5e43b4b3cff309d421d85b46093f6ab6c4f"
    )
