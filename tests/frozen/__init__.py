"""Everything users rely on, as committed lists: a change shows up as a diff and fails a test.

A subject is a module of `tests/frozen/subjects/` with a function `lines()`; its list is
`tests/frozen/<subject>.txt`. What needs a running server or a JVM is a test of its own that calls
`compare("<what>", lines)`; its list is `tests/frozen/<what>.txt`, too. `make freeze` writes them
all anew. The code that gathers a list may import internals, the list itself never names them.
"""
