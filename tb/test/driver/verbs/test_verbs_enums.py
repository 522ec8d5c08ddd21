"""Enumerations with the names and values of libibverbs, whose members are available under their full names."""

import pytest

from weft.driver.verbs import enums
from weft.driver.verbs.text import member_to_str

from .verbs_facts import ENUMERATIONS


@pytest.mark.parametrize(("name", "prefix"), ENUMERATIONS, ids=lambda text: text)
def test_members_have_the_values_of_the_header(name, prefix):
    expected = dict(fact.split("=") for fact in ENUMERATIONS[name, prefix].split())
    kind = getattr(enums, name)
    assert {member: int(kind[member]) for member in kind.__members__} == {k: int(v) for k, v in expected.items()}
    for member, value in expected.items():
        assert getattr(enums, prefix + member) is kind[member]
        assert getattr(enums, prefix + member) == int(value)


def test_a_number_without_a_member_has_a_text():
    assert member_to_str("ibv_send_flags", 2) == "SIGNALED" and member_to_str("ibv_qp_state", 4) == "SQD"
    assert [member_to_str(name, 0) for name in ("ibv_send_flags", "ibv_mtu")] == ["Unknown (0)"] * 2


def test_every_enumeration_is_in_the_table():
    assert {(name, prefix) for name, _, prefix in enums.NAMES} == set(ENUMERATIONS)
