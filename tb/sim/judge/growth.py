"""Size of the collections that an object keeps, to compare before and after an attempt to make it grow."""

import collections
import random
import types

COLLECTIONS = (dict, list, set, collections.deque, bytearray)     # types that can grow
OTHERS = (str, bytes, int, float, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, random.Random,
          collections.Counter)


def sizes(root, stop=()):
    """Count the entries of every growable collection reachable from an object, by class and attribute that hold it.

    Objects of the classes in the tuple ``stop`` are not searched.
    """
    others = OTHERS + stop
    found, seen, stack = collections.Counter(), set(), [(root, type(root).__name__)]
    while stack:
        thing, path = stack.pop()
        if isinstance(thing, others) or id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, types.MethodType):
            stack.append((thing.__self__, path))
        elif isinstance(thing, COLLECTIONS):
            found[path] += len(thing)
            if not isinstance(thing, bytearray):
                stack += [(each, path) for each in (*thing, *(thing.values() if isinstance(thing, dict) else ()))]
        elif isinstance(thing, (tuple, frozenset)):
            stack += [(each, path) for each in thing]
        elif hasattr(thing, "__dict__"):
            stack += [(value, f"{type(thing).__name__}.{name}") for name, value in vars(thing).items()]
    return found
