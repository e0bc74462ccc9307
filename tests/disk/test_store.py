"""The disk cache: whatever happens to its files, a miss with right results."""

import errno
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from argand.runtime.disk.format import Damaged, decode, encode
from argand.runtime.disk.store import CacheWarning, DiskStore, default_directory
from argand.support import events
from argand.support.options import Environment

SECTIONS = {"graph": b"text of a graph", "code": bytes(range(256)) * 3, "empty": b""}
KEY = "ab" * 16


# a busy machine is no defect
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.text("abcxyz_", min_size=1, max_size=24), st.binary(max_size=200), max_size=8
    )
)
def test_round_trip(sections):
    assert decode(encode(sections)) == sections
    assert decode(encode(sections, b"secret"), b"secret") == sections


def test_truncation_at_every_byte_is_noticed():
    data = encode(SECTIONS)
    for length in range(len(data)):
        with pytest.raises(Damaged):
            decode(data[:length])


def test_every_flipped_byte_is_noticed():
    data = encode(SECTIONS)
    for position in range(len(data)):
        changed = bytearray(data)
        changed[position] ^= 1 << (position % 8)
        with pytest.raises(Damaged):
            decode(bytes(changed))


@given(st.binary(max_size=300))
def test_foreign_bytes_are_noticed(data):
    with pytest.raises(Damaged):
        decode(data)


def test_hostile_tables_with_a_right_checksum():
    """A table that points outside is refused even when the checksum was made for it."""
    from argand.runtime.disk.format import digest

    random.seed(0)
    body = bytearray(encode(SECTIONS)[:-32])
    for _ in range(3000):
        changed = bytearray(body)
        for _ in range(random.randint(1, 4)):
            changed[random.randrange(8, 16 + 40 * 3)] = random.randrange(256)
        try:
            decode(bytes(changed) + digest(changed))
        except Damaged:
            pass


def test_another_key_is_refused():
    with pytest.raises(Damaged, match="another key"):
        decode(encode(SECTIONS, b"one"), b"two")


def test_newer_format_is_refused(monkeypatch):
    monkeypatch.setattr("argand.runtime.disk.format.FORMAT", 2)
    newer = encode(SECTIONS)
    monkeypatch.undo()
    with pytest.raises(Damaged, match="format 2"):
        decode(newer)


def test_put_and_get(tmp_path):
    store = DiskStore(tmp_path)
    with events.collect() as heard:
        assert store.get(KEY) is None
        assert store.put(KEY, SECTIONS)
        assert store.get(KEY) == SECTIONS
    assert (heard.total("cache.miss"), heard.total("cache.hit")) == (1, 1)
    assert DiskStore(tmp_path).get(KEY) == SECTIONS
    mode = (tmp_path / "v1" / KEY[:2] / KEY).stat().st_mode
    assert mode & 0o077 == 0
    with pytest.raises(ValueError):
        store.get("../../etc/passwd")


def path_of(tmp_path):
    return tmp_path / "v1" / KEY[:2] / KEY


def test_damaged_entry_is_set_aside_with_one_warning(tmp_path):
    store = DiskStore(tmp_path)
    for _ in range(2):
        store.put(KEY, SECTIONS)
        path_of(tmp_path).write_bytes(b"rubbish")
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert store.get(KEY) is None
            assert store.get(KEY) is None
    assert not caught
    assert path_of(tmp_path).with_suffix(".damaged").exists()
    store.put(KEY, SECTIONS)
    assert store.get(KEY) == SECTIONS


def test_links_and_files_of_others_are_refused(tmp_path):
    store = DiskStore(tmp_path / "cache")
    target = tmp_path / "elsewhere"
    target.write_bytes(encode(SECTIONS))
    path = tmp_path / "cache" / "v1" / KEY[:2] / KEY
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    with pytest.warns(CacheWarning):
        assert store.get(KEY) is None
    store.put(KEY, SECTIONS)
    path.chmod(0o666)
    assert store.get(KEY) is None


def test_directory_others_can_write_is_refused(tmp_path):
    (tmp_path / "v1").mkdir()
    (tmp_path / "v1").chmod(0o777)
    with pytest.warns(CacheWarning, match="others may write"):
        store = DiskStore(tmp_path)
    assert not store.put(KEY, SECTIONS)
    assert store.get(KEY) is None


def test_directory_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(CacheWarning):
        store = DiskStore(tmp_path / "file")
    assert store.get(KEY) is None and not store.put(KEY, SECTIONS)


def test_full_disk(tmp_path, monkeypatch):
    store = DiskStore(tmp_path)

    def full(prefix, dir):
        (dir / f"{prefix}1").touch()
        return os.open("/dev/full", os.O_WRONLY), str(dir / f"{prefix}1")

    monkeypatch.setattr(tempfile, "mkstemp", full)
    with pytest.warns(CacheWarning, match="No space left"):
        assert not store.put(KEY, SECTIONS)
    monkeypatch.undo()
    assert not list((tmp_path / "v1").rglob(".writing-*"))
    assert store.get(KEY) is None


@pytest.mark.parametrize(
    "number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EIO, errno.ESTALE, errno.EINTR]
)
def test_an_error_that_passes_leaves_the_entry(tmp_path, monkeypatch, number):
    store = DiskStore(tmp_path)
    store.put(KEY, SECTIONS)
    opened = os.open

    def fails(path, *rest, **names):
        if str(path).endswith(KEY):
            raise OSError(number, os.strerror(number))
        return opened(path, *rest, **names)

    monkeypatch.setattr(os, "open", fails)
    with pytest.warns(CacheWarning, match="cannot read"):
        assert store.get(KEY) is None
    # what we could not read is not ours to replace
    assert not store.put(KEY, {"less": b"than there is"})
    monkeypatch.undo()
    assert store.get(KEY) == SECTIONS
    assert store.put(KEY, {"new": b""}) and store.get(KEY) == {"new": b""}


def test_no_memory_to_read_leaves_the_entry(tmp_path, monkeypatch):
    store = DiskStore(tmp_path)
    store.put(KEY, SECTIONS)
    monkeypatch.setattr("argand.runtime.disk.store.decode", Mock(side_effect=MemoryError()))
    with pytest.warns(CacheWarning, match="cannot read"):
        assert store.get(KEY) is None
    monkeypatch.undo()
    assert store.get(KEY) == SECTIONS


def test_a_user_without_a_home(monkeypatch):
    """A container with a random uid: no HOME, no line in /etc/passwd."""

    def nobody(uid):
        raise KeyError(uid)

    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr("pwd.getpwuid", nobody)
    monkeypatch.setattr("argand.runtime.disk.store.read_environment", Environment)
    assert str(default_directory()) == f"/tmp/argand-{os.getuid()}"


def test_two_writers_and_readers(tmp_path):
    store = DiskStore(tmp_path)
    wrong = []

    def work(number):
        own = DiskStore(tmp_path)
        for turn in range(30):
            own.put(KEY, {"data": bytes([number]) * 1000})
            got = own.get(KEY)
            if got is None or len(set(got["data"])) != 1 or len(got["data"]) != 1000:
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and store.get(KEY) is not None


def test_killed_writer_leaves_no_half_entry(tmp_path):
    program = (
        "import sys, pathlib\n"
        "from argand.runtime.disk.store import Store\n"
        "store = Store(pathlib.Path(sys.argv[1]))\n"
        "print('ready', flush=True)\n"
        "while True: store.put('ab' * 16, {'data': b'x' * 5_000_000})\n"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    writer.stdout.readline()
    store = DiskStore(tmp_path)
    for _ in range(20):
        got = store.get(KEY)
        assert got is None or got == {"data": b"x" * 5_000_000}
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = store.get(KEY)
    assert got is None or got == {"data": b"x" * 5_000_000}


def test_least_recently_used_goes_first(tmp_path):
    store = DiskStore(tmp_path)
    keys = [f"{n:032x}" for n in range(4)]
    for age, key in enumerate(keys):
        store.put(key, {"data": b"x" * 1000})
        os.utime(tmp_path / "v1" / key[:2] / key, (age, age))
    store.get(keys[0])
    assert store.collect_garbage(limit=2 * 1200) == 2
    assert {entry.key for entry in store.entries()} == {keys[0], keys[3]}
    assert store.clear() == 2 and not list(store.entries())


def test_leftovers_go_after_an_hour(tmp_path):
    store = DiskStore(tmp_path)
    store.put(KEY, SECTIONS)
    leftovers = [
        path_of(tmp_path).with_name(".writing-x"),
        path_of(tmp_path).with_suffix(".damaged"),
    ]
    for path in leftovers:
        path.write_bytes(b"")
    store.collect_garbage()
    assert all(path.exists() for path in leftovers)
    for path in leftovers:
        os.utime(path, (0, 0))
    store.collect_garbage()
    assert not any(path.exists() for path in leftovers) and store.get(KEY) == SECTIONS


def test_the_limit_is_kept_while_writing(tmp_path, monkeypatch):
    monkeypatch.setattr("argand.runtime.disk.store.COLLECT_EVERY", 4)
    monkeypatch.setattr(DiskStore.collect_garbage, "__defaults__", (5000,))
    store = DiskStore(tmp_path)
    for number in range(40):
        store.put(f"{number:032x}", {"data": bytes(1000)})
    assert sum(entry.size for entry in store.entries()) <= 5000 + 4 * 1200
