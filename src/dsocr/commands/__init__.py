"""The public functions, each behind one command or one mode of a command.

A function's signature declares its options once: name, type, range and default; its docstring explains each. The
command line makes its options of both. Networks are imported only when a function needs one.
"""
