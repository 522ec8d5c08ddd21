"""How much an object keeps: for a look before and after somebody tried to make it grow."""

import collections
import random
import types

COLLECTIONS = (dict, list, set, collections.deque, bytearray)     # what can grow
OTHERS = (str, bytes, int, float, type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, random.Random,
          collections.Counter)


def sizes(root, stop=()):
    """Entries of every collection that can grow, reachable from an object, by the class and attribute that hold it.

    Parameters
    ----------
    root : object
    stop : tuple of type
        Objects of these classes are not looked into.
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
            inside = [*thing, *thing.values()] if isinstance(thing, dict) else thing
            if not isinstance(thing, bytearray):
                stack += [(each, path) for each in inside]
        elif isinstance(thing, (tuple, frozenset)):
            stack += [(each, path) for each in thing]
        elif hasattr(thing, "__dict__"):
            stack += [(value, f"{type(thing).__name__}.{name}") for name, value in vars(thing).items()]
    return found
