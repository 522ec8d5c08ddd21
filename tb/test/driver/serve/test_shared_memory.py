"""Tests of the fast forms of layouts."""

import random

import pytest

from weft.driver.ibverbs.messages import layouts
from weft.driver.serve.shared_memory import reader, writer
from weft.tb.sim.flow.seed import drawn_seed


@pytest.mark.parametrize("layout", layouts().values(), ids=layouts())
def test_fast_forms_are_those_of_the_layout(layout):
    rng = random.Random(seed := drawn_seed())
    for _ in range(20):
        fields = {field.name: rng.getrandbits(field.width) for field in layout.fields if field.name[0] != "_"}
        data = layout.pack(**fields)
        assert writer(layout)(fields) == data, seed
        assert writer(layout)({}) == bytes(layout.size_bytes)
        found, expected = reader(layout)(data), layout.unpack(data)
        assert all(getattr(found, name) == getattr(expected, name) for name in fields), seed
    with pytest.raises((ValueError, KeyError)):
        writer(layout)({"no_field": 0} | dict(list(fields.items())[1:]))
