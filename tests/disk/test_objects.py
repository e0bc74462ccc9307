"""Object code is read back by its text, and damage is noticed."""

import pytest

from argand.native.codegen.llvm.objects import object_code
from argand.native.codegen.target import host_target, machine_key
from argand.runtime.disk.store import CacheWarning
from argand.support import events
from argand.support.options import Options

TEXT = "define i32 @seven() {\n  ret i32 7\n}\n"


def compiles(text, options):
    with events.collect() as heard:
        code, _ = object_code(text, host_target(), options)
    return code, "native.llvm.code" in heard.seconds()


def test_second_compile_reads_the_file(tmp_path):
    options = Options(cache_dir=str(tmp_path))
    first, compiled = compiles(TEXT, options)
    assert compiled
    again, compiled = compiles(TEXT, options)
    assert not compiled and again == first
    assert compiles(TEXT.replace("7", "8"), options)[1]
    assert compiles(TEXT, Options(cache_dir=str(tmp_path), opt_level=3))[1]
    assert compiles(TEXT, Options(cache=False, cache_dir=str(tmp_path)))[1]


def test_damage_is_a_miss(tmp_path):
    options = Options(cache_dir=str(tmp_path))
    first, key = object_code(TEXT, host_target(), options)
    key = machine_key(key)
    path = tmp_path / "v1" / key[:2] / key
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.warns(CacheWarning, match="set aside"):
        again, compiled = compiles(TEXT, options)
    assert compiled and again == first
    assert not compiles(TEXT, options)[1]
