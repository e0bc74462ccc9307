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

# Causes, and the tests that differ for each: "module: methods". A row is a promise that somebody looked.
_LIFETIME = "an object lives until the compiled call ends: finalizers and callbacks come then, weak references stay alive"
_COUNTS = (
    "counts references, objects of the collector or bytes, of which the trace holds or saves some"
)
_TEXTS = "equal texts made in a trace may become one object, and one text two"
_ADDRESSES = "a text with the address of an object that is made anew when the trace has ended"
_FRAMES = (
    "frames of tracebacks are made for the lines they show: they have no variables, and one line"
)
_OWN_STATE = (
    "reads a table that the compiler itself changes while it compiles (finalizers, lines of source)"
)
_CLASS_ASKED = (
    "`isinstance` in the compiler asks `__class__`, which `__getattribute__` of a class hears"
)
_BY_INDEX = "an iterator over `__getitem__` is a generator: it has no `__reduce__`"
_COPIES = "`f(*args)` hands on a tuple of its own"
_DEEP = "recursion of C code has more room while it is traced"
_WARNS = "a warning that C code gives at a traced line is given by the trace, not by later calls"
_LAZY = (
    "what a type parameter or alias is made of is evaluated with the class as the trace found it"
)
_THREADS = "another thread, or the collector, changes a dict while its frame is compiled: an error under `strict` alone"
_SLOWER = "measures time, and skips itself on a machine that is too slow or too busy"
_WRITTEN = (
    "C code reads a name of a module that the trace has written: that is done when the call ends"
)
_NAMES = "a name of a keyword that is of a class of its own is handed on as a plain text"

_ROWS: Final = (
    (_LIFETIME, "test_generators", "test_frame_resurrect test_refcycle"),
    (_LIFETIME, "test_exceptions", "test_memory_error_cleanup test_recursion_error_cleanup"),
    (_LIFETIME, "test_functools", "test_lru_cache_weakrefable test_weakref"),
    (_LIFETIME, "test_set", "test_weakref"),
    (_LIFETIME, "test_deque", "test_weakref"),
    (_LIFETIME, "test_coroutines", "test_bpo_45813_1"),
    (_LIFETIME, "test_ordered_dict", "test_highly_nested_subclass test_reference_loop"),
    (
        _LIFETIME,
        "test_weakref",
        """
        test_order test_weak_keyed_len_cycles test_weak_keyed_union_operators test_weak_valued_dict_update
        test_weak_valued_iters test_weak_valued_len_cycles test_weak_valued_union_operators test_weak_values
        test_weak_values_destroy_while_iterating test_basic_callback test_callback_attribute_after_deletion
        test_cfunction test_equality test_getweakrefcount test_getweakrefs test_hashing test_multiple_callbacks
        test_proxy_ref test_no_cycles test_object_dead
        """,
    ),
    (_COUNTS, "test_dict", "test_splittable_popitem"),
    (_COUNTS, "test_enumerate", "test_bug1229429"),
    (_COUNTS, "test_coroutines", "test_for_2 test_for_6"),
    (_COUNTS, "test_descr", "test_slots"),
    (_COUNTS, "test_traceback", "test_no_refs_to_exception_and_traceback_objects"),
    (_TEXTS, "test_operator", "test_is test_is_not"),
    (_TEXTS, "test_weakref", "test_weak_keyed_dict_popitem test_weak_keyed_dict_setdefault"),
    (_ADDRESSES, "test_functools", "test_repr"),
    (
        _FRAMES,
        "test_exceptions",
        """
        test_name_error_suggestions test_name_error_suggestions_from_globals test_lineno_after_other_except
        test_lineno_in_try testSettingException
        """,
    ),
    (
        _FRAMES,
        "test_traceback",
        "test_print test_name_error_suggestions test_name_error_suggestions_from_globals test_name_error_with_instance",
    ),
    (_OWN_STATE, "test_weakref", "test_arg_errors test_finalize"),
    (_OWN_STATE, "test_traceback", "test_extract_stackup_deferred_lookup_lines test_lookup_lines"),
    (_CLASS_ASKED, "test_descr", "test_module_subclasses"),
    (_BY_INDEX, "test_iter", "test_mutating_seq_class_iter_pickle"),
    (_COPIES, "test_call", "test_vectorcall_override"),
    (_DEEP, "test_isinstance", "test_isinstance_recursion_limit test_subclass_recursion_limit"),
    (_LAZY, "test_type_params", "test_modified_later"),
    (_FRAMES, "test_exceptions", "test_MemoryError"),
    (_BY_INDEX, "test_iter", "test_seq_class_for test_seq_class_iter"),
    (_WARNS, "test_itertools", "test_product_issue_25021"),
    (_WARNS, "test_collections", "test_ByteString"),
    (
        _THREADS,
        "test_weakref",
        "test_threaded_weak_valued_consistency test_threaded_weak_valued_setdefault",
    ),
    (
        _SLOWER,
        "test_int",
        "test_denial_of_service_prevented_str_to_int test_denial_of_service_prevented_int_to_str",
    ),
    (_NAMES, "test_call", "test_varargs18_kw"),
    (_WRITTEN, "test_int", "test_pylong_misbehavior_error_path_from_str"),
)
REASONS: Final = {(module, name): why for why, module, names in _ROWS for name in names.split()}


def reason_for(test: str) -> str:
    """Why this test (``test.module.Class.method``) may differ, "" if it must not."""
    package, *names = test.split(".")
    if package != "test" or len(names) < 2:
        return ""  # a module that does not load, or whose process died between two tests
    module, name = names[0], names[-1]
    return REASONS.get((module, name.partition(" ")[0]), "")
