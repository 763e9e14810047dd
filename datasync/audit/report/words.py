"""The reports' own words in Chinese. A test makes every report and looks for a word that is missing here."""

from datasync.audit.report.model import Cell, Words

LANGUAGES = ("en", "zh")
CHINESE = {
    "Access is given by keys, and each grant is recorded.": "访问权通过密钥授予，每次授权均有记录。",
    "Access review of a person": "个人访问权限审查",
    "Action": "操作",
    "Actions": "操作",
    "Alarms": "告警",
    "An intent was recorded, and no outcome after it.": "已记录意图，其后没有结果。",
    "Begun and not reported as done": "已开始但未报告完成",
    "Between regions": "跨地区",
    "By": "操作人",
    "Bytes": "字节数",
    "Certificates": "证明",
    "Checkpoint": "检查点",
    "Checkpoints": "检查点数",
    "Classification": "数据分级",
    "Cross-border transfers": "数据出境记录",
    "Dataset": "数据集",
    "Datasets": "数据集",
    "Day": "日期",
    "Detail": "详情",
    "Did": "已执行的操作",
    "Each line is an event that can be proved. Copies made before, by those who might, are not reached.": (
        "每一行都是可以出具证明的事件。此前由有权者制作的副本不受影响。"
    ),
    "Encrypted before it leaves the machine; the store holds ciphertext.": "数据离开本机之前已加密；存储端只有密文。",
    "Epoch": "密钥代次",
    "Erasure certificates (GDPR, article 17)": "删除证明（GDPR 第 17 条）",
    "Event": "事件",
    "Events": "事件数",
    "Events that say that something could not be recorded, or was set aside after a crash.": (
        "说明有内容未能记录，或在崩溃后被移出的事件。"
    ),
    "Every change of who holds a key, failed ones included.": "密钥持有人的每次变更，包括失败的变更。",
    "Every event was hashed into the tree again, and every checkpoint's signature holds.": (
        "每个事件均已重新计入哈希树，每个检查点的签名均有效。"
    ),
    "Everything recorded with this person as the actor.": "以此人为操作人的全部记录。",
    "First": "首次",
    "First event that stays": "保留的第一个事件",
    "From": "来源地区",
    "Gaps": "缺口",
    "Granted by": "授权人",
    "Grants recorded and not revoked.": "已记录且未撤销的授权。",
    "Grants recorded up to the day, less those revoked before it. Who was removed keeps what was read.": (
        "截至当日已记录的授权，减去此前撤销的授权。被移除者仍保有其已读取的内容。"
    ),
    "History": "历史",
    "Integrity and rollback alarms that were recorded.": "已记录的完整性告警与回滚告警。",
    "Integrity of the audit log": "审计日志完整性",
    "Kept for": "保存期限",
    "Key rotation and grant history": "密钥轮换与授权历史",
    "Last": "末次",
    "Legal floor": "法定最低期限",
    "Legal hold": "法律保全",
    "Log": "日志",
    "Logs": "日志",
    "May read now": "当前可读",
    "Meaning": "含义",
    "Measure": "措施",
    "Outcome": "结果",
    "Person": "人员",
    "Proof": "证明编号",
    "Purposes": "目的",
    "Reason": "原因",
    "Recipients": "接收者",
    "Record of processing activities (GDPR, article 30)": "处理活动记录（GDPR 第 30 条）",
    "Regions": "地区",
    "Removals, holds and overrides that were recorded.": "已记录的删除、保全与例外。",
    "Retention of the audit log": "审计日志保存状况",
    "Role": "角色",
    "Root hash": "根哈希",
    "Security measures": "安全措施",
    "Segments due": "到期分段数",
    "Segments whose events are all older than the retention are due.": "全部事件均超过保存期限的分段为到期。",
    "Set audit.region on each machine, and name the region in the repository's URL.": (
        "请在每台机器上设置 audit.region，并在仓库 URL 中写明地区。"
    ),
    "Since": "自",
    "This log is tamper-evident: events in a Merkle tree, signed checkpoints.": (
        "本日志可发现篡改：事件位于 Merkle 树中，检查点带签名。"
    ),
    "Those that the software applies to every dataset.": "软件对每个数据集采取的措施。",
    "Time": "时间",
    "Times": "次数",
    "To": "目的地区",
    "Transfers and key releases recorded on the day, in UTC.": "当日（UTC）记录的传输与密钥发放。",
    "Transfers whose two regions are known and differ. Bytes as the events count them.": (
        "两端地区均已知且不同的传输。字节数以事件记录为准。"
    ),
    "Until": "至",
    "Verified logs": "已验证的日志",
    "What": "对象",
    "What was recorded. Controller, legal basis and categories of persons are the controller's to add.": (
        "以记录为准。控制者、法律依据和人员类别由控制者补充。"
    ),
    "Who could read": "可读取者",
    "Who could read a dataset, and who did": "数据集的可读取者与实际读取者",
    "Who did read": "实际读取者",
    "With a region unknown": "地区未知",
    "Year": "年份",
    "all": "全部",
    "cache of a node emptied": "节点缓存已清空",
    "keys of the dataset destroyed: its ciphertext can not be read any more": "数据集密钥已销毁：其密文无法再读取",
    "keys of the person destroyed: the name in the log can not be read any more": (
        "该人员的密钥已销毁：日志中的姓名无法再读取"
    ),
    "none": "无",
    "objects deleted": "对象已删除",
    "snapshots forgotten": "快照已移除",
    "6 months": "6 个月",
}
FRAME = {
    "en": {
        "generated": "Generated",
        "empty": "Nothing was recorded.",
        "foot": "Times are UTC (+00:00); sizes are bytes.",
    },
    "zh": {"generated": "生成时间", "empty": "没有记录。", "foot": "时间为 UTC（+00:00）；大小以字节计。"},
}


def said(value: Cell, language: str) -> Cell:
    """Return *value* in *language*: the report's own words translated, data as it is."""
    if isinstance(value, Words):
        return CHINESE[value] if language == "zh" else str(value)
    return value
