"""The daemon's tables: what is wrong in them is told by name, and nothing starts."""

from pathlib import Path

import pytest

from datasync.config import Config, Flags, load_config
from datasync.errors import UsageError
from datasync.service.daemon_settings import read_settings, seconds, share, window
from datasync.service.sockets import socket_path


def config(folder: Path, text: str) -> Config:
    (folder / "c.toml").write_text(text)
    return load_config(Flags(config=folder / "c.toml"), {"HOME": str(folder)})


WRONG = {
    "[[mirror]]\npath='/a'\n": "dataset",
    "[[mirror]]\npath='/a'\ndataset='d'\ndebouce='5s'\n": "debouce",
    "[[mirror]]\npath='a'\ndataset='d'\n": "absolute",
    "[[mirror]]\npath='/a'\ndataset='d'\nrescan='often'\n": "rescan",
    "[[mirror]]\npath='/a'\ndataset='d'\nmax_loss='half'\n": "max_loss",
    "[[mirror]]\npath='/a'\ndataset='d'\nwindow='night'\n": "window",
    "[[mirror]]\npath='/a'\ndataset='d'\n[[mirror]]\npath='/b'\ndataset='d'\n": "two mirrors",
    "[mirror]\npath='/a'\n": "[[mirror]]",
    "[[warm]]\ndataset='a@b@c'\n": "reference",
    "[[warm]]\ndataset='a'\npriority='high'\n": "priority",
    "[daemon]\nlisten='tcp://0.0.0.0:1'\n": "TLS",
    "[daemon]\nlisten='http://x'\n": "listen",
    "[alerts]\nbehind='soon'\n": "behind",
    "[[issuer]]\nissuer='i'\naudience='a'\njwks='/k'\nalgorithms=['none']\n": "algorithms",
    "[[issuer]]\nissuer='i'\naudience='a'\njwks='/k'\nalgorithms=['HS256']\n": "algorithms",
    "[[access]]\nissuer='i'\nsubject='s'\ndatasets=['d']\nactions=['everything']\n": "everything",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_table_is_refused_by_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match=WRONG[text].replace("[", r"\[")):
        read_settings(config(tmp_path, text))


def test_an_unknown_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="mirrors"):
        config(tmp_path, "[[mirrors]]\npath='/a'\n")


def test_the_socket_lies_where_the_settings_or_the_session_say(tmp_path: Path) -> None:
    assert socket_path(config(tmp_path, "[daemon]\nsocket='/a/b.sock'\n")) == Path("/a/b.sock")
    assert socket_path(config(tmp_path, "")) == tmp_path / ".local/state/datasync/daemon.sock"
    found = load_config(Flags(), {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": "/run/user/7"})
    assert socket_path(found) == Path("/run/user/7/datasync/daemon.sock")


def test_spans_shares_and_windows() -> None:
    assert (seconds("200ms", ""), seconds("1.5h", ""), share("12.5%", "")) == (0.2, 5400, 0.125)
    assert window("22:00-06:30", "") == (79200, 23400)
    for text in ("101%", "50", "-1%"):
        with pytest.raises(UsageError):
            share(text, "x")
