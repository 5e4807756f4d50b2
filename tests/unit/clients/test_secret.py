"""Secrets in files."""

import os

import pytest

from engine.clients.secret import SecretFile


def test_a_secret_is_stripped_and_read_again_when_the_file_changes(tmp_path):
    file = tmp_path / "token"
    file.write_text("one\n")
    secret = SecretFile(str(file))
    assert secret.read() == "one"
    file.write_text(" two ")
    assert secret.read() == "two"


def test_a_secret_of_the_same_size_behind_another_link_is_read_again(tmp_path):
    """As Kubernetes swaps the folder of a mounted secret."""
    for name in ("old", "new"):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (1, 1))
    link = tmp_path / "token"
    link.symlink_to(tmp_path / "old")
    secret = SecretFile(str(link))
    assert secret.read() == "old"
    link.unlink()
    link.symlink_to(tmp_path / "new")
    assert secret.read() == "new"


def test_a_file_that_has_not_changed_is_not_read(tmp_path):
    file = tmp_path / "token"
    file.write_text("one")
    secret = SecretFile(str(file))
    secret.read()
    before = file.stat()
    with file.open("r+") as handle:
        handle.write("two")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert secret.read() == "one"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "must hold one line of text"),
        (b"a\nb", "must hold one line of text"),
        (b"\xff", "not text"),
        (None, "No such file"),
    ],
)
def test_a_file_without_a_secret_is_named_and_its_content_is_not(tmp_path, content, message):
    if content is not None:
        (tmp_path / "token").write_bytes(content)
    with pytest.raises(OSError, match=f"{tmp_path}/token.*{message}"):
        SecretFile(str(tmp_path / "token")).read()


def test_a_file_that_goes_away_is_an_error_although_its_secret_was_known(tmp_path):
    file = tmp_path / "token"
    file.write_text("one")
    secret = SecretFile(str(file))
    secret.read()
    file.unlink()
    with pytest.raises(OSError, match="No such file"):
        secret.read()
