"""tools.cpython.reasons: which modules of CPython's tests are run, and why some outcomes may differ."""

from __future__ import annotations

from typing import Final

_LISTED: Final = """
    test_generators test_generator_stop test_exceptions test_exception_group test_exception_variations
    test_except_star test_raise test_baseexception test_with test_listcomps test_dictcomps test_setcomps
    test_genexps test_contextlib test_functools test_itertools test_dataclasses test_enum test_patma test_scope
    test_super test_descr test_unpack test_unpack_ex test_fstring test_format test_call test_keywordonlyarg
    test_positional_only_arg test_extcall test_decorators test_class test_property test_grammar
    test_named_expressions test_iter test_augassign test_compare test_richcmp test_bool test_int test_long
    test_list test_tuple test_dict test_set test_range test_slice test_string_literals test_userdict
    test_userlist test_collections test_operator test_funcattrs test_metaclass test_subclassinit test_opcodes
    test_binop test_contains test_enumerate test_isinstance test_dynamicclassattribute test_yield_from
    test_coroutines test_global test_defaultdict test_deque test_ordered_dict test_bisect test_heapq test_copy
    test_abc test_weakref test_type_params test_type_aliases test_frame test_builtin test_traceback
"""
MODULES: Final = tuple(_LISTED.split())

# A part of a test's name -> why its outcome differs.
REASONS: Final[dict[str, str]] = {}


def reason_for(test: str) -> str:
    """Why this test may differ, "" if it must not."""
    return next((reason for part, reason in REASONS.items() if part in test), "")
